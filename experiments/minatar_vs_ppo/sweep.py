"""Trains and evaluates MooZi and PPO on MinAtar.

    python -m experiments.minatar_vs_ppo.sweep                  # at most 55 minutes; repeat until all is done
    python -m experiments.minatar_vs_ppo.sweep --list           # the progress of each job
    python -m experiments.minatar_vs_ppo.sweep --only muzero_breakout_seed0

Jobs run one at a time, each with the whole machine. At the time limit the run is stopped with a
checkpoint, and the next call resumes it. Runs and their logs are in `runs/minatar_vs_ppo`; each finished job
has a folder in `results/`.
"""

import sys
from pathlib import Path

from experiments.lib.jobs import ROOT, Evaluation, Job
from experiments.lib.sweep import main

HERE = Path(__file__).resolve().parent
CONFIG = ROOT / "config"

GAMES = ("breakout", "space_invaders", "freeway", "asterix", "seaquest")
SEEDS = (0,)
STEPS = 3_000_000
PPO_BREAKOUT_STEPS = 5_000_000  # for the comparison with gymnax
STICKY = "env.kwargs.sticky_action_prob=0.1"
SIMULATIONS = (1, 2, 4, 8, 16, 32, 64)
MILESTONE_STEPS = 250_000

# A run takes at most an hour. The evaluations during training, at the same steps for both agents, are for the
# curves. The reported figures are from evaluations after training.
COMMON = (
  "max_wall_s=3600",
  "evaluation.period_env_steps=100000",
  "evaluation.final_episodes=10",
  "evaluation.gif=false",
  f"checkpoint.milestones_env_steps={MILESTONE_STEPS}",
  "logging.tensorboard=false",
)
REPORTED = tuple(Evaluation(checkpoint=which) for which in ("1000000", "3000000", "last"))


def muzero(game: str, seed: int, is_sticky: bool = False) -> Job:
  """Returns the job of MooZi on one game, with the game's configuration."""
  return Job(
    name=f"muzero_{game}{'_sticky' * is_sticky}_seed{seed}",
    config=CONFIG / "minatar" / f"{game}.yaml",
    overrides=(*COMMON, f"max_env_steps={STEPS}", *([STICKY] if is_sticky else [])),
    seed=seed,
    evaluations=REPORTED,
  )


def ppo(game: str, seed: int, is_sticky: bool = False) -> Job:
  """Returns the job of PPO on one game, with gymnax's settings."""
  steps = PPO_BREAKOUT_STEPS if game == "breakout" and not is_sticky else STEPS
  return Job(
    name=f"ppo_{game}{'_sticky' * is_sticky}_seed{seed}",
    config=CONFIG / "ppo" / "minatar" / f"{game}.yaml",
    overrides=(*COMMON, f"max_env_steps={steps}", *([STICKY] if is_sticky else [])),
    seed=seed,
    evaluations=REPORTED,
  )


def simulations(game: str, seed: int) -> Job:
  """Returns the job that evaluates each milestone of `muzero` with each number of simulations."""
  run = muzero(game, seed)
  return Job(
    name=f"simulations_{game}_seed{seed}",
    run=run.name,
    config=run.config,
    overrides=run.overrides,
    seed=seed,
    evaluations=tuple(
      Evaluation(checkpoint=str(steps), episodes=30, simulations=count)  # 30 as in the thesis
      for steps in range(MILESTONE_STEPS, STEPS + 1, MILESTONE_STEPS)
      for count in SIMULATIONS
    ),
  )


def jobs() -> list[Job]:
  """Returns all jobs: every game with the first seed, then with the next."""
  out = []
  for seed in SEEDS:
    for game in GAMES:
      out += [muzero(game, seed), ppo(game, seed)]
      if (game, seed) == ("space_invaders", SEEDS[0]):
        out.append(simulations(game, seed))
    out += [muzero("breakout", seed, is_sticky=True), ppo("breakout", seed, is_sticky=True)]
  return out


if __name__ == "__main__":
  sys.exit(main(jobs(), HERE, __doc__))
