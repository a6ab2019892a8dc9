"""Symmetries of board games: permutations of a frame's entries and of the actions that preserve the rules.

A symmetry transforms the frames and actions of a game into those of another game with the same rules and the
same rewards. Imports no JAX.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Int

_TURNS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
  "mirror": lambda x: x[:, ::-1],
  "flip": lambda x: x[::-1],
  "rotate_180": lambda x: x[::-1, ::-1],
  "transpose": lambda x: np.swapaxes(x, 0, 1),
  "antitranspose": lambda x: np.swapaxes(x[::-1, ::-1], 0, 1),
  "rotate_90": lambda x: np.rot90(x),
  "rotate_270": lambda x: np.rot90(x, 3),
}
SQUARE = tuple(_TURNS)
"""The symmetries of the square, without the identity."""


@dataclasses.dataclass(frozen=True, eq=False)
class Symmetry:
  """One symmetry of a game, other than the identity.

  Attributes:
    entries: H·W·C numbers: entry i of the transformed frame (row by row) is entry `entries[i]` of the frame.
    actions: E numbers: the environment's action a becomes action `actions[a]`.
  """

  name: str
  entries: Int[np.ndarray, "HWC"]
  actions: Int[np.ndarray, "E"]


class SymmetryTables(NamedTuple):
  """All G symmetries of a game, the identity first, in the agent's action space.

  Attributes:
    entries: entry i of the frame transformed by symmetry g is entry `entries[g, i]` of the frame.
    actions: symmetry g maps action a to `actions[g, a]`, and the dummy to itself.
    policies: entry a of the transformed policy is entry `policies[g, a]` of the policy; the inverse of
      `actions`.
  """

  entries: Int[np.ndarray, "G HWC"]
  actions: Int[np.ndarray, "G A"]
  policies: Int[np.ndarray, "G A"]


def board_symmetries(
  turns: Sequence[str],
  frame_shape: tuple[int, int, int],
  num_env_actions: int,
  moves: Literal["cells", "columns"] = "cells",
  swapped_planes: Sequence[tuple[int, int]] = (),
) -> tuple[Symmetry, ...]:
  """Returns the symmetries of a game on a board.

  Args:
    turns: names of rotations and reflections of the board, such as those in SQUARE.
    moves: what the first actions name: the board's cells, row by row, or its columns. Other actions, such as
      a pass, do not change.
    swapped_planes: pairs of planes that every symmetry swaps, because their content depends on a direction.

  Raises: ValueError: a turn changes the shape of the board, such as a quarter turn of 4 by 5 cells.
  """
  height, width, channels = frame_shape
  planes = np.arange(channels)
  for a, b in swapped_planes:
    planes[[a, b]] = planes[[b, a]]
  entries = np.arange(height * width * channels).reshape(frame_shape)[..., planes]
  shape = (height, width) if moves == "cells" else (1, width)
  places = np.arange(shape[0] * shape[1]).reshape(shape)
  others = np.arange(places.size, num_env_actions)

  def symmetry(name: str) -> Symmetry:
    turn = _TURNS[name]
    for x, what in ((entries, "frame"), (places, f"moves={moves!r}")):
      if turn(x).shape != x.shape:
        raise ValueError(f"turns: {name} changes the shape of {what}, {x.shape[0]} by {x.shape[1]}")
    return Symmetry(name, turn(entries).ravel(), np.append(np.argsort(turn(places), axis=None), others))

  return tuple(symmetry(name) for name in turns)


def tables_of(symmetries: Sequence[Symmetry], num_entries: int, num_actions: int) -> SymmetryTables:
  """Returns the tables of the identity and `symmetries`, for frames of H·W·C entries and A actions."""
  actions = np.stack(
    [np.arange(num_actions), *(np.append(0, symmetry.actions + 1) for symmetry in symmetries)]
  )
  entries = np.stack([np.arange(num_entries), *(symmetry.entries for symmetry in symmetries)])
  return SymmetryTables(entries, actions.astype(np.int32), np.argsort(actions, axis=1))
