"""Interfaces of one environment, of several that are stepped together, and of the player of one seat.

`envs.game.GameEnvironment` makes an `Environment` of bare rules.
"""

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import dm_env
import numpy as np
from dm_env import specs
from jaxtyping import Bool, Int, Num, Shaped, UInt8

from moozi.core.errors import UserError
from moozi.core.factors import Factors
from moozi.core.flat_state import State
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import EnvSpec, all_legal
from moozi.core.text import missing_package
from moozi.envs.observations import Frame, OwnObservations

if TYPE_CHECKING:
  import gymnasium


class EpisodePlayer(Protocol):
  """Plays one seat of one episode: a bot of a game, or a user's player (docs/plugins.md).

  A user's player may have two further methods. `observe(observation, legal, action)` receives a frame at
  which another player moves, the legal actions there, and the action that the mover is about to play. In
  games with hidden information the frame is zero and no action is legal, because legal actions may show what
  the mover holds. For each move after any random moves at the start, in order, either `action` or `observe`
  is called, with two exceptions: `observe` is not called in games whose players hide moves, such as Stratego,
  and neither is called for a move that a person makes in this seat. `follow(position)` receives a function
  that returns the game's current position (`Environment.position`), before the player's first frame.
  """

  def action(self, observation: Shaped[np.ndarray, "H W C"], legal: Bool[np.ndarray, "E"]) -> Any:
    """Returns one of the environment's actions, by its number, for the player to move.

    A user's player may return the environment's own action where actions have dimensions
    (`EnvSpec.factors`). Where actions are continuous or there are more than 32 joint actions, `legal` is all
    true and has `EnvSpec.mask_size` entries.

    Args:
      observation: the frame that the player to move sees. Bots that read the state of the game ignore it.
      legal: mask of the legal actions.
    """


class Observation(NamedTuple):
  """The observation of an environment in its own terms (without the dummy action).

  Attributes:
    frame: [H, W, C] of the spec's dtype; the environment never writes to it again.
    legal_actions_mask: [mask_size] bool; at least one action is legal unless the frame is terminal.
    to_play: the player to move.
    is_continued: on a FIRST step, whether the game continues after a lost life that ended the last episode.
      Earlier frames then still count as history. False on every other step.
  """

  frame: Shaped[np.ndarray, "H W C"]
  legal_actions_mask: Bool[np.ndarray, "E"]
  to_play: int
  is_continued: bool = False


