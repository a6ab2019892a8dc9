"""Writes docs/results.md and blocks of README.md from committed results.

    python scripts/make_results_page.py

`python -m experiments.minatar_vs_ppo.analysis --readme` writes the block `minatar_vs_ppo` of README.md.
"""

import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "results.md"
README = ROOT / "README.md"
TEMPLATE = """\
# Results

<!-- Made by `python scripts/make_results_page.py`; do not edit it. -->

Every figure is from a run whose configuration, metrics and evaluation are in the repository. No run of these
tables used a GPU; [gpu](../experiments/gpu/README.md) has runs on an NVIDIA H200. Minutes are on one core for
MinAtar, 2048, Connect Four, Othello, Go and Atari, and on two shared cores for CartPole, tic-tac-toe and Kuhn
poker. The linked pages have the commands, all conditions, and the attempts that failed.

## MinAtar

Protocol (a) has no sticky actions, and episodes are cut off after 1,000 steps (Freeway 2,500). Protocol (b)
is MinAtar's own: sticky actions with probability 0.1, and no step limit in training.

{minatar}

The best checkpoint is never used. [minatar_vs_ppo](../experiments/minatar_vs_ppo/README.md) has each seed,
its variation between checkpoints and its minutes, published results, strength by number of simulations, and a
[log](../experiments/minatar_vs_ppo/LOG.md) of the first runs.

![returns by environment steps and minutes](../thesis_figures/figure_5_1.png)

Thin lines are seeds and thick lines their mean, from evaluations during training. A dot is a seed's figure.
The dotted line is gymnax's published PPO.

## Other environments

| environment | result | steps | minutes | conditions |
|---|---|---|---|---|
| CartPole-v1 | {cartpole} | {cartpole_cost} | [cartpole](../experiments/cartpole/README.md) |
| tic-tac-toe | {tic_tac_toe} | {tic_tac_toe_cost} | [boards](../experiments/boards/README.md) |
| Connect Four | {connect_four} | {connect_four_cost} | [boards](../experiments/boards/README.md) |
| Othello | {othello} | {othello_cost} | [testbed](../experiments/testbed/README.md) |
| Go 5 × 5 | {go_5x5} | {go_5x5_cost} | [testbed](../experiments/testbed/README.md) |
| 2048 | {game_2048} | {game_2048_cost} | [chance](../experiments/chance/README.md) |
| Kuhn poker | {kuhn} | {kuhn_cost} | [boards](../experiments/boards/README.md) |
| Atari Pong | {pong} | {pong_cost} | [atari](../experiments/atari/README.md) |
| Atari Pong, 100,000 steps each | {pong_100k} | {pong_100k_cost} | [atari](../experiments/atari/README.md) |
| Atari Freeway | {freeway} | {freeway_cost} | [atari](../experiments/atari/README.md) |
| Atari Boxing | {boxing} | {boxing_cost} | [atari](../experiments/atari/README.md) |
| Atari Breakout | {atari_breakout} | {atari_breakout_cost} | [atari](../experiments/atari/README.md) |

A row with one return is a run of one seed. In a row with several returns, steps and minutes are sums over its
seeds. Minutes include evaluations during training and exclude the one at the end; those of MinAtar, above,
exclude both. The three seeds of Pong are three configurations: the first has `max_env_steps=10_000_000` and
no `workers.num_holding_envs`, the second is `atari/pong`, and the third plays with averaged parameters (`OWN`
in `experiments/atari/sweep.py`). Evaluations have 8 simulations per search unless the row
states another number; those of Pong with 100,000 steps have 16.

## Measured questions

{questions}

```{{toctree}}
:hidden:
:glob:
/experiments/*/README
/experiments/*/LOG
/experiments/*/results/table
```
"""


def read(path: str) -> Any:
  return json.loads((ROOT / "experiments" / path).read_text("utf-8"))


def minatar() -> str:
  """Returns the tables of MinAtar, from results/table.json of experiments/minatar_vs_ppo."""
  sys.path.append(str(ROOT))
  from experiments.minatar_vs_ppo import analysis

  tables = read("minatar_vs_ppo/results/table.json")
  parts = [f"Protocol ({name}):\n\n{analysis.project_table(tables, name)}" for name in analysis.PROTOCOLS]
  parts += [analysis.project_conditions(tables), *analysis.comparison_tables(tables)]
  return "\n\n".join(parts)


