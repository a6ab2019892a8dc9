"""Plots the committed results of Connect Four: `python -m experiments.boards.plot`.

Writes `results/connect_four/curve.png`: the score against OpenSpiel's MCTS with 100 simulations, over the
minutes of training. The two parts of the run follow each other.
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from moozi.io.metrics import read_metrics

FOLDER = Path(__file__).parent / "results" / "connect_four"
PARTS = (("first", "#0072B2", "without random starts"), ("second", "#D55E00", "with random starts"))


def main() -> None:
  """Plots the evaluations of both parts."""
  figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
  since_s = 0.0
  for name, color, label in PARTS:
    ticks = read_metrics(FOLDER / name / "metrics.jsonl")
    played = [tick for tick in ticks if "test/score" in tick]
    # The return is 2 · score - 1, so the score's margin is half of the return's.
    axis.errorbar(
      [(since_s + tick["wall_s"]) / 60 for tick in played],
      [tick["test/score"] for tick in played],
      yerr=[tick["test/return_margin"] / 2 for tick in played],
      fmt="o-",
      color=color,
      capsize=3,
      label=label,
    )
    since_s += ticks[-1]["wall_s"]
  axis.axhline(0.5, color="#888888", lw=0.8, ls="--")
  axis.set_xlabel("minutes of training on two cores")
  axis.set_ylabel("score against MCTS, 100 simulations (95%)")
  axis.set_ylim(0, 1)
  axis.grid(alpha=0.3)
  axis.legend(frameon=False, loc="lower right")
  axis.set_title("Connect Four (OpenSpiel), both seats, 100 games per point, 200 for the last")
  figure.savefig(FOLDER / "curve.png", dpi=110)


if __name__ == "__main__":
  main()
