"""Atari games side by side on ale-py's own vectorized environment, with the conventions of `environment`.

It plays the very games that the environments one by one play, frame for frame. What it cannot do is done
here:
  - A life lost ends the episode and the game goes on; its own way of it begins a new game.
  - Each game has a fresh seed. Its autoreset lets chance run on; so a game that ends is reset once more, with
    a seed, for which the ROM is loaded again: a tenth of a second, in which all other games wait.
  - A game is cut at the step cap; where it does that itself, it leaves the last frame out of the picture.
  - Actions are checked. One out of range hangs it for ever.

What cannot be had from it: pictures for people (`render`), games whose first action is not the no-op, and
resets that fire.
"""

import sys
from typing import Any

import numpy as np

from moozi.core.flat_state import State
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.envs.suites.atari.chance import GameChance, GameSeeds
from moozi.envs.suites.atari.environment import NOOP, GameFacts, Options
from moozi.envs.vector import check_actions

# The first version that resets some games and leaves the others alone.
_OLDEST_VERSION = (0, 12, 1)
# Frames in a game that is never cut; ALE adds to it in 32 bits.
_NEVER = 2**30
_RUN_ON = -1


def find_obstacle(facts: GameFacts, options: Options) -> str | None:
  """Why ale-py's vectorized environment cannot play this game with all conventions, here; None where it can.

  Not where a reset is to fire, not where Gymnasium is missing or ale-py is older than 0.12.1, not for games
  whose actions do not begin with the no-op, and not outside Linux, where it is built with a C++ library that
  draws other numbers of no-ops.
  """
  if sys.platform != "linux":
    return "ale-py's vectorized environment draws other numbers of no-ops outside Linux"
  if facts.actions(options)[0] != NOOP:
    return "its first action is not the no-op; env.kwargs.minimal_actions=false has that"
  if facts.opening(options):
    return (
      "its own way of firing lacks the action after it, and the lives lost; env.kwargs.fire_on_reset=false"
    )
  import ale_py

  version = tuple(int(part) for part in ale_py.__version__.split(".")[:3] if part.isdigit())
  if version < _OLDEST_VERSION:
    oldest = ".".join(map(str, _OLDEST_VERSION))
    return f"the installed ale-py is {ale_py.__version__}; its vectorized environment needs {oldest} or newer"
  if not hasattr(ale_py, "AtariVectorEnv"):
    return 'the package gymnasium is not installed; pip install "moozi[gymnasium]" brings it'
  return None


