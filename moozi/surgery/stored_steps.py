"""Converts stored steps, in replay and in trajectory files, to those of an environment with more planes
or actions.

New planes are 0 in old steps, and new actions are illegal and never taken. Imports no JAX.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
from jaxtyping import Shaped

from moozi.core.errors import UserError
from moozi.core.flat_state import Snapshot, State, part
from moozi.core.records import TrajectorySample
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.replay.frame_rows import FrameRows
from moozi.replay.snapshot import STORED
from moozi.surgery.pairing import Correspondence


@dataclasses.dataclass(frozen=True)
class StepConverter:
  """Converts the fields of steps between two environments.

  Raises: UserError: the new steps cannot be made of the old ones: the games differ, or a plane or an action
    of the old one is missing in the new one.
  """

  old: EnvSpec
  new: EnvSpec
  pairs: Correspondence

  def __post_init__(self) -> None:
    if not self.pairs.is_same_game:
      raise UserError(f"steps of {self.old.name} are not steps of {self.new.name}")
    for kind, sources, count in (
      ("plane", self.pairs.planes, self.old.frame_shape[2]),
      ("action", self.pairs.actions, self.old.policy_size - 1),
    ):
      missing = set(range(count)) - set(sources)
      if missing:
        raise UserError(f"{kind} {min(missing)} of {self.old.name} is missing in the new environment")

  @property
  def is_identity(self) -> bool:
    """Whether the old steps are steps of the new environment as they are."""
    frames = (self.old.frame_shape, self.pairs.planes) == (
      self.new.frame_shape,
      tuple(range(self.old.frame_shape[2])),
    )
    return frames and self.pairs.actions == tuple(range(self.old.policy_size - 1))

  def frames(self, frames: Shaped[np.ndarray, "... H W C"]) -> Shaped[np.ndarray, "... H W D"]:
    out = np.zeros((*frames.shape[:-1], self.new.frame_shape[2]), frames.dtype)
    for i, source in enumerate(self.pairs.planes):
      if source is not None:
        out[..., i] = frames[..., source]
    return out

  def entries(self, values: Shaped[np.ndarray, "... P"]) -> Shaped[np.ndarray, "... Q"]:
    """Converts policies or masks; new actions have 0."""
    out = np.zeros((*values.shape[:-1], self.new.policy_size), values.dtype)
    out[..., DUMMY_ACTION] = values[..., DUMMY_ACTION]
    for i, source in enumerate(self.pairs.actions):
      if source is not None:
        out[..., i + 1] = values[..., source + 1]
    return out

  def actions(self, actions: Shaped[np.ndarray, "..."]) -> Shaped[np.ndarray, "..."]:
    """Converts numbers of actions; joint actions and the dummy keep theirs."""
    if self.new.is_factored:
      return actions
    number = np.zeros(self.old.num_actions, actions.dtype)
    for i, source in enumerate(self.pairs.actions):
      if source is not None:
        number[source + 1] = i + 1
    return np.asarray(number[actions])

  def fields(self, steps: Mapping[str, Shaped[np.ndarray, "..."]]) -> dict[str, np.ndarray]:
    """Converts fields of a TrajectorySample by name."""
    convert = {
      "frame": self.frames,
      "action": self.actions,
      "action_probs": self.entries,
      "legal_actions_mask": self.entries,
    }
    return {name: convert[name](x) if name in convert else np.array(x) for name, x in steps.items()}

  def sample(self, steps: TrajectorySample) -> TrajectorySample:
    return dataclasses.replace(steps, **self.fields(vars(steps)))

  def snapshot(self, snapshot: Snapshot) -> Snapshot:
    """Converts the steps of replay; priorities, counters and the order of steps stay.

    Raises: UserError: a part of replay is of trajectories of the old environment.
    """
    if self.is_identity:
      return snapshot
    if part(snapshot.head, STORED):
      raise UserError("offline.trajectories are of the old environment")
    blocks = {number: self._block(block) for number, block in snapshot.blocks.items()}
    return dataclasses.replace(snapshot, blocks=blocks)

  def _block(self, block: State) -> State:
    rows = FrameRows(self.old), FrameRows(self.new)
    mask = np.unpackbits(block["legal_actions_mask"], axis=-1, count=self.old.policy_size)
    steps = dict(block) | {"frame": rows[0].decode(block["frame"]), "legal_actions_mask": mask}
    out = self.fields(steps)
    out["frame"] = rows[1].encode(out["frame"])
    out["legal_actions_mask"] = np.packbits(out["legal_actions_mask"], axis=-1)
    return out
