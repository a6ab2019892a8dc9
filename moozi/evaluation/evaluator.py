"""Evaluation: episodes with fixed seeds, played in parallel with the testing search.

The search is noise-free by default. Each episode has its own fixed seed and starts with a random number of
random legal actions. The number of distinct episodes is reported. With two players, the agent plays against
`evaluation.opponent` from alternating seats, and the returns are those of the agent's seat. See
docs/rules.md, "Evaluation".
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Generator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moozi.core.config import Config, PlannerConfig
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.envs.environment import Environment
from moozi.evaluation.episodes import EvaluationResult, PlayedStep
from moozi.evaluation.opponents import seat_of
from moozi.evaluation.slots import Decision, EpisodeSlots, one_slot
from moozi.ops.history import HistoryState, init_history, push_action, push_frame

Policy = Callable[..., tuple[HistoryState, Any]]


class Evaluator:
  """Plays evaluation episodes. Compiles once for all parameters.

  Args:
    policy: the policy before `jax.jit`, such as a result of `agent.policy.make_policy`. Only the fields
      `action`, `root_value`, `action_probs` and, if present, `chance_probs` of its output are used.
    temperature: temperature at which the policy draws actions.

  Attributes:
    plans_with_rules: whether the policy needs the position of every frame.
  """

  def __init__(
    self,
    policy: Policy,
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
    self.plans_with_rules = config.plans_with_rules

  def run(
    self,
    params: Any,
    net_state: Any,
    *,
    num_episodes: int,
    version: int = 0,
    env_steps: int = 0,
    record: bool = False,
    on_episode: Callable[[int], None] = lambda num_finished: None,
    should_stop: Callable[[], bool] = lambda: False,
  ) -> EvaluationResult | None:
    """Plays episodes 0 … num_episodes - 1, the same in every call.

    Args:
      record: whether to record the first episode, and frames of the first `evaluation.gif_tiles` episodes.
      on_episode: called with the number of finished episodes when it changes.
      should_stop: called at every step; true ends the evaluation.

    Returns: the results, or None if `should_stop` ended the evaluation.
    Raises: EnvError: an environment raised or hung. The next call creates new environments.
    """
    start = time.perf_counter()
    params, net_state = jax.device_put((params, net_state))
    rng_key = jax.random.PRNGKey(self._config.evaluation.seed)
    slots = EpisodeSlots(self._config, self._spec, self._make_env, num_episodes, record)
    with contextlib.closing(slots):
      slots.reset()
      history = init_history(slots.num_envs, self._history_length, self._spec)
      while not slots.is_done:
        if should_stop():
          return None
        rng_key, key = jax.random.split(rng_key)
        position = {"position": slots.positions()} if self.plans_with_rules else {}
        history, output = self._policy(
          params,
          net_state,
          history,
          slots.timestep,
          key,
          self._temperature,
          slots.opponents_actions(),
          **position,
        )
        num_finished = slots.num_finished
        chance_probs = getattr(output, "chance_probs", None) if record else None
        slots.step(*jax.device_get((output.action, output.root_value, output.action_probs, chance_probs)))
        if slots.num_finished != num_finished:
          on_episode(slots.num_finished)
    return dataclasses.replace(slots.result(version, env_steps), seconds=time.perf_counter() - start)

  def player(self, params: Any, net_state: Any, seed: int | None = None) -> "AgentPlayer":
    """Returns a player with the evaluation's policy and temperature; `seed` defaults to `evaluation.seed`."""
    seed = self._config.evaluation.seed if seed is None else seed
    history = init_history(1, self._history_length, self._spec)
    return AgentPlayer(self._policy, jax.device_put((params, net_state)), self._temperature, history, seed)

  @property
  def history_length(self) -> int:
    """L, the number of frames and actions in the agent's input."""
    return self._history_length

  def decide(
    self,
    variables: tuple[Any, Any],
    history: HistoryState,
    timestep: BatchedTimeStep,
    rng_key: Any,
    position: Any = None,
  ) -> Any:
    """Returns the policy's output for B frames and their histories; see `agent.policy.make_policy`."""
    extra = {"position": position} if self.plans_with_rules else {}
    _, output = self._policy(*variables, history, timestep, rng_key, self._temperature, None, **extra)
    return output

  def play(self, params: Any, net_state: Any, episode: int) -> Generator[PlayedStep, None, None]:
    """Plays one episode as `run` does, one step for each request to the generator.

    Args:
      episode: the episode's index, at least 0.

    Yields: each step with the agent's decision. The final item is the episode's last frame, with the dummy
      action.
    """
    decide = self.player(params, net_state).decide
    with one_slot(self._config, self._spec, self._make_env, episode) as slots:
      seat = seat_of(episode) if slots.has_opponents else None
      while not slots.is_done:
        position = slots.positions() if self.plans_with_rules else None
        decision = decide(slots.timestep, slots.opponents_actions(), position)
        yield slots.played_step(decision, seat)
        slots.step(*(np.array([x]) for x in decision))
      no_probs = np.zeros(self._spec.num_actions, np.float32)
      yield slots.played_step(Decision(DUMMY_ACTION, slots.end_value(0), no_probs), seat)


