"""Plays E evaluation episodes in B environments; each episode has its own seed and opponent."""

import contextlib
import hashlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Int

from moozi.agent.agent import Decision
from moozi.core.config import Config
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.envs import registry
from moozi.envs.environment import Environment
from moozi.envs.guard import EnvGuard
from moozi.envs.players import Player, observe
from moozi.envs.vector import IDLE, SyncVectorEnvironment
from moozi.envs.wrappers import RandomStarts, StepCap
from moozi.evaluation.episodes import EpisodeRecord, EvaluationResult, FramesKeeper, PlayedStep
from moozi.evaluation.opponents import has_opponent, make_opponent, seat_of
from moozi.ops.pictures import stack_pictures
from moozi.ops.players import player_sign

# Memory limit in bytes for the frames and pictures of the recorded episode.
_MAX_RECORD_BYTES = 256 << 20


class EpisodeSlots:
  """Plays episodes in B slots, each with one environment.

  A slot without an episode idles: it shows a blank terminal frame, and its environment is not stepped. B is
  always `evaluation.num_envs`, so that the policy compiles only once, whatever E is.

  Args:
    num_episodes: E.
    record: whether to record episode 0 and the frames of the first `evaluation.gif_tiles` episodes; needs
      `first_episode` 0.
    first_episode: index of the first episode; the last one is first_episode + E - 1.
  """

  def __init__(
    self,
    config: Config,
    spec: EnvSpec,
    make_env: Callable[[int], Environment],
    num_episodes: int,
    record: bool,
    first_episode: int = 0,
  ) -> None:
    evaluation = config.evaluation
    self._config, self._spec = config, spec
    self._seed, self._num_episodes = evaluation.seed, num_episodes
    self._first_episode = self._next_episode = first_episode
    self.num_envs = evaluation.num_envs
    self._episode_of = np.full(self.num_envs, -1, np.int64)
    starts, cap = evaluation.max_random_starts, evaluation.max_episode_steps
    self._envs = [StepCap(RandomStarts(make_env(self._seed), starts), cap) for _ in range(self.num_envs)]
    self._opponents: list[Player | None] = [None] * self.num_envs
    # A failed environment is not replaced. An episode must depend on its seed alone, so a new environment
    # could not continue it.
    timeout_s = config.workers.env_timeout_s
    guard = EnvGuard(spec.name, range(self.num_envs), make=None, max_faults=1, timeout_s=timeout_s)
    self._env = SyncVectorEnvironment(self._envs, next_seed=self._next_seed, guard=guard)
    self._returns = np.zeros(num_episodes, np.float64)
    self._lengths = np.zeros(num_episodes, np.int64)
    self._hashes = [hashlib.sha256() for _ in range(num_episodes)]
    self._finished = np.zeros(num_episodes, bool)
    self._record: dict[str, list[np.ndarray]] | None = None
    if record:
      names = ("frames", "actions", "rewards", "root_values", "action_probs", "to_play")
      self._record = {name: [] for name in (*names, "chance_probs")}
    self._pictures: list[np.ndarray | None] = []  # of the recorded frames
    self._max_frames = evaluation.gif_max_frames
    num_tiles = min(evaluation.gif_tiles, num_episodes) if record else 0
    self._tiles = FramesKeeper(num_tiles, self._max_frames)

  def reset(self) -> None:
    self.timestep = self._env.reset()

  def close(self) -> None:
    self._env.close()

  def positions(self) -> Any:
    """Returns the environments' positions; see `VectorEnvironment.positions`."""
    return self._env.positions()

  @property
  def is_done(self) -> bool:
    return bool(self._finished.all())

  @property
  def num_finished(self) -> int:
    return int(self._finished.sum())

  @property
  def has_opponents(self) -> bool:
    """Whether an opponent plays in any current episode."""
    return any(opponent is not None for opponent in self._opponents)

  def opponents_actions(self) -> Int[np.ndarray, "B"] | None:
    """Returns the opponents' actions in the agent's action space; -1 where no opponent moves.

    Returns None if no current episode has an opponent.
    """
    if not self.has_opponents:
      return None
    out, step = np.full(self.num_envs, -1, np.int32), self.timestep
    for slot, opponent in enumerate(self._opponents):
      is_opponents_turn = not step.is_last[slot] and step.to_play[slot] != seat_of(
        int(self._episode_of[slot])
      )
      if opponent is not None and is_opponents_turn:
        out[slot] = 1 + opponent.action(step.frame[slot], step.legal_actions_mask[slot, 1:])
    return out

  def step(self, decision: Decision) -> None:
    """Plays one action in each slot, and records the step before it if `record` is set.

    Args:
      decision: the agent's, in NumPy; its actions are the opponents' where an opponent moves. The record has
        its extra `chance_probs`, the probabilities of each action's outcomes, if there is one.
    """
    action, root_value, action_probs = decision.action, decision.root_value, decision.action_probs
    chance_probs = decision.extras.get("chance_probs")
    episodes, before = self._episode_of.copy(), self.timestep
    for slot in np.flatnonzero(episodes == 0).tolist():
      outcomes = None if chance_probs is None else chance_probs[slot, action[slot]]
      self._record_step(slot, action[slot], root_value[slot], action_probs[slot], outcomes)
    is_playing = (episodes >= 0) & ~before.is_last
    for slot in np.flatnonzero(is_playing & (episodes < self._tiles.num_episodes)).tolist():
      self._keep_tile(slot, int(episodes[slot]))
    for slot in np.flatnonzero(is_playing).tolist():
      if before.to_play[slot] == seat_of(int(episodes[slot])):
        legal, played = before.legal_actions_mask[slot, 1:], int(action[slot]) - 1
        observe(self._opponents[slot], self._spec, before.frame[slot], legal, played)
    self.timestep = self._env.step(action)
    for slot in np.flatnonzero(is_playing).tolist():
      episode = int(episodes[slot])
      self._count_step(slot, episode, before.to_play[slot], before.frame[slot], action[slot])
      if self.timestep.is_last[slot]:
        outcomes = None if chance_probs is None else np.zeros_like(chance_probs[slot, 0])
        self._finish(slot, episode, np.zeros_like(action_probs[slot]), outcomes)

  def render(self, slot: int) -> np.ndarray | None:
    """Returns the picture of the slot's environment; see `VectorEnvironment.render`."""
    return self._env.render(slot)

  def end_value(self, slot: int) -> float:
    """Returns the value of a slot's last frame, which is not searched: nan if truncated, 0 if terminal."""
    return math.nan if self.timestep.is_truncated[slot] else 0.0

  def played_step(self, decision: Decision | None, seat: int | None) -> PlayedStep:
    """Returns the current step of the first slot with the agent's decision; None: on the last frame."""
    step, num_actions = self.timestep, self._spec.num_actions
    return PlayedStep(
      frame=step.frame[0],
      picture=self._env.render(0),
      to_play=int(step.to_play[0]),
      seat=seat,
      reward=float(step.last_reward[0]),
      legal_actions_mask=step.legal_actions_mask[0],
      is_first=bool(step.is_first[0]),
      is_last=bool(step.is_last[0]),
      is_truncated=bool(step.is_truncated[0]),
      action=DUMMY_ACTION if decision is None else int(decision.action[0]),
      root_value=self.end_value(0) if decision is None else float(decision.root_value[0]),
      action_probs=np.zeros(num_actions, np.float32) if decision is None else decision.action_probs[0],
    )

  def result(self, version: int, env_steps: int) -> EvaluationResult:
    episode = None
    if self._record is not None:
      pictures = stack_pictures(self._pictures)
      parts: dict[str, Any] = {name: np.stack(items) for name, items in self._record.items() if items}
      seat = seat_of(0) if has_opponent(self._config, self._spec) else None
      episode = EpisodeRecord(**parts, pictures=pictures, length=int(self._lengths[0]), seat=seat)
    seats = np.array([seat_of(self._first_episode + i) for i in range(self._num_episodes)], np.int64)
    return EvaluationResult(
      returns=self._returns,
      lengths=self._lengths,
      num_distinct=len({h.digest() for h in self._hashes}),
      version=version,
      env_steps=env_steps,
      episode=episode,
      seats=seats if self._spec.num_players == 2 else None,
      tiles=self._tiles.result(),
      references=registry.reference_scores(self._spec.name),
      picture_fault=self._env.picture_fault,
    )

  def _next_seed(self, slot: int) -> int:
    """Assigns the next episode to the slot and returns its seed; IDLE if there is none."""
    if self._next_episode >= self._first_episode + self._num_episodes:
      self._episode_of[slot], self._opponents[slot] = -1, None
      return IDLE
    self._episode_of[slot] = self._next_episode
    self._next_episode += 1
    seed = self._seed + int(self._episode_of[slot])
    self._opponents[slot] = make_opponent(self._config, self._spec, self._envs[slot], seed)
    return seed

  def _count_step(self, slot: int, episode: int, mover: Any, frame: np.ndarray, action: Any) -> None:
    """Adds the latest step of `slot` to the return, the length and the hash of its episode."""
    reward = self.timestep.last_reward[slot]
    sign = 1.0 if self._spec.num_players == 1 else float(player_sign(mover, seat_of(episode)))
    i = episode - self._first_episode
    self._returns[i] += sign * reward
    self._lengths[i] += 1
    self._hashes[i].update(frame.tobytes())
    self._hashes[i].update(np.int32(action).tobytes() + np.float32(reward).tobytes())

  def _finish(self, slot: int, episode: int, no_probs: np.ndarray, no_outcomes: np.ndarray | None) -> None:
    self._finished[episode - self._first_episode] = True
    if episode == 0:
      self._record_step(slot, DUMMY_ACTION, self.end_value(slot), no_probs, no_outcomes)
    if episode < self._tiles.num_episodes:
      self._keep_tile(slot, episode)

  def _record_step(
    self, slot: int, action: Any, value: Any, probs: np.ndarray, outcomes: np.ndarray | None
  ) -> None:
    """Records the slot's current step with the agent's decision."""
    if self._record is None or len(self._record["frames"]) == self._max_frames:
      return
    if self._finished[0] and len(self._record["frames"]) > self._lengths[0]:
      return
    step = self.timestep
    items = (step.frame[slot], action, step.last_reward[slot], value, probs, step.to_play[slot])
    picture = self._env.render(slot)
    if not self._pictures:
      size = step.frame[slot].nbytes + (0 if picture is None else picture.nbytes)
      self._max_frames = min(self._max_frames, max(1, _MAX_RECORD_BYTES // size))
    self._pictures.append(picture)
    for name, item in zip(self._record, (*items, outcomes), strict=True):
      if item is not None:
        self._record[name].append(np.array(item))

  def _keep_tile(self, slot: int, episode: int) -> None:
    step = self.timestep
    self._tiles.keep(
      episode,
      step.frame[slot],
      self._returns[episode],
      int(step.to_play[slot]),
      lambda: self._env.render(slot),
    )


@contextlib.contextmanager
def one_slot(
  config: Config, spec: EnvSpec, make_env: Callable[[int], Environment], episode: int
) -> Iterator[EpisodeSlots]:
  """Yields EpisodeSlots with one environment, reset to the first frame of `episode`; closes it at the end."""
  evaluation = config.evaluation.model_copy(update={"num_envs": 1})
  config = config.model_copy(update={"evaluation": evaluation})
  slots = EpisodeSlots(config, spec, make_env, 1, record=False, first_episode=episode)
  with contextlib.closing(slots):
    slots.reset()
    yield slots