class AtariVector:
  """One game B times, behind the face of `SyncVectorEnvironment`. Nothing is made before the first reset.

  Args:
    facts: the game's.
    spec: the environment's.
    options: of the environments; `num_threads` is at least 1.
    seeds: one for each environment.
  """

  # An environment here cannot fail alone.
  num_faults = 0

  def __init__(self, facts: GameFacts, spec: EnvSpec, options: Options, seeds: list[int]) -> None:
    self._facts, self._spec, self._options = facts, spec, options
    self._env: Any = None
    self._seeds = [GameSeeds(seed, options.max_noops) for seed in seeds]
    live = np.arange(spec.num_actions) != DUMMY_ACTION
    self._masks = np.stack([live, ~live])
    self._mask = np.zeros((self.num_envs, spec.num_actions), bool)
    self._is_last = np.ones(self.num_envs, bool)
    # Where the last frame was a life lost, and where the game was cut.
    self._goes_on, self._was_cut = np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
    self._lives = np.zeros(self.num_envs, np.int32)
    self._num_steps = np.zeros(self.num_envs, np.int64)

  @property
  def num_envs(self) -> int:
    """How many games there are, B."""
    return len(self._seeds)

  @property
  def spec(self) -> EnvSpec:
    """The facts that all the games share."""
    return self._spec

  def reset(self) -> BatchedTimeStep:
    """Begins a new game in every environment."""
    is_fresh = self._env is None
    if is_fresh:
      self._env = self._make()
    everywhere = np.ones(self.num_envs, bool)
    seeds = self._draw(everywhere, everywhere if is_fresh else self._was_cut)
    frame, info = self._env.reset(seed=seeds)
    if is_fresh:
      self._check_noops(seeds, info["episode_frame_number"])
    self._num_steps[:] = 0
    self._is_last = everywhere
    nothing = np.zeros(self.num_envs, np.float32)
    return self._tell(frame, info["lives"], nothing, is_first=everywhere, is_over=~everywhere)

  def get_state(self) -> State:
    """Nothing: these games are stepped together, and can be taken back to nowhere one by one."""
    return {}

  def set_state(self, state: State, shown: BatchedTimeStep) -> tuple[BatchedTimeStep, np.ndarray]:
    """Begins a new game in every environment; see `SyncVectorEnvironment.set_state`."""
    return self.reset(), np.ones(self.num_envs, bool)

  def step(self, actions: np.ndarray) -> BatchedTimeStep:
    """Steps every game; see `SyncVectorEnvironment.step`."""
    actions = check_actions(actions, self._mask, self._is_last)
    if self._env is None:
      return self.reset()
    was_last = self._is_last
    # A step without action goes on after a life lost. Where a game ended, the reset comes by itself.
    played = np.where(was_last, 0, actions - 1).astype(np.int64)
    frame, reward, is_over, _, info = self._env.step(played)
    self._num_steps += 1
    is_cut = self._is_cut() & ~is_over
    # The step without action may end the game that it was to go on with.
    has_ended = self._goes_on & (is_over | is_cut)
    is_first = was_last & ~self._goes_on | has_ended
    was_cut = self._was_cut | has_ended & is_cut
    to_reset = is_first if self._options.reseed else was_cut | has_ended
    if to_reset.any():
      seeds = self._draw(to_reset, was_cut[to_reset])
      frame, info = self._env.reset(seed=seeds, options={"reset_mask": to_reset})
    self._num_steps[is_first] = 0
    reward = np.where(was_last, 0, reward).astype(np.float32)
    return self._tell(frame, info["lives"], reward, is_first=is_first, is_over=is_over & ~was_last)

  def render(self, i: int) -> np.ndarray | None:
    """Nothing: there is no picture for people here."""
    return None

  def close(self) -> None:
    """Ends the threads."""
    if self._env is not None:
      self._env.close()
      self._env = None

  def _tell(
    self,
    frame: np.ndarray,
    lives: np.ndarray,
    reward: np.ndarray,
    *,
    is_first: np.ndarray,
    is_over: np.ndarray,
  ) -> BatchedTimeStep:
    """What the games show now; keeps what the next step must know."""
    was_last, is_cut = self._is_last, self._is_cut() & ~is_over
    self._was_cut = is_cut
    is_lost = self._options.episodic_life & (lives > 0) & (lives < self._lives) & ~was_last & ~is_over
    # A life lost on the step of the cap is an end like any other; it is a new game that begins after it.
    self._goes_on = is_lost & ~is_cut
    is_terminal = is_over | is_lost
    self._lives, self._is_last = lives, is_terminal | is_cut
    self._mask = self._masks[is_terminal.astype(np.intp)]
    return BatchedTimeStep(
      frame=frame.reshape(self.num_envs, *self._spec.frame_shape),
      last_reward=reward,
      last_discount=np.where(is_terminal, 0.0, 1.0).astype(np.float32),
      is_first=is_first,
      is_last=self._is_last,
      is_truncated=is_cut & ~is_lost,
      to_play=np.zeros(self.num_envs, np.int32),
      legal_actions_mask=self._mask,
    )

  def _is_cut(self) -> np.ndarray:
    return self._num_steps == (self._options.max_episode_steps or -1)

  def _draw(self, where: np.ndarray, must_reseed: np.ndarray) -> np.ndarray:
    """A seed for each environment in `where` [B]; what lets chance run on where `must_reseed` [W] asks for
    none.
    """
    lanes = zip(np.flatnonzero(where), must_reseed, strict=True)
    seeds = [self._seeds[i].draw() if self._options.reseed or must else _RUN_ON for i, must in lanes]
    return np.array(seeds, np.int64)

  def _check_noops(self, seeds: np.ndarray, num_frames: np.ndarray) -> None:
    max_noops = self._options.max_noops
    expected = [GameChance(int(s), max_noops, 0.0).num_noops() + self._facts.num_start_frames for s in seeds]
    if num_frames.tolist() != expected:
      raise RuntimeError(
        f"{self._spec.name}: vectorized games begin after {num_frames.tolist()} frames with this build of "
        f"ale-py, and after {expected} where they are played one by one; env.kwargs.num_threads=0 does that"
      )

  def _make(self) -> Any:
    from ale_py import AtariVectorEnv

    options = self._options
    height, width, channels = self._spec.frame_shape
    return AtariVectorEnv(
      self._facts.rom,
      self.num_envs,
      num_threads=options.num_threads,
      max_num_frames_per_episode=_NEVER,
      repeat_action_probability=options.sticky_action_prob,
      full_action_space=not options.minimal_actions,
      img_height=height,
      img_width=width,
      grayscale=channels == 1,
      stack_num=1,
      frameskip=options.frame_skip,
      maxpool=True,
      # It draws from 0 to one less.
      noop_max=options.max_noops + 1 if options.max_noops else 0,
      use_fire_reset=False,
      episodic_life=False,
      life_loss_info=False,
      reward_clipping=options.clip_rewards,
    )
