"""Changes of sign between players."""

from typing import TypeVar

from jaxtyping import Float, Float32, Int

from moozi.core.types import AnyArray
from moozi.ops.xp import array_namespace

D = TypeVar("D", float, Float[AnyArray, ""])


def player_sign(
  to_play_a: Int[AnyArray, "..."] | int, to_play_b: Int[AnyArray, "..."] | int
) -> Float32[AnyArray, "..."]:
  """Returns +1 where both are the same player, −1 where they are opponents.

  A value v for player b is worth `player_sign(a, b) * v` to player a (zero sum).

  Args:
    to_play_a: player indices.
    to_play_b: player indices, broadcast against the first.
  """
  xp = array_namespace(to_play_a, to_play_b)
  return xp.where(to_play_a == to_play_b, xp.float32(1.0), xp.float32(-1.0))


def search_discount(discount: D, num_players: int) -> D:
  """Returns the search's factor from a child's value to its parent's: γ, or −γ with two players.

  Self-play supports two players only if they alternate strictly, so each edge of the tree changes the player.

  Raises: ValueError: num_players is not 1 or 2.
  """
  if num_players not in (1, 2):
    raise ValueError(f"num_players={num_players}: only 1 or 2 players are supported")
  return -discount if num_players == 2 else discount
