"""The one interface of an environment, dm_env's, and the one bridge from a game's bare rules to it.

A game (`Game`) knows its rules and nothing else. `GameEnvironment` adds what every environment needs in the
same way: checked actions, seeds, a step cap, the kinds of end, and the reset on the step after an end.
"""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import dm_env
import numpy as np
from dm_env import StepType, TimeStep, specs

from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec


class Bot(Protocol):
  """A rival who plays one side of an environment's episode."""

  def action(self, legal_actions_mask: np.ndarray) -> int:
    """One of the environment's own actions, for the player to move now; the mask is that of the frame
    shown now.
    """


class Observation(NamedTuple):
  """What an environment shows, in its own terms (no dummy action here).

  Attributes:
    frame: [H, W, C] of the spec's dtype; never written to again by the environment.
    legal_actions_mask: [num_env_actions] bool; at least one is legal unless the frame is terminal.
    to_play: the player to move.
    is_continued: on a FIRST step, whether it goes on with the game whose last step was an end in training
      only (a life lost): what was seen before it still counts as history. False on every other step.
  """

  frame: np.ndarray
  legal_actions_mask: np.ndarray
  to_play: int
  is_continued: bool = False


class Environment(dm_env.Environment):  # type: ignore[misc]
  """An environment: dm_env's interface, with a spec, a seed, and `Observation` for its observations.

  `reset` returns a FIRST step. `step` takes one of the environment's own actions; after a LAST step, and
  before
  any reset, it discards the action and resets. A LAST step with discount 0 is a terminal frame; with
  discount 1 the environment was cut short (truncated), and the frame is the one that it would have gone on
  from.

  Where a life lost ends the episode in training, the reset after it goes on with the game and says so
  (`Observation.is_continued`). A reset anywhere else, and the one after `seed`, begins a new game.
  """

  @property
  def env_spec(self) -> EnvSpec:
    """The facts of this environment."""
    raise NotImplementedError

  def seed(self, seed: int) -> None:
    """Makes the episodes from the next reset on a function of `seed` and of the actions alone.

    Raises: ValueError: where seed is negative.
    """
    raise NotImplementedError

  def make_bot(self, kind: str, simulations: int, seed: int) -> Bot:
    """A rival for the episode under way or the next one.

    Args:
      kind: "random" plays any legal action, in every environment; others where the environment's library has
        them.
      simulations: of each search, where the rival searches.
      seed: the rival's own chance is a function of it.

    Raises: UserError: where the environment has no such rival.
    """
    if kind == "random":
      return RandomBot(seed)
    raise UserError(
      f"evaluation.opponent={kind}: {self.env_spec.name} has no such rival; all environments have random, "
      f"self"
    )

  def observation_spec(self) -> Any:
    """dm_env specs, as an `Observation`."""
    spec = self.env_spec
    return Observation(
      frame=specs.Array(spec.frame_shape, np.dtype(spec.frame_dtype), "frame"),
      legal_actions_mask=specs.Array((spec.num_env_actions,), np.dtype(bool), "legal_actions_mask"),
      to_play=specs.DiscreteArray(spec.num_players, name="to_play"),
      is_continued=specs.Array((), np.dtype(bool), "is_continued"),
    )

  def action_spec(self) -> specs.DiscreteArray:
    """The environment's own actions, 0 to num_env_actions - 1."""
    return specs.DiscreteArray(self.env_spec.num_env_actions, name="action")

  @property
  def will_continue(self) -> bool:
    """Whether the next reset goes on with the game under way: a life was lost, and the game is not over."""
    return False

  def render(self) -> np.ndarray | None:
    """The environment's own picture of what it shows now, [h, w, 3] uint8; None where it has none of its
    own.
    """
    return None


class RandomBot:
  """Plays uniformly random legal actions. Raises ValueError where its seed is negative."""

  def __init__(self, seed: int) -> None:
    self._random = np.random.default_rng([check_seed(seed), 0xB07])

  def action(self, legal_actions_mask: np.ndarray) -> int:
    """See `Bot.action`."""
    return int(self._random.choice(np.flatnonzero(legal_actions_mask)))


class Game(Protocol):
  """Bare rules. The caller checks actions and never steps past an end.

  A game of several lives may end the episode where one is lost, and have an attribute `is_continued: bool`:
  whether the last `reset` went on with the game after that, and `will_continue: bool`, whether the next one
  is to. A game with a picture of its own has `render() -> [h, w, 3] uint8`, asked for after a reset.
  """

  def seed(self, seed: int) -> None:
    """Everything left to chance from the next `reset` on is a function of `seed`."""

  def reset(self) -> None:
    """Sets up a new episode."""

  def step(self, action: int) -> tuple[float, bool, bool]:
    """Plays `action`; returns the mover's reward, whether the task ended, whether a clock ran out."""

  def frame(self) -> np.ndarray:
    """[H, W, C] of the spec's dtype; a fresh array at each call."""

  def legal_actions_mask(self) -> np.ndarray:
    """[num_env_actions] bool; may be shared between calls, so it is not written to."""

  def to_play(self) -> int:
    """The player to move."""


