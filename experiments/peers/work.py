"""The work that all systems do, and how each system is installed and started."""

import dataclasses
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
  """One job's settings; every driver reads the same ones.

  Attributes:
    simulations: simulations per search.
    num_envs: environments that act in one batch.
    episode_length: steps of every episode.
    batch_size: samples per update.
    unroll_steps, n_step: K, and the steps until the value target bootstraps.
    samples_per_step: samples that are learned from per environment step.
    bins: number of categories of values and of rewards.
    width, head_width: hidden sizes of the dense layers, and of the heads.
    mujax_prediction_width: hidden size of mujax's heads of value and policy, which have no common layers;
      the number of parameters is then about that of the other networks.
    seconds: duration of the parts that are timed alone.
    steps: environment steps of the timed part of training.
    warm_steps: environment steps before it.
    min_steps_to_learn: steps in replay before the first update.
    replay_size: capacity of replay in steps.
    segment_length: MooZi's steps per environment and call of its worker.
  """

  simulations: int
  num_envs: int = 64
  episode_length: int = 64
  batch_size: int = 256
  unroll_steps: int = 5
  n_step: int = 5
  samples_per_step: int = 4
  bins: int = 41
  width: int = 256
  head_width: int = 32
  mujax_prediction_width: int = 144
  seconds: float = 3.0
  steps: int = 4096
  warm_steps: int = 6144
  min_steps_to_learn: int = 2048
  replay_size: int = 65_536
  segment_length: int = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class System:
  """A system.

  Attributes:
    name: as in tables; `drivers/drive_<key>.py` is its driver.
    requirements: what pip installs with its dependencies; empty: the driver runs with this interpreter.
    without_dependencies: what pip then installs without dependencies.
    steps: environment steps of training to time.
    timeout: seconds after which a job has failed.
  """

  key: str
  name: str
  requirements: tuple[str, ...] = ()
  without_dependencies: tuple[str, ...] = ()
  steps: int = Work.steps
  timeout: float = 900.0

  @property
  def driver(self) -> str:
    return f"drive_{self.key}.py"


# What LightZero 0.2.0 and DI-engine 0.5.3 need in these jobs. DI-engine wants setuptools <= 66.1.1 and torch
# 2.13 wants setuptools >= 77.0.3, so pip refuses both with their dependencies. `+cpu` keeps pip from fetching
# a build for CUDA.
_LIGHTZERO = tuple((Path(__file__).resolve().parent / "lightzero.txt").read_text("utf-8").split())

SYSTEMS = (
  System(key="moozi", name="MooZi"),
  System(key="mujax", name="mujax", requirements=("mujax==0.1.3",)),
  System(key="muax", name="muax", requirements=("muax==0.0.2.8.3",), steps=1024),
  System(
    key="lightzero",
    name="LightZero",
    requirements=_LIGHTZERO,
    without_dependencies=("LightZero==0.2.0", "DI-engine==0.5.3"),
  ),
)

SIMULATIONS = (8, 32)


def job_of(system: System, simulations: int, seconds: float, share: float = 1.0) -> dict[str, Any]:
  """Returns the settings of a system's job; only `steps` depends on the system.

  Args:
    seconds: duration of the parts that are timed alone.
    share: share of the system's steps to train for; below 1 for a quick check. LightZero makes at least one
      cycle of 4,096 steps.
  """
  steps = max(round(system.steps * share), 512)
  return dataclasses.asdict(Work(simulations=simulations, seconds=seconds, steps=steps))
