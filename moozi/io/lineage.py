"""The lineage of a run, a file in its directory: the points at which it took over states of other runs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pydantic

from moozi.core.errors import UserError, reason_of
from moozi.io.atomic_write import write_text
from moozi.io.bounded_read import read_bounded
from moozi.io.plain_data import MAX_BYTES

BEFORE = -1
"""`Joint.at_env_steps` of a joint of an earlier run, whose steps are not among the run's own."""


class Joint(pydantic.BaseModel):
  """A point at which a run took over the state of another.

  Attributes:
    kind: "start": a new run began with the other's training state (`checkpoint.start_from`). "surgery": the
      whole run was continued in another form.
    run: the other run, as the command or the configuration named it.
    checkpoint, digest: name of the other run's checkpoint, and digest of the checkpoint's file.
    env_steps, learner_steps: counters of the checkpoint.
    at_env_steps: environment steps of the run itself at this point; BEFORE if it is none of the run's own.
    changes: the settings that changed, one line each.
    lost: what was not preserved, one line each.
    left: parts of the state that were not taken over, one line each.
  """

  model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

  kind: Literal["start", "surgery"]
  run: str
  checkpoint: str
  digest: str
  env_steps: int
  learner_steps: int
  at_env_steps: int
  changes: tuple[str, ...] = ()
  lost: tuple[str, ...] = ()
  left: tuple[str, ...] = ()

  def text(self) -> str:
    """Returns the joint as one line."""
    what = "surgery of" if self.kind == "surgery" else "start from"
    changes = f": {', '.join(self.changes)}" if self.changes else ""
    lost = f"; lost: {len(self.lost)}" if self.lost else ""
    return f"{what} {self.run} at {self.env_steps:,} steps{changes}{lost}"


_Joints = pydantic.TypeAdapter(list[Joint])


def read_lineage(path: Path) -> list[Joint]:
  """Returns the joints in order; none if there is no file. Raises UserError if the file is damaged."""
  try:
    return _Joints.validate_json(read_bounded(path, MAX_BYTES))
  except FileNotFoundError:
    return []
  except OSError as e:
    raise UserError(f"{path}: cannot be read: {reason_of(e)}") from None
  except (ValueError, RecursionError):
    raise UserError(f"{path}: not the lineage of a run") from None


def write_lineage(path: Path, joints: Sequence[Joint]) -> None:
  """Writes the joints. Raises OSError if the file cannot be written."""
  data = [joint.model_dump(mode="json") for joint in joints]
  write_text(path, json.dumps(data, indent=2) + "\n")
