"""Tests that the numbers in the answers of experiments' pages are those of the tables."""

import ast
import re

import pytest

from experiments.lib.answers import sentences_of
from experiments.lib.results import ROOT
from experiments.lib.tables import EXPERIMENTS

PAGES = sorted(EXPERIMENTS.glob("*/README.md"))

DERIVED = {
  "boards": {"88": "100 * 0.880"},
  "first_look": {"2.2": "49.4 / 22.6"},
  "offline": {"1.01": "7.73 / 7.63"},
  "past_selves": {"99": "1069 - 970", "72": "934 - 862"},
  "ppo_check": {"1.1": "21.7 - 20.6", "2.4": "22.0 - 19.6", "9.8": "16.6 - 6.8"},
  "replay_memory": {"7.2": "7209 / 1000"},
  "surgery": {"28.9": "(29.73 + 28.13) / 2"},
  "value_lag": {"2.8": "6.4 / 2.3"},
}
"""By experiment, numbers that follow from numbers of its tables. 60, 100, 1000 and 2 are units and counts."""

ELSEWHERE = {
  "atari": {"34": ("scripts/make_results_page.py", '("Freeway", 34)')},
  "chance": {"25": ("experiments/chance/chance.yaml", "max_wall_s: 1500")},
  "control": {
    "5": ("config/gymnasium/pendulum.yaml", "# Time: 5 to 9 min"),
    "30": ("config/dm_control/cartpole_swingup.yaml", "# Time: 26 to 30 min"),
    "1,000": ("docs/control.md", "a return is at most 1,000"),
  },
  "first_look": {"270": ("config/minatar/breakout_short.yaml", "max_wall_s: 270")},
  "gpu": {
    "5.2": ("experiments/atari/README.md", "| muzero_pong_seed0_averaged | 5.2 |"),
    "17.4": ("experiments/atari/README.md", "| muzero_pong_seed1 | 17.4 |"),
    "19.4": ("experiments/atari/README.md", "| muzero_pong_seed2 | 19.4 |"),
    "21": ("scripts/make_results_page.py", '("Pong", 21)'),
  },
  "memory": {"30": ("config/ppo/tiny/tmaze.yaml", "length: 30")},
  "minatar_two_cores": {
    "300,000": ("experiments/minatar_two_cores/minatar_two_cores.yaml", "max_env_steps: 300_000")
  },
  "ppo_tuning": {"1M": ("experiments/ppo_tuning/ppo_tuning.yaml", "max_env_steps: 1_000_000")},
  "past_selves": {"45": ("experiments/past_selves/past_selves.yaml", "max_wall_s: 2700")},
  "reanalyze_sample_efficiency": {
    "250,000": (
      "experiments/reanalyze_sample_efficiency/reanalyze_sample_efficiency.yaml",
      "max_env_steps: 250_000",
    )
  },
}
"""By experiment, settings and figures of other pages: the file that has the number, and its text there."""

GOALS = {"first_look": {"12"}, "offline": {"0.90"}, "replay_memory": {"5"}}
"""By experiment, what was expected before the measurement."""

NUMBER = re.compile(r"(?<![\w./-])([-−]?)(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(e-?\d+)?(M?)(?!\w)")


def numbers_of(text: str) -> dict[str, tuple[float, int]]:
  """Returns the value and the number of decimals of each number of a text; code and URLs are left out."""
  found = {}
  for match in NUMBER.finditer(re.sub(r"`[^`]*`|\]\([^)]*\)", " ", text)):
    sign, whole, decimals, exponent, million = match.groups()
    value = float(f"{sign and '-'}{whole.replace(',', '')}{decimals or ''}{exponent or ''}")
    found[match[0]] = value * (1e6 if million else 1), len((decimals or ".")[1:])
  return found


def tables_of(page) -> list[float]:
  """Returns the numbers in the tables of a page, and in the tables of its results."""
  texts = [path.read_text("utf-8") for path in (page, *page.parent.glob("results/**/table.md"))]
  rows = [line for text in texts for line in text.splitlines() if line.startswith("|")]
  return [value for row in rows for value, _ in numbers_of(row).values()]


def is_among(number: str, found: list[float]) -> bool:
  """Returns whether a number is one of those found, rounded to its decimals; steps are rounded to 0.2%."""
  ((value, decimals),) = numbers_of(number).values()
  if "e" in number:
    return value in found
  if abs(value) >= 100_000:
    return any(abs(each - value) <= 0.002 * value for each in found)
  return any(f"{each:.{decimals}f}" == f"{value:.{decimals}f}" for each in found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_the_numbers_of_an_answer_are_in_the_tables(page):
  name, answer, found = page.parent.name, " ".join(sentences_of(page.read_text("utf-8"))), tables_of(page)
  derived, elsewhere, goals = DERIVED.get(name, {}), ELSEWHERE.get(name, {}), GOALS.get(name, set())
  numbers = numbers_of(answer)
  assert {*derived, *elsewhere, *goals} <= numbers.keys(), "the answer no longer has this number"
  known = {*derived, *elsewhere, *goals}
  assert [number for number in numbers if number not in known and not is_among(number, found)] == []
  for number, formula in derived.items():
    operands = [node.value for node in ast.walk(ast.parse(formula)) if isinstance(node, ast.Constant)]
    assert [each for each in operands if each not in found and each not in (2, 60, 100, 1000)] == []
    assert is_among(number, [eval(formula)])
  for path, text in elsewhere.values():
    assert text in (ROOT / path).read_text("utf-8"), path
  assert not goals or re.search(r"goal|expected", answer)


def test_numbers_are_compared_with_rounded_ones():
  text = "of 1.2M steps, −5.5 in `x=3` and [9.1](a_2.md), 10,103 at 1e-3 in v1"
  assert list(numbers_of(text)) == ["1.2M", "−5.5", "9.1", "10,103", "1e-3"]
  assert is_among("17.0", [17.04])
  assert not is_among("17.0", [17.06])
  assert is_among("500,000", [500_736])
  assert not is_among("500,000", [502_000])
  assert not is_among("1e-3", [0.0011])
