"""Atari games on ale-py's own vectorized environment.

The preprocessing and the emulator are those of `AtariGame`: without no-ops and sticky actions, the same
actions give the same games, frame for frame. ale-py draws no-ops and sticky actions itself. They follow from
the seeds that it receives, but differ from those of `AtariGame`, and a game may start without a no-op.

This module adds the conventions that ale-py lacks:
  - With `episodic_life`, a lost life ends the episode, and the game continues. ale-py starts a new game.
  - Each game has its own seed, unless `reseed` is false. ale-py's autoreset does not seed, so a game that
    ends is reset a second time, with a seed. For this ale-py loads the ROM again, while all other games wait
    about 0.1 s.
  - A game is truncated at the step cap with its last frame. ale-py omits that frame.
  - Actions are checked. An action out of range makes ale-py hang.

The vectorized environment has no `render`. It does not support games whose first action is not the no-op, nor
resets that fire.
"""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int, UInt8

from moozi.core.flat_state import State
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.core.text import pip_install
from moozi.envs.environment import VectorEnvironment
from moozi.envs.suites.atari.rom import NOOP, AtariOptions, GameFacts
from moozi.envs.vector import check_actions

# The first version that can reset some games without the others.
_OLDEST_VERSION = (0, 12, 1)
# A cap that no game reaches. It is below 2^31, because ALE adds to it in 32 bits.
_UNLIMITED = 2**30
_NO_SEED = -1


def find_obstacle(facts: GameFacts, options: AtariOptions) -> str | None:
  """Returns why ale-py's environment cannot play this game with all conventions; None if it can."""
  if facts.actions(options)[0] != NOOP:
    return "its first action is not the no-op; with env.kwargs.minimal_actions=false it is"
  if facts.opening(options):
    return "ale-py plays only action 1, and not after a lost life; must be env.kwargs.fire_on_reset=false"
  import ale_py

  version = tuple(int(part) for part in ale_py.__version__.split(".")[:3] if part.isdigit())
  if version < _OLDEST_VERSION:
    oldest = ".".join(map(str, _OLDEST_VERSION))
    return f"the installed ale-py is {ale_py.__version__}; its vectorized environment needs {oldest} or newer"
  if not hasattr(ale_py, "AtariVectorEnv"):
    return f"the package gymnasium is not installed; run {pip_install('gymnasium')}"
  return None


