"""Trained agents as players: `run:PATH[@checkpoint]`, `zoo:NAME`, `prior:PATH[@checkpoint]`, `approach:NAME`.

`moozi.api` registers `make_player` for these names.
"""

import contextlib
import copy
import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from moozi.api.agent import Agent
from moozi.api.loading import agent_of
from moozi.api.run_access import LOADED_PLAYERS, open_run
from moozi.core.config.uses import code_keys
from moozi.core.errors import UserError
from moozi.core.plugins import ALGORITHMS, OTHER_PLAYERS
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import EnvSpec
from moozi.envs.players import Advice, Opinion, Place, Player, SeparatePlayer
from moozi.envs.table import PlayedGame, View
from moozi.envs.vector import live_steps
from moozi.io.run_directory import ENDS, RunDirectory
from moozi.io.zoo_files import ZOO_PREFIX, label_of

if TYPE_CHECKING:
  from moozi.evaluation.agent_player import AgentPlayer
  from moozi.evaluation.evaluator import Evaluator

_RUNS = Path("runs")
_FACTS = ("name", "frame_shape", "frame_dtype", "num_env_actions", "factors")
_TRAINED = ("run", "zoo", "prior")
# Checkpoints of one run share an evaluator, because each evaluator compiles its search.
_EVALUATORS: dict[Any, "Evaluator"] = {}


class TrainedName(NamedTuple):
  """The parts of a trained agent's name: the run or `zoo:NAME`, the checkpoint, whether it is `prior:`."""

  run: str
  checkpoint: str | None
  uses_prior: bool


def run_of_approach(name: str, spec: EnvSpec, allow_code: bool = False) -> str:
  """Returns `run:PATH` for `approach:NAME`, and any other name as it is.

  The run is the last to complete its training with `algorithm: NAME` on the environment of `spec`, among the
  runs in `runs/` and in folders in it such as `runs/testbed`. Without `allow_code`, runs that name Python
  modules to import are left out.

  Raises: UserError: there is no such algorithm or no such run.
  """
  kind, _, approach = name.partition(":")
  if kind != "approach":
    return name
  from moozi.run.build import env_spec

  if not ALGORITHMS.accepts(approach):
    known = ", approach:".join([*ALGORITHMS.names(), "module:function"])
    raise UserError(f"{name}: no such algorithm; must be approach:{known}")
  found: list[tuple[float, Path]] = []
  refused: list[Path] = []
  for summary in [*_RUNS.glob("*/summary.json"), *_RUNS.glob("*/*/summary.json")]:
    with contextlib.suppress(UserError, OSError):  # not a run, or one that cannot be read
      run = RunDirectory.open(summary.parent)
      config = run.load_config()
      if (
        config.algorithm_name != approach
        or config.env.name != spec.name
        or run.read_summary().get("reason") not in ENDS
      ):
        continue
      if not allow_code and code_keys(config):  # checked first, because env_spec imports the modules
        refused.append(run.path)
      elif _facts(env_spec(config)) == _facts(spec):
        found.append((summary.stat().st_mtime, run.path))
  if not found:
    hint = f"; {refused[0]} names Python modules: pass --allow-code if you trust it" if refused else ""
    raise UserError(
      f"{name}: no run in {_RUNS}/ completed its training on {_describe(spec)} with algorithm={approach}; "
      f"train one, or choose run:PATH{hint}"
    )
  return f"run:{max(found)[1]}"


def parse_name(name: str) -> TrainedName:
  """Returns the parts of a trained agent's name, which is not `approach:NAME`."""
  kind, _, rest = name.partition(":")
  path, at, checkpoint = rest.rpartition("@")
  if not at or os.path.lexists(rest):
    path, checkpoint = rest, ""
  return TrainedName(f"{ZOO_PREFIX}{path}" if kind == "zoo" else path, checkpoint or None, kind == "prior")


