"""The specification of an environment, the only source of its shapes and names (YAML has none)."""

import dataclasses
import math
from typing import Literal

import numpy as np

from moozi.core.symmetry import Symmetry

DUMMY_ACTION = 0
"""Index 0 of the agent's action space: fills the history before an episode and targets after its end."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvSpec:
  """The specification of one environment.

  Attributes:
    name: `library:game`, as the user writes it; any name for a user's `GameEnvironment`.
    frame_shape: (H, W, C) of one frame; (1, 1, D) for vector observations.
    frame_dtype: storage of a frame: "bool", "uint8" (scaled by 1/255 on the device) or "float32".
    num_env_actions: size of the environment's own action space A^e.
    num_players: number of players that the agent plays: 1, or 2 who alternate strictly.
    action_names: one name for each of the environment's own actions.
    is_perfect_information: whether nothing is hidden from either player. If false, a frame shows only what
      the player to move may see, so the previous frame may be the opponent's view.
    num_seats: number of players of the game if the agent plays one seat and the environment plays the others
      (`num_players` is then 1); 0 in every other environment.
    action_places: where the first actions act on a board of H × W cells, with the board's cells as those of
      the frame. "cells": action i at cell i, row by row; "columns": action i at column i; "none": unknown.
    player_planes: of frames that are equal for both players: the planes with the pieces of player 0 and of
      player 1, and the plane that is 1 everywhere if player 1 is to move. None: unknown, or the frames are
      from the view of the player to move.
    symmetries: the game's known symmetries, without the identity. The environment determines them,
      `action_places` and `player_planes`, so they are not compared and not written to files.
  """

  name: str
  frame_shape: tuple[int, int, int]
  frame_dtype: str
  num_env_actions: int
  num_players: int = 1
  action_names: tuple[str, ...] = ()
  is_perfect_information: bool = True
  num_seats: int = 0
  action_places: Literal["none", "cells", "columns"] = dataclasses.field(
    default="none", compare=False, repr=False
  )
  player_planes: tuple[int, int, int] | None = dataclasses.field(default=None, compare=False, repr=False)
  symmetries: tuple[Symmetry, ...] = dataclasses.field(default=(), compare=False, repr=False)

  def __post_init__(self) -> None:
    if self.frame_dtype not in ("bool", "uint8", "float32"):
      raise ValueError(f"frame_dtype={self.frame_dtype!r}: must be bool, uint8 or float32")
    if len(self.frame_shape) != 3:
      raise ValueError(f"frame_shape={self.frame_shape!r}: must be (H, W, C)")
    if self.num_env_actions < 1:
      raise ValueError(f"num_env_actions={self.num_env_actions}: must be at least 1")
    if self.num_players not in (1, 2):
      raise ValueError(f"num_players={self.num_players}: only 1 or 2 players are supported")
    if self.num_seats and self.num_players != 1:
      raise ValueError(f"num_seats={self.num_seats}: must be 0 with num_players={self.num_players}")
    if self.action_places not in ("none", "cells", "columns"):
      raise ValueError(f"action_places={self.action_places!r}: must be none, cells or columns")
    if self.num_env_actions < self.num_places:
      raise ValueError(
        f"action_places={self.action_places!r}: needs at least {self.num_places} actions, one for each place"
      )
    if self.player_planes and not set(self.player_planes) <= set(range(self.frame_shape[2])):
      raise ValueError(f"player_planes={self.player_planes}: must be planes of frames of {self.frame_shape}")
    for symmetry in self.symmetries:
      for key, value, size in (
        ("entries", symmetry.entries, math.prod(self.frame_shape)),
        ("actions", symmetry.actions, self.num_env_actions),
      ):
        if not np.array_equal(np.sort(value), np.arange(size)):
          raise ValueError(f"symmetries: {symmetry.name}.{key}: must be a permutation of 0 … {size - 1}")

  @property
  def num_actions(self) -> int:
    """Size A of the agent's action space: the environment's actions and the dummy at index 0."""
    return self.num_env_actions + 1

  @property
  def num_places(self) -> int:
    """Number of the actions that `action_places` gives a place."""
    height, width, _ = self.frame_shape
    return {"none": 0, "cells": height * width, "columns": width}[self.action_places]

  def to_dict(self) -> dict:
    """Returns the fields that are compared as plain values, for JSON."""
    return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.compare}
