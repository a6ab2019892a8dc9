"""Evaluation: episodes from fixed seeds, played side by side with the testing search.

Follows docs/architecture.md, "Evaluation": noise-free by default, each episode has its own fixed seed
and starts with k random legal actions; the number of distinct episodes is reported. With two players the
agent meets `evaluation.opponent` from both seats in turn, and returns are those of its seat.
"""

import contextlib
import dataclasses
import hashlib
import math
import time
from collections.abc import Callable, Generator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moozi.core.config import Config, PlannerConfig
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.envs.environment import Bot, Environment
from moozi.envs.guard import EnvGuard
from moozi.envs.vector import SyncVectorEnvironment
from moozi.envs.wrappers import RandomStarts, StepCap
from moozi.evaluation.episodes import EpisodeFrames, FramesKeeper, PlayedStep
from moozi.evaluation.opponents import make_opponent, score_figures, seat_of
from moozi.evaluation.player import AgentPlayer, Thought
from moozi.ops.history import HistoryState, init_history
from moozi.ops.players import player_sign


@dataclasses.dataclass(frozen=True)
class EpisodeRecord:
  """One episode as it was seen and thought, for pictures.

  T is the number of its frames, the last one included, or `evaluation.gif_max_frames` where it has more.

  Attributes:
    frames: [T, H, W, C]. actions: [T] agent actions. rewards: [T], received on entering the frame.
    root_values: [T]; 0 at a terminal frame, nan at a truncated one, which was not searched.
    action_probs: [T, A].
    length: actions of the whole episode; T is `length` + 1 where all of it is here.
    pictures: [T, h, w, 3] uint8, the environment's own (`Environment.render`); None where it has none.
    to_play: [T] int32, the players to move; None is player 0 throughout.
    seat: the agent's; None with one player, and where it plays both seats.
  """

  frames: np.ndarray
  actions: np.ndarray
  rewards: np.ndarray
  root_values: np.ndarray
  action_probs: np.ndarray
  length: int
  pictures: np.ndarray | None = None
  to_play: np.ndarray | None = None
  seat: int | None = None


@dataclasses.dataclass(frozen=True)
class EvaluationResult:
  """What E episodes came to.

  Attributes:
    returns: [E] float64, undiscounted sums of rewards after the random start; of the agent's seat.
    lengths: [E] int64, actions taken after the random start.
    num_distinct: number of different episodes, by what they showed, the actions and the rewards.
    version: learner step of the parameters.
    env_steps: environment steps of training when they were taken.
    episode: the first episode, or None where not asked for.
    seats: [E] int64, the agent's; None with one player.
    tiles: the first `evaluation.gif_tiles` episodes as they looked; empty where not asked for.
    seconds: how long they took to play.
  """

  returns: np.ndarray
  lengths: np.ndarray
  num_distinct: int
  version: int
  env_steps: int
  episode: EpisodeRecord | None
  seats: np.ndarray | None = None
  tiles: tuple[EpisodeFrames, ...] = ()
  seconds: float = 0.0

  def summary(self) -> dict[str, float | int]:
    """The figures of `moozi evaluate --json`; with two players also those of `opponents.score_figures`."""
    figures: dict[str, float | int] = {
      "episodes": len(self.returns),
      "distinct_episodes": self.num_distinct,
      "return_mean": float(self.returns.mean()),
      "return_std": float(self.returns.std()),
      "return_min": float(self.returns.min()),
      "return_max": float(self.returns.max()),
      "length_mean": float(self.lengths.mean()),
    }
    return figures if self.seats is None else figures | score_figures(self.returns, self.seats)


