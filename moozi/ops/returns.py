"""n-step returns over windows of steps."""

from jaxtyping import Bool, Float, Int

from moozi.core.types import AnyArray
from moozi.ops.signs import player_sign
from moozi.ops.xp import array_namespace


def n_step_return(
  last_reward: Float[AnyArray, "*batch W"],
  root_value: Float[AnyArray, "*batch W"],
  to_play: Int[AnyArray, "*batch W"],
  is_last: Bool[AnyArray, "*batch W"],
  is_truncated: Bool[AnyArray, "*batch W"],
  n_step: int,
  discount: float,
) -> Float[AnyArray, "*batch W-{n_step}"]:
  """Returns the n-step return of each step that has n steps after it, for the player to move at that step.

  z_t = Σ_{j<h} γ^j s(t, t+j) u_{t+j+1} + γ^h s(t, t+h) ν_{t+h},  h = min(n, steps to the last frame)

  s is the sign between the players to move; ν is the search value, 0 on a terminal frame. A truncated frame
  keeps its search value as the bootstrap. Steps after the episode's last frame belong to the next episode and
  do not contribute. At a last frame, z is that frame's ν.

  Args:
    last_reward: env units; received on entering step t, by the player who moved at t-1.
    root_value: env units, for the player to move at t.
    to_play: the player to move.
    is_last, is_truncated: as in BatchedTimeStep.
    n_step: n, at least 1.
    discount: γ.
  Returns: z of the first W − n steps.
  Raises: ValueError: n_step < 1, or no step of the window has n steps after it.
  Source: Schrittwieser et al. 2020, the targets z of MuZero; thesis 4.3.7. Departures: the formula also
    covers episodes that end within n steps, truncation, and two players.
  """
  width = last_reward.shape[-1]
  if n_step < 1 or width <= n_step:
    raise ValueError(f"n_step={n_step}: must be at least 1 and below the window's {width} steps")
  xp = array_namespace(last_reward, root_value)
  count = width - n_step
  value = xp.where(is_last & ~is_truncated, xp.float32(0.0), root_value)
  # Horner's scheme from the far end: z ← base + carry · z. At an episode's last frame the carry is 0.
  before = is_last[..., :-1]
  base = xp.where(before, value[..., :-1], last_reward[..., 1:])
  carry = xp.where(
    before, xp.float32(0.0), xp.float32(discount) * player_sign(to_play[..., :-1], to_play[..., 1:])
  )
  z = value[..., n_step:]
  for j in reversed(range(n_step)):
    z = base[..., j : j + count] + carry[..., j : j + count] * z
  return z