class TrainedPlayer:
  """A trained agent's checkpoint as a player of games; see `envs.players.Player`.

  Args:
    name: as in `parse_name`.
    spec: the environment of the games; None if it is known to be the agent's.
    simulations: number of simulations per search; None uses that of `planners.test`. Has no effect without a
      search, as with `prior:` or PPO.
    allow_code: whether the run may import the Python modules that it names.
    where: precedes the message if the agent plays another environment; None: the full name.

  Attributes:
    agent: the agent.
    source: a name that loads the same checkpoint again, also while its run trains.
    name: the full name. It has the checkpoint's name unless the agent is from the zoo, and the number of
      simulations if it was given and has an effect.
    width: number of games in one search.

  Raises: UserError: the run or the checkpoint does not exist, the checkpoint is damaged or does not fit its
    run, the run names Python modules without `allow_code`, or the agent was trained on another environment.
  """

  def __init__(
    self,
    name: str,
    spec: EnvSpec | None = None,
    simulations: int | None = None,
    allow_code: bool = False,
    where: str | None = None,
  ) -> None:
    run, checkpoint, uses_prior = parse_name(name)
    try:
      directory, config = open_run(run, allow_code)
      # An algorithm without a search, such as PPO, refuses a number of simulations.
      simulations = simulations if config.searches else None
      self.agent: Agent = agent_of(directory, config, checkpoint, simulations=simulations)
      self.agent.evaluators = _EVALUATORS
      assert self.agent.state is not None  # reads the checkpoint, so that damage is reported here
    except UserError as error:
      raise UserError(str(error) if run in str(error) else f"{name}: {error}") from None
    # An algorithm without a search plays in the same way under every name.
    self.uses_prior = uses_prior and config.searches
    label = label_of(Path(directory.path))
    if not label.startswith(ZOO_PREFIX):
      label = f"{'' if uses_prior else 'run:'}{run}@{self.agent.checkpoint.lasting_name}"
    self.name = f"prior:{label}" if uses_prior else label
    is_own = self.agent.checkpoint.path.parent == directory.checkpoints_path
    self.source = self.name if is_own else name
    if simulations is not None and not uses_prior:
      self.name += f" ({simulations} simulations)"
    own = self.agent.spec
    if spec is not None and _facts(own) != _facts(spec):
      raise UserError(
        f"{where or self.name}: plays {_describe(own)}, not {_describe(spec)}; choose a run that was trained "
        "on it"
      )
    self.width = 1
    self._rows: dict[Place, int] = {}
    self._places: dict[Place, PlayedGame] = {}
    self._seeds: dict[Place, int] = {}  # of places that have not shown a frame yet

  def for_games(self, width: int) -> "TrainedPlayer":
    """Returns a copy of the player that has no games, and searches `width` games at once.

    If evaluation has noise, the copy searches one game at a time, so that a game follows from its own seed.
    """
    out = copy.copy(self)
    out.width = width if self.agent.config.evaluation.noise_free else 1
    out._rows, out._places, out._seeds = {}, {}, {}
    out.__dict__.pop("_games", None)
    return out

  @property
  def sees_others(self) -> bool:
    """Whether the agent's history includes the frames and actions of the other players, as in self-play."""
    return self.agent.spec.num_players > 1

  @property
  def facts(self) -> dict[str, Any]:
    """What determines the agent's play, as plain data: the digest of its `parameters`, and its settings."""
    from moozi.evaluation.evaluator import evaluation_planner
    from moozi.nn.horizon import config_at

    config = self.agent.config
    out: dict[str, Any] = {"parameters": self.agent.checkpoint.digest}
    out |= {"network": config.evaluation.network, "search": None}
    out["noise_free"] = config.evaluation.noise_free
    if self.uses_prior:
      out["average_symmetries"] = config.planners.test.average_symmetries
    elif config.searches:
      planner = evaluation_planner(config, self.agent.simulations)
      # Without defaults, because a later version may have further settings.
      out["search"] = planner.model_dump(mode="json", exclude_defaults=True)
      if config.targets.discount_schedule:  # otherwise the state need not be read
        config = config_at(config, self.agent.state.variables[1])
      out["discount"] = config.targets.discount
    return out

  def check(self, game: PlayedGame) -> None:
    """Does nothing: the specification of the games was checked already."""

  def reset(self, places: Mapping[Place, tuple[PlayedGame, int]]) -> None:
    for place, (game, seed) in places.items():
      self._places[place], self._seeds[place] = game, seed

  def act(self, views: Mapping[Place, View]) -> dict[Place, int]:
    rows, games = self._rows_of(views), self._places
    positions = [games[place].position() for place in views] if self._games.plans_with_rules else []
    chosen = self._games.choose(rows, self._step(views), positions) - 1
    return dict(zip(views, chosen.tolist(), strict=True))

  def observe(self, views: Mapping[Place, View], actions: Mapping[Place, int]) -> None:
    if self.sees_others:
      self.take(views, actions)

  def take(self, views: Mapping[Place, View], actions: Mapping[Place, int]) -> None:
    played = np.array([1 + actions[place] for place in views], np.int32)
    self._games.observe(self._rows_of(views), self._step(views), played)

  def opinion(self, place: Place, view: View) -> Opinion:
    (row,) = self._rows_of({place: view})
    position = self._places[place].position() if self._games.plans_with_rules else None
    search = self.agent.search_in(self._games, int(row), self._step({place: view}), position)
    total = int(search.visits.sum())
    shares = search.visits / total if total else search.policy
    values = [float(q) if visits else None for q, visits in zip(search.q_values, search.visits, strict=True)]
    advice = [
      Advice(int(search.actions[i]), float(shares[i]), values[i])
      for i in np.flatnonzero(search.legal).tolist()
    ]
    return Opinion.of(self.name, advice, float(search.value))

  # Created when it is first needed, because a run's checks create players that never play.
  @functools.cached_property
  def _games(self) -> "AgentPlayer":
    agent, prior = self.agent, self.uses_prior
    evaluator = agent.evaluator_of(agent.config, 1 if prior else None)
    return evaluator.player(agent.state.variables, 0, self.width, uses_prior=prior)

  def _rows_of(self, views: Mapping[Place, View]) -> np.ndarray:
    for place in self._seeds.keys() & views.keys():
      self._games.start(self._rows.setdefault(place, len(self._rows)), self._seeds.pop(place))
    return np.array([self._rows[place] for place in views])

  def _step(self, views: Mapping[Place, View]) -> BatchedTimeStep:
    frames, legal = [view.frame for view in views.values()], [view.legal for view in views.values()]
    return live_steps(self.agent.spec, frames, legal)


