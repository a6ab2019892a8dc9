"""Trains each approach on each task of the testbed: board and card games, half an hour to three hours a run.

    python -m experiments.testbed.sweep                 # at most 55 minutes; repeat until all is done
    python -m experiments.testbed.sweep --list          # the progress of each job
    python -m experiments.testbed.sweep --only ppo_uno_seed0
    python -m experiments.testbed.table                 # then: the arena of each task

Each job uses one core, without Ray (`runtime=local`), and as many jobs run in parallel as there are cores. At
the time limit a run is stopped with a checkpoint, and the next call resumes it. Runs and logs are in
`runs/testbed`; each finished job has a folder in `results/`. A job's name is APPROACH_TASK_seedN.
"""

import sys
from pathlib import Path

from experiments.lib.jobs import MACHINE, ROOT, Evaluation, Job
from experiments.lib.sweep import main

HERE = Path(__file__).resolve().parent
CONFIG = ROOT / "config"

HOUR = 3600
TASKS = {
  **dict.fromkeys(
    ("tic_tac_toe", "simplest", "kuhn_poker", "leduc_poker", "uno", "uno_4", "stratego"), HOUR // 2
  ),
  "go_5x5": 2 * HOUR,
  "othello": 2 * HOUR,
  "connect_four": 3 * HOUR,
}
"""The time limit of a training, by task."""
BOARDS = ("go_5x5", "othello", "connect_four")
"""Tasks that only MuZero and AlphaZero learn; also evaluated against OpenSpiel's MCTS."""
APPROACHES = {
  "muzero": CONFIG / "boards",
  "alphazero": CONFIG / "alphazero" / "boards",
  "ppo": CONFIG / "ppo" / "boards",
  "q_learning": CONFIG / "q_learning" / "boards",
}
"""The folder with the configurations of the tasks, by approach."""
OWN = {"alphazero_connect_four_seed0": ("max_wall_s=2700", "max_env_steps=600000")}
"""Settings of single jobs. AlphaZero learns Connect Four for the 45 minutes of MuZero in `past_selves`."""
SEEDS = (0,)
COMMON = ("runtime=local", "evaluation.gif=false", "logging.tensorboard=false")

COLUMNS = (
  *("env_steps", "learner_steps", "wall_s", "train/return_mean", "train/length_mean", "train/episodes"),
  *("loss/policy", "loss/value", "loss/reward", "loss/reward_1", "loss/reward_5", "error/reward"),
  *("search/root_value", "update/learning_rate", "system/env_steps_per_s"),
  *("test/at_env_steps", "test/return_mean", "test/return_std", "test/score", "test/episodes"),
)
"""The metrics that a result keeps."""


def jobs() -> list[Job]:
  """Returns a job for each task and approach with a configuration, the smallest tasks first."""
  against_mcts = tuple(
    Evaluation(checkpoint="last", episodes=200, opponent=f"mcts:{simulations}") for simulations in (100, 1000)
  )
  return [
    Job(
      name=(name := f"{approach}_{task}_seed{seed}"),
      config=folder / f"{task}.yaml",
      overrides=(f"max_wall_s={seconds}", *OWN.get(name, ()), *COMMON),
      seed=seed,
      evaluations=against_mcts if task in BOARDS else (Evaluation(checkpoint="last", episodes=1000),),
      may_differ=MACHINE,
    )
    for seed in SEEDS
    for task, seconds in TASKS.items()
    for approach, folder in APPROACHES.items()
    if (folder / f"{task}.yaml").exists()
  ]


def approach_and_task(job: Job) -> tuple[str, str]:
  """Returns the approach and the task of a job, which its configuration's path has."""
  path = Path(job.config)
  return next(name for name, folder in APPROACHES.items() if folder == path.parent), path.stem


if __name__ == "__main__":
  sys.exit(main(jobs(), HERE, __doc__, columns=COLUMNS, one_core=True))
