"""Trains MuZero and PPO on Atari games, each for at most 3 hours, and plays 30 whole games at the end.

    python -m experiments.atari.sweep                  # at most 55 minutes; repeat until all is done
    python -m experiments.atari.sweep --list           # the progress of each job
    python -m experiments.atari.sweep --only muzero_pong_seed0
    python -m experiments.atari.table                  # the table of the finished jobs

Jobs run one at a time, each with the whole machine. At its time limit, a call stops the run with a
checkpoint, and the next call resumes it. Runs and their logs are in `runs/atari`; each finished job has a
folder in `results/`. This command runs one job on one core, and its folder `DIR/JOB` can be copied to
`results/`:

    python -m experiments.atari.sweep --job muzero_pong_seed0 --out DIR --cores 1 runtime=local
"""

import sys
from pathlib import Path

from experiments.lib.jobs import MACHINE, ROOT, Evaluation, Job
from experiments.lib.sweep import main

HERE = Path(__file__).resolve().parent
CONFIG = ROOT / "config"

HOURS = {"pong": 2, "breakout": 2.5, "freeway": 2, "boxing": 2}
HOURS_100K = 3
STEPS_PER_HOUR = {"muzero": 1_750_000, "ppo": 400_000, "ppo_42": 3_000_000}
"""Sets a run's last step, until which its learning rate falls. A faster machine ends a run before its time.

On one core MuZero makes 1.6M steps per hour (`results/muzero_pong_seed0`). PPO takes 9.8 ms of processor time
per step (`cost.measure("ppo/atari", ("env.name=atari:Pong",))` of `experiments/ppo_tuning`), 0.37M per hour,
and with frames of 42×42 1.1 ms, 3.2M per hour.
"""
RIVAL_GAMES = ("pong", "breakout")
EPISODES = 30
INDEPENDENT_ACTIONS = "workers.num_holding_envs=0"
OWN = {
  "muzero_pong_seed0": ("max_env_steps=10000000", INDEPENDENT_ACTIONS),
  "muzero_pong_seed2": ("learner.target_decay=0.999", "evaluation.network=target"),
  "muzero_boxing_seed1": ("max_wall_s=9300",),
  "muzero_breakout_seed0": ("env.kwargs.fire_on_reset=false", INDEPENDENT_ACTIONS),
}
"""The settings of runs that differ from the present configuration of their game."""


def job(agent: str, game: str, seed: int) -> Job:
  """Returns the job of an agent.

  Args:
    agent: `muzero`, `muzero_100k` (100,000 steps), `ppo`, or `ppo_42` with MuZero's frames of 42×42.
    game: a key of `HOURS`.
    seed: the seed of the run.
  """
  path, own = {
    "muzero": (f"atari/{game}.yaml", ()),
    "muzero_100k": (f"atari/100k/{game}.yaml", ()),
    "ppo": ("ppo/atari.yaml", ("evaluation.period_env_steps=100000",)),
    "ppo_42": ("ppo/atari.yaml", ("env.kwargs.frame_size=42",)),
  }[agent]
  name = f"{agent}_{game}_seed{seed}"
  hours = HOURS_100K if agent == "muzero_100k" else HOURS[game]
  rate = STEPS_PER_HOUR.get(agent)
  return Job(
    name=name,
    config=CONFIG / path,
    overrides=(
      f"env.name=atari:{game.capitalize()}",
      f"max_wall_s={3600 * hours:.0f}",
      *([f"max_env_steps={rate * hours:.0f}"] if rate else []),
      *own,
      *OWN.get(name, ()),
      "logging.tensorboard=false",
    ),
    seed=seed,
    evaluations=(Evaluation(checkpoint="last", episodes=EPISODES),),
    # In the first run of Breakout this option is not named; its default is false, as the job has it. The
    # committed runs were evaluated with 8 simulations, as in training.
    may_differ=(*MACHINE, "env.kwargs.fire_on_reset", "planners.test.num_simulations"),
  )


def jobs() -> list[Job]:
  """Returns all jobs: MuZero and its rivals in each game, Pong in 100,000 steps, further seeds."""
  out = []
  for game in HOURS:
    rivals = ("ppo", "ppo_42") if game in RIVAL_GAMES else ()
    out += [job(agent, game, 0) for agent in ("muzero", *rivals)]
  out += [job("muzero_100k", "pong", seed) for seed in (0, 1)]
  further = (("pong", 1), ("pong", 2), ("breakout", 1), ("boxing", 1))
  return out + [job("muzero", game, seed) for game, seed in further]


if __name__ == "__main__":
  sys.exit(main(jobs(), HERE, __doc__, measures_speed=True))