def _facts(spec: EnvSpec) -> list[Any]:
  return [getattr(spec, fact) for fact in _FACTS]


def _describe(spec: EnvSpec) -> str:
  sizes = "" if spec.factors is None else f" of {' × '.join(map(str, spec.factors.sizes))} values"
  actions = f"{spec.num_env_actions} actions{sizes}"
  return f"{spec.name} (frames {spec.frame_dtype}{list(spec.frame_shape)}, {actions})"


def make_player(name: str, spec: EnvSpec, width: int = 1, allow_code: bool = False) -> TrainedPlayer:
  """Returns a trained agent as a player. PLAYERS calls this function for names such as `run:PATH`.

  With `allow_code`, the agent's run may import the modules that it names.

  Raises: UserError: as `run_of_approach` and `TrainedPlayer`.
  """
  key = name, spec, allow_code
  if key not in LOADED_PLAYERS:
    run = run_of_approach(name, spec, allow_code)
    LOADED_PLAYERS[key] = TrainedPlayer(run, spec, allow_code=allow_code, where=name)
  player: TrainedPlayer = LOADED_PLAYERS[key]
  return player.for_games(width)


def load_players(
  names: Sequence[str], spec: EnvSpec, simulations: int | None, allow_code: bool, width: int = 1
) -> dict[str, Player]:
  """Returns players of games of one environment, by their full names.

  Args:
    names: a repeated name gets a suffix such as ` #2`.
    width: number of games that a trained agent searches at once; one if its evaluation has noise.

  Raises: UserError: a player does not exist, cannot be loaded, or plays another environment.
  """
  out: dict[str, Player] = {}
  for name in names:
    player = _load_player(name, spec, simulations, allow_code, width)
    full, count = player.name, 1
    while player.name in out:
      count += 1
      player.name = f"{full} #{count}"
    out[player.name] = player
  return out


def _load_player(name: str, spec: EnvSpec, simulations: int | None, allow_code: bool, width: int) -> Player:
  if name in ("human", "self"):
    raise UserError(f"{name}: cannot play in an arena; `moozi play` is for people")
  if not OTHER_PLAYERS.accepts(name):
    raise UserError(f"{name}: no such player; must be {OTHER_PLAYERS.allowed(name)}")
  if OTHER_PLAYERS.is_built_in(name) and name.partition(":")[0] in _TRAINED:
    return TrainedPlayer(name, spec, simulations, allow_code).for_games(width)
  return SeparatePlayer(name, spec)