class Evaluator:
  """Plays evaluation episodes; compiled once, called with newer parameters each time.

  Args:
    policy: not jitted, as `agent.policy.make_policy` makes one; of its output action, root_value and
      action_probs are read.
    temperature: what the policy is called with.
    history_length: frames of its history.
    config: the run's configuration; `evaluation` is used.
    spec: the environment's facts.
    make_env: makes one environment from a seed.
  """

  def __init__(
    self,
    policy: Callable[..., tuple[HistoryState, Any]],
    temperature: float,
    history_length: int,
    config: Config,
    spec: EnvSpec,
    make_env: Callable[[int], Environment],
  ) -> None:
    self._config, self._spec, self._make_env = config, spec, make_env
    self._history_length = history_length
    self._temperature = jnp.float32(temperature)
    self._policy = jax.jit(policy)

  def run(
    self,
    params: Any,
    net_state: Any,
    *,
    num_episodes: int,
    version: int = 0,
    env_steps: int = 0,
    record: bool = False,
    on_episode: Callable[[int], None] = lambda done: None,
    should_stop: Callable[[], bool] = lambda: False,
  ) -> EvaluationResult | None:
    """Plays episodes 0 … num_episodes - 1, the same ones for every call.

    Args:
      params, net_state: the network's.
      num_episodes: how many.
      version, env_steps: told in the result.
      record: keep the first episode for pictures, and how the first `evaluation.gif_tiles` looked.
      on_episode: called with the number of finished episodes after each.
      should_stop: asked at every step; true leaves the episodes there.

    Returns: the figures, or None where `should_stop` said so.
    Raises: EnvError: an environment raised or hung; the next call has new ones.
    """
    start = time.perf_counter()
    params, net_state = jax.device_put((params, net_state))
    rng_key = jax.random.PRNGKey(self._config.evaluation.seed)
    slots = _EpisodeSlots(self._config, self._spec, self._make_env, num_episodes, record)
    with contextlib.closing(slots):
      slots.begin()
      history = init_history(slots.num_envs, self._history_length, self._spec)
      while not slots.is_done:
        if should_stop():
          return None
        rng_key, key = jax.random.split(rng_key)
        history, output = self._policy(
          params, net_state, history, slots.timestep, key, self._temperature, slots.opponents_actions()
        )
        before = slots.num_finished
        slots.step(jax.device_get((output.action, output.root_value, output.action_probs)))
        if slots.num_finished != before:
          on_episode(slots.num_finished)
    return dataclasses.replace(slots.result(version, env_steps), seconds=time.perf_counter() - start)

  def player(self, params: Any, net_state: Any) -> AgentPlayer:
    """The agent as it plays in evaluation, for one environment that somebody else steps."""
    seed = self._config.evaluation.seed
    return AgentPlayer(
      self._policy, self._temperature, self._history_length, self._spec, params, net_state, seed
    )

  def play(self, params: Any, net_state: Any, episode: int) -> Generator[PlayedStep, None, None]:
    """Plays one episode, the one of that number in `run`; the environment moves when the next step is asked
    for.

    Args:
      params, net_state: the network's.
      episode: not negative.

    Yields: each step once it has been thought about, the end of the episode last.
    """
    one = self._config.evaluation.model_copy(update={"num_envs": 1})
    config = self._config.model_copy(update={"evaluation": one})
    slots = _EpisodeSlots(config, self._spec, self._make_env, episode + 1, False, first_episode=episode)
    player = self.player(params, net_state)
    with contextlib.closing(slots):
      slots.begin()
      seat = seat_of(episode) if slots.has_opponents else None
      while not slots.is_done:
        thought = player.think(slots.timestep, slots.opponents_actions())
        yield slots.played_step(thought, seat)
        action, value, probs = (np.array([x]) for x in thought)
        slots.step((action, value, probs))
      nobody = np.zeros(self._spec.num_actions, np.float32)
      yield slots.played_step(Thought(DUMMY_ACTION, slots.end_value(0), nobody), seat)


def evaluation_planner(config: Config, num_simulations: int | None = None) -> PlannerConfig:
  """The search that evaluation plays with."""
  if config.evaluation.noise_free:
    return config.planners.test.noise_free(num_simulations)
  update = {"num_simulations": num_simulations or config.planners.test.num_simulations}
  return config.planners.test.model_copy(update=update)


