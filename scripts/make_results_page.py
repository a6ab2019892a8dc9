"""Writes docs/results.md, and blocks of README.md and of algorithms' pages, from committed results.

    python scripts/make_results_page.py

`python -m experiments.minatar_vs_ppo.analysis --readme` writes the block `minatar_vs_ppo` of README.md.
"""

import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "results.md"
TEMPLATE = """\
# Results

<!-- Made by `python scripts/make_results_page.py`; do not edit it. -->

Except for published results, the figures of the first two sections are from runs whose configuration,
metrics and evaluation are in the repository. These runs used no GPU; [gpu](../experiments/gpu/README.md)
has runs on an NVIDIA H200. Minutes are on one core, except for CartPole, tic-tac-toe and Kuhn poker, which
had two.

## MinAtar

Protocol (a) has no sticky actions, and episodes are cut off after 1,000 steps (Freeway 2,500). Protocol (b)
is MinAtar's own: sticky actions with probability 0.1, and no step limit in training but Freeway's clock.

{minatar}

[minatar_vs_ppo](../experiments/minatar_vs_ppo/README.md) has each seed and the published results.

![returns by environment steps and minutes](../thesis_figures/figure_5_1.png)

Thin lines are seeds and thick lines their mean, from evaluations during training. A dot is a seed's figure.
The dotted line, in (a) over steps, is gymnax's published PPO.

## Other environments

{others}

The two rows of Kuhn poker are of one run, and Boxing with 32 simulations has the runs of the other rows of
Boxing. Minutes include evaluations during training, unlike those of MinAtar, above. MCTS(1000) is
OpenSpiel's MCTS with 1,000 simulations; a score against it is the mean of 200 games, in which a win counts 1
and a draw 0.5. The results of CartPole and 2048 are means of 100 episodes, those of Kuhn poker of 10,000
hands with half the width of the 95% interval, and those of Atari of 30 whole games. The evaluations of Atari
have 8 simulations per search unless the row states another number.
The settings of the seeds of Pong, Breakout and Boxing [differ](atari.md).

## Lab notes

The page of an experiment has the table, the command and the conditions. The column *seeds* has the smallest
and the largest number of seeds of a variant. *Former* settings differ from those of the present
configurations.

{questions}

```{{toctree}}
:hidden:
:glob:
/experiments/*/README
/experiments/*/LOG
/experiments/*/results/table
```
"""


BOARDS = {"connect_four": "Connect Four", "othello": "Othello", "go_5x5": "Go 5 × 5"}
ATARI = {
  "pong": ("Pong", 21),
  "100k_pong": ("Pong, 100,000 steps", 21),
  "freeway": ("Freeway", 34),
  "boxing": ("Boxing", 100),
  "breakout": ("Breakout", 864),
}
"""For each job of experiments/atari, the title and the largest return."""
README_ATARI = ("pong", "freeway", "boxing", "breakout")
"""The jobs of ATARI in README.md."""
MORE_SIMULATIONS = ("boxing", "muzero_boxing_seed1")
"""The files of experiments/atari/results/simulations with the seeds of Boxing, in order."""


def read(path: str) -> Any:
  return json.loads((ROOT / "experiments" / path).read_text("utf-8"))


def settings_of(path: str) -> Any:
  return yaml.safe_load((ROOT / "experiments" / path / "config.yaml").read_text("utf-8"))


def minatar() -> str:
  """Returns the tables of MinAtar, from results/table.json of experiments/minatar_vs_ppo."""
  sys.path.append(str(ROOT))
  from experiments.minatar_vs_ppo import analysis

  tables = read("minatar_vs_ppo/results/table.json")
  parts = [f"Protocol ({name}):\n\n{analysis.project_table(tables, name)}" for name in analysis.PROTOCOLS]
  parts += [analysis.project_conditions(tables), *analysis.comparison_tables(tables)]
  return "\n\n".join(parts)


