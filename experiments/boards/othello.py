"""Compares training runs on Othello; prints four tables of LOG.md.

    python -m experiments.boards.othello

`results/othello` has the runs' configurations and their metrics, thinned by `moozi.io.metrics.thin_ticks`;
`price_of_model` has an arena and the output of `python -m experiments.boards.model_error RUN`.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.lib.results import mean_of
from experiments.lib.tables import markdown_table, with_interval
from moozi.io.metrics import read_metrics

RESULTS = Path(__file__).parent / "results" / "othello"
VALUE_TARGETS = ("n_step_5", "n_step_60", "n_step_60_less_noise", "unroll_3")
MODELS = (
  *("unroll_3", "conv_policy", "conv_policy_consistency"),
  *("action_offsets", "dynamics_block", "dynamics_block_offsets"),
)
WINDOW = (100_000, 126_000)
"""The environment steps over which losses are averaged."""
ARENA = {"AlphaZero": "alphazero_dense_policy", "MuZero": "dense_policy"}
MEASURED = {
  "dense_policy": 250_880,
  "dynamics_block_offsets": 125_952,
  "muzero_othello_one_block": 894_976,
  "muzero_othello_seed0": 900_096,
}
"""The environment steps of the models whose errors a table shows, by run."""
ERRORS = ("q_spread", "q_error", "q_correlation", "legal_share_model", "legal_share_network")


def read(run: str) -> list[dict[str, Any]]:
  return read_metrics(RESULTS / run / "metrics.jsonl")


def scores() -> str:
  """Returns the table of value targets: the evaluations of each run."""
  rows = [
    [run, f"{tick['test/at_env_steps']:,.0f}", f"{tick['test/score']:.3f}", f"{tick['test/episodes']:.0f}"]
    for run in VALUE_TARGETS
    for tick in read(run)
    if "test/score" in tick
  ]
  return markdown_table(("run", "steps", "score against MCTS(100)", "games"), rows)


def losses() -> str:
  """Returns the mean losses of MODELS in WINDOW, and the score and minute of their first evaluation."""
  rows = []
  for run in MODELS:
    ticks = read(run)
    learned = [
      tick for tick in ticks if "loss/policy_0" in tick and WINDOW[0] < tick["env_steps"] <= WINDOW[1]
    ]
    means = [mean_of(learned, f"loss/policy_{k}") for k in (0, 1)]
    first = next(tick for tick in ticks if "test/score" in tick)
    minute = (first["wall_s"] - first["test/seconds"]) / 60
    rows.append([run, *(f"{mean:.2f}" for mean in means), f"{first['test/score']:.3f}", f"{minute:.0f}"])
  measured = "score against MCTS(100), 100 games"
  columns = ("run", "policy loss of the root", "after one move of the model", measured, "minutes")
  return markdown_table(columns, rows)


def ratings() -> str:
  """Returns the table of the arena: the rating of each agent without and with search."""
  arena = json.loads((RESULTS / "price_of_model" / "arena.json").read_text())
  players = {player["name"].partition("@")[0]: player for player in arena["players"]}

  def cell(kind: str, run: str) -> str:
    player = players[f"{kind}:runs/{run}"]
    if player["low"] == player["high"]:  # the pinned player
      return f"{player['rating']:z.0f}"
    return with_interval(player["rating"], player["low"], player["high"])

  rows = [[name, cell("prior", run), cell("run", run)] for name, run in ARENA.items()]
  return markdown_table(("agent", "without search", "with search"), rows)


def errors() -> str:
  """Returns the table of the errors of the models of MEASURED."""
  lines = (RESULTS / "price_of_model" / "model_error.jsonl").read_text().splitlines()
  rows = []
  for line in map(json.loads, lines):
    run, steps = Path(line["run"]).name, int(line["checkpoint"].split("_")[1])
    if MEASURED.get(run) != steps:
      continue
    figures = [f"{line[key]:.3f}" if key in ERRORS[:2] else f"{line[key]:.2f}" for key in ERRORS]
    rows.append([run, f"{steps:,}", *figures])
  return markdown_table(("run", "steps", *(f"`{key}`" for key in ERRORS)), rows)


TABLES: dict[str, Callable[[], str]] = {
  "scores": scores,
  "ratings": ratings,
  "errors": errors,
  "losses": losses,
}

if __name__ == "__main__":
  print("\n\n".join(table() for table in TABLES.values()))
