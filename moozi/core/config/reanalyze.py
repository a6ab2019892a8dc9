"""Sections of `moozi.core.config` for reanalyze and stored trajectories."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from moozi.core.config.section import ActorResources, PositiveInt, Section


class TrajectoriesConfig(Section):
  """Saving of training workers' trajectories to disk."""

  save: bool = Field(False, description="write each acted segment to the run's folder trajectories/")


class OfflineConfig(Section):
  """Training on trajectories from disk."""

  trajectories: str | None = Field(None, description="run or folder with stored trajectories; null: none")
  fraction: Annotated[float, Field(gt=0.0, le=1.0)] = Field(
    1.0,
    description="share of each batch from stored trajectories; with 1 no worker acts, and max_env_steps "
    "counts the steps that workers would make at the same sample reuse",
  )
  max_env_steps: PositiveInt | None = Field(
    None, description="ignore files with environment steps after this one; null: use all files"
  )

  def share_of(self, count: int) -> int:
    """Returns how many of `count` items are from the stored trajectories.

    With a fraction below 1 and at least two items, the stored part and the acted part each give at least one.
    """
    if self.fraction == 1:
      return count
    return min(max(round(self.fraction * count), 1), count - 1)


class ReanalyzeConfig(Section):
  """Reanalyze: stored positions get new values, and by a search new policies, from the target network."""

  ratio: Annotated[float, Field(ge=0.0, le=0.99)] = Field(
    0.0,
    description="wanted share: reanalyzed positions / (reanalyzed positions + acted steps), since training "
    "started; the actual one is lower if all positions were searched with newer parameters than the target "
    "network's",
  )
  search: bool = Field(
    True,
    description="true: replace values and policies by those of a search; false: replace only the values, by "
    "those of the network, with mode=gather",
  )
  mode: Literal["gather", "replayed"] = Field(
    "gather",
    description="gather: search positions with their histories; replayed: search them in environments that "
    "replay stored steps",
  )
  order: Literal["oldest", "priority"] = Field(
    "oldest",
    description="oldest: the position with the oldest search first; priority: the position with the largest "
    "δ first, and positions that the current target network has already searched last",
  )
  batch_size: PositiveInt = Field(
    256, description="largest number of positions in one call; the ratio is met to within one call"
  )
  num_workers: PositiveInt = Field(1, description="ray: number of reanalyze workers if ratio > 0")
  calls_in_flight: PositiveInt = Field(
    2, description="ray: maximum number of unfinished calls of each reanalyze worker"
  )
  resources: ActorResources = ActorResources(num_cpus=0.25, niceness=5)

  @model_validator(mode="after")
  def _searches_when_replayed(self) -> "ReanalyzeConfig":
    if not self.search and self.mode == "replayed":
      raise ValueError("search=false: not with mode=replayed; set mode=gather")
    return self
