"""A user's `Table`, checked, with the seat in its frames."""

import dataclasses
import functools
from typing import Any

import numpy as np
from jaxtyping import Bool, Shaped

from moozi.core.errors import EnvError, UserError
from moozi.core.spec import EnvSpec
from moozi.core.user_code import Plugin
from moozi.envs.environment import EpisodePlayer, check_action
from moozi.envs.table import Table, num_seat_planes, plays_alike, write_seat
from moozi.envs.validation import as_array, check_finite, check_flag, check_integer, check_mask, check_number

_MAX_SEATS = 64


class OwnTable(Table):
  """A user's table, whose values are checked, and whose errors become one line.

  Planes (or entries) for the seat follow those of the user's frames, as in games of OpenSpiel
  (`table.num_seat_planes`).

  Args:
    plugin: the function that made the table.

  Raises: UserError: `spec` or `num_seats` is missing or wrong; by any method: the table violates its
    specification. EnvError, by any method: it fails. ValueError, by `step`: the action is illegal.
  """

  def __init__(self, plugin: Plugin, table: Table) -> None:
    self._plugin, self._table, self._where = plugin, table, plugin.where
    own = getattr(table, "spec", None)
    if not isinstance(own, EnvSpec):
      raise UserError(f"{self._where}: its table has no spec; must have a moozi.EnvSpec")
    self.num_seats = check_integer(
      self._where, "number of seats (num_seats)", getattr(table, "num_seats", 0), 2, _MAX_SEATS
    )
    if (own.num_players, own.num_seats) != (1, 0) or own.is_continuous or own.symmetries:
      raise UserError(
        f"{self._where}: the spec of a table must have num_players=1, num_seats=0, no symmetries and actions "
        "that have numbers"
      )
    height, width, channels = own.frame_shape
    planes = num_seat_planes(self.num_seats)
    self._own = own
    self.spec = dataclasses.replace(
      own,
      frame_shape=(height, width, channels + planes),
      frame_names=own.frame_names and own.frame_names + ("",) * planes,
      num_seats=self.num_seats,
    )
    self.hides_moves = check_flag(self._where, "hides_moves", table.hides_moves)

  @functools.cached_property
  def is_deterministic(self) -> bool:  # type: ignore[override]
    """Whether random games with the same moves and different seeds are the same; read it between games."""
    return plays_alike(self)

  @property
  def is_over(self) -> bool:  # type: ignore[override]
    with self._plugin.errors("is_over failed", EnvError):
      return check_flag(self._where, "is_over", self._table.is_over)

  def reset(self, seed: int) -> None:
    with self._plugin.errors("reset failed", EnvError):
      self._table.reset(seed)

  @property
  def to_play(self) -> int:
    with self._plugin.errors("to_play failed", EnvError):
      return check_integer(self._where, "seat to move (to_play)", self._table.to_play, 0, self.num_seats - 1)

  def frame_of(self, seat: int) -> Shaped[np.ndarray, "H W C"]:
    with self._plugin.errors("frame_of failed", EnvError):
      own = as_array(f"{self._where}: frame", self._table.frame_of(seat))
    if own.shape != self._own.frame_shape or own.dtype != self._own.frame_dtype:
      raise UserError(
        f"{self._where}: frame is {own.dtype}{list(own.shape)}; must be "
        f"{self._own.frame_dtype}{list(self._own.frame_shape)}, as the spec says"
      )
    out = np.zeros(self.spec.frame_shape, own.dtype)
    out[..., : own.shape[2]] = check_finite(self._where, own)
    write_seat(out, seat, self.num_seats)
    return out

  def legal_actions_mask(self) -> Bool[np.ndarray, "E"]:
    with self._plugin.errors("legal_actions_mask failed", EnvError):
      mask = self._table.legal_actions_mask()
    return check_mask(self._where, "legal_actions_mask", mask, self.spec.mask_size, self.is_over)

  def step(self, action: int) -> None:
    number = check_action(action, self.spec, self.legal_actions_mask())
    with self._plugin.errors("step failed", EnvError):
      self._table.step(number)

  def returns(self) -> list[float]:
    with self._plugin.errors("returns failed", EnvError):
      found = list(self._table.returns())
    if len(found) != self.num_seats:
      raise UserError(f"{self._where}: returns has {len(found)} entries; must have {self.num_seats}")
    return [check_number(self._where, "a return", x) for x in found]

  def position(self) -> Any:
    with self._plugin.errors("position failed", EnvError):
      return self._table.position()

  def make_bot(self, kind: str, budget: int, seed: int) -> EpisodePlayer | None:
    with self._plugin.errors("make_bot failed", EnvError):
      return self._table.make_bot(kind, budget, seed)

  def close(self) -> None:
    with self._plugin.errors("close failed", EnvError):
      self._table.close()