class Environment(dm_env.Environment):  # type: ignore[misc]
  """dm_env's interface with further methods. Observations are of type `Observation`.

  `reset` returns a FIRST step. `step` takes the number of one of the environment's actions, from 0. Where the
  actions have dimensions (`EnvSpec.factors`), it also takes the environment's own action, such as a float
  array. A continuous action has no number; it is the environment's own action, or the row [D] of its entries.

  After a LAST step, or before the first reset, `step` discards the action and resets. A LAST step with
  discount 0 is terminal. A LAST step with discount 1 is truncated: its frame is a live one.

  Where a lost life ends an episode in training, the next reset continues the game
  (`Observation.is_continued`). Any other reset, and the one after `seed`, starts a new game.
  """

  @property
  def env_spec(self) -> EnvSpec:
    raise NotImplementedError

  def seed(self, seed: int) -> None:
    """Seeds the environment: from the next reset on, episodes depend only on `seed` and the actions.

    Raises: ValueError: `seed` is not an integer, or is negative.
    """
    raise NotImplementedError

  def make_bot(self, kind: str, budget: int, seed: int) -> EpisodePlayer | None:
    """Makes a bot of the environment itself for the current episode or the next one.

    `envs.bots.make_bot` calls this method first.

    Args:
      budget: the simulations of "mcts", the depth of "alpha_beta".

    Returns: None if the environment has no such bot.
    """
    return None

  def observation_spec(self) -> Any:
    """Returns the dm_env spec of each field, as an `Observation`."""
    spec = self.env_spec
    return Observation(
      frame=specs.Array(spec.frame_shape, np.dtype(spec.frame_dtype), "frame"),
      legal_actions_mask=specs.Array((spec.mask_size,), np.dtype(bool), "legal_actions_mask"),
      to_play=specs.DiscreteArray(spec.num_players, name="to_play"),
      is_continued=specs.Array((), np.dtype(bool), "is_continued"),
    )

  def action_spec(self) -> specs.BoundedArray:
    spec = self.env_spec
    if spec.intervals is not None:
      low, high = spec.intervals.low, spec.intervals.high
      return specs.BoundedArray(spec.action_shape, spec.action_dtype, low, high, "action")
    return specs.DiscreteArray(spec.num_env_actions, name="action")

  @property
  def own_observations(self) -> OwnObservations | None:
    """The form of the inner environment's observations; None if the environment has only frames."""
    return None

  def to_observation(self, observation: Any) -> Observation:
    """Converts an observation of the inner environment as training does.

    Args:
      observation: as the environment of Gymnasium or dm_env returns it, such as an array, a dict or a record.

    Returns: the observation's frame, scaled as in training, its mask and its player to move; without a mask,
      every action is legal.
    Raises: UserError: the observation does not fit the environment, or the environment has only frames.
    """
    own, spec = self.own_observations, self.env_spec
    if own is None:
      raise UserError(f"env.name={spec.name}: its own observations are frames, which need no conversion")
    frame, mask, to_play = own.read(observation)
    legal = np.ones(spec.mask_size, bool) if mask is None else mask
    return Observation(frame.view(Frame), legal, to_play)

  @property
  def will_continue(self) -> bool:
    """Whether the next reset continues the current game: a life was lost, and the game is not over."""
    return False

  @property
  def max_moves(self) -> int | None:
    """The largest number of actions in an episode; None if a search cannot use copies of the environment.

    An environment whose `max_moves` is a number must implement `clone` and `position`. Its episodes have no
    chance and all start in the same state, so the actions since the reset determine its state.
    """
    return None

  def clone(self) -> "Environment":
    """Returns an independent copy at the current step.

    The copy should have no step cap: in a search with the rules, an end at the cap counts as the game's end.
    """
    raise NotImplementedError

  def position(self) -> Any:
    """Returns the current position, from which `envs.true_rules` continues; call it after a reset.

    An environment with `max_moves` returns the actions since the reset, [max_moves] int32, padded with -1
    (`moves_array`). An environment in JAX returns the state of its rules.
    """
    raise NotImplementedError

  def render(self) -> UInt8[np.ndarray, "h w 3"] | None:
    """Returns the environment's own picture of its current state; None if it has none.

    Other forms of pictures are converted where they are drawn (`ops.pictures.to_picture`).
    """
    return None

  def as_gymnasium(self, render_mode: str | None = None) -> "gymnasium.Env[np.ndarray, Any]":
    """Returns this environment as a `gymnasium.Env`; see `moozi.envs.as_gymnasium`.

    Args:
      render_mode: "rgb_array" for the environment's own pictures, or None.

    Raises: UserError: the package gymnasium is not installed. ValueError: another `render_mode`.
    """
    try:
      from moozi.envs.as_gymnasium import GymnasiumView
    except ImportError:
      raise missing_package("as_gymnasium", "gymnasium") from None
    return GymnasiumView(self, render_mode)


class VectorEnvironment:
  """B environments of one spec, stepped together in the agent's terms.

  Attributes:
    spec: the specification that all the environments share.
    num_envs: the number of environments, B.
  """

  def __init__(self, spec: EnvSpec, num_envs: int) -> None:
    self.spec, self.num_envs = spec, num_envs
    self._legal_actions_mask = np.zeros((num_envs, spec.policy_size), bool)
    # Initially as after an end: the first step resets every environment.
    self._is_last = np.ones(num_envs, bool)

  @property
  def num_faults(self) -> int:
    """Number of faults (an environment raised or hung) that a guard has handled; 0 without a guard."""
    return 0

  def reset(self) -> BatchedTimeStep:
    """Starts a new game in every environment."""
    raise NotImplementedError

  def step(self, actions: Num[np.ndarray, "B *D"]) -> BatchedTimeStep:
    """Steps every environment; an environment whose last frame was an end resets instead.

    Args:
      actions: in the agent's action space; ignored where the last frame was an end.

    Returns: the next step, whose arrays are never written to again.
    Raises:
      ValueError: an action for a live frame is the dummy, out of range or illegal, or the actions have
        another shape or dtype. No environment has moved.
      EnvError: the guard does not replace an environment that failed.
    """
    raise NotImplementedError

  def render(self, i: int) -> np.ndarray | None:
    """Returns environment i's own picture in the form of `ops.pictures.to_picture`; None if it has none.

    Returns None also if the picture cannot be drawn; `picture_fault` then says why.
    """
    return None

  @property
  def picture_fault(self) -> str:
    """Why a picture could not be drawn, in one line; empty if none has failed."""
    return ""

  def positions(self) -> Any:
    """Returns the environments' positions with a leading axis B; see `Environment.position`."""
    raise NotImplementedError

  def get_state(self) -> State:
    """Returns the state that `set_state` restores. Call it after a reset."""
    raise NotImplementedError

  def set_state(self, state: State, shown: BatchedTimeStep) -> tuple[BatchedTimeStep, np.ndarray]:
    """Restores every environment to the step in its row of `shown`, or starts a new game in it.

    Returns: the environments' current step, and a mask [B] of those that started a new game.
    Raises: ValueError: the state is for a different number of environments.
    """
    raise NotImplementedError

  def close(self) -> None:
    """Closes every environment."""