def others() -> dict[str, str]:
  """Returns the results and costs of the other environments."""
  cartpole = read("cartpole/results/seed0/evaluation.json")
  seats = read("boards/results/tic_tac_toe/perfect_play.json")["seats"]
  boards = {}
  for board in ("connect_four", "othello", "go_5x5"):
    path = f"testbed/results/muzero_{board}_seed0"
    games = next(e for e in read(f"{path}/evaluations.json") if e["opponent"] == "mcts:1000")
    won = (
      f"{games['wins']} won, {games['draws']} drawn and {games['losses']} lost of {games['episodes']} games"
    )
    boards[board] = f"{won} against OpenSpiel's MCTS with 1,000 simulations"
    boards[f"{board}_cost"] = _cost([read(f"{path}/summary.json")])
  chance = _folders("chance/results/2048_stochastic_gumbel_seed*")
  chance_returns = [read(f"{path}/evaluations.json")[-1]["return_mean"] for path in chance]
  atari = {}
  for key, job, best in (
    ("pong", "pong", " of 21"),
    ("pong_100k", "100k_pong", " of 21"),
    ("freeway", "freeway", " of 34"),
    ("boxing", "boxing", " of 100"),
    ("atari_breakout", "breakout", ""),
  ):
    paths = _folders(f"atari/results/muzero_{job}_seed*")
    returns = [f"{read(f'{path}/evaluations.json')[0]['return_mean']:.1f}" for path in paths]
    atari[key] = "; ".join(returns) + best + (", by seed" if len(returns) > 1 else "")
    atari[f"{key}_cost"] = _cost([read(f"{path}/summary.json") for path in paths])
  means = []
  for name in ("boxing", "muzero_boxing_seed1"):
    played = read(f"atari/results/simulations/{name}.json")["32"]
    means.append(f"{statistics.fmean(played['returns']):.1f}")
  few = atari["boxing"].split(" of")[0].replace("; ", " and ")
  atari["boxing"] = f"{' and '.join(means)} of 100 with two seeds and 32 simulations per search, {few} with 8"
  kuhn = read("boards/results/kuhn_poker/evaluation.json")
  hands = [f"{kuhn[f'return_mean_seat_{i}']:.2f} ± {kuhn[f'return_margin_seat_{i}']:.2f}" for i in (0, 1)]
  losses = sum(seat["losses"] for seat in seats)
  return {
    "cartpole": f"{cartpole['return_mean']:.1f} of 500, {cartpole['episodes']} episodes",
    "cartpole_cost": _cost([read("cartpole/results/seed0/summary.json")]),
    "tic_tac_toe": f"{losses} losses against every legal reply at every move, both seats",
    "tic_tac_toe_cost": _cost([read("boards/results/tic_tac_toe/summary.json")]),
    **boards,
    "game_2048": f"{'; '.join(f'{value:,.0f}' for value in chance_returns)} with chance nodes, by seed",
    "game_2048_cost": _cost([read(f"{path}/summary.json") for path in chance]),
    "kuhn": f"{' and '.join(hands)} per hand in the two seats, against random play",
    "kuhn_cost": _cost([read("boards/results/kuhn_poker/summary.json")]),
    **atari,
  }


def strip() -> str:
  """Returns the pictures at the top of README.md, with the return and the minutes on the agents' cards."""
  agents = (
    ("MinAtar Breakout", "minatar/breakout", "breakout", "return {:.1f}"),
    ("Atari Pong", "atari/pong", "pong", "return {:.1f} of 21"),
    ("Connect Four", "boards/connect_four", "connect_four", "score {:.2f} of 1 against MCTS(100)"),
  )
  cells = []
  for _, name, picture, text in agents:
    card = json.loads((ROOT / "zoo" / name / "card.json").read_text("utf-8"))
    evaluation = card["evaluation"]
    found = evaluation["return_mean"] if evaluation["score"] is None else evaluation["score"]
    cells.append(
      (f"![{picture}](docs/gallery/{picture}.gif)", text.format(found), f"{card['minutes']:.0f} minutes")
    )
  pictures, returns, minutes = zip(*cells, strict=True)
  rows = ([title for title, *_ in agents], ["---"] * len(agents), pictures, returns)
  lines = [f"| {' | '.join(row)} |" for row in rows]
  return "\n".join([*lines, f"| {' | '.join(f'{each} on one core' for each in minutes)} |"])