def others() -> str:
  """Returns the table of the other environments: a row for each run, and for each measure of it."""
  rows = ["| environment | measure | seed | result | steps | minutes | experiment |", f"|{7 * '---|'}"]

  def row(environment: str, measure: str, result: str, path: str) -> None:
    summary, experiment = read(f"{path}/summary.json"), path.partition("/")[0]
    cost = f"{summary['env_steps']:,} | {summary['training_s'] / 60:.0f}"
    link = f"[{experiment}](../experiments/{experiment}/README.md)"
    rows.append(f"| {environment} | {measure} | {_seed(path)} | {result} | {cost} | {link} |")

  path = "cartpole/results/seed0"
  row("CartPole-v1", "return, of 500", f"{read(f'{path}/evaluation.json')['return_mean']:.1f}", path)
  path = "boards/results/tic_tac_toe"
  losses = sum(seat["losses"] for seat in read(f"{path}/perfect_play.json")["seats"])
  row("tic-tac-toe", "losses against every legal reply at every move, both seats", f"{losses}", path)
  path = "boards/results/kuhn_poker"
  kuhn = read(f"{path}/evaluation.json")
  for seat in (0, 1):
    result = f"{kuhn[f'return_mean_seat_{seat}']:.2f} ± {kuhn[f'return_margin_seat_{seat}']:.2f}"
    row("Kuhn poker", f"return per hand against random play, seat {seat}", result, path)
  for board, title in BOARDS.items():
    path = f"testbed/results/muzero_{board}_seed0"
    row(title, "score against MCTS(1000), of 1", f"{_score(path):.2f}", path)
  for path in _folders("chance/results/2048_stochastic_gumbel_seed*"):
    row("2048, with chance nodes", "score", f"{_last_return(path):,.0f}", path)
  for job, (title, most) in ATARI.items():
    for path in _folders(f"atari/results/muzero_{job}_seed*"):
      played = settings_of(path)["planners"]["test"]["num_simulations"]
      simulations = "" if played == 8 else f", {played} simulations"
      row(f"Atari {title}", f"return, of {most}{simulations}", f"{_first_return(path):.1f}", path)
  for path, name in zip(_folders("atari/results/muzero_boxing_seed*"), MORE_SIMULATIONS, strict=True):
    played = read(f"atari/results/simulations/{name}.json")["32"]
    result = f"{statistics.fmean(played['returns']):.1f}"
    row("Atari Boxing", "return, of 100, 32 simulations", result, path)
  return "\n".join(rows)


def strip() -> str:
  """Returns the pictures at the top of README.md, with the agents' returns and minutes.

  The returns are on the agents' cards, except for Connect Four's score, which is the result of the agent's
  run. The minutes are in the summaries of the agents' runs, as those of the results are.
  """
  agents = (
    ("MinAtar Breakout", "minatar/breakout", "breakout", "return {:.1f}"),
    ("Atari Pong", "atari/pong", "pong", "return {:.1f} of 21"),
    ("Connect Four", "boards/connect_four", "connect_four", "score {:.2f} of 1 against MCTS(1000)"),
  )
  cells = []
  for _, name, picture, text in agents:
    folder = ROOT / "zoo" / name
    card, summary = (json.loads((folder / f"{file}.json").read_text("utf-8")) for file in ("card", "summary"))
    found = card["evaluation"]["return_mean"]
    if picture in BOARDS:
      (run,) = game_runs()[picture]
      assert read(f"{run}/summary.json")["env_steps"] == card["env_steps"], f"{run} is not the run of {name}"
      found = _score(run)
    spent = f"{summary['training_s'] / 60:.0f} minutes"
    cells.append((f"![{picture}](docs/gallery/{picture}.gif)", text.format(found), spent))
  pictures, returns, minutes = zip(*cells, strict=True)
  rows = ([title for title, *_ in agents], ["---"] * len(agents), pictures, returns)
  lines = [f"| {' | '.join(row)} |" for row in rows]
  return "\n".join([*lines, f"| {' | '.join(f'{each} on one core' for each in minutes)} |"])


def game_runs() -> dict[str, list[str]]:
  """Returns the runs of each game of README.md, by board, job of ATARI, or "2048"."""
  runs = {board: [f"testbed/results/muzero_{board}_seed0"] for board in BOARDS}
  runs |= {job: _folders(f"atari/results/muzero_{job}_seed*") for job in README_ATARI}
  return runs | {"2048": _folders("chance/results/2048_stochastic_gumbel_seed*")}


