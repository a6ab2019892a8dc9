"""Plots the committed results of Connect Four: `python -m experiments.boards.plot`.

Writes `results/connect_four/curve.png`: the score against OpenSpiel's MCTS with 100 simulations, over the
minutes of training. The minutes of the second former run follow those of the first.
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from moozi.io.metrics import read_metrics

FOLDER = Path(__file__).parent / "results" / "connect_four"
CURRENT = Path(__file__).parents[1] / "testbed" / "results" / "muzero_connect_four_seed0"
FORMER = (FOLDER / "first", FOLDER / "second")
RUNS = (
  ((CURRENT,), "#0072B2", "config/boards/connect_four.yaml, one core"),
  (FORMER, "#999999", "former settings, two cores"),
)


def main() -> None:
  """Plots the evaluations of both runs."""
  figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
  for parts, color, label in RUNS:
    minutes, scores, since_s = [], [], 0.0
    for part in parts:
      ticks = read_metrics(part / "metrics.jsonl")
      played = [tick for tick in ticks if "test/score" in tick]
      minutes += [(since_s + tick["wall_s"]) / 60 for tick in played]
      scores += [tick["test/score"] for tick in played]
      since_s += ticks[-1]["wall_s"]
    axis.plot(minutes, scores, "o-", color=color, label=label)
  axis.axhline(0.5, color="#888888", lw=0.8, ls="--")
  axis.set_xlabel("minutes of training")
  axis.set_ylabel("score against MCTS, 100 simulations")
  axis.set_ylim(0, 1.03)
  axis.grid(alpha=0.3)
  axis.legend(frameon=False, loc="lower right")
  axis.set_title("Connect Four (OpenSpiel), both seats, 100 games per point, 200 for the last")
  figure.savefig(FOLDER / "curve.png", dpi=110)


if __name__ == "__main__":
  main()