class AtariVectorEnvironment(VectorEnvironment):
  """B copies of one game. The first reset creates ale-py's environment.

  Args:
    options: options of the environments; `num_threads` is at least 1.
  """

  def __init__(self, facts: GameFacts, spec: EnvSpec, options: AtariOptions, seeds: list[int]) -> None:
    super().__init__(spec, len(seeds))
    self._facts, self._options = facts, options
    self._env: Any = None
    self._random = [np.random.default_rng(seed) for seed in seeds]
    self._num_seeds = np.zeros(self.num_envs, np.int64)  # drawn from each of `_random`
    live = np.arange(spec.num_actions) != DUMMY_ACTION
    self._masks = np.stack([live, ~live])
    # The environments that lost a life on the last frame, and those truncated on it.
    self._will_continue, self._was_cut = np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
    self._lives = np.zeros(self.num_envs, np.int32)
    self._num_steps = np.zeros(self.num_envs, np.int64)

  def reset(self) -> BatchedTimeStep:
    everywhere = np.ones(self.num_envs, bool)
    must_seed = self._was_cut
    if self._env is None:
      self._env, must_seed = self._make(), everywhere
    frame, info = self._env.reset(seed=self._draw_seeds(everywhere, must_seed))
    self._num_steps[:] = 0
    self._is_last = everywhere
    nothing = np.zeros(self.num_envs, np.float32)
    return self._timestep(frame, info["lives"], nothing, is_first=everywhere, is_over=~everywhere)

  def get_state(self) -> State:
    """Returns num_seeds [B] int64, the number of seeds drawn; the games themselves cannot be restored."""
    return {"num_seeds": self._num_seeds.copy()}

  def set_state(self, state: State, shown: BatchedTimeStep) -> tuple[BatchedTimeStep, np.ndarray]:
    """Starts a new game in every environment, with a seed that the state's run has not drawn."""
    if np.shape(state.get("num_seeds", ())) == (self.num_envs,):
      for i, num_seeds in enumerate(state["num_seeds"]):
        while self._num_seeds[i] < num_seeds:
          self._draw_seed(i)
    self._was_cut[:] = True  # with `reseed=False` the reset would continue the streams of the first seed
    return self.reset(), np.ones(self.num_envs, bool)

  def step(self, actions: Int[np.ndarray, "B"]) -> BatchedTimeStep:
    actions = check_actions(actions, self.spec, self._legal_actions_mask, self._is_last)
    if self._env is None:
      return self.reset()
    was_last = self._is_last
    # A no-op continues a game after a lost life. After the end of a game, ale-py resets on any action.
    played = np.where(was_last, 0, actions - 1).astype(np.int64)
    frame, reward, is_over, _, info = self._env.step(played)
    self._num_steps += 1
    is_cut = self._is_cut() & ~is_over
    # The no-op after a lost life may end the game.
    has_ended = self._will_continue & (is_over | is_cut)
    is_first = was_last & ~self._will_continue | has_ended
    was_cut = self._was_cut | has_ended & is_cut
    to_reset = is_first if self._options.reseed else was_cut | has_ended
    if to_reset.any():
      seeds = self._draw_seeds(to_reset, was_cut[to_reset])
      frame, info = self._env.reset(seed=seeds, options={"reset_mask": to_reset})
    self._num_steps[is_first] = 0
    reward = np.where(was_last, 0, reward).astype(np.float32)
    return self._timestep(frame, info["lives"], reward, is_first=is_first, is_over=is_over & ~was_last)

  def close(self) -> None:
    if self._env is not None:
      self._env.close()
      self._env = None

  def _timestep(
    self,
    frame: UInt8[np.ndarray, "B ..."],
    lives: Int[np.ndarray, "B"],
    reward: Float32[np.ndarray, "B"],
    *,
    is_first: Bool[np.ndarray, "B"],
    is_over: Bool[np.ndarray, "B"],
  ) -> BatchedTimeStep:
    was_last, is_cut = self._is_last, self._is_cut() & ~is_over
    self._was_cut = is_cut
    is_lost = self._options.episodic_life & (lives > 0) & (lives < self._lives) & ~was_last & ~is_over
    # If a life is lost on the step of the cap, the episode is terminal, and a new game follows.
    self._will_continue = is_lost & ~is_cut
    is_terminal = is_over | is_lost
    self._lives, self._is_last = lives, is_terminal | is_cut
    self._legal_actions_mask = self._masks[is_terminal.astype(np.intp)]
    return BatchedTimeStep(
      frame=frame.reshape(self.num_envs, *self.spec.frame_shape),
      last_reward=reward,
      is_first=is_first,
      is_last=self._is_last,
      is_truncated=is_cut & ~is_lost,
      to_play=np.zeros(self.num_envs, np.int32),
      legal_actions_mask=self._legal_actions_mask,
    )

  def _is_cut(self) -> Bool[np.ndarray, "B"]:
    return self._num_steps == (self._options.max_episode_steps or -1)

  def _draw_seeds(
    self, where: Bool[np.ndarray, "B"], must_seed: Bool[np.ndarray, "W"]
  ) -> Int[np.ndarray, "W"]:
    """Returns seeds of the W environments in `where`; without `reseed`, only those in `must_seed` get one."""
    lanes = zip(np.flatnonzero(where).tolist(), must_seed, strict=True)
    seeds = [self._draw_seed(i) if self._options.reseed or must else _NO_SEED for i, must in lanes]
    return np.array(seeds, np.int64)

  def _draw_seed(self, i: int) -> int:
    self._num_seeds[i] += 1
    return int(self._random[i].integers(2**31))

  def _make(self) -> Any:
    from ale_py import AtariVectorEnv

    options = self._options
    height, width, channels = self.spec.frame_shape
    return AtariVectorEnv(
      self._facts.rom,
      self.num_envs,
      num_threads=options.num_threads,
      max_num_frames_per_episode=_UNLIMITED,
      repeat_action_probability=options.sticky_action_prob,
      full_action_space=not options.minimal_actions,
      img_height=height,
      img_width=width,
      grayscale=channels == 1,
      stack_num=1,
      frameskip=options.frame_skip,
      maxpool=True,
      # ale-py's maximum is exclusive.
      noop_max=options.max_noops + 1 if options.max_noops else 0,
      use_fire_reset=False,
      episodic_life=False,
      life_loss_info=False,
      reward_clipping=options.clip_rewards,
    )
