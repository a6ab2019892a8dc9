"""Jobs of an experiment: a run and the evaluations of its checkpoints."""

import dataclasses
from pathlib import Path

from moozi.experiments import jobs
from moozi.io.checkpoints import CheckpointInfo, find_checkpoint, list_checkpoints, list_milestones
from moozi.io.run_directory import RunDirectory

ROOT = Path(__file__).resolve().parents[2]
"""The repository."""

_MAX_DELAY = 0.05  # as a fraction of the step; a milestone is saved after a round of collecting


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
  """An evaluation of one checkpoint.

  `checkpoint` is its environment step, or `last`, or `-k` for the k-th milestone from the end. If
  `simulations` is None, the search has the run's number of simulations. `opponent` is a player, such as
  `mcts:1000`; None: that of the run's evaluations.
  """

  checkpoint: str
  episodes: int = 100
  simulations: int | None = None
  opponent: str | None = None


MACHINE = ("runtime", "ray.", "workers.resources.", "evaluation.resources.", "checkpoint.", "timeline.")
"""Prefixes of the settings that determine where and with what resources a job runs, not what it learns."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job(jobs.Job):
  """One training run with its evaluations; `run` is the name of a run that another job trains.

  Attributes:
    evaluations: the evaluations after training.
    may_differ: prefixes of the settings in which a result may differ from the job, such as `MACHINE`.
  """

  evaluations: tuple[Evaluation, ...] = (Evaluation(checkpoint="last"),)
  may_differ: tuple[str, ...] = ()


def matches_step(env_steps: int, wanted: int) -> bool:
  """Returns whether a checkpoint is at a stated step or up to 5% after it."""
  return 0 <= env_steps - wanted <= _MAX_DELAY * wanted


def find_evaluated(run: RunDirectory, which: str) -> CheckpointInfo | None:
  """Returns the checkpoint of an evaluation.

  For an environment step, this is the first match among the milestones and the last checkpoint, or None.
  For `-k` it is None if there are fewer milestones. The best checkpoint is excluded, because it was selected
  by the quantity that is measured.

  Raises: UserError: the run has no checkpoint, or not the one that `which` names.
  """
  if which.startswith("-"):
    milestones = list_milestones(run.checkpoints_path)
    from_end = int(which)
    return milestones[from_end] if len(milestones) >= -from_end else None
  last = find_checkpoint(run.checkpoints_path, "last")
  if not which.isdigit():
    return find_checkpoint(run.checkpoints_path, which)
  for info in list_checkpoints(run.checkpoints_path):
    is_candidate = info.meta.get("is_milestone") or info.name == last.name
    if is_candidate and matches_step(info.env_steps, int(which)):
      return info
  return None
