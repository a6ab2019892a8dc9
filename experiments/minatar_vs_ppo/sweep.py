"""MooZi and PPO on MinAtar: training in pieces of at most an hour, then evaluation.

    python -m experiments.minatar_vs_ppo.sweep                    # a piece; once more until all is done
    python -m experiments.minatar_vs_ppo.sweep --list             # how far each job has come
    python -m experiments.minatar_vs_ppo.sweep --only muzero_breakout_seed0

Jobs go one at a time, each with the whole machine. When a piece is over its run is told to stop, leaves a
checkpoint, and goes on from it the next time; what is done is not done again. Runs, their logs and the
evaluations so far lie in `runs/minatar_vs_ppo`; a job that is whole gets its folder in `results/`.
"""

import sys
from pathlib import Path

from experiments.lib.jobs import Evaluation, Job
from experiments.lib.sweeping import main

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CONFIG = ROOT / "config"

GAMES = ("breakout", "space_invaders", "freeway", "asterix", "seaquest")
SEEDS = (0,)
STEPS = 3_000_000
# Whether PPO reaches on Breakout what gymnax's does is looked at for as long as this.
PPO_BREAKOUT_STEPS = 5_000_000
STICKY = "env.kwargs.sticky_action_prob=0.1"
SIMULATIONS = (1, 2, 4, 8, 16, 32, 64)
MILESTONE_STEPS = 250_000

# An hour a run at most, and curves at the same steps for both agents. What is reported is evaluated later.
COMMON = (
  "max_wall_s=3600",
  "evaluation.period_env_steps=100000",
  "evaluation.final_episodes=10",
  "evaluation.gif=false",
  f"checkpoint.milestones_env_steps={MILESTONE_STEPS}",
  "logging.tensorboard=false",
)
AT = tuple(Evaluation(checkpoint=which) for which in ("1000000", "3000000", "last"))


def muzero(game: str, seed: int, is_sticky: bool = False) -> Job:
  """MooZi on one game, with the game's own configuration."""
  return Job(
    name=f"muzero_{game}{'_sticky' * is_sticky}_seed{seed}",
    config=CONFIG / "minatar" / f"{game}.yaml",
    overrides=(*COMMON, f"max_env_steps={STEPS}", *([STICKY] if is_sticky else [])),
    seed=seed,
    evaluations=AT,
  )


def ppo(game: str, seed: int, is_sticky: bool = False) -> Job:
  """PPO on one game, with the settings of gymnax's."""
  steps = PPO_BREAKOUT_STEPS if game == "breakout" and not is_sticky else STEPS
  return Job(
    name=f"ppo_{game}{'_sticky' * is_sticky}_seed{seed}",
    config=CONFIG / "ppo" / "minatar" / f"{game}.yaml",
    overrides=(*COMMON, f"max_env_steps={steps}", *([STICKY] if is_sticky else [])),
    seed=seed,
    evaluations=AT,
  )


def simulations(game: str, seed: int) -> Job:
  """Strength by the number of simulations, over the milestones of the run of `muzero`; as many episodes as in
  the thesis."""
  run = muzero(game, seed)
  return Job(
    name=f"simulations_{game}_seed{seed}",
    run=run.name,
    config=run.config,
    overrides=run.overrides,
    seed=seed,
    evaluations=tuple(
      Evaluation(checkpoint=str(steps), episodes=30, simulations=count)
      for steps in range(MILESTONE_STEPS, STEPS + 1, MILESTONE_STEPS)
      for count in SIMULATIONS
    ),
  )


def jobs() -> list[Job]:
  """All of them: the first seed of everything before the second of anything."""
  out = []
  for seed in SEEDS:
    for game in GAMES:
      out += [muzero(game, seed), ppo(game, seed)]
      if (game, seed) == ("space_invaders", SEEDS[0]):
        out.append(simulations(game, seed))  # while its run is there
    out += [muzero("breakout", seed, is_sticky=True), ppo("breakout", seed, is_sticky=True)]
  return out


if __name__ == "__main__":
  sys.exit(main(jobs(), ROOT / "runs" / "minatar_vs_ppo", HERE / "results", __doc__))
