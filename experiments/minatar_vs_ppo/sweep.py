"""Trains and evaluates MooZi and PPO on MinAtar, under two protocols.

    python -m experiments.minatar_vs_ppo.sweep                  # at most 55 minutes; repeat until all is done
    python -m experiments.minatar_vs_ppo.sweep --list           # the progress of each job
    python -m experiments.minatar_vs_ppo.sweep --only muzero_a_breakout_seed0
    python -m experiments.minatar_vs_ppo.sweep --job muzero_a_breakout_seed0 --out DIR

Each job uses one core, and as many jobs run in parallel as there are cores. At the time limit the runs are
stopped with a checkpoint, and the next call resumes them. Runs and their logs are in `runs/minatar_vs_ppo`;
each finished job has a folder in `results/`. With `--job`, one job runs in its own folder, for example on
another machine. Then copy `DIR/JOB` to `results/`.

A job's name is AGENT_PROTOCOL_GAME_seedN. PPO with gymnax's settings (ppo_replica) makes as many environment
steps as MooZi; the tuned PPO makes as many as take about as long as MooZi's runs. The agents muzero_short and
ppo_short are MooZi and the tuned PPO with fewer steps, which take about 25 minutes; their learning rates fall
within them. They have the two games where PPO is ahead after 25 minutes of its longer runs.
"""

import dataclasses
import functools
import json
import sys
from pathlib import Path

from experiments.lib.jobs import MACHINE, ROOT, Evaluation, Job
from experiments.lib.sweep import main
from moozi.core.config import Config
from moozi.io.config import load_config

HERE = Path(__file__).resolve().parent
CONFIG = ROOT / "config"

GAMES = ("breakout", "space_invaders", "freeway", "asterix", "seaquest")
AGENTS = {
  "muzero": CONFIG / "minatar",
  "ppo_replica": CONFIG / "ppo" / "minatar",
  "ppo_tuned": CONFIG / "ppo" / "minatar_tuned",
  "muzero_short": CONFIG / "minatar",
  "ppo_short": CONFIG / "ppo" / "minatar_tuned",
}
"""The folder of the games' configurations, by agent."""

RIVALS = ("ppo_replica", "ppo_tuned")

NUM_EVALUATED = 10
"""Number of milestones at the end of a run that are evaluated; the swing is over all of them."""

NUM_REPORTED = 5
"""Number of milestones at the end of a run whose mean is the run's figure."""

EPISODES = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class Protocol:
  """The conditions of a comparison.

  Attributes:
    folder: MooZi's configurations, which have the environment and the number of steps.
    num_milestones: milestones of a run; the last ten are a third of a run of (a), a fifth of a run of (b).
    seeds: number of MooZi's seeds per game, except Breakout.
    breakout_seeds: number of MooZi's seeds on Breakout.
    rival_seeds: number of seeds per game of each PPO agent.
    goals: for each game, the mean return that MooZi should reach.
  """

  folder: Path
  num_milestones: int
  seeds: int
  breakout_seeds: int
  rival_seeds: int
  goals: dict[str, int]


PROTOCOLS = {
  # No sticky actions, episodes truncated after 1,000 steps (Freeway 2,500), 3M steps.
  "a": Protocol(
    folder=CONFIG / "minatar",
    num_milestones=30,
    seeds=3,
    breakout_seeds=5,
    rival_seeds=2,
    goals={"asterix": 68, "breakout": 65, "freeway": 62, "seaquest": 50, "space_invaders": 145},
  ),
  # MinAtar's own: sticky actions, no step limit, 5M steps.
  "b": Protocol(
    folder=CONFIG / "minatar" / "sticky",
    num_milestones=50,
    seeds=2,
    breakout_seeds=2,
    rival_seeds=1,
    goals={"asterix": 40, "breakout": 35, "freeway": 60, "seaquest": 45, "space_invaders": 190},
  ),
}

TUNED_STEPS = {
  "breakout": 22_000_000,
  "space_invaders": 17_000_000,
  "freeway": 20_000_000,
  "asterix": 28_000_000,
  "seaquest": 24_000_000,
}
"""Environment steps of the tuned PPO: 43 to 70 minutes on one core, about as long as MooZi's runs take.

They were chosen for 25 minutes of processor time (`experiments/ppo_tuning/cost.json`). A run needs 1.7
to 2.8 times that, because its episodes are longer and its updates slower than those of the measurement.
"""

SHORT_STEPS = {
  "muzero_short": {
    "space_invaders": 1_500_000,
    "freeway": 1_500_000,
  },
  "ppo_short": {
    "space_invaders": 8_000_000,
    "freeway": 9_000_000,
  },
}
"""Environment steps of the runs of about 25 minutes on one core, by what longer runs made in this time."""

