"""The only place where a sign flips between players."""

from typing import Any

from moozi.ops.xp import array_namespace


def player_sign(to_play_a: Any, to_play_b: Any) -> Any:
  """+1 where both are the same player, −1 where they are opponents.

  A value v for player b is worth `player_sign(a, b) * v` to player a (zero sum).

  Args:
    to_play_a: [...] integer player indices.
    to_play_b: [...] integer player indices, broadcast against the first.
  Returns: [...] float32.
  """
  xp = array_namespace(to_play_a, to_play_b)
  return xp.where(to_play_a == to_play_b, xp.float32(1.0), xp.float32(-1.0))


def search_discount(discount: float, num_players: int) -> float:
  """The discount that the search multiplies a child's value with, to make it the parent's.

  Players alternate strictly, so with two of them each edge of the tree changes the player: −γ.

  Raises: ValueError: when num_players is not 1 or 2.
  """
  if num_players not in (1, 2):
    raise ValueError(f"num_players={num_players}: only 1 or 2 players are supported")
  return -discount if num_players == 2 else discount
