"""n-step returns over windows of steps."""

from typing import Any

from moozi.ops.players import player_sign
from moozi.ops.xp import array_namespace


def n_step_return(
  last_reward: Any,
  root_value: Any,
  to_play: Any,
  is_last: Any,
  is_truncated: Any,
  n_step: int,
  discount: float,
) -> Any:
  """The n-step return of each step that has n steps after it, for the player to move there.

  z_t = Σ_{j<h} γ^j s(t, t+j) u_{t+j+1} + γ^h s(t, t+h) ν_{t+h},  h = min(n, steps to the episode's last)

  with s the sign between the players to move, and ν = 0 on a terminal frame. A truncated frame keeps
  its search value, so it is bootstrapped from at the distance where it lies. What follows an episode's
  last frame in the window (the next episode) is not read. z at a last frame is its own ν.

  Args:
    last_reward: [..., W] float32, env units; received on entering step t, by the player who moved at t-1.
    root_value: [..., W] float32, env units, for the player to move at t.
    to_play: [..., W] integer.
    is_last: [..., W] bool.
    is_truncated: [..., W] bool.
    n_step: n, at least 1.
    discount: γ.
  Returns: [..., W - n] float32, NumPy or JAX like the arguments.
  Raises: ValueError: when n_step < 1 or the window holds no step with n steps after it.
  Source: Schrittwieser et al. 2020, the targets z of MuZero; thesis 4.3.7. Departures: the thesis's
    formula for episodes that end within n steps is written out; truncation; two players.
  """
  width = last_reward.shape[-1]
  if n_step < 1 or width <= n_step:
    raise ValueError(f"n_step={n_step}: must be at least 1 and below the window's {width} steps")
  xp = array_namespace(last_reward, root_value)
  count = width - n_step
  value = xp.where(is_last & ~is_truncated, xp.float32(0.0), root_value)
  # Horner's scheme from the far end: z ← base + carry · z, where an episode's last frame carries nothing.
  before = is_last[..., :-1]
  base = xp.where(before, value[..., :-1], last_reward[..., 1:])
  carry = xp.where(
    before, xp.float32(0.0), xp.float32(discount) * player_sign(to_play[..., :-1], to_play[..., 1:])
  )
  z = value[..., n_step:]
  for j in reversed(range(n_step)):
    z = base[..., j : j + count] + carry[..., j : j + count] * z
  return z
