"""Trains each approach on each task of the testbed: board and card games, half an hour a run.

    python -m experiments.testbed.sweep                 # at most 55 minutes; repeat until all is done
    python -m experiments.testbed.sweep --list          # the progress of each job
    python -m experiments.testbed.sweep --only ppo_uno_seed0
    python -m experiments.testbed.table                 # then: the arena of each task

Jobs run one at a time, each with the whole machine. At the time limit the run is stopped with a checkpoint,
and the next call resumes it. Runs and logs are in `runs/testbed`; each finished job has a folder in
`results/`. A job's name is APPROACH_TASK_seedN.
"""

import sys
from pathlib import Path

from experiments.lib.jobs import MACHINE, ROOT, Evaluation, Job
from experiments.lib.sweep import main

HERE = Path(__file__).resolve().parent
CONFIG = ROOT / "config"

TASKS = ("tic_tac_toe", "simplest", "kuhn_poker", "leduc_poker", "uno", "uno_4", "stratego")
LARGE = ("connect_four", "othello", "go_5x5")
"""Tasks without hidden information for which some approaches have no configuration."""
APPROACHES = {
  "muzero": CONFIG / "boards",
  "alphazero": CONFIG / "alphazero" / "boards",
  "ppo": CONFIG / "ppo" / "boards",
  "q_learning": CONFIG / "q_learning" / "boards",
}
"""The folder with the configurations of the tasks, by approach."""
SEEDS = (0,)
MAX_WALL_S = 1800
COMMON = (f"max_wall_s={MAX_WALL_S}", "evaluation.gif=false", "logging.tensorboard=false")


def jobs() -> list[Job]:
  """Returns a job for each task and approach with a configuration, the smallest tasks first."""
  return [
    Job(
      name=f"{approach}_{task}_seed{seed}",
      config=folder / f"{task}.yaml",
      overrides=COMMON,
      seed=seed,
      evaluations=(Evaluation(checkpoint="last", episodes=1000),),
      may_differ=MACHINE,
    )
    for seed in SEEDS
    for task in (*TASKS, *LARGE)
    for approach, folder in APPROACHES.items()
    if (folder / f"{task}.yaml").exists()
  ]


if __name__ == "__main__":
  sys.exit(main(jobs(), HERE, __doc__))