class _EpisodeSlots:
  """B environments that work through E episodes, each with its own seed; slots without work idle along."""

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
    self._next_episode = first_episode
    # Always the configured width, so that one compilation serves every number of episodes.
    self.num_envs = evaluation.num_envs
    self._episode_of = np.full(self.num_envs, -1, np.int64)

    def make_test_env() -> Environment:
      env = RandomStarts(make_env(self._seed), evaluation.max_random_starts)
      return StepCap(env, evaluation.max_episode_steps)

    self._envs = [make_test_env() for _ in range(self.num_envs)]
    self._opponents: list[Bot | None] = [None] * self.num_envs
    # An episode is a function of its seed: an environment made anew could not go on with it.
    timeout_s = config.workers.env_timeout_s
    guard = EnvGuard(spec.name, range(self.num_envs), make=None, max_faults=1, timeout_s=timeout_s)
    self._env = SyncVectorEnvironment(self._envs, next_seed=self._take_episode, guard=guard)
    self._returns = np.zeros(num_episodes, np.float64)
    self._lengths = np.zeros(num_episodes, np.int64)
    self._hashes = [hashlib.sha256() for _ in range(num_episodes)]
    self._finished = np.arange(num_episodes) < first_episode
    self._record: dict[str, list[np.ndarray]] | None = None
    if record:
      names = ("frames", "actions", "rewards", "root_values", "action_probs", "to_play", "pictures")
      self._record = {name: [] for name in names}
    self._max_frames = evaluation.gif_max_frames
    num_tiles = min(evaluation.gif_tiles, num_episodes) if record else 0
    self._tiles = FramesKeeper(num_tiles, self._max_frames)

  def begin(self) -> None:
    """Starts the first episodes."""
    self.timestep = self._env.reset()

  def close(self) -> None:
    """Closes the environments."""
    self._env.close()

  @property
  def is_done(self) -> bool:
    return bool(self._finished.all())

  @property
  def num_finished(self) -> int:
    return int(self._finished.sum())

  def _take_episode(self, slot: int) -> int | None:
    """The seed of the slot's next episode; None, for one that does not count, when all are taken."""
    if self._next_episode >= self._num_episodes:
      self._episode_of[slot], self._opponents[slot] = -1, None
      return None
    self._episode_of[slot] = self._next_episode
    self._next_episode += 1
    seed = self._seed + int(self._episode_of[slot])
    self._opponents[slot] = make_opponent(self._config, self._spec, self._envs[slot], seed)
    return seed

  @property
  def has_opponents(self) -> bool:
    """Whether somebody else plays in the episodes under way."""
    return any(opponent is not None for opponent in self._opponents)

  def opponents_actions(self) -> np.ndarray | None:
    """[B] int32, the opponents' agent actions where one is to move, else -1; None where there are none."""
    if not self.has_opponents:
      return None
    out, step = np.full(self.num_envs, -1, np.int32), self.timestep
    for slot, opponent in enumerate(self._opponents):
      its_turn = not step.is_last[slot] and step.to_play[slot] != seat_of(int(self._episode_of[slot]))
      if opponent is not None and its_turn:
        out[slot] = 1 + opponent.action(step.legal_actions_mask[slot, 1:])
    return out

  def step(self, outputs: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    action, root_value, action_probs = outputs
    seen, step = self._episode_of.copy(), self.timestep
    for slot in np.flatnonzero(seen == 0):
      self._note(slot, action[slot], root_value[slot], action_probs[slot])
    for slot in np.flatnonzero((seen >= 0) & (seen < self._tiles.num_episodes) & ~step.is_last):
      self._keep(int(slot), int(seen[slot]))
    playing, mover, shown = np.flatnonzero((seen >= 0) & ~step.is_last), step.to_play, step.frame
    self.timestep = step = self._env.step(action)
    for slot in playing:
      episode = seen[slot]
      self._hashes[episode].update(shown[slot].tobytes())
      self._returns[episode] += self._sign(mover[slot], episode) * step.last_reward[slot]
      self._lengths[episode] += 1
      self._hashes[episode].update(
        np.int32(action[slot]).tobytes() + np.float32(step.last_reward[slot]).tobytes()
      )
      if step.is_last[slot]:
        self._finished[episode] = True
        if episode == 0:
          self._note(slot, DUMMY_ACTION, self.end_value(slot), np.zeros_like(action_probs[slot]))
        if episode < self._tiles.num_episodes:
          self._keep(int(slot), int(episode))

  def end_value(self, slot: Any) -> float:
    """What a slot's last frame is worth without a search: 0 where it is terminal, else nan."""
    return math.nan if self.timestep.is_truncated[slot] else 0.0

  def played_step(self, thought: Thought, seat: int | None) -> PlayedStep:
    """What the first slot's environment shows now, and what was thought there."""
    step = self.timestep
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
      **thought._asdict(),
    )

  def _sign(self, mover: int, episode: int) -> float:
    return 1.0 if self._spec.num_players == 1 else float(player_sign(mover, seat_of(episode)))

  def _note(self, slot: Any, action: Any, value: Any, probs: Any) -> None:
    """Keeps what the slot's environment shows now, and what was thought and done there."""
    if self._record is None or len(self._record["frames"]) == self._max_frames:
      return
    if self._finished[0] and len(self._record["frames"]) > self._lengths[0]:
      return
    step = self.timestep
    seen = (step.frame[slot], action, step.last_reward[slot], value, probs, step.to_play[slot])
    items = (*seen, self._env.render(slot))
    for name, item in zip(self._record, items, strict=True):
      if item is not None:
        self._record[name].append(np.array(item))

  def _keep(self, slot: int, episode: int) -> None:
    """Keeps how the slot's environment looks now, for the tiles."""
    step = self.timestep
    self._tiles.keep(
      episode,
      step.frame[slot],
      self._returns[episode],
      int(step.to_play[slot]),
      lambda: self._env.render(slot),
    )

  def result(self, version: int, env_steps: int) -> EvaluationResult:
    episode = None
    if self._record is not None:
      parts: dict[str, Any] = {name: np.stack(items) for name, items in self._record.items() if items}
      has_rival = self._spec.num_players == 2 and self._config.evaluation.opponent != "self"
      seat = seat_of(0) if has_rival else None
      episode = EpisodeRecord(**parts, length=int(self._lengths[0]), seat=seat)
    seats = np.array([seat_of(i) for i in range(self._num_episodes)])
    return EvaluationResult(
      returns=self._returns,
      lengths=self._lengths,
      num_distinct=len({h.digest() for h in self._hashes}),
      version=version,
      env_steps=env_steps,
      episode=episode,
      seats=seats if self._spec.num_players == 2 else None,
      tiles=self._tiles.result(),
    )