def games() -> str:
  """Returns the table of the other games in README.md: the smallest and largest figures of a game's runs."""
  human = json.loads((ROOT / "moozi/envs/suites/atari/scores.json").read_text("utf-8"))["games"]
  runs = game_runs()
  columns = ("game", "measure", "result", "seeds", "steps", "minutes", "compare with", "its result")
  rows = [f"| {' | '.join(columns)} |", f"|{len(columns) * '---|'}"]

  def row(job: str, game: str, measure: str, results: list[float], form: str, other: str, its: float) -> None:
    steps, minutes = _cost_of(runs[job])
    cost = f"{_span(steps, '.1f', 'M')} | {_span(minutes, '.0f')}"
    numbers = f"{_span(results, form)} | {len(results)} | {cost} | {other} | {its:{form}}"
    rows.append(f"| {game} | {measure} | {numbers} |")

  for board, title in BOARDS.items():
    results = [_score(path) for path in runs[board]]
    row(board, title, "score against MCTS(1000), of 1", results, ".2f", "equal play", 0.5)
  for job in README_ATARI:
    (title, most), results = ATARI[job], [_first_return(path) for path in runs[job]]
    row(job, f"Atari {title}", f"return, of {most}", results, ".1f", "human tester", human[job]["human"])
  results = [_last_return(path) for path in runs["2048"]]
  random = read("chance/results/random_play.json")["mean"]
  row("2048", "2048", "score", results, ",.0f", "random play", random)
  return "\n".join(rows)


def muzero() -> str:
  """Returns the configurations of MuZero for MinAtar, for Atari and for three boards, with their results."""
  rows, runs = _minatar_rows("muzero", "minatar"), game_runs()
  for job in README_ATARI:
    measure, results = f"return, of {ATARI[job][1]}", [_first_return(path) for path in runs[job]]
    rows.append(_result_row(f"atari/{job}", measure, _span(results, ".1f"), runs[job]))
  for board in BOARDS:
    result = _span([_score(path) for path in runs[board]], ".2f")
    rows.append(_result_row(f"boards/{board}", "score against MCTS(1000), of 1", result, runs[board]))
  return _result_table(rows)


def ppo() -> str:
  """Returns the configurations of PPO with their results."""
  rows = [*_minatar_rows("ppo_tuned", "ppo/minatar_tuned"), *_minatar_rows("ppo_replica", "ppo/minatar")]
  for name, variant in (
    ("gymnasium/pendulum", "control/results/ppo_pendulum"),
    ("mujoco/hopper", "control/results/ppo_hopper"),
    ("tiny/tmaze", "memory/results/tmaze_lstm"),
  ):
    runs = _folders(f"{variant}_seed*")
    returns = [read(f"{path}/summary.json")["test_return_mean"] for path in runs]
    rows.append(_result_row(f"ppo/{name}", "return", _span(returns, ".1f"), runs))
  return _result_table([*rows, *_rating_rows("ppo")])


def q_learning() -> str:
  """Returns the configurations of Q-learning: the return in Pong, and ratings in the testbed."""
  runs = _folders("atari/results/q_learning_pong_seed*")
  result = _span([_first_return(path) for path in runs], ".1f")
  row = _result_row("q_learning/atari/pong", f"return, of {ATARI['pong'][1]}", result, runs)
  return _result_table([row, *_rating_rows("q_learning")])


def _minatar_rows(agent: str, folder: str) -> list[list[str]]:
  """Returns an agent's mean returns under protocol (a), a row for each game."""
  rows = []
  for each in read("minatar_vs_ppo/results/table.json")["measured"]:
    if (each["agent"], each["protocol"]) == (agent, "a"):
      steps, spent = f"{each['max_env_steps'] / 1e6:g}M", _span(each["minutes_by_seed"], ".0f")
      numbers = [f"{each['mean']:.1f}", str(len(each["scores"])), steps, spent]
      rows.append([f"{folder}/{each['game']}", "return, mean over seeds", *numbers])
  return rows


def _rating_rows(approach: str) -> list[list[str]]:
  """Returns an approach's ratings in the arenas of the testbed, a row for each task."""
  rows = []
  for each in read("testbed/results/table.json"):
    if each["name"] == approach:
      rating = f"{each['rating']:.0f} [{each['low']:.0f}, {each['high']:.0f}]"
      runs = [f"testbed/results/{approach}_{each['task']}_seed0"]
      rows.append(_result_row(f"{approach}/boards/{each['task']}", "rating, random play 0", rating, runs))
  return rows