class AgentPlayer:
  """Chooses the agent's actions in one environment, frame by frame.

  Call `decide` or `observe` once for every frame, in order, even if another player moves. Both advance the
  history and the random key.

  Args:
    policy: as in `Evaluator`, jitted.
    variables: (params, net_state).
    history: an empty history of one lane.
    seed: seed of the search noise and of action sampling.

  Attributes:
    history: the frames and actions so far.
    rng_key: JAX random key, split at every frame.
  """

  def __init__(
    self, policy: Policy, variables: tuple[Any, Any], temperature: Any, history: HistoryState, seed: int
  ) -> None:
    self._policy, self.variables, self.temperature = policy, variables, temperature
    self.history, self.rng_key = history, jax.random.PRNGKey(seed)

  def decide(self, timestep: BatchedTimeStep, forced: np.ndarray | None, position: Any = None) -> Decision:
    """Returns the agent's decision for one frame.

    Args:
      forced: [1] int32: the action that another player plays, or -1 if the agent moves; None means -1.
      position: the frame's position, with a leading axis of length 1; None if the policy needs none.
    """
    self.rng_key, key = jax.random.split(self.rng_key)
    extra = {} if position is None else {"position": position}
    self.history, output = self._policy(
      *self.variables, self.history, timestep, key, self.temperature, forced, **extra
    )
    action, value, probs = jax.device_get((output.action, output.root_value, output.action_probs))
    return Decision(int(action[0]), float(value[0]), probs[0])

  def observe(self, timestep: BatchedTimeStep, action: int) -> None:
    """Adds a frame without a search; another player plays `action`, given in the agent's action space."""
    self.rng_key, _ = jax.random.split(self.rng_key)
    history = push_frame(self.history, timestep.frame, timestep.is_first)
    self.history = push_action(history, np.array([action], np.int32))


def evaluation_terms(config: Config) -> dict[str, Any]:
  """Returns the settings that make returns of evaluations comparable, for JSON."""
  names = {"max_random_starts", "max_episode_steps", "network"}
  return {
    "env": config.env.model_dump(mode="json"),
    "planner": evaluation_planner(config).model_dump(mode="json"),
    "opponent": config.evaluation.opponent_name,
    **config.evaluation.model_dump(mode="json", include=names),
  }


def evaluation_planner(config: Config, num_simulations: int | None = None) -> PlannerConfig:
  """Returns the planner settings of evaluation; `num_simulations` overrides that of `planners.test`."""
  if config.evaluation.noise_free:
    return config.planners.test.noise_free(num_simulations)
  update = {"num_simulations": num_simulations or config.planners.test.num_simulations}
  return config.planners.test.model_copy(update=update)
