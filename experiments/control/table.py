"""The table and the picture of continuous control."""

from pathlib import Path
from typing import TYPE_CHECKING

from experiments.lib.pictures import Panel, curves, over_seconds, points_of
from experiments.lib.tables import ablation_table

if TYPE_CHECKING:
  from matplotlib.figure import Figure

HERE = Path(__file__).parent
TASKS = {
  "Pendulum-v1": {"MuZero": "pendulum", "MuZero, low floor": "pendulum_low_floor", "PPO": "ppo_pendulum"},
  "cartpole-swingup": {"MuZero": "cartpole_swingup"},
  "reacher-easy": {"MuZero": "reacher_easy"},
  "finger-spin": {"MuZero": "finger_spin", "MuZero, all steps": "finger_spin_all_steps"},
  "Hopper-v5": {"MuZero": "hopper", "MuZero, all steps": "hopper_all_steps", "PPO": "ppo_hopper"},
  "HalfCheetah-v5": {"MuZero": "half_cheetah"},
}
"""The panels of the picture by title: the variant of each label."""


def returns() -> "Figure":
  """Draws the evaluations over minutes of training, with a panel for each task."""
  panels = [
    Panel(curves=points_of(HERE, variants, over=over_seconds), title=task, x="wall_s", y="evaluation")
    for task, variants in TASKS.items()
  ]
  return curves(*panels, columns=3, height=2.2)


TABLES = {"control": lambda: ablation_table(HERE)}
PICTURES = {"results/returns.png": returns}