def games() -> str:
  """Returns the table of the other games in README.md: one number in a cell, or one for each seed."""
  human = json.loads((ROOT / "moozi/envs/suites/atari/scores.json").read_text("utf-8"))["games"]
  rows = [
    "| game | measure | result, by seed | compare with | minutes on one core |",
    "|---|---|---|---|---|",
  ]

  def row(game: str, measure: str, results: list[str], other: str, paths: list[str]) -> None:
    minutes = [f"{read(f'{path}/summary.json')['training_s'] / 60:.0f}" for path in paths]
    rows.append(f"| {game} | {measure} | {', '.join(results)} | {other} | {', '.join(minutes)} |")

  for game, board in (("Connect Four", "connect_four"), ("Othello", "othello"), ("Go 5 × 5", "go_5x5")):
    path = f"testbed/results/muzero_{board}_seed0"
    found = next(e for e in read(f"{path}/evaluations.json") if e["opponent"] == "mcts:1000")
    row(game, "score against MCTS(1000), of 1", [f"{found['score']:.2f}"], "equal play: 0.50", [path])
  for game, job, best, other in (
    ("Pong", "pong", "21", f"human: {human['pong']['human']:g}"),
    ("Pong, 100,000 steps", "100k_pong", "21", f"random play: {human['pong']['random']:g}"),
    ("Freeway", "freeway", "34", f"human: {human['freeway']['human']:g}"),
    ("Boxing", "boxing", "100", f"human: {human['boxing']['human']:g}"),
    ("Breakout", "breakout", "864", f"human: {human['breakout']['human']:g}"),
  ):
    paths = _folders(f"atari/results/muzero_{job}_seed*")
    returns = [f"{read(f'{path}/evaluations.json')[0]['return_mean']:.1f}" for path in paths]
    row(f"Atari {game}", f"return, of {best}", returns, other, paths)
  chance = _folders("chance/results/2048_stochastic_gumbel_seed*")
  scores = [f"{read(f'{path}/evaluations.json')[-1]['return_mean']:,.0f}" for path in chance]
  random = read("chance/results/random_play.json")["mean"]
  row("2048", "score", scores, f"random play: {random:,.0f}", chance)
  return "\n".join(rows)


def minutes() -> str:
  """Returns the sentence of README.md that says where the tuned PPO is ahead at equal minutes."""
  rows = [
    row
    for row in read("minatar_vs_ppo/results/table.json")["minutes"]
    if row["protocol"] == "a" and row["rival"] == "ppo_tuned"
  ]
  behind = [row for row in rows if row["rival_then"] > row["moozi_then"]]
  each = " and ".join(
    f"{row['game'].replace('_', ' ').title()} ({row['rival_then']:.1f} against {row['moozi_then']:.1f})"
    for row in behind
  )
  return (
    f"After {rows[0]['at_minutes']:.0f} minutes on one core the tuned PPO is ahead on {each}, "
    f"and MuZero on the other {len(rows) - len(behind)} games."
  )


BLOCKS = {"strip": strip, "games": games, "minutes": minutes}
"""The blocks of README.md between markers of these names."""


def questions() -> str:
  """Returns the question, the first sentence of the answer and the link of each experiment's page."""
  rows = ["| question | answer | experiment |", "|---|---|---|"]
  for path in sorted((ROOT / "experiments").glob("*/README.md")):
    title, text = path.read_text("utf-8").split("\n", 1)
    answer = " ".join(text.split("**Answer.**")[1].split("\n\n")[0].split())
    first = re.split(r"(?<=[a-z0-9)`])\. (?=[A-Z`])", answer)[0].rstrip(".")
    name = path.parent.name
    link = f"[{name}](../experiments/{name}/README.md)"
    rows.append(f"| {title.removeprefix('# ')} | {first} | {link} |")
  return "\n".join(rows)


def page() -> str:
  """Returns the text of docs/results.md."""
  return TEMPLATE.format(minatar=minatar(), questions=questions(), **others())


def _folders(pattern: str) -> list[str]:
  """Returns the folders of results that match a pattern relative to `experiments`, in order."""
  root = ROOT / "experiments"
  return sorted(path.parent.relative_to(root).as_posix() for path in root.glob(f"{pattern}/summary.json"))


def _cost(summaries: list[dict[str, Any]]) -> str:
  steps, seconds = (sum(s[key] for s in summaries) for key in ("env_steps", "training_s"))
  return f"{steps:,} | {seconds / 60:.0f}"


if __name__ == "__main__":
  sys.path.append(str(ROOT))
  from experiments.lib.results import write_between_markers

  PAGE.write_text(page(), "utf-8")
  for name, block in BLOCKS.items():
    write_between_markers(README, name, block())
