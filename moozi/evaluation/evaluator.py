"""Evaluation: episodes with fixed seeds, played in parallel.

If the agent has a search, it is that of `planners.test`, without noise by default. Each episode has its own
fixed seed and starts with 0 to `evaluation.max_random_starts` random legal actions. The number of distinct
episodes is reported. With two players, the agent plays against `evaluation.opponent` from alternating seats,
or with `self` from both; the returns are those of the alternating seat. See docs/rules.md, "Evaluation".
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Generator, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PyTree

from moozi.agent.agent import Carry, Decision, KeyedAct, PureAgent, keyed
from moozi.core.config import Config, PlannerConfig
from moozi.core.errors import EnvError
from moozi.core.records import BatchedTimeStep
from moozi.core.search_record import PlayedStep
from moozi.core.spec import EnvSpec
from moozi.envs.environment import Environment
from moozi.evaluation.agent_player import AgentPlayer
from moozi.evaluation.episodes import EvaluationResult
from moozi.evaluation.lanes import SAMPLES, EvaluationLanes, one_lane
from moozi.evaluation.ratings import rating_against


class Evaluator:
  """Plays evaluation episodes with one compiled function for all variables.

  Args:
    agent: the agent; of its decisions' extras, only `chance_probs` and those of `lanes.SAMPLES` are used.
    temperature: temperature at which the agent draws actions.

  Attributes:
    agent: as given.
  """

  def __init__(
    self,
    agent: PureAgent,
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
    rates: bool = False,
    rivals: tuple[PyTree, PyTree] | None = None,
  ) -> EvaluationResult | None:
    """Plays episodes 0 … num_episodes - 1, with the same seeds in every call.

    Args:
      record: whether the results have `episode` and `tiles`.
      on_episode: called with the number of finished episodes when it changes.
      should_stop: called at every step; true ends the evaluation.
      rates: whether to play against `evaluation.pool` too.
      rivals: two sets of variables; the first also plays `evaluation.gate_episodes` against the second.

    Returns: the results, or None if `should_stop` ended the evaluation.
    Raises: EnvError: an environment raised or hung, except in the rivals' games, whose error is part of the
      results. Each call creates its own environments.
    """
    start = time.perf_counter()
    lanes = EvaluationLanes(self._config, self._spec, self._make_env, num_episodes, record)
    shown = ("chance_probs", *SAMPLES) if record else ()
    if not self._finish(variables, lanes, shown, on_episode, should_stop):
      return None
    result, evaluation = lanes.result(version, env_steps), self._config.evaluation
    if rates and (pool := evaluation.pool):
      scores = []
      for player in pool:
        games = self._games(variables, player.player, evaluation.pool_episodes, should_stop)
        if games is None:
          return None
        scores.append(_scores(games))
      ratings = np.array([player.rating for player in pool], np.float64)
      result = dataclasses.replace(result, rating=rating_against(np.stack(scores, axis=1), ratings))
    if rivals is not None:
      own, rival = rivals
      try:
        games = self._games(own, "self", evaluation.gate_episodes, should_stop, rival)
      except EnvError as error:
        # The other episodes are complete.
        result = dataclasses.replace(result, gate_fault=str(error))
      else:
        if games is None:
          return None
        gate_score = float(_scores(games).mean())
        result = dataclasses.replace(result, gate_score=gate_score, gate_distinct=games.num_distinct)
    return dataclasses.replace(result, seconds=time.perf_counter() - start)

  def _finish(
    self,
    variables: PyTree,
    lanes: EvaluationLanes,
    shown: Iterable[str],
    on_episode: Callable[[int], None],
    should_stop: Callable[[], bool],
    rival: PyTree | None = None,
  ) -> bool:
    """Plays all episodes of the lanes and closes them; returns false if `should_stop` ended them."""
    num_finished = 0
    decided = self.decisions(variables, lanes, shown, rival)
    with contextlib.closing(lanes), contextlib.closing(decided) as decisions:
      lanes.reset()
      while not lanes.is_done:
        if should_stop():
          return False
        lanes.step(next(decisions))
        if lanes.num_finished != num_finished:
          num_finished = lanes.num_finished
          on_episode(num_finished)
    return True

  def _games(
    self,
    variables: PyTree,
    opponent: str,
    num_episodes: int,
    should_stop: Callable[[], bool],
    rival: PyTree | None = None,
  ) -> EvaluationResult | None:
    """Returns the results of episodes against an opponent; None if `should_stop` ended them.

    Args:
      rival: the variables of the opponent "self"; None: the agent's.
    """
    config = self._config.model_copy(update={"evaluation": self._config.evaluation.against(opponent)})
    lanes = EvaluationLanes(config, self._spec, self._make_env, num_episodes, record=False)
    if not self._finish(variables, lanes, (), lambda num_finished: None, should_stop, rival):
      return None
    return lanes.result(0, 0)

  def decisions(
    self,
    variables: PyTree,
    lanes: EvaluationLanes,
    shown: Iterable[str] | None = (),
    rival: PyTree | None = None,
  ) -> Generator[Decision, None, None]:
    """Yields decisions on the lanes' current frames, in NumPy; step the lanes in between.

    Args:
      shown: names of the decisions' extras that are kept; None keeps all.
      rival: the variables that play the seats that are not the agent's; None: the opponent plays them, or
        without an opponent the agent.

    Yields: the agent's decision; where an opponent moves, the action is the opponent's.
    """
    variables, rival = jax.device_put((variables, rival))
    rng_key, carry = jax.random.PRNGKey(self._config.evaluation.seed), self.agent.init(lanes.num_envs)
    while True:
      forced = lanes.opponents_actions()
      position = lanes.positions() if self.agent.plans_with_rules else None
      if rival is not None:
        forced = self._rivals_actions(rival, lanes, carry, rng_key, position)
      rng_key, carry, decision = self._act(
        variables, carry, lanes.timestep, rng_key, self._temperature, forced, position
      )
      yield jax.device_get(decision if shown is None else decision.only(shown))

  def _rivals_actions(
    self, rival: PyTree, lanes: EvaluationLanes, carry: Carry, rng_key: Any, position: Any
  ) -> Int[np.ndarray, "B"]:
    """Returns the actions of the variables `rival` in the seats that are not the agent's; -1 elsewhere.

    Both see the agent's carry, which the frames and actions of the game determine.
    """
    step, free = lanes.timestep, np.full(lanes.num_envs, -1, np.int32)
    _, _, decision = self._act(rival, carry, step, rng_key, self._temperature, free, position)
    return np.where(step.to_play == lanes.agents_seats(), free, np.asarray(decision.action))

  def player(
    self,
    variables: PyTree,
    num_games: int = 1,
    width: int = 1,
    *,
    uses_prior: bool = False,
    seed: int | None = None,
  ) -> AgentPlayer:
    """Returns a player of several games with the evaluation's agent and temperature; see `AgentPlayer`.

    Args:
      seed: None takes `evaluation.seed`.
    """
    return AgentPlayer(
      self.agent,
      self._act,
      variables,
      self._temperature,
      num_games,
      width,
      uses_prior=uses_prior,
      seed=self._config.evaluation.seed if seed is None else seed,
    )

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
    """Plays the episode that has the same index and seed in `run`, one step for each request to the
    generator.

    Args:
      episode: the episode's index, at least 0.

    Yields: each step with the agent's decision. The final item is the episode's last frame, with the dummy
      action.
    """
    with (
      one_lane(self._config, self._spec, self._make_env, episode) as lanes,
      contextlib.closing(self.decisions(variables, lanes, SAMPLES)) as decisions,
    ):
      while not lanes.is_done:
        decision = next(decisions)
        yield lanes.played_step(0, decision)
        lanes.step(decision)
      yield lanes.played_step(0, None)


def _scores(games: EvaluationResult) -> Float[np.ndarray, "games"]:
  """Returns the agent's score in each game: 1 for a win, ½ for a draw, 0 for a loss."""
  return 0.5 + 0.5 * np.sign(games.returns)


def evaluation_terms(config: Config) -> dict[str, Any]:
  """Returns the settings that evaluations must share so that their returns can be compared, for JSON."""
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
