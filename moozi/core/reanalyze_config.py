"""What reanalyze and stored trajectories are told: sections of `moozi.core.config`."""

from typing import Annotated, Literal

from pydantic import Field

from moozi.core.section import ActorResources, PositiveInt, Section


class TrajectoriesConfig(Section):
  """What was acted, on disk."""

  save: bool = Field(False, description="write every acted segment to the run's folder trajectories/")


class OfflineConfig(Section):
  """Learning from trajectories on disk."""

  trajectories: str | None = Field(
    None, description="a run that kept its trajectories, or a folder of them; null: none"
  )
  fraction: Annotated[float, Field(gt=0.0, le=1.0)] = Field(
    1.0,
    description="share of each batch that comes from them; with 1 nothing is acted, and max_env_steps "
    "counts the steps that acting would have made at the same sample reuse",
  )
  max_env_steps: PositiveInt | None = Field(
    None, description="leave out files with environment steps after this one"
  )


class ReanalyzeConfig(Section):
  """Searching stored positions again, with the target network and `planners.reanalyze`."""

  ratio: Annotated[float, Field(ge=0.0, le=0.99)] = Field(
    0.0, description="positions searched again / (those and steps acted), since training began"
  )
  mode: Literal["gather", "replayed"] = Field(
    "gather",
    description="gather: positions with their histories; replayed: environments that replay trajectories",
  )
  order: Literal["oldest", "priority"] = Field(
    "oldest",
    description="which first: the longest not searched, or the largest delta among those not "
    "searched with the target network's present parameters",
  )
  batch_size: PositiveInt = Field(
    256, description="positions in one call of a worker; at its end a run is short of ratio by less than one"
  )
  num_workers: PositiveInt = Field(1, description="ray: reanalyze workers, where ratio is above 0")
  calls_in_flight: PositiveInt = Field(2, description="ray: calls queued at each")
  resources: ActorResources = ActorResources(num_cpus=0.25, niceness=5)
