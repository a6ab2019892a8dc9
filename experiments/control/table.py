"""The tables and the picture of continuous control."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.lib.pictures import (
  EVALUATION,
  TRAINING,
  Panel,
  curves,
  over_seconds,
  over_steps,
  points_of,
  runs_of,
)
from experiments.lib.tables import ablation_table, each, markdown_table

if TYPE_CHECKING:
  from matplotlib.figure import Figure

HERE = Path(__file__).parent
TASKS = {
  "Pendulum-v1": {"MuZero": "pendulum", "MuZero, low floor": "pendulum_low_floor", "PPO": "ppo_pendulum"},
  "cartpole-swingup": {"MuZero": "cartpole_swingup"},
  "reacher-easy": {"MuZero": "reacher_easy", "MuZero, all steps": "reacher_easy_all_steps"},
  "finger-spin": {"MuZero": "finger_spin", "MuZero, all steps": "finger_spin_all_steps"},
  "Hopper-v5": {"MuZero": "hopper", "MuZero, all steps": "hopper_all_steps", "PPO": "ppo_hopper"},
  "HalfCheetah-v5": {"MuZero": "half_cheetah", "PPO": "ppo_half_cheetah"},
}
"""The panels of the picture by title: the variant of each label."""
EQUAL_STEPS = 500_000


def returns() -> "Figure":
  """Draws the evaluations over minutes of training, with a panel for each task."""
  panels = [
    Panel(curves=points_of(HERE, variants, over=over_seconds), title=task, x="wall_s", y="evaluation")
    for task, variants in TASKS.items()
  ]
  return curves(*panels, columns=3, height=2.2)


def equal_steps() -> str:
  """Returns a table of the first evaluations after `EQUAL_STEPS` steps, and of the training returns then."""
  rows = []
  for task in ("HalfCheetah-v5", "Hopper-v5"):
    for label in ("MuZero", "PPO"):
      evaluated: list[float] = []
      acting: list[float] = []
      for run in runs_of(HERE, TASKS[task][label]):
        steps, returns = over_steps(run, EVALUATION)
        at = np.searchsorted(steps, EQUAL_STEPS)
        trained_to, trained = over_steps(run, TRAINING)
        evaluated.append(returns[at])
        acting.append(trained[np.searchsorted(trained_to, steps[at], "right") - 1])
      rows.append([task, label, f"{steps[at]:,.0f}", each(evaluated), each(acting)])
  return markdown_table(
    ["task", "agent", "steps", "return, evaluation", "training return, last 100 episodes"], rows
  )


TABLES = {"control": lambda: ablation_table(HERE), "equal_steps": equal_steps}
PICTURES = {"results/returns.png": returns}
