"""Bare rules of a game, and the environment that plays them."""

import copy

import numpy as np
from dm_env import StepType, TimeStep
from jaxtyping import Int

from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec, all_legal
from moozi.envs.environment import (
  Environment,
  EpisodePlayer,
  Observation,
  check_action,
  check_seed,
  moves_array,
)
from moozi.envs.observations import Frame, OwnObservations
from moozi.envs.validation import check_finite, check_flag, check_reward


class Game:
  """Base class of bare rules. By default a game has one player, one life and no picture, and all actions are
  legal.

  The caller checks actions and never steps past an end.

  Attributes:
    is_continued: whether the last `reset` continued a game after a lost life.
    will_continue: whether the next `reset` continues the current game.
    max_moves: the largest number of actions in an episode, which `algorithm=alphazero` and the bots `mcts`
      and `alpha_beta` need. Set it only in a game that has no chance and no time limit and always starts in
      the same state.
    own_observations: the form of the observations that the rules convert to frames; None without conversion.
      The conversion raises EnvValueError for values that are not finite.
  """

  is_continued = False
  will_continue = False
  max_moves: int | None = None
  own_observations: OwnObservations | None = None

  def seed(self, seed: int) -> None:
    """Seeds all random draws from the next `reset` on."""
    raise NotImplementedError

  def reset(self) -> None:
    raise NotImplementedError

  def step(self, action: int) -> tuple[float, bool, bool]:
    """Plays `action`; returns (the mover's reward, whether the task ended, whether a time limit cut it)."""
    raise NotImplementedError

  def frame(self) -> np.ndarray:
    """Returns the frame, [H, W, C] of the spec's dtype; a fresh array at each call."""
    raise NotImplementedError

  def legal_actions_mask(self) -> np.ndarray | None:
    """Returns the mask [mask_size] bool, which the caller does not change; None if every action is legal."""
    return None

  def to_play(self) -> int:
    return 0

  def clone(self) -> "Game":
    """Returns an independent copy of the game, by default a deep copy."""
    return copy.deepcopy(self)

  def make_bot(self, kind: str, budget: int, seed: int) -> EpisodePlayer | None:
    """Makes a bot of the game itself; see `Environment.make_bot`."""
    return None

  def render(self) -> np.ndarray | None:
    """Returns a picture [h, w, 3] uint8; None if the game has none. Called after a reset."""
    return None

  def close(self) -> None:
    """Frees the resources of the game."""


class ActionRepeat(Game):
  """Plays each action for several steps of a game; the reward is the sum over these steps.

  The repetition ends with the episode, and before a step for which the action is illegal.

  Args:
    spec: the specification of the game's environment.
    times: the number of steps.
  """

  def __init__(self, game: Game, spec: EnvSpec, times: int) -> None:
    self._game, self._spec, self._times = game, spec, times
    self._where, self.own_observations = f"env.name={spec.name}", game.own_observations

  def seed(self, seed: int) -> None:
    self._game.seed(seed)

  def reset(self) -> None:
    self._game.reset()

  def step(self, action: int) -> tuple[float, bool, bool]:
    total = 0.0
    for _ in range(self._times):
      reward, is_terminal, is_cut = self._game.step(action)
      total += check_reward(self._where, reward)
      mask = None if self._spec.is_factored else self._game.legal_actions_mask()
      if is_terminal or is_cut or (mask is not None and not mask[action]):
        break
    return total, is_terminal, is_cut

  def frame(self) -> np.ndarray:
    return self._game.frame()

  def legal_actions_mask(self) -> np.ndarray | None:
    return self._game.legal_actions_mask()

  def render(self) -> np.ndarray | None:
    return self._game.render()

  def close(self) -> None:
    self._game.close()


