"""Reads the results of the sweep as runs, each with its agent, protocol, game, seed and figure.

A run's figure is the mean return over its last five milestones, with 100 noise-free evaluation episodes each.
Its swing is the sample standard deviation over its last ten milestones, divided by their mean.
"""

import dataclasses
import functools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.lib.results import (
  Result,
  check_alike,
  check_same_conditions,
  read_results,
  sweep_of,
  swing_of,
)
from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.experiments.comparison import read_run
from moozi.experiments.jobs import differences
from moozi.experiments.results import MACHINE

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
RIVALS = ("ppo_replica", "ppo_tuned")
SHORT_AGENTS = ("muzero_short", "ppo_short")
AGENTS = ("muzero", *RIVALS, *SHORT_AGENTS)

NUM_EVALUATED = 10
"""Number of milestones at the end of a run that are evaluated; the swing is over all of them."""

NUM_REPORTED = 5
"""Number of milestones at the end of a run whose mean is the run's figure."""

EPISODES = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class Protocol:
  """The conditions of a comparison.

  Attributes:
    conditions: the conditions in words.
    folder: the folder in config/ of MuZero's configurations, which have the environment and the steps.
    num_milestones: milestones of a run.
    goals: for each game, the mean return that MuZero should reach.
  """

  conditions: str
  folder: str
  num_milestones: int
  goals: dict[str, int]


PROTOCOLS = {
  "a": Protocol(
    conditions="no sticky actions, episodes cut off after 1,000 steps (Freeway 2,500), 3M steps",
    folder="minatar",
    num_milestones=30,
    goals={"asterix": 68, "breakout": 65, "freeway": 62, "seaquest": 50, "space_invaders": 145},
  ),
  "b": Protocol(
    conditions="MinAtar's own: sticky actions 0.1, ramping, no step limit in training (Freeway's "
    "clock: 2,501), 5M steps",
    folder="minatar/sticky",
    num_milestones=50,
    goals={"asterix": 40, "breakout": 35, "freeway": 60, "seaquest": 45, "space_invaders": 190},
  ),
}
LABELS = {
  "muzero": "MuZero",
  "ppo_replica": "PPO, gymnax's settings",
  "ppo_tuned": "PPO, tuned",
}
CORES = 1
"""Minutes count only for runs on this number of cores."""