SHORT_AGENTS = tuple(SHORT_STEPS)

SHORT_GAMES = tuple(SHORT_STEPS["muzero_short"])

SHORT_SEEDS = 1
"""Number of seeds per game of both agents of 25 minutes, under (a)."""

_STEPS = SHORT_STEPS | {"ppo_tuned": TUNED_STEPS}

SIMULATIONS = (1, 2, 4, 8, 16, 32, 64)
SIMULATION_STEPS = 300_000

# The evaluations during training, at the same steps for both agents, are for the curves. The reported figures
# are from evaluations after training.
COMMON = (
  "runtime=local",
  "max_wall_s=null",
  "evaluation.final_episodes=10",
  "evaluation.gif=false",
  "logging.tensorboard=false",
)

COLUMNS = (
  *("env_steps", "learner_steps", "wall_s", "train/return_mean", "train/length_mean", "train/episodes"),
  *("train/sample_reuse", "train/staleness", "system/env_steps_per_s", "update/learning_rate"),
  *("loss/policy", "loss/value", "loss/reward", "loss/consistency", "search/root_value"),
  *("test/at_env_steps", "test/return_mean", "test/return_std", "test/episodes", "test/seconds"),
)
"""The metrics that a result keeps."""


@functools.cache
def _config_of(protocol: str, game: str) -> Config:
  return load_config(PROTOCOLS[protocol].folder / f"{game}.yaml")


def config_path(agent: str, protocol: str, game: str) -> Path | None:
  """Returns the configuration of an agent's runs; None if the sweep changes its environment."""
  if agent == "muzero":
    return PROTOCOLS[protocol].folder / f"{game}.yaml"
  return AGENTS[agent] / f"{game}.yaml" if protocol == "a" and agent in RIVALS else None


def job(agent: str, protocol: str, game: str, seed: int) -> Job:
  """Returns the job that trains one run and evaluates its last milestones."""
  terms = PROTOCOLS[protocol]
  config = _config_of(protocol, game)
  steps = _STEPS.get(agent, {}).get(game, config.max_env_steps)
  period = steps // terms.num_milestones
  path = (terms.folder if agent == "muzero" else AGENTS[agent]) / f"{game}.yaml"
  kwargs = {"max_episode_steps": None} | config.env.kwargs
  return Job(
    name=f"{agent}_{protocol}_{game}_seed{seed}",
    config=path,
    overrides=(
      *COMMON,
      f"evaluation.period_env_steps={period}",
      f"checkpoint.milestones_env_steps={period}",
      f"max_env_steps={steps}",
      *(f"env.kwargs.{key}={json.dumps(value)}" for key, value in kwargs.items()),
    ),
    seed=seed,
    evaluations=tuple(Evaluation(checkpoint=f"-{k}", episodes=EPISODES) for k in range(NUM_EVALUATED, 0, -1)),
    may_differ=MACHINE,
  )


def simulations(game: str, seed: int) -> Job:
  """Returns the job that evaluates milestones of a run of MooZi with each number of simulations."""
  run = job("muzero", "a", game, seed)
  steps = _config_of("a", game).max_env_steps
  return dataclasses.replace(
    run,
    name=f"simulations_a_{game}_seed{seed}",
    run=run.name,
    evaluations=tuple(
      Evaluation(checkpoint=str(at), episodes=30, simulations=count)  # 30 as in the thesis
      for at in range(SIMULATION_STEPS, steps + 1, SIMULATION_STEPS)
      for count in SIMULATIONS
    ),
  )


def jobs() -> list[Job]:
  """Returns all jobs: (a) before (b), and in each every game with the first seed, then with the next."""
  out = []
  for name, terms in PROTOCOLS.items():
    for seed in range(max(terms.seeds, terms.breakout_seeds)):
      for game in GAMES:
        if seed < (terms.breakout_seeds if game == "breakout" else terms.seeds):
          out.append(job("muzero", name, game, seed))
        if seed < terms.rival_seeds:
          out += [job(agent, name, game, seed) for agent in RIVALS]
  out += [
    job(agent, "a", game, seed)
    for seed in range(SHORT_SEEDS)
    for game in SHORT_GAMES
    for agent in SHORT_AGENTS
  ]
  return [*out, simulations("space_invaders", 0)]


if __name__ == "__main__":
  sys.exit(main(jobs(), HERE, __doc__, columns=COLUMNS, measures_speed=True, one_core=True))
