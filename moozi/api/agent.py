"""The agent of a run, which acts, searches and evaluates with one of the run's checkpoints."""

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from dm_env import TimeStep
from jaxtyping import Int

from moozi.api.observing import ObservationReader, read_actions, read_rows, split_actions
from moozi.api.run_access import (
  LOADED_PLAYERS,
  check_number,
  check_opponent_options,
  check_searches,
  check_seed,
)
from moozi.api.search import Search, search_of
from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.core.pytree import map_fields
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import EnvSpec
from moozi.envs import registry
from moozi.envs.environment import Environment, Observation, stack_positions
from moozi.envs.observations import OwnObservations
from moozi.io.card import Card, card_of
from moozi.io.checkpoints import CheckpointInfo, expected_of, load_checkpoint
from moozi.io.run_directory import RunDirectory

if TYPE_CHECKING:
  from moozi.api.network import Network
  from moozi.core.search_record import InspectedEpisode
  from moozi.evaluation.agent_player import AgentPlayer
  from moozi.evaluation.episodes import EvaluationResult
  from moozi.evaluation.evaluator import Evaluator

_SINGLE = np.zeros(1, int)


class Agent:
  """A trained agent, as `load` returns it.

  The agent keeps the history of one episode. Call `act` or `observe` for every frame, in order, and `reset`
  before the next episode. A FIRST `TimeStep` also starts an episode, unless it continues the game after a
  lost life. Actions are numbered from 0, as in the environment. Where they have dimensions (`spec.factors`),
  they are the environment's own: an array of the dtype and shape of its action space, or a dict or tuple of
  these.

  With two players, `act` plays for the player to move. For a frame at which another player moves, call
  `observe` instead. For self-play, call `act` for every frame.

  `act`, `observe` and `search` also take the B observations of B games, each with its own history, separate
  from that of single observations; `reset` takes the games that start a new episode.

  Attributes:
    config: the run's configuration.
    spec: the environment's specification.
    checkpoint: the checkpoint's name, path and counters.
    simulations: number of simulations per search; None uses that of `planners.test`.
    evaluators: the compiled searches by their settings; agents of one run may share the dict.
  """

  def __init__(
    self,
    directory: RunDirectory,
    config: Config,
    spec: EnvSpec,
    checkpoint: CheckpointInfo,
    *,
    simulations: int | None = None,
    seed: int | None = None,
    allow_code: bool = False,
  ) -> None:
    self.directory, self.config, self.spec = directory, config.allowing_code(allow_code), spec
    self.checkpoint, self.simulations = checkpoint, simulations
    self._seed = seed
    self.evaluators: dict[Any, Evaluator] = {}
    self._games: AgentPlayer | None = None  # of several games
    self._reader = ObservationReader(spec, lambda: self._own_observations)

  @functools.cached_property
  def state(self) -> Any:
    """The checkpoint's training state, with the parameters of `evaluation.network` as its `params`.

    Raises: UserError: the state cannot be read, or belongs to another network.
    """
    import jax

    from moozi.agent.update import playing_state
    from moozi.training.algorithms import algorithm_of

    template = algorithm_of(self.config).training_state_template(self.config, self.spec)
    state = load_checkpoint(self.checkpoint.path, template, expected_of(self.config, self.spec))
    return playing_state(jax.device_put(state), self.config)

  @property
  def params(self) -> Any:
    """The agent's parameters, a pytree of arrays."""
    return self.state.params

  @functools.cached_property
  def network(self) -> "Network":
    """The network as pure functions of named parameters.

    Raises: UserError: the algorithm is not muzero or alphazero.
    """
    from moozi.api.network import make_network

    check_searches(self.directory.path, self.config, "Agent.network")
    return make_network(self.config, self.spec, self.state.params, self.state.net_state)

  @property
  def card(self) -> Card:
    """The run's card, made from recorded data only. A zoo agent has the card stored with it."""
    return card_of(self.directory)

  @overload
  def act(self, observation: Observation | TimeStep, legal: Any = None, position: Any = None) -> int: ...

  @overload
  def act(
    self, observation: list[Any], legal: Any = None, position: Any = None, lanes: Any = None
  ) -> Int[np.ndarray, "B"]: ...

  @overload
  def act(self, observation: Any, legal: Any = None, position: Any = None, lanes: Any = None) -> Any: ...

  def act(self, observation: Any, legal: Any = None, position: Any = None, lanes: Any = None) -> Any:
    """Returns the agent's action for an observation, or its actions for B observations of B games.

    If evaluation has no noise (`evaluation.noise_free`, the default), the action is the one that
    `moozi evaluate` would take after the same frames and actions, and each of B actions is the one that an
    agent alone in its game would choose. Ties in puct and stochastic are exceptions: they depend on the
    random key, which the B games share. With noise, every action depends on it. B observations take one call
    of the network or the search, which compiles once for each B.

    Args:
      observation: a `dm_env.TimeStep` or a `moozi.Observation` of a `moozi.Environment`; a frame; or an
        observation of the environment's own, as Gymnasium or dm_env returns it, which is scaled as in
        training. In an environment that has observations of its own (`Environment.own_observations`), a frame
        must be a `moozi.Frame`, as `make_env` returns it. A list has B of these; an array with one axis more,
        and a batch of Gymnasium's `VectorEnv`, are B observations.
      legal: [mask_size] bool, the legal actions; [B, mask_size] for B observations. None takes them from the
        observation, or allows all if the observation has no mask.
      position: the environment's `position()`, or B of them. Agents of algorithm=alphazero need it; other
        agents do not read it.
      lanes: for B observations: a mask [B] or indices of the games in which the agent moves; the other
        observations are not read. None: all.

    Returns: an int; for B observations, [B] int64, with -1 where the agent does not move. The entry of a LAST
      TimeStep in a batch is 0, which the environment discards. Where actions have dimensions, the
      environment's own action. For B observations, the arrays of own actions are stacked, as a vector
      environment of Gymnasium takes them. Where the agent does not move, they have the values of action 0;
      continuous ones have the values nearest to 0.
    Raises: UserError: the observation or the mask does not fit the environment, the episode is over, the
      position is missing, or the number of observations differs from that of the games that are played.
    """
    rows = self._reader.split(observation)
    positions = self._positions(position, None if rows is None else len(rows))
    if rows is None:
      chosen = self._single.choose(_SINGLE, self._reader.read_one(observation, legal, lanes), positions)
      self._reader.advance()
      action = self.spec.to_env(chosen[0])
      return int(action) if self.spec.factors is None else self.spec.factors.own_action(action)
    player, games, step = self._read_games(rows, legal, lanes)
    chosen = player.choose(games, step, [positions[game] for game in games] if positions else ())
    self._reader.advance(games)
    if self.spec.intervals is not None:
      moves = np.zeros((len(rows), *self.spec.action_shape), np.float32)
      moves[games] = chosen.reshape(-1, *self.spec.action_shape)
      return self.spec.intervals.own_actions(moves)
    out = np.full(len(rows), -1, np.int64)
    out[games] = np.maximum(chosen - 1, 0)
    return out if self.spec.factors is None else self.spec.factors.own_actions(np.maximum(out, 0))

  def observe(self, observation: Any, action: Any, legal: Any = None, lanes: Any = None) -> None:
    """Adds a frame and the `action` of another player at this frame to the agent's history.

    For B observations, `action` is [B] int, and `lanes` names the games in which another player moves. Where
    actions have dimensions, `action` may also be the environment's own action, or B of them as `act` returns
    them. The other arguments and the errors are those of `act`. Raises UserError also if an action is
    illegal.
    """
    rows = self._reader.split(observation)
    if rows is None:
      step = self._reader.read_one(observation, legal, lanes)
      self._single.observe(_SINGLE, step, read_actions([action], self.spec, step))
      self._reader.advance()
    else:
      player, games, step = self._read_games(rows, legal, lanes)
      actions = read_rows("action", split_actions(action, self.spec), len(rows))
      played = read_actions([actions[game] for game in games], self.spec, step)
      player.observe(games, step, played)
      self._reader.advance(games)

  @overload
  def search(
    self, observation: Observation | TimeStep, legal: Any = None, position: Any = None
  ) -> Search: ...

  @overload
  def search(
    self, observation: list[Any], legal: Any = None, position: Any = None, lanes: Any = None
  ) -> list[Search]: ...

  @overload
  def search(self, observation: Any, legal: Any = None, position: Any = None, lanes: Any = None) -> Any: ...

  def search(self, observation: Any, legal: Any = None, position: Any = None, lanes: Any = None) -> Any:
    """Returns the search that `act` would make for a frame. Does not change the agent's history.

    For B observations of B games, returns a list with the search of each game that `lanes` names, in its
    order. Each is the search of an agent alone in its game, and the searches run one after another.

    The arguments and errors are those of `act`. Raises UserError also if the algorithm has no search, or an
    observation to search is a LAST `TimeStep`.
    """
    rows = self._reader.split(observation)
    positions = self._positions(position, None if rows is None else len(rows))
    if rows is None:
      step = self._reader.read_one(observation, legal, lanes)
      return self.search_in(self._single, 0, step, position)
    player, games, step = self._read_games(rows, legal, lanes)
    if (over := games[step.is_last]).size:
      raise UserError(
        f"observation {over[0]} of {len(rows)}: the episode is over (a LAST step); name the other games in "
        "lanes"
      )
    return [
      self.search_in(
        player, game, map_fields(lambda x, i=i: x[i : i + 1], step), positions[game] if positions else None
      )
      for i, game in enumerate(games.tolist())
    ]

  def search_in(self, player: "AgentPlayer", game: int, step: BatchedTimeStep, position: Any) -> Search:
    """Returns the search that `player` would make for a frame of one of its games; see `search`."""
    import jax

    from moozi.nn.horizon import config_at

    check_searches(self.directory.path, self.config, "Agent.search")
    _, _, decision = self._search_act(
      player.variables,
      player.carry_of(np.array([game])),
      step,
      player.key_of(game),
      player.temperature,
      position=stack_positions([position]) if player.plans_with_rules else None,
    )
    config = config_at(self.config, player.variables[1])
    return search_of(jax.device_get(decision), step, config, self.spec, self.num_simulations)

  def reset(self, lanes: Any = None) -> None:
    """Starts a new episode: the next frame has no history. Does not reset the random key.

    Args:
      lanes: the games, of B, that start a new episode: a mask [B], such as `terminated | truncated` of a
        vector environment, or indices. None: all B games, and the single one.

    Raises: UserError: `lanes` names other games than those that are played.
    """
    self._reader.reset(lanes)

  def make_env(self, seed: int = 0) -> Environment:
    """Returns a new environment of the run, with the options for evaluation.

    Raises: UserError: `seed` is not an integer from 0 to 2³¹ − 1, or a player of the other seats cannot play.
    """
    check_seed(seed)
    LOADED_PLAYERS.clear()
    return registry.make(self.config.env.name, seed, is_testing=True, **self.config.env.arguments)

  def evaluate(
    self,
    episodes: int | None = None,
    opponent: str | None = None,
    *,
    opponent_simulations: int | None = None,
    simulations: int | None = None,
    record: bool = False,
    gif_max_frames: int | None = None,
    on_episode: Callable[[int], None] = lambda num_finished: None,
  ) -> "EvaluationResult":
    """Plays evaluation episodes, as `moozi evaluate` does. Every call uses the same seeds.

    Args:
      episodes: number of episodes; None uses `evaluation.final_episodes`.
      opponent: with two players: "random", "mcts", "alpha_beta", "self", `module:function`, the name of a
        registered player, or a trained agent (`api.players`). None uses `evaluation.opponent`.
      opponent_simulations: number of simulations per search of the opponent "mcts".
      simulations: number of simulations per search; None uses the agent's.
      record: whether to keep frames for pictures: of episode 0 and the first `evaluation.gif_tiles` episodes.
      gif_max_frames: with `record`, maximum number of frames kept of an episode.
      on_episode: called with the number of finished episodes when it changes.

    Returns: the episodes' returns and lengths; `summary()` has the figures that `moozi evaluate` prints.
    Raises: UserError: the opponent cannot play, a number is not an integer of at least 1, or an option has no
      effect. EnvError: the environment failed.
    """
    check_number("episodes", episodes)
    check_number("opponent_simulations", opponent_simulations)
    check_number("gif_max_frames", gif_max_frames)
    if gif_max_frames is not None and not record:
      raise UserError(f"gif_max_frames={gif_max_frames}: needs record=True")
    check_opponent_options(self.config, self.spec, opponent, opponent_simulations)
    names = ("opponent", "opponent_simulations", "gif_max_frames")
    used = zip(names, (opponent, opponent_simulations, gif_max_frames), strict=True)
    evaluation = self.config.evaluation.model_copy(update={k: x for k, x in used if x is not None})
    config = self.config.model_copy(update={"evaluation": evaluation})
    self._check_opponent(config)
    result = self.evaluator_of(config, simulations).run(
      self.state.variables,
      num_episodes=evaluation.final_episodes if episodes is None else episodes,
      version=self.checkpoint.learner_steps,
      env_steps=self.checkpoint.env_steps,
      record=record,
      on_episode=on_episode,
    )
    assert result is not None, "no stop was requested"
    return result

  def inspect(
    self,
    episode: int = 0,
    *,
    max_steps: int | None = None,
    simulations: int | None = None,
    on_step: Callable[[int], None] = lambda num_frames: None,
  ) -> "InspectedEpisode":
    """Plays one evaluation episode, or its first `max_steps` steps; returns it with all its searches.

    Raises: UserError: the algorithm has no search, the opponent cannot play, or a number is too low.
      EnvError: the environment failed.
    """
    from moozi.analysis.inspection import inspect_episode

    check_searches(self.directory.path, self.config, "Agent.inspect")
    for name, number, minimum in (("episode", episode, 0), ("max_steps", max_steps, 1)):
      check_number(name, number, minimum)
    check_number("simulations", simulations)
    self._check_opponent(self.config)
    return inspect_episode(
      self.config,
      self.spec,
      self.state.variables,
      index=episode,
      max_steps=max_steps,
      num_simulations=self.simulations if simulations is None else simulations,
      on_step=on_step,
    )

  def evaluator(self, simulations: int | None = None) -> "Evaluator":
    """Returns the run's evaluator; `simulations` overrides the agent's.

    Raises: UserError: the opponent cannot play, or `simulations` is not an integer of at least 1.
    """
    self._check_opponent(self.config)
    return self.evaluator_of(self.config, simulations)

  def evaluator_of(self, config: Config, simulations: int | None = None) -> "Evaluator":
    """Returns the evaluator of `config`, which differs from the run's only in `evaluation`; cached."""
    from moozi.training.algorithms import algorithm_of

    check_number("simulations", simulations)
    simulations = self.simulations if simulations is None else simulations
    settings = config.model_dump_json(exclude={"run", "seed", "checkpoint"})
    key = settings, config.allows_code, self.spec, simulations
    if key not in self.evaluators:
      self.evaluators[key] = algorithm_of(config).build_evaluator(config, self.spec, simulations)
    return self.evaluators[key]

  @property
  def num_simulations(self) -> int:
    """Number of simulations per search."""
    return self.simulations or self.config.planners.test.num_simulations

  def __repr__(self) -> str:
    return f"Agent({self.spec.name}, {self.directory.name}, {self.checkpoint.name})"

  def _check_opponent(self, config: Config) -> None:
    """Raises UserError if `evaluation.opponent` cannot play; loads its newest checkpoint."""
    from moozi.training.checks import check_opponent

    LOADED_PLAYERS.clear()
    check_opponent(config, self.spec)

  @functools.cached_property
  def _single(self) -> "AgentPlayer":
    return self._make_games(1)

  @functools.cached_property
  def _own_observations(self) -> OwnObservations | None:
    env = self.make_env()
    env.close()
    return env.own_observations

  @functools.cached_property
  def _search_act(self) -> Callable[..., Any]:
    import jax

    from moozi.agent.agent import keyed
    from moozi.analysis.inspection import make_searching_agent
    from moozi.evaluation.evaluator import evaluation_planner

    planner = evaluation_planner(self.config, self.simulations)
    return jax.jit(keyed(make_searching_agent(self.config, self.spec, planner)))

  def _positions(self, position: Any, num_games: int | None) -> Sequence[Any]:
    """Returns the positions of B games, or of one if `num_games` is None; none if the agent needs none.

    Raises: UserError: the agent needs positions, and there is none.
    """
    if not self.config.plans_with_rules:
      return []
    if position is None:
      raise UserError(
        f"position: missing; algorithm={self.config.algorithm} plans with the true rules of the game, so it "
        "needs position=env.position()"
      )
    return [position] if num_games is None else list(read_rows("position", position, num_games))

  def _read_games(
    self, rows: list[Any], legal: Any, lanes: Any
  ) -> tuple["AgentPlayer", Int[np.ndarray, "n"], BatchedTimeStep]:
    """Returns the player of the games, and what `ObservationReader.read_games` returns."""
    games, step = self._reader.read_games(rows, legal, lanes)
    if self._games is None or self._games.num_games != len(rows):
      self._games = self._make_games(len(rows))
    return self._games, games, step

  def _make_games(self, num_games: int) -> "AgentPlayer":
    variables, evaluator = self.state.variables, self.evaluator_of(self.config)
    return evaluator.player(variables, num_games, num_games, seed=self._seed)
