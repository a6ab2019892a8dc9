"""One Atari game on an emulator, with the usual preprocessing.

By default a game starts with 1 to 30 no-ops, and each action is repeated for four frames. A frame is the
pixelwise maximum of a step's last two screens, as uint8. By default it is grey and 84 by 84; in colour it is
96 by 96, as in MuZero. The agent stacks the history. In training, unless `episodic_life` is false, a lost
life ends the episode and the next reset continues the game.

Apart from the departures below, frames equal those of gymnasium.wrappers.AtariPreprocessing pixel for pixel.
If the game ends before the last two screens are read, the terminal frame shows earlier screens.

Source: Bellemare et al. 2013; Mnih et al. 2015; Machado et al. 2018; Schrittwieser et al. 2020. Departures:
  - A lost life ends the episode after all frames of the step, as in baselines; Gymnasium stops immediately.
  - After a lost life a no-op step continues the game. Its reward is not counted. The reward of firing is not
    counted either, as in baselines. A life lost while firing does not end the episode.
  - Where a lost life does not end the episode, firing is part of the step that lost it.
"""

from typing import Any

import numpy as np

from moozi.envs.game import Game
from moozi.envs.suites.atari.frames import AreaResize
from moozi.envs.suites.atari.rom import NOOP, AtariOptions, load_emulator, load_facts, make_spec


class AtariGame(Game):
  """One game on its own emulator, which the first reset creates.

  No-ops and sticky actions are drawn from one generator. `seed` seeds it.
  """

  def __init__(self, game: str, options: AtariOptions) -> None:
    self._facts, self._options = load_facts(game), options
    self._actions, self._opening = self._facts.actions(options), self._facts.opening(options)
    self._ale: Any = None
    size, _, channels = make_spec(game, options).frame_shape
    height, width = self._facts.height, self._facts.width
    self._resize = AreaResize(height, width, size)
    # The last two screens of a step. After the step, `_screen` holds the maximum of both.
    self._before, self._screen = np.zeros((2, height, width, channels), np.uint8)
    self._num_steps = 0
    self.will_continue = False
    self.is_continued = False
    self.seed(0)

  def seed(self, seed: int) -> None:
    self._random = np.random.default_rng(seed)
    self.will_continue = False

  def reset(self) -> None:
    self.is_continued = self.will_continue and self._continue_game()
    if not self.is_continued:
      self._start_game()
      for action in self._opening:
        if self._play(action)[1]:
          self._start_game()
      self._num_steps = 0
    self.will_continue = False

  def step(self, action: int) -> tuple[float, bool, bool]:
    lives = self._ale.lives()
    reward, is_over = self._play(self._actions[action])
    is_life_lost = not is_over and 0 < self._ale.lives() < lives
    ends_episode = is_life_lost and self._options.episodic_life
    if is_life_lost and not ends_episode:
      is_over = self._play_until_end(self._opening)
    # If a life is lost on the step of the cap, the episode is terminal, and a new game follows.
    self.will_continue = ends_episode and not self._is_cut()
    if self._options.clip_rewards:
      reward = float(np.sign(reward))
    return reward, is_over or ends_episode, self._is_cut()

  def frame(self) -> np.ndarray:
    return self._resize(self._screen)

  def render(self) -> np.ndarray:
    picture: np.ndarray = self._ale.getScreenRGB()
    return picture

  def _is_cut(self) -> bool:
    return self._num_steps == self._options.max_episode_steps

  def _continue_game(self) -> bool:
    """Plays a no-op and the opening after a lost life; returns False if the game is over or cut."""
    return not self._play_until_end((NOOP, *self._opening)) and not self._is_cut()

  def _play_until_end(self, actions: tuple[int, ...]) -> bool:
    """Plays actions until the game is over or cut, without their rewards; returns whether it is over."""
    return any(not self._is_cut() and self._play(action)[1] for action in actions)

  def _start_game(self) -> None:
    if self._ale is None:
      self._ale = load_emulator(self._facts.rom)
      self._ale.reset_game()
      self._initial = self._ale.cloneState()
    else:
      # Both calls are needed: a saved state lacks variables that a reset sets, and a reset keeps variables
      # that a saved state sets. After only one call, some games depend on earlier games. After both, no game
      # does (measured on each ROM of ale-py 0.12.1; a test checks it). Reloading a ROM takes a tenth of a
      # second.
      self._ale.reset_game()
      self._ale.restoreState(self._initial)
    self._last_action = NOOP
    max_noops = self._options.max_noops
    for _ in range(int(self._random.integers(1, max_noops + 1)) if max_noops else 0):
      self._act(NOOP)
      if self._ale.game_over():
        self._ale.reset_game()
        self._last_action = NOOP
    self._num_steps = 0
    self._before.fill(0)
    self._read_screen(self._screen)

  def _act(self, action: int) -> float:
    """Plays one frame; returns its reward."""
    probability = self._options.sticky_action_prob
    if probability == 0.0 or self._random.random() >= probability:
      self._last_action = action
    return float(self._ale.act(self._last_action))

  def _play(self, action: int) -> tuple[float, bool]:
    """Plays one step of `frame_skip` frames; returns its reward and whether the game is over."""
    num_frames, reward, is_over = self._options.frame_skip, 0.0, False
    for i in range(num_frames):
      reward += self._act(action)
      is_over = self._ale.game_over()
      if is_over:
        break
      if i == num_frames - 2:
        self._read_screen(self._before)
      elif i == num_frames - 1:
        self._read_screen(self._screen)
    np.maximum(self._before, self._screen, out=self._screen)
    self._num_steps += 1
    return reward, is_over

  def _read_screen(self, out: np.ndarray) -> None:
    if out.shape[2] == 1:
      self._ale.getScreenGrayscale(out[..., 0])
    else:
      self._ale.getScreenRGB(out)