_NAME = re.compile(
  rf"(?P<agent>{'|'.join(AGENTS)})_(?P<protocol>{'|'.join(PROTOCOLS)})"
  rf"_(?P<game>{'|'.join(GAMES)})_seed\d+"
)
_ACTING = "train/return_mean"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
  """A finished run and its evaluated milestones, oldest first; `agent` is a key of AGENTS."""

  agent: str
  protocol: str
  game: str
  result: Result
  checkpoints: list[dict[str, Any]]

  @property
  def key(self) -> tuple[str, str, str]:
    return self.agent, self.protocol, self.game

  @property
  def seed(self) -> int:
    return self.result.config.seed

  @property
  def max_env_steps(self) -> int:
    return self.result.config.max_env_steps

  @property
  def last_step(self) -> int:
    """The environment step of the last checkpoint."""
    return int(self.checkpoints[-1]["env_steps"])

  @property
  def score(self) -> float:
    """The run's figure."""
    return score_of(self.checkpoints)

  @property
  def swing(self) -> float | None:
    """The swing over the last ten milestones; None if fewer were evaluated, or if their mean is 0."""
    means = [c["return_mean"] for c in self.checkpoints[-NUM_EVALUATED:]]
    if len(means) < NUM_EVALUATED or not np.mean(means):
      return None
    return swing_of(means)

  @property
  def acting_return(self) -> float | None:
    """The mean return of the last 100 training episodes before the last checkpoint."""
    ticks = [tick for tick in self.result.ticks if _ACTING in tick and tick["env_steps"] <= self.last_step]
    return float(ticks[-1][_ACTING]) if ticks else None

  @property
  def num_at_bound(self) -> int:
    """Number of the figure's episodes that reached `evaluation.max_episode_steps`."""
    bound = self.result.config.evaluation.max_episode_steps
    reported = self.checkpoints[-NUM_REPORTED:]
    return sum(length >= bound for c in reported for length in c.get("lengths") or [])

  @property
  def minutes(self) -> float | None:
    """Minutes of training without evaluations; None if the run had another number of cores."""
    return float(self.result.wall_s_at([self.last_step])[0]) / 60 if self.has_minutes else None

  @property
  def has_minutes(self) -> bool:
    return self.result.cores == CORES

  def curve(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns environment steps, minutes of training and mean returns of the evaluations during training."""
    found = read_run(self.result.path)
    if not len(found.returns):
      raise UserError(f"{self.result.path}: metrics.jsonl has no evaluations")
    return found.env_steps, found.minutes, found.returns


def read_runs(results: Path = RESULTS) -> dict[tuple[str, str, str], list[Run]]:
  """Reads all runs, by (agent, protocol, game); the runs of a key are in order of their seeds.

  Raises: UserError: a result is not of a job of the sweep, its environment is not that of its protocol, it
    differs from the others of its key in more than the seed, the length and the machine, or two results have
    different conditions of evaluation.
  """
  runs = [run for result in read_results(results) if (run := _run_of(result)) is not None]
  groups: dict[tuple[str, str, str], list[Run]] = {}
  for run in sorted(runs, key=lambda run: (run.key, run.seed)):
    groups.setdefault(run.key, []).append(run)
  for members in groups.values():
    check_alike([run.result for run in members], MACHINE)
  check_same_conditions([run.result for run in runs])
  return groups


def select(groups: dict[tuple[str, str, str], list[Run]], agent: str, protocol: str) -> dict[str, list[Run]]:
  """Returns the runs of an agent under a protocol, by game."""
  return {key[2]: runs for key, runs in groups.items() if key[:2] == (agent, protocol)}


def _run_of(result: Result) -> Run | None:
  """Returns the run of a result of the sweep; None for a result by number of simulations."""
  name = result.path.name
  if name.startswith("simulations_"):
    return None
  if (found := _NAME.fullmatch(name)) is None:
    raise UserError(f"{result.path}: not a job of the sweep; move it away")
  agent, protocol, game = found["agent"], found["protocol"], found["game"]
  if not name.endswith(f"_seed{result.config.seed}"):
    raise UserError(f"{result.path}: has seed {result.config.seed}; rename it")
  _check_protocol(result, protocol, game)
  checkpoints = evaluated(result)
  if len(checkpoints) < NUM_REPORTED:
    raise UserError(f"{result.path}: has {len(checkpoints)} evaluated milestones; needs {NUM_REPORTED}")
  return Run(agent=agent, protocol=protocol, game=game, result=result, checkpoints=checkpoints)


def evaluated(result: Result) -> list[dict[str, Any]]:
  """Returns the evaluations of milestones with the run's own number of simulations, oldest first."""
  own = [e for e in result.evaluations if e["simulations"] is None and e["episodes"] >= EPISODES]
  return sorted(own, key=lambda e: int(e["env_steps"]))


def score_of(checkpoints: Sequence[dict[str, Any]]) -> float:
  """Returns the figure of a run: the mean return over its last five milestones."""
  return float(np.mean([c["return_mean"] for c in checkpoints[-NUM_REPORTED:]]))


def _check_protocol(result: Result, protocol: str, game: str) -> None:
  """Raises UserError if the result's environment is not the protocol's."""
  changed = differences(_config_of(protocol, game), result.config)
  if changed := [key for key in changed if key.startswith("env.")]:
    raise UserError(f"{result.path}: differs from protocol ({protocol}) in {', '.join(changed)}")


@functools.cache
def _config_of(protocol: str, game: str) -> Config:
  return sweep_of(HERE).job(f"muzero_{protocol}_{game}_seed0").load_config(Path("runs"))


def seconds_per_step(results: Iterable[Result]) -> dict[str, list[float]]:
  """Returns `t_act` and `t_learn` in microseconds of the results that have them (machine.json)."""
  machines: Sequence[dict[str, Any]] = [result.machine for result in results]
  return {
    name: [1e6 * machine[f"{name}_s"] for machine in machines if f"{name}_s" in machine]
    for name in ("t_act", "t_learn")
  }
