"""Plays E evaluation episodes in B environments; each episode has its own seed."""

import contextlib
import hashlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from moozi.agent.agent import Decision
from moozi.core.config import Config
from moozi.core.search_record import PlayedStep
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.envs import registry
from moozi.envs.environment import Environment
from moozi.envs.guard import EnvGuard
from moozi.envs.players import Seats
from moozi.envs.table import View
from moozi.envs.vector import IDLE, SyncVectorEnvironment
from moozi.envs.wrappers import RandomStarts, StepCap
from moozi.evaluation.episodes import EpisodeKeeper, EvaluationResult
from moozi.evaluation.opponents import make_opponent, seat_of
from moozi.ops.actions import top_actions
from moozi.ops.signs import player_sign

# Memory limits in bytes for the frames and pictures of the recorded episode, and of all tiles.
_MAX_RECORD_BYTES, _MAX_TILE_BYTES = 256 << 20, 32 << 20
_MAX_TILE_SIZE = 128
# Number of joint actions shown of a policy without a search.
_NUM_SHOWN = 12

SAMPLES = ("sampled_actions", "sampled_probs")
"""The extras of a search's decision that have the choices of a step, and the policy over these choices."""


class EvaluationLanes:
  """Plays episodes in B lanes, each with one environment.

  A lane without an episode idles: it shows a blank terminal frame, and its environment is not stepped. B is
  always `evaluation.num_envs`, so that the policy compiles only once, whatever E is.

  Args:
    num_episodes: E.
    record: whether to keep steps of episode 0 and of the first `evaluation.gif_tiles` episodes; needs
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
    self._opponent, self._seats = make_opponent(config, spec, self.num_envs), Seats()
    # A failed environment is not replaced. An episode must depend on its seed alone, so a new environment
    # could not continue it.
    timeout_s = config.workers.env_timeout_s
    guard = EnvGuard(spec.name, range(self.num_envs), make=None, max_faults=1, timeout_s=timeout_s)
    self._env = SyncVectorEnvironment(self._envs, next_seed=self._next_seed, guard=guard)
    self._returns = np.zeros(num_episodes, np.float64)
    self._lengths = np.zeros(num_episodes, np.int64)
    self._hashes = [hashlib.sha256() for _ in range(num_episodes)]
    self._finished = np.zeros(num_episodes, bool)
    num_frames, num_tiles = evaluation.gif_max_frames, min(evaluation.gif_tiles, num_episodes)
    self._record = EpisodeKeeper(int(record), num_frames, _MAX_RECORD_BYTES)
    self._tiles = EpisodeKeeper(num_tiles if record else 0, num_frames, _MAX_TILE_BYTES, _MAX_TILE_SIZE)

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

  def opponents_actions(self) -> Int[np.ndarray, "B"] | None:
    """Returns the opponent's actions in the agent's action space; -1 where it does not move.

    Returns None if there is no opponent.
    """
    if self._opponent is None:
      return None
    out = np.full(self.num_envs, -1, np.int32)
    for lane, action in self._seats.act(self._views()).items():
      out[lane] = 1 + action
    return out

  def agents_seats(self) -> Int[np.ndarray, "B"]:
    """Returns the agent's seat in the episode of each lane."""
    return np.array([seat_of(episode) for episode in self._episode_of.tolist()], np.int32)

  def step(self, decision: Decision) -> None:
    """Plays one action in each lane that has an episode, and keeps the step before it if it is recorded.

    Args:
      decision: the agent's, in NumPy; its actions are the opponents' where an opponent moves.
    """
    before, action = self.timestep, decision.action
    playing = np.flatnonzero((self._episode_of >= 0) & ~before.is_last).tolist()
    for lane in playing:
      self._keep(lane, decision)
    if self._opponent is not None:
      self._seats.observe(self._views(), {lane: int(action[lane]) - 1 for lane in playing})
    self.timestep = self._env.step(action)
    for lane in playing:
      self._count_step(lane, before.to_play[lane], before.frame[lane], action[lane])
      if self.timestep.is_last[lane]:
        self._finished[int(self._episode_of[lane]) - self._first_episode] = True
        self._keep(lane, None)

  def _views(self) -> dict[int, View]:
    """Returns what the seats to move see, in the lanes whose episode has not ended."""
    step = self.timestep

    def view(lane: int) -> View:
      return View(
        int(step.to_play[lane]), lambda: step.frame[lane], lambda: step.legal_actions_mask[lane, 1:]
      )

    return {lane: view(lane) for lane in np.flatnonzero(~step.is_last).tolist()}

  def played_step(self, lane: int, decision: Decision | None) -> PlayedStep:
    """Returns the lane's current step with the agent's decision.

    Args:
      decision: the decision on all lanes' frames; None for a last frame, which is not searched.
    """
    step, episode = self.timestep, int(self._episode_of[lane])
    seat = None if self._opponent is None else seat_of(episode)
    is_truncated, is_continuous = bool(step.is_truncated[lane]), self._spec.is_continuous
    no_action = np.full(self._spec.action_shape, math.nan, np.float32) if is_continuous else DUMMY_ACTION
    decided: dict[str, Any] = {"action": no_action, "root_value": math.nan if is_truncated else 0.0}
    if decision is not None:
      decided = {
        "action": decision.action[lane] if is_continuous else int(decision.action[lane]),
        "root_value": float(decision.root_value[lane]),
        "extras": jax.tree_util.tree_map(lambda x: x[lane], decision.extras),
      }
    return PlayedStep(
      frame=step.frame[lane],
      picture=self._env.render(lane),
      to_play=int(step.to_play[lane]),
      seat=seat,
      reward=float(step.last_reward[lane]),
      total=float(self._returns[episode - self._first_episode]),
      is_first=bool(step.is_first[lane]),
      is_last=bool(step.is_last[lane]),
      is_truncated=is_truncated,
      is_agents=bool(step.is_last[lane]) or seat in (None, int(step.to_play[lane])),
      **decided,
      **self._policy(lane, decision),
    )

  def _policy(self, lane: int, decision: Decision | None) -> dict[str, Any]:
    """Returns the choices of the lane's current step, with their mask and the policy over them."""
    step, groups = self.timestep, self._spec.policy_groups
    if not self._spec.is_factored:
      blank = np.zeros(self._spec.policy_size, np.float32)
      probs = blank if decision is None else decision.action_probs[lane]
      return {"legal_actions_mask": step.legal_actions_mask[lane], "action_probs": probs}
    choices, probs = np.zeros(0, np.int32), np.zeros(0, np.float32)
    if self._spec.is_continuous:
      decision = None  # there are no choices
    if decision is not None and not (step.is_last[lane] and not step.is_truncated[lane]):
      if "sampled_actions" in decision.extras:
        choices, probs = (decision.extras[name][lane] for name in SAMPLES)
      else:
        choices, probs = top_actions(np.asarray(decision.action_probs[lane]), groups, _NUM_SHOWN)
    mask = np.ones(len(choices), bool)
    return {"legal_actions_mask": mask, "action_probs": probs, "choices": choices}

  def result(self, version: int, env_steps: int) -> EvaluationResult:
    seats = np.array([seat_of(self._first_episode + i) for i in range(self._num_episodes)], np.int64)
    return EvaluationResult(
      returns=self._returns,
      lengths=self._lengths,
      num_distinct=len({h.digest() for h in self._hashes}),
      version=version,
      env_steps=env_steps,
      episode=next(iter(self._record.result(self._lengths)), None),
      seats=seats if self._spec.num_players == 2 else None,
      tiles=self._tiles.result(self._lengths),
      references=registry.reference_scores(self._spec.name),
      picture_fault=self._env.picture_fault,
    )

  def _next_seed(self, lane: int) -> int:
    """Assigns the next episode to the lane and returns its seed; IDLE if there is none."""
    if self._next_episode >= self._first_episode + self._num_episodes:
      self._episode_of[lane] = -1
      return IDLE
    self._episode_of[lane] = self._next_episode
    self._next_episode += 1
    seed = self._seed + int(self._episode_of[lane])
    if self._opponent is not None:
      seat = 1 - seat_of(int(self._episode_of[lane]))
      self._seats.start({lane: (self._envs[lane], {seat: (self._opponent, seed)})})
    return seed

  def _count_step(self, lane: int, mover: Any, frame: np.ndarray, action: Any) -> None:
    """Adds the latest step of `lane` to the return, the length and the hash of its episode."""
    reward, episode = self.timestep.last_reward[lane], int(self._episode_of[lane])
    sign = 1.0 if self._spec.num_players == 1 else float(player_sign(mover, seat_of(episode)))
    i = episode - self._first_episode
    self._returns[i] += sign * reward
    self._lengths[i] += 1
    self._hashes[i].update(frame.tobytes())
    self._hashes[i].update(np.asarray(action).tobytes() + np.float32(reward).tobytes())

  def _keep(self, lane: int, decision: Decision | None) -> None:
    """Keeps the lane's current step if it is to be recorded."""
    episode = int(self._episode_of[lane])
    keepers = [keeper for keeper in (self._record, self._tiles) if keeper.wants(episode)]
    if keepers:
      step = self.played_step(lane, decision)
      for keeper in keepers:
        keeper.keep(episode, step)


@contextlib.contextmanager
def one_lane(
  config: Config, spec: EnvSpec, make_env: Callable[[int], Environment], episode: int
) -> Iterator[EvaluationLanes]:
  """Yields a single lane, reset to the first frame of `episode`; closes its environment at the end."""
  evaluation = config.evaluation.model_copy(update={"num_envs": 1})
  config = config.model_copy(update={"evaluation": evaluation})
  lanes = EvaluationLanes(config, spec, make_env, 1, record=False, first_episode=episode)
  with contextlib.closing(lanes):
    lanes.reset()
    yield lanes