def _result_row(configuration: str, measure: str, result: str, runs: list[str]) -> list[str]:
  steps, minutes = _cost_of(runs)
  cost = [_span(steps, ".1f" if min(steps) >= 1 else ".2f", "M")]
  cost.append(_span(minutes, ".0f" if min(minutes) >= 10 else ".1f"))
  return [configuration, measure, result, str(len(runs)), *cost]


def _result_table(rows: list[list[str]]) -> str:
  columns = ("configuration", "measure", "result", "seeds", "steps", "minutes")
  lines = [f"| {' | '.join(columns)} |", f"|{len(columns) * '---|'}"]
  for name, *cells in rows:
    assert (ROOT / "config" / f"{name}.yaml").is_file(), name
    lines.append(f"| {' | '.join([f'[`{name}`](../config/{name}.yaml)', *cells])} |")
  return "\n".join(lines)


def _cost_of(runs: list[str]) -> tuple[list[float], list[float]]:
  """Returns the steps, in millions, and the minutes of training of each run."""
  summaries = [read(f"{path}/summary.json") for path in runs]
  return [each["env_steps"] / 1e6 for each in summaries], [each["training_s"] / 60 for each in summaries]


BLOCKS = {
  "README.md": {"strip": strip, "results": games},
  "docs/how_it_works.md": {"results": muzero},
  "docs/ppo.md": {"results": ppo},
  "docs/q_learning.md": {"results": q_learning},
}
"""For each page, the blocks between markers of these names."""


def questions() -> str:
  """Returns each experiment's question, the first sentence of its answer, its seeds, settings and link."""
  sys.path.append(str(ROOT))
  from experiments.lib.answers import sentences_of

  rows = ["| question | answer | seeds | settings | experiment |", "|---|---|---|---|---|"]
  for path in sorted((ROOT / "experiments").glob("*/README.md")):
    title, text = path.read_text("utf-8").split("\n", 1)
    first = sentences_of(text)[0].rstrip(".")
    name = path.parent.name
    link = f"[{name}](../experiments/{name}/README.md)"
    (seeds,) = re.findall(r"^<!-- seeds: (.+) -->$", text, re.MULTILINE)
    settings = "former" if text.lstrip().startswith("This experiment has former settings") else "present"
    rows.append(f"| {title.removeprefix('# ')} | {first} | {seeds} | {settings} | {link} |")
  return "\n".join(rows)


def page() -> str:
  """Returns the text of docs/results.md."""
  return TEMPLATE.format(minatar=minatar(), questions=questions(), others=others())


def _folders(pattern: str) -> list[str]:
  """Returns the folders of results that match a pattern relative to `experiments`, in order."""
  root = ROOT / "experiments"
  return sorted(path.parent.relative_to(root).as_posix() for path in root.glob(f"{pattern}/summary.json"))


def _score(path: str) -> float:
  """Returns the score of a run of the testbed against MCTS with 1,000 simulations."""
  score: float = next(e for e in read(f"{path}/evaluations.json") if e["opponent"] == "mcts:1000")["score"]
  return score


def _first_return(path: str) -> float:
  mean: float = read(f"{path}/evaluations.json")[0]["return_mean"]
  return mean


def _last_return(path: str) -> float:
  mean: float = read(f"{path}/evaluations.json")[-1]["return_mean"]
  return mean


def _span(values: list[float], form: str, unit: str = "") -> str:
  """Returns the smallest and the largest value, or one number if they are printed alike."""
  ends = dict.fromkeys(f"{value:{form}}{unit}" for value in (min(values), max(values)))
  return " to ".join(ends)


def _seed(path: str) -> int:
  """Returns the seed of a run, from its configuration."""
  seed: int = settings_of(path)["seed"]
  return seed


if __name__ == "__main__":
  sys.path.append(str(ROOT))
  from experiments.lib.tables import write_between_markers

  PAGE.write_text(page(), "utf-8")
  for path, blocks in BLOCKS.items():
    for name, block in blocks.items():
      write_between_markers(ROOT / path, name, block())