class GameEnvironment(Environment):
  """A `Game` behind the interface of an environment.

  Args:
    game: the rules.
    spec: the facts of the environment.
    max_episode_steps: an episode is truncated after so many steps; None leaves it to the game. An end of
      the task that falls on the same step stays an end of the task.
    make_bot: rivals that the game brings, called as `Environment.make_bot`; None from it: no such rival.
  """

  def __init__(
    self,
    game: Game,
    spec: EnvSpec,
    max_episode_steps: int | None = None,
    make_bot: Callable[[str, int, int], Bot | None] | None = None,
  ) -> None:
    if max_episode_steps is not None and max_episode_steps < 1:
      raise ValueError(f"max_episode_steps={max_episode_steps}: must be at least 1, or None")
    self._game = game
    self._spec = spec
    self._max_episode_steps = max_episode_steps
    self._make_bot = make_bot
    self._num_steps = 0
    self._needs_reset = True
    self._legal_actions_mask = np.zeros(spec.num_env_actions, bool)
    self._to_play = 0

  @property
  def env_spec(self) -> EnvSpec:
    """The facts of this environment."""
    return self._spec

  def seed(self, seed: int) -> None:
    """See `Environment.seed`. The episode under way goes on in an unspecified way; reset before stepping."""
    self._game.seed(check_seed(seed))

  def reset(self) -> TimeStep:
    """Starts an episode; returns its FIRST step."""
    self._game.reset()
    self._num_steps = 0
    self._needs_reset = False
    return TimeStep(StepType.FIRST, None, None, self._observe(getattr(self._game, "is_continued", False)))

  def step(self, action: int) -> TimeStep:
    """Plays one of the environment's own actions.

    Returns: the next step; where the last one was LAST, the FIRST of a new episode (action discarded).
    Raises:
      ValueError: where the action is out of range or illegal; the environment has not moved then.
      UserError: where one of two players moves twice in a row.
    """
    if self._needs_reset:
      return self.reset()
    mover = self._to_play
    reward, is_terminal, is_cut = self._game.step(check_action(action, self._legal_actions_mask))
    self._num_steps += 1
    observation = self._observe()
    if self._spec.num_players == 2 and not is_terminal and self._to_play == mover:
      raise UserError(
        f"env.name={self._spec.name}: player {mover} moves twice in a row; "
        "only games of two players who alternate strictly are supported"
      )
    if is_terminal:
      self._needs_reset = True
      return TimeStep(StepType.LAST, reward, 0.0, observation)
    if is_cut or self._num_steps == self._max_episode_steps:
      self._needs_reset = True
      return TimeStep(StepType.LAST, reward, 1.0, observation)
    return TimeStep(StepType.MID, reward, 1.0, observation)

  @property
  def will_continue(self) -> bool:
    """See `Environment.will_continue`."""
    return bool(getattr(self._game, "will_continue", False))

  def close(self) -> None:
    """Closes the game, where there is something to close."""
    close = getattr(self._game, "close", None)
    if close is not None:
      close()

  def make_bot(self, kind: str, simulations: int, seed: int) -> Bot:
    """See `Environment.make_bot`."""
    bot = None if self._make_bot is None else self._make_bot(kind, simulations, seed)
    return super().make_bot(kind, simulations, seed) if bot is None else bot

  def render(self) -> np.ndarray | None:
    """The game's own picture, where it has one."""
    render = getattr(self._game, "render", None)
    return None if render is None else render()

  def _observe(self, is_continued: bool = False) -> Observation:
    self._legal_actions_mask = self._game.legal_actions_mask()
    self._to_play = self._game.to_play()
    return Observation(self._game.frame(), self._legal_actions_mask, self._to_play, is_continued)


def check_action(action: int, legal_actions_mask: np.ndarray) -> int:
  """Returns `action` as an int. Raises ValueError where it is no integer, out of range, or illegal."""
  # Environments underneath accept a wrong action in silence, or hang on it: it never reaches them.
  try:
    out = operator.index(action)
  except TypeError:
    raise ValueError(f"action={action!r}: must be an integer") from None
  if not 0 <= out < len(legal_actions_mask):
    raise ValueError(f"action={out}: allowed are 0 to {len(legal_actions_mask) - 1}")
  if not legal_actions_mask[out]:
    raise ValueError(f"action={out}: illegal here; legal are {np.flatnonzero(legal_actions_mask).tolist()}")
  return out


def check_seed(seed: int) -> int:
  """Returns `seed` as an int. Raises ValueError where it is no integer, or negative."""
  try:
    out = operator.index(seed)
  except TypeError:
    raise ValueError(f"seed={seed!r}: must be an integer") from None
  if out < 0:
    raise ValueError(f"seed={out}: must not be negative")
  return out
