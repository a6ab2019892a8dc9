"""The true rules of a game as a function for a compiled search, for `algorithm=alphazero`.

A *position* is plain data from which the rules continue: for games in JAX the state of the rules
(`CompiledRules`), for games in Python the actions since the start (`HostRules`).
"""

import collections
import dataclasses
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped

from moozi.core.pytree import record
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.envs.checked import CheckedEnvironment
from moozi.envs.environment import Environment
from moozi.envs.jax.rules import JaxEnvironment, as_before


@record
class Outcome:
  """The result of one action in each of B positions.

  Attributes:
    position: the new positions.
    frame: the frames that the environment shows there. Where the action was not played, they have no meaning.
    legal_actions_mask: over the entries of a policy; none is legal after the game's end.
    reward: in environment units, for the player who moved; 0 if the action was not played.
    is_over: whether the game has ended or the action was not played.
  """

  position: PyTree
  frame: Shaped[Array, "B H W C"]
  legal_actions_mask: Bool[Array, "B P"]
  reward: Float[Array, "B"]
  is_over: Bool[Array, "B"]


@runtime_checkable
class TrueRules(Protocol):
  """The rules of a game without chance and hidden information."""

  spec: EnvSpec

  def step(self, position: PyTree, action: Int[Array, "B"], is_over: Bool[Array, "B"]) -> Outcome:
    """Plays the agent's actions. JAX can trace this method.

    Where `is_over` is set or the action is illegal, the action is not played: the outcome has `is_over` and
    reward 0. Of joint actions without entries of their own (`EnvSpec.is_factored`), only the dummy is
    illegal. Step caps are ignored, unless the `clone` of a user's `Environment` keeps its cap.
    """


@dataclasses.dataclass(frozen=True)
class CompiledRules:
  """The rules of an environment in JAX; a position is the state of `JaxRules`."""

  env: JaxEnvironment

  @property
  def spec(self) -> EnvSpec:
    return self.env.spec

  def step(self, position: PyTree, action: Int[Array, "B"], is_over: Bool[Array, "B"]) -> Outcome:
    rules, spec = self.env.rules, self.spec
    key = jnp.zeros(2, jnp.uint32)  # deterministic rules do not read it

    def step(game: PyTree, action: Int[Array, ""], is_over: Bool[Array, ""]) -> Outcome:
      move = jnp.maximum(action - 1, 0).astype(jnp.int32)
      is_played = ~is_over & (action != DUMMY_ACTION)
      if not spec.is_factored:
        is_played &= rules.legal_actions_mask(game)[move]
      after, reward, is_terminal, _ = rules.step(game, move, key)
      after = jax.tree.map(lambda new, old: jnp.where(is_played, as_before(new, old), old), after, game)
      is_live = is_played & ~is_terminal
      legal = jnp.zeros(spec.policy_size, bool).at[1:].set(rules.legal_actions_mask(after))
      return Outcome(
        position=after,
        frame=rules.frame(after).astype(spec.frame_dtype),
        legal_actions_mask=legal & is_live,
        reward=jnp.where(is_played, reward, 0.0).astype(jnp.float32),
        is_over=~is_live,
      )

    return jax.vmap(step)(position, action, is_over)


class _Known:
  """A known position: a copy of the environment there, and the time step that it returned."""

  __slots__ = ("env", "frame", "is_over", "legal", "reward")

  def __init__(self, env: Environment, step: Any) -> None:
    self.env, self.frame, self.legal = env, step.observation.frame, step.observation.legal_actions_mask
    self.reward, self.is_over = float(step.reward or 0.0), bool(step.last())


class HostRules:
  """The rules of an environment in Python, which the search calls; a position is the moves since the reset.

  The callback is a pure function of the moves. It copies the environment at the position and plays the
  action. The most recently used positions are cached. From a cached position, an action costs at most one
  copy and one step.

  Args:
    env: an environment with `max_moves`; the constructor resets it.
  """

  _MAX_KNOWN = 16_384

  def __init__(self, env: Environment) -> None:
    env = CheckedEnvironment(env)
    assert env.max_moves is not None, "registry.true_rules checks this"
    self.spec, self._max_moves = env.env_spec, env.max_moves
    self._start = _Known(env, env.reset())
    self._known: collections.OrderedDict[bytes, _Known] = collections.OrderedDict()

  def step(self, position: Int[Array, "B M"], action: Int[Array, "B"], is_over: Bool[Array, "B"]) -> Outcome:
    batch, spec = len(action), self.spec
    shapes = (
      jax.ShapeDtypeStruct((batch, *spec.frame_shape), np.dtype(spec.frame_dtype)),
      jax.ShapeDtypeStruct((batch, spec.policy_size), np.dtype(bool)),
      jax.ShapeDtypeStruct((batch,), np.dtype(np.float32)),
      jax.ShapeDtypeStruct((batch,), np.dtype(bool)),
    )
    # An inference server maps the search over the requests of a batch; each request is then a callback.
    frame, legal, reward, is_over = jax.pure_callback(
      self._play, shapes, position, action, is_over, vmap_method="sequential"
    )
    num_moves = jnp.sum(position >= 0, axis=-1)
    # Where the action was not played, the position has one move too many; it is not read, because it is over.
    position = position.at[jnp.arange(batch), num_moves].set(action - 1, mode="drop")
    return Outcome(position=position, frame=frame, legal_actions_mask=legal, reward=reward, is_over=is_over)

  def _play(self, position: Any, action: Any, is_over: Any) -> tuple[np.ndarray, ...]:
    position, action, is_over = np.asarray(position), np.asarray(action), np.asarray(is_over)
    batch, spec = len(action), self.spec
    frame = np.zeros((batch, *spec.frame_shape), spec.frame_dtype)
    legal = np.zeros((batch, spec.policy_size), bool)
    reward, has_ended = np.zeros(batch, np.float32), np.ones(batch, bool)
    num_moves = (position >= 0).sum(axis=-1)
    for i in np.flatnonzero(~is_over & (action != DUMMY_ACTION)).tolist():
      moves, move = position[i, : num_moves[i]], int(action[i]) - 1
      if spec.is_factored or self._at(moves).legal[move]:
        known = self._at(np.append(moves, np.int32(move)))
        frame[i], reward[i], has_ended[i] = known.frame, known.reward, known.is_over
        legal[i, 1:] = known.legal & (not known.is_over)
    return frame, legal, reward, has_ended

  def _at(self, moves: Int[np.ndarray, "n"]) -> _Known:
    """Returns the position after legal moves: replays the moves that follow its longest known prefix."""
    count, found = len(moves), self._start
    while count and (key := moves[:count].tobytes()) not in self._known:
      count -= 1
    if count:
      self._known.move_to_end(key)
      found = self._known[key]
    for i in range(count, len(moves)):
      env = found.env.clone()
      found = self._known[moves[: i + 1].tobytes()] = _Known(env, env.step(int(moves[i])))
      if len(self._known) > self._MAX_KNOWN:
        self._known.popitem(last=False)
    return found