def moves_array(moves: Sequence[int], max_moves: int) -> Int[np.ndarray, "M"]:
  """Returns the actions since a reset as a position: int32, padded with -1."""
  out = np.full(max_moves, -1, np.int32)
  out[: len(moves)] = moves
  return out


def stack_positions(positions: Sequence[Any]) -> Any:
  """Stacks the positions of several environments along a new leading axis."""
  if isinstance(positions[0], np.ndarray):
    return np.stack(positions)
  import jax

  return jax.tree.map(lambda *leaves: np.stack(leaves), *positions)


def check_action(action: Any, spec: EnvSpec, legal_actions_mask: np.ndarray) -> Any:
  """Returns the number of an action as an int, or the row [D] float32 of a continuous action.

  Args:
    action: an integer. Where the actions have dimensions (`EnvSpec.factors`), also the environment's own
      action: an array, or a dict or tuple of arrays. A continuous action has no integer.

  Raises: ValueError: the action has another type or shape, is out of range, or illegal.
  """
  # Some packages accept a wrong action silently, and others hang.
  is_number = type(action) is int and spec.intervals is None and 0 <= action < spec.num_env_actions
  if is_number and (spec.is_factored or legal_actions_mask[action]):
    return action  # nearly every action of a run
  if spec.intervals is not None:
    return spec.intervals.row(action)
  if isinstance(spec.factors, Factors) and (
    isinstance(action, np.ndarray) or not hasattr(action, "__index__")
  ):
    action = spec.factors.joint_action(action)
  try:
    out = operator.index(action)
  except TypeError:
    raise ValueError(f"action={action!r}: must be an integer") from None
  if not 0 <= out < spec.num_env_actions:
    raise ValueError(f"action={out}: must be from 0 to {spec.num_env_actions - 1}")
  if not spec.is_factored and not legal_actions_mask[out]:
    legal = np.flatnonzero(legal_actions_mask).tolist()
    raise ValueError(f"action={out}: illegal in this state; must be one of {legal}")
  return out


def random_action(spec: EnvSpec, legal_actions_mask: np.ndarray, random: np.random.Generator) -> Any:
  """Draws uniformly from the environment's legal actions; returns the action as `check_action` does."""
  if spec.intervals is not None:
    low, high = spec.intervals.low, spec.intervals.high
    return np.clip(random.uniform(low, high).astype(np.float32), low, high)
  if spec.is_factored:
    return int(random.integers(spec.num_env_actions))
  # As `Generator.choice` of the legal actions, in less time.
  if legal_actions_mask is all_legal(len(legal_actions_mask)):
    return int(random.integers(len(legal_actions_mask)))
  legal = np.flatnonzero(legal_actions_mask)
  return int(legal[random.integers(len(legal))])


def check_seed(seed: int) -> int:
  """Returns `seed` as an int. Raises ValueError if it is not an integer, or is negative."""
  try:
    out = operator.index(seed)
  except TypeError:
    raise ValueError(f"seed={seed!r}: must be an integer") from None
  if out < 0:
    raise ValueError(f"seed={out}: must not be negative")
  return out
