"""Evaluation: episodes with fixed seeds, played in parallel with the search of `planners.test`.

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
from jaxtyping import PyTree

from moozi.agent.agent import Agent, Carry, Decision, KeyedAct, keyed
from moozi.core.config import Config, PlannerConfig
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import EnvSpec
from moozi.envs.environment import Environment
from moozi.evaluation.episodes import EvaluationResult, PlayedStep
from moozi.evaluation.opponents import seat_of
from moozi.evaluation.slots import EpisodeSlots, one_slot


class Evaluator:
  """Plays evaluation episodes. Compiles once for all variables.

  Args:
    agent: decides; of its extras, only `chance_probs` is used, if it has them.
    temperature: temperature at which the agent draws actions.

  Attributes:
    agent: as given.
  """

  def __init__(
    self,
    agent: Agent,
    temperature: float,
    config: Config,
    spec: EnvSpec,
    make_env: Callable[[int], Environment],
  ) -> None:
    self.agent = agent
    self._config, self._spec, self._make_env = config, spec, make_env
    self._temperature = jnp.float32(temperature)
    self._act: KeyedAct = jax.jit(keyed(agent))

  def run(
    self,
    variables: PyTree,
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
    variables = jax.device_put(variables)
    rng_key = jax.random.PRNGKey(self._config.evaluation.seed)
    slots = EpisodeSlots(self._config, self._spec, self._make_env, num_episodes, record)
    shown = ("chance_probs",) if record else ()
    with contextlib.closing(slots):
      slots.reset()
      carry = self.agent.init(slots.num_envs)
      while not slots.is_done:
        if should_stop():
          return None
        position = slots.positions() if self.agent.plans_with_rules else None
        rng_key, carry, decision = self._act(
          variables, carry, slots.timestep, rng_key, self._temperature, slots.opponents_actions(), position
        )
        num_finished = slots.num_finished
        slots.step(jax.device_get(decision.only(shown)))
        if slots.num_finished != num_finished:
          on_episode(slots.num_finished)
    return dataclasses.replace(slots.result(version, env_steps), seconds=time.perf_counter() - start)

  def player(self, variables: PyTree, seed: int | None = None) -> "AgentPlayer":
    """Returns a player with the evaluation's agent and temperature; `seed` defaults to `evaluation.seed`."""
    seed = self._config.evaluation.seed if seed is None else seed
    return AgentPlayer(self.agent, self._act, jax.device_put(variables), self._temperature, seed)

  def decide(
    self,
    variables: PyTree,
    carry: Carry,
    timestep: BatchedTimeStep,
    rng_key: Any,
    position: Any = None,
  ) -> tuple[Any, Decision]:
    """Returns the next random key, and the agent's decision on B frames; see `agent.agent.Act`."""
    rng_key, _, decision = self._act(variables, carry, timestep, rng_key, self._temperature, None, position)
    return rng_key, decision

  def play(self, variables: PyTree, episode: int) -> Generator[PlayedStep, None, None]:
    """Plays one episode as `run` does, one step for each request to the generator.

    Args:
      episode: the episode's index, at least 0.

    Yields: each step with the agent's decision. The final item is the episode's last frame, with the dummy
      action.
    """
    decide = self.player(variables).decide
    with one_slot(self._config, self._spec, self._make_env, episode) as slots:
      seat = seat_of(episode) if slots.has_opponents else None
      while not slots.is_done:
        position = slots.positions() if self.agent.plans_with_rules else None
        decision = decide(slots.timestep, slots.opponents_actions(), position)
        yield slots.played_step(decision, seat)
        slots.step(decision)
      yield slots.played_step(None, seat)


class AgentPlayer:
  """Chooses the agent's actions in one environment, frame by frame.

  Call `decide` or `observe` once for every frame, in order, even if another player moves. Both advance the
  carry and the random key.

  Args:
    act: `keyed(agent)`, compiled.
    seed: seed of the search noise and of action sampling.

  Attributes:
    carry: what the agent remembers of the frames and actions so far.
    rng_key: JAX random key, split at every frame.
  """

  def __init__(self, agent: Agent, act: KeyedAct, variables: PyTree, temperature: Any, seed: int) -> None:
    self._agent, self._act, self.variables, self.temperature = agent, act, variables, temperature
    self.carry, self.rng_key = agent.init(1), jax.random.PRNGKey(seed)

  def decide(self, timestep: BatchedTimeStep, forced: np.ndarray | None, position: Any = None) -> Decision:
    """Returns the agent's decision for one frame, in NumPy, with a leading axis of length 1 and no extras.

    Args:
      forced: [1] int32: the action that another player plays, or -1 if the agent moves; None means -1.
      position: the frame's position, with a leading axis of length 1; None if the agent needs none.
    """
    self.rng_key, self.carry, decision = self._act(
      self.variables, self.carry, timestep, self.rng_key, self.temperature, forced, position
    )
    return jax.device_get(decision.only(()))

  def observe(self, timestep: BatchedTimeStep, action: int) -> None:
    """Adds a frame without a decision; another player plays `action`, given in the agent's action space."""
    self.rng_key, _ = jax.random.split(self.rng_key)
    self.carry = self._agent.observe(self.carry, timestep, np.array([action], np.int32))


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
