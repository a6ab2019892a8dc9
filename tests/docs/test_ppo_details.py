"""Tests that docs/ppo.md's table of the 37 details is complete, and that its options and tests exist."""

import collections
import re

import pytest

from moozi.core.config import Config
from moozi.io.config import config_to_dict
from tests.docs.pages import ROOT

_ROW = re.compile(r"\| (\w+) (\d+): [^|]+ \| ([^|]+) \| ([^|]*)\| [^|]*\|")
_LINES = (ROOT / "docs" / "ppo.md").read_text("utf-8").splitlines()
ROWS = [match.groups() for match in map(_ROW.fullmatch, _LINES) if match]


def test_each_detail_has_a_row():
  numbers = collections.defaultdict(list)
  for kind, number, *_ in ROWS:
    numbers[kind].append(int(number))
  sizes = {"Core": 13, "Atari": 9, "Robotics": 9, "LSTM": 5, "MultiDiscrete": 1}
  assert numbers == {kind: list(range(1, size + 1)) for kind, size in sizes.items()}


@pytest.mark.parametrize(("option", "test"), [row[2:] for row in ROWS], ids=[f"{a}_{b}" for a, b, *_ in ROWS])
def test_options_and_tests_exist(option, test):
  settings = config_to_dict(Config())
  for key in re.findall(r"`ppo\.([\w.]+)", option):
    section = settings["ppo"]
    for name in key.split("."):
      assert name in section, key
      section = section[name]
  atari = (ROOT / "docs" / "atari.md").read_text()
  for key in re.findall(r"`env\.kwargs\.(\w+)", option):
    assert f"| `{key}` |" in atari
  file, name = re.fullmatch(r"`(.+)::(\w+)` ", test).groups()
  path = ROOT / (file if "/" in file else f"tests/baselines/ppo/{file}")
  assert re.search(rf"^def {name}\(", path.read_text(), re.MULTILINE)
