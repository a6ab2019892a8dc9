"""Trains models with and without chance nodes on 2048, and on MinAtar Breakout with sticky actions.

    python -m experiments.chance.sweep                  # at most 55 minutes; repeat until all is done
    python -m experiments.chance.sweep --list           # the progress of each job
    python -m experiments.chance.sweep --only 2048_stochastic_seed0
    python -m experiments.chance.table                  # the table of the finished jobs

Each job trains for the same time. Jobs run one at a time, each with the whole machine; the committed results
are from one core each (`--job JOB --out DIR --cores 1 runtime=local`). At its time limit, a call stops the
run with a checkpoint, and the next call resumes it. Runs and their logs are in `runs/chance`; each finished
job has a folder in `results/`.
"""

import sys
from pathlib import Path

from experiments.lib.jobs import MACHINE, ROOT, Evaluation, Job
from experiments.lib.sweep import main

HERE = Path(__file__).resolve().parent
CONFIG = ROOT / "config"

SEEDS = (0, 1, 2)
WALL_S = 1500.0
FEW_SIMULATIONS = 4
PLANNERS = ("train", "test")
COLUMNS = (
  *("env_steps", "learner_steps", "wall_s", "train/return_mean", "train/length_mean", "error/value"),
  *("error/reward", "error/reward_1", "error/reward_2", "error/reward_3", "policy/entropy"),
  *("policy/target_entropy", "state/cosine", "loss/total", "loss/policy"),
  *("loss/value", "loss/reward", "loss/consistency", "loss/chance", "loss/afterstate_value"),
  *("chance/codes_used", "chance/entropy", "test/at_env_steps", "test/return_mean", "test/return_std"),
)
"""The metrics that a result keeps."""


def planners(**settings: float | str) -> tuple[str, ...]:
  """Returns the overrides that give both planners these settings."""
  return tuple(f"planners.{name}.{key}={value}" for name in PLANNERS for key, value in settings.items())


def search(algorithm: str, **settings: float) -> tuple[str, ...]:
  """Returns the overrides of both planners. Gumbel explores with its own noise instead of Dirichlet noise."""
  settings = ({"dirichlet_fraction": 0, "temperature": 1} if algorithm == "gumbel" else {}) | settings
  pairs = {"algorithm": algorithm, "root_value": "improved" if algorithm == "gumbel" else "mean"} | settings
  return planners(**pairs)


DETERMINISTIC = "chance.codes=0"
FIRST = (
  "planners.train.dirichlet_fraction=0.25",
  "planners.train.temperature=0.5",
  "targets.unroll_steps=3",
  "chance.reward_from=outcome",
  "chance.encoder_size=null",
)
"""The settings of the first runs of 2048, with 16 simulations."""
# The environment and the network of a game are those of its configuration.
VARIANTS: dict[str, dict[str, tuple[str, ...]]] = {
  "2048": {
    "stochastic_gumbel": (),
    "gumbel_8": (DETERMINISTIC, *planners(algorithm="gumbel")),
    "stochastic": (*FIRST, *search("stochastic", num_simulations=16)),
    "puct": (DETERMINISTIC, *FIRST, *search("puct", num_simulations=16)),
    "gumbel": (DETERMINISTIC, *FIRST, *search("gumbel", num_simulations=16)),
  },
  "breakout": {
    "stochastic_gumbel": ("chance.codes=8", *planners(algorithm="stochastic_gumbel")),
    "gumbel": (),
    "gumbel_few": search("gumbel", num_simulations=FEW_SIMULATIONS),
  },
}
GAMES: dict[str, tuple[Path, tuple[str, ...]]] = {
  # The rate is constant, so its decay has no effect; the first runs have this value.
  "2048": (CONFIG / "pgx" / "2048.yaml", ("learner.learning_rate.decay_steps=62500",)),
  "breakout": (CONFIG / "minatar" / "sticky" / "breakout.yaml", ()),
}


def job(game: str, variant: str, seed: int, wall_s: float = WALL_S) -> Job:
  """Returns the job of one variant. Its run ends after `wall_s` seconds."""
  config, own = GAMES[game]
  common = (
    "max_env_steps=1000000000",
    f"max_wall_s={wall_s:g}",
    # The number of updates within the time is not known, so the learning rate is constant.
    "learner.learning_rate.kind=constant",
    "learner.learning_rate.peak=5e-4",
    "evaluation.period_env_steps=1000000000",
    "evaluation.num_envs=50",
    "evaluation.gif=false",
    "checkpoint.milestones_env_steps=null",
    "logging.tensorboard=false",
  )
  return Job(
    name=f"{game}_{variant}_seed{seed}",
    config=config,
    overrides=(*common, *own, *VARIANTS[game][variant]),
    seed=seed,
    evaluations=(Evaluation(checkpoint="last"),),
    # Evaluations are noise-free, so their temperature has no effect.
    may_differ=(*MACHINE, "planners.test.temperature"),
  )


def jobs(wall_s: float = WALL_S) -> list[Job]:
  """Returns all jobs: every variant with the first seed, then every variant with the next."""
  return [job(game, variant, seed, wall_s) for seed in SEEDS for game in GAMES for variant in VARIANTS[game]]


if __name__ == "__main__":
  sys.exit(main(jobs(), HERE, __doc__, columns=COLUMNS, measures_speed=True))
