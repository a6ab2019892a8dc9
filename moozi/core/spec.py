"""The specification of an environment, the only source of its shapes and names (a configuration has none)."""

import dataclasses
import functools
import math
from collections.abc import Iterable
from typing import Literal

import numpy as np

from moozi.core.errors import UserError
from moozi.core.factors import Factors, Intervals
from moozi.core.frame_parts import FramePart, check_parts
from moozi.core.symmetry import Symmetry
from moozi.core.types import AnyArray

DUMMY_ACTION = 0
"""Index 0 of the agent's action space: fills the history before an episode and targets after its end."""
MAX_ENUMERATED = 32
"""Up to this number of joint actions, each of them is an action of its own to every algorithm."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvSpec:
  """The specification of one environment.

  Attributes:
    name: `library:game`, as the user writes it; any name for a user's `GameEnvironment`.
    frame_shape: (H, W, C) of one frame; (1, 1, D) for vector observations.
    frame_dtype: storage of a frame: "bool", "uint8" or "float32".
    num_env_actions: number of the environment's own actions, with `factors` of joint actions; 1 with
      continuous actions.
    num_players: number of players that the agent plays: 1, or 2 who alternate strictly.
    action_names: one name for each of the environment's own actions; the last ones may be missing.
    frame_names: one name for each plane, or for each entry of a vector; empty: unknown. If the planes of the
      players are known, another plane is drawn only if its name is not "".
    frame_parts: the arrays of a Dict or Tuple observation whose frame is one vector; empty if none of them is
      an image, and for other observations.
    is_perfect_information: whether nothing is hidden from either player. If false, a frame shows only what
      the player to move may see, so the previous frame may be the opponent's view.
    factors: the dimensions of the environment's joint or continuous actions; None: its actions have no
      dimensions.
    num_seats: number of players of the game if the agent plays one seat and the environment plays the others
      (`num_players` is then 1); 0 in every other environment.
    action_places: where the first actions act on a board whose H × W cells are those of the frame. "cells":
      action i at cell i, row by row; "columns": action i at column i; "none": unknown.
    player_planes: where frames are equal for both players: the planes with the pieces of player 0 and of
      player 1, and the plane that is 1 everywhere if player 1 is to move. None: unknown, or the frames are
      from the view of the player to move.
    mover_planes: where frames are from the view of the player to move: the plane with that player's pieces
      and the plane with the other's, or a tuple of planes for each, such as ((0, 1), (2, 3)). The cells are
      the same in both views. None: unknown, or the frames are equal for both players.
    symmetries: the game's known symmetries, without the identity. The environment determines them,
      `frame_names`, `frame_parts`, `action_places`, `player_planes` and `mover_planes`, so they are not
      compared and not written to files.
  """

  name: str
  frame_shape: tuple[int, int, int]
  frame_dtype: str
  num_env_actions: int
  num_players: int = 1
  action_names: tuple[str, ...] = ()
  is_perfect_information: bool = True
  num_seats: int = 0
  factors: Factors | Intervals | None = None
  frame_names: tuple[str, ...] = dataclasses.field(default=(), compare=False, repr=False)
  frame_parts: tuple[FramePart, ...] = dataclasses.field(default=(), compare=False, repr=False)
  action_places: Literal["none", "cells", "columns"] = dataclasses.field(
    default="none", compare=False, repr=False
  )
  player_planes: tuple[int, int, int] | None = dataclasses.field(default=None, compare=False, repr=False)
  mover_planes: tuple[int | tuple[int, ...], int | tuple[int, ...]] | None = dataclasses.field(
    default=None, compare=False, repr=False
  )
  symmetries: tuple[Symmetry, ...] = dataclasses.field(default=(), compare=False, repr=False)

  def __post_init__(self) -> None:
    if self.frame_dtype not in ("bool", "uint8", "float32"):
      raise ValueError(f"frame_dtype={self.frame_dtype!r}: must be bool, uint8 or float32")
    if len(self.frame_shape) != 3:
      raise ValueError(f"frame_shape={self.frame_shape!r}: must be (H, W, C)")
    if self.factors is not None and self.factors.num_joint_actions != self.num_env_actions:
      raise ValueError(
        f"num_env_actions={self.num_env_actions}: must be {self.factors.num_joint_actions}, as factors say"
      )
    if self.num_env_actions < 1:
      raise ValueError(f"num_env_actions={self.num_env_actions}: must be at least 1")
    if self.is_continuous and (self.num_players, self.num_seats) != (1, 0):
      raise ValueError(f"num_players={self.num_players}: continuous actions need a game of one player")
    if self.num_players not in (1, 2):
      raise ValueError(f"num_players={self.num_players}: must be 1 or 2; more play at a moozi.Table")
    if self.num_seats and self.num_players != 1:
      raise ValueError(f"num_seats={self.num_seats}: must be 0 with num_players={self.num_players}")
    if self.action_places not in ("none", "cells", "columns"):
      raise ValueError(f"action_places={self.action_places!r}: must be none, cells or columns")
    if self.num_env_actions < self.num_places:
      raise ValueError(
        f"action_places={self.action_places!r}: needs at least {self.num_places} actions, one for each place"
      )
    _check_names("action_names", self.action_names)
    if len(self.action_names) > self.num_env_actions:
      raise ValueError(f"action_names: {len(self.action_names)} names for {self.num_env_actions} actions")
    _check_names("frame_names", self.frame_names)
    if len(self.frame_names) not in (0, self.frame_shape[2]):
      raise ValueError(
        f"frame_names: {len(self.frame_names)} names; must be {self.frame_shape[2]}, one for each plane or "
        "vector entry"
      )
    if self.frame_parts:
      check_parts(self.frame_parts, self.frame_shape)
    if self.player_planes and not set(self.player_planes) <= set(range(self.frame_shape[2])):
      raise ValueError(f"player_planes={self.player_planes}: must be planes of frames of {self.frame_shape}")
    self._check_mover_planes()
    for symmetry in self.symmetries:
      for key, value, size in (
        ("entries", symmetry.entries, math.prod(self.frame_shape)),
        ("actions", symmetry.actions, self.num_env_actions),
      ):
        if not np.array_equal(np.sort(value), np.arange(size)):
          raise ValueError(f"symmetries: {symmetry.name}.{key}: must be a permutation of 0 … {size - 1}")

  def _check_mover_planes(self) -> None:
    if self.mover_planes is None:
      return
    where = f"mover_planes={self.mover_planes}"
    if self.num_players != 2 or self.player_planes:
      other = (
        f"player_planes={self.player_planes}" if self.player_planes else f"num_players={self.num_players}"
      )
      raise ValueError(f"{where}: must be None with {other}")
    planes = [plane for own in self.planes_of_players for plane in own]
    if len(set(planes)) < len(planes) or not set(planes) <= set(range(self.frame_shape[2])):
      raise ValueError(f"{where}: must be different planes of frames of {self.frame_shape}")

  @property
  def planes_of_players(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The planes with pieces of player 0 and of player 1; with `mover_planes`, of the mover and the other."""
    first, second = self.mover_planes or (self.player_planes or ((), ()))[:2]
    return _as_tuple(first), _as_tuple(second)

  @property
  def num_actions(self) -> int:
    """Size A of the agent's action space: the environment's actions and the dummy at index 0."""
    return self.num_env_actions + 1

  # Every step of an environment reads these properties, so each is computed once.
  @functools.cached_property
  def policy_groups(self) -> tuple[int, ...]:
    """Sizes of the groups of a policy's entries; each group has a distribution of its own.

    (A,) if every action has an entry. With more than `MAX_ENUMERATED` joint actions, the dummy has a group,
    and so has each dimension; a policy is then the product of the dimensions' distributions. With continuous
    actions, each of these groups has one entry, and that of a dimension has the probability 1.
    """
    if self.factors is None or (self.num_env_actions <= MAX_ENUMERATED and not self.is_continuous):
      return (self.num_actions,)
    return (1, *self.factors.sizes)

  @functools.cached_property
  def policy_size(self) -> int:
    """Number of entries of a policy or of a mask, the dummy's first; A if every action has an entry."""
    return sum(self.policy_groups)

  @functools.cached_property
  def mask_size(self) -> int:
    """Number of entries of the environment's own mask, without the dummy's."""
    return self.policy_size - 1

  @functools.cached_property
  def is_factored(self) -> bool:
    """Whether policies are products of distributions, so that joint actions have no entries of their own."""
    return len(self.policy_groups) > 1

  @functools.cached_property
  def intervals(self) -> Intervals | None:
    """The dimensions of continuous actions; None if actions have numbers."""
    return self.factors if isinstance(self.factors, Intervals) else None

  @functools.cached_property
  def is_continuous(self) -> bool:
    """Whether actions are rows of floats instead of numbers; `is_factored` is then true too."""
    return isinstance(self.factors, Intervals)

  @property
  def action_shape(self) -> tuple[int, ...]:
    """The shape of one action: (), or (D,) of a continuous one."""
    return () if self.intervals is None else self.intervals.low.shape

  @property
  def action_dtype(self) -> str:
    """The dtype of actions: int32, or float32 of continuous ones. The dummy is 0, or a row of zeros."""
    return "float32" if self.is_continuous else "int32"

  def to_env(self, action: AnyArray) -> AnyArray:
    """Returns actions of the agent's action space as the environment's numbers; continuous ones unchanged."""
    return action if self.is_continuous else action - 1

  def from_env(self, action: AnyArray) -> AnyArray:
    """Returns the environment's own actions in the agent's action space; inverts `to_env`."""
    return action if self.is_continuous else action + 1

  @property
  def actions_text(self) -> str:
    """The action space as one line, such as `3 actions: left, stay, right`."""
    if self.factors is None:
      count = self.num_env_actions
      names = _listed(name for name in self.action_names if name)
      return f"{count} action{'s' * (count != 1)}" + (f": {names}" if names else "")
    sizes = [f" ({len(values)} values)" if self.intervals is None else "" for values in self.factors.values]
    rows = zip(self.factors.names, self.factors.values, sizes, strict=True)
    dimensions = _listed(f"{name} from {values[0]:g} to {values[-1]:g}{size}" for name, values, size in rows)
    is_joint = len(sizes) > 1
    kind = f"{self.num_env_actions:,}{' joint' * is_joint}" if self.intervals is None else "continuous"
    return f"{kind} actions of {len(sizes)} dimension{'s' * is_joint}: {dimensions}"

  @property
  def num_places(self) -> int:
    """Number of the actions that `action_places` gives a place."""
    height, width, _ = self.frame_shape
    return {"none": 0, "cells": height * width, "columns": width}[self.action_places]

  def to_dict(self) -> dict:
    """Returns the compared fields as plain values, for JSON; `factors` only if there are any."""
    data = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.compare}
    factors = data.pop("factors")
    if factors is not None:
      data["factors"] = dataclasses.asdict(factors) | ({"is_continuous": True} if self.is_continuous else {})
    return data