class GameEnvironment(Environment):
  """A `Game` as an `Environment`.

  Args:
    max_episode_steps: truncates an episode after this number of steps; None: no cap. An end of the task on
      the same step stays terminal.

  Raises: ValueError: `max_episode_steps` is below 1.
  """

  def __init__(self, game: Game, spec: EnvSpec, max_episode_steps: int | None = None) -> None:
    if max_episode_steps is not None and max_episode_steps < 1:
      raise ValueError(f"max_episode_steps={max_episode_steps}: must be at least 1, or None")
    self._game = game
    self._spec, self._where = spec, f"env.name={spec.name}"
    self._max_episode_steps = max_episode_steps
    self._num_steps = 0
    self._moves: list[int] = []  # of this episode, if the game has `max_moves`
    self._needs_reset = True
    self._legal_actions_mask = self._all_legal = all_legal(spec.mask_size)
    self._to_play = 0

  @property
  def env_spec(self) -> EnvSpec:
    return self._spec

  def seed(self, seed: int) -> None:
    """Seeds the game. Call `reset` before the next step."""
    self._game.seed(check_seed(seed))

  def reset(self) -> TimeStep:
    self._game.reset()
    self._num_steps, self._moves = 0, []
    self._needs_reset = False
    return TimeStep(StepType.FIRST, None, None, self._observe(self._game.is_continued))

  def step(self, action: int) -> TimeStep:
    """Plays one of the environment's own actions.

    After a LAST step, discards the action and starts a new episode.

    Returns: the next step.
    Raises:
      ValueError: the action is out of range or illegal; the environment has not moved.
      UserError: one of two players moves twice in a row, the game returns a reward that is not a number or an
        end that is not true or false, there are more than `max_moves` actions, or a game with `max_moves` cut
        its episode.
      EnvValueError: the reward or the frame is not finite.
    """
    if self._needs_reset:
      return self.reset()
    spec, game, mover = self._spec, self._game, self._to_play
    action = check_action(action, spec, self._legal_actions_mask)
    reward, is_terminal, is_cut = game.step(action)
    if is_terminal is not False or is_cut is not False:
      is_terminal = check_flag(self._where, "the end of the task", is_terminal)
      is_cut = check_flag(self._where, "the cut of the episode", is_cut)
    max_moves = game.max_moves
    if is_cut and not is_terminal and max_moves is not None:
      raise UserError(
        f"{self._where}: a game with max_moves cut its episode, but a search with its rules ignores time "
        "limits; pass max_episode_steps to GameEnvironment, or set max_moves to None"
      )
    reward = check_reward(self._where, reward)
    self._num_steps += 1
    if max_moves is not None:
      self._moves.append(action)
      if len(self._moves) > max_moves:
        raise UserError(f"{self._where}: an episode has more actions than max_moves={max_moves}")
    observation = self._observe()
    if spec.num_players == 2 and not is_terminal and self._to_play == mover:
      raise UserError(
        f"{self._where}: player {mover} moves twice in a row; "
        "only games of two players who alternate strictly are supported"
      )
    is_cut = is_cut or self._num_steps == self._max_episode_steps
    self._needs_reset = is_terminal or is_cut
    return TimeStep(
      StepType.LAST if self._needs_reset else StepType.MID, reward, 0.0 if is_terminal else 1.0, observation
    )

  @property
  def will_continue(self) -> bool:
    return check_flag(self._where, "will_continue", self._game.will_continue)

  @property
  def max_moves(self) -> int | None:
    return self._game.max_moves

  @property
  def own_observations(self) -> OwnObservations | None:
    return self._game.own_observations

  def clone(self) -> "GameEnvironment":
    out = copy.copy(self)
    out._game, out._moves, out._max_episode_steps = self._game.clone(), self._moves.copy(), None
    return out

  def position(self) -> Int[np.ndarray, "M"]:
    assert self.max_moves is not None, "checked when the search is built"
    return moves_array(self._moves, self.max_moves)

  def close(self) -> None:
    self._game.close()

  def make_bot(self, kind: str, budget: int, seed: int) -> EpisodePlayer | None:
    return self._game.make_bot(kind, budget, seed)

  def render(self) -> np.ndarray | None:
    return self._game.render()

  def _observe(self, is_continued: bool = False) -> Observation:
    game = self._game
    mask = game.legal_actions_mask()
    self._legal_actions_mask = self._all_legal if mask is None else mask
    self._to_play = game.to_play()
    frame, is_converted = game.frame(), game.own_observations is not None
    frame = frame.view(Frame) if is_converted else check_finite(self._where, frame)
    return Observation(frame, self._legal_actions_mask, self._to_play, is_continued)