@functools.cache
def all_legal(size: int) -> np.ndarray:
  """Returns a mask [size] bool in which every action is legal: one read-only array for each size.

  A check recognizes the array, and does not read it.
  """
  out = np.ones(size, bool)
  out.flags.writeable = False
  return out


def check_multi_input(key: str, spec: EnvSpec, for_images: str) -> None:
  """Raises UserError if an environment's observations are not cut into parts, which `multi_input` needs.

  Args:
    key: the key of the configuration that has the value `multi_input`.
    for_images: the values of `key` that suit images, as text for the message.
  """
  if spec.frame_parts:
    return
  height, width, channels = spec.frame_shape
  found, suited = f"images of {height}×{width}×{channels}", for_images
  if height == width == 1:
    found, suited = f"vectors of {channels} numbers", "mlp"
  raise UserError(
    f"{key}=multi_input: needs a Dict or Tuple observation with an image; those of env.name={spec.name} are "
    f"{found}, for which there is {suited}"
  )


def _listed(texts: Iterable[str]) -> str:
  """Returns texts with commas between them; of more than 12, the first 11 and the number of the others."""
  found = list(texts)
  more = [f"and {len(found) - 11} more"] if len(found) > 12 else []
  return ", ".join([*(found[:11] if more else found), *more])


def _as_tuple(planes: int | tuple[int, ...]) -> tuple[int, ...]:
  return planes if isinstance(planes, tuple) else (planes,)


def _check_names(key: str, names: tuple[str, ...]) -> None:
  """Raises ValueError unless `names` is a tuple of printable texts."""
  if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
    raise ValueError(f"{key}={names!r}: must be a tuple of texts")
  for name in names:
    if not name.isprintable():
      raise ValueError(f"{key}: {name!r} has characters that cannot be printed")
