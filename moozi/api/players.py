"""Trained agents as players: `run:PATH[@checkpoint]`, `zoo:NAME`, `prior:PATH[@checkpoint]`, `approach:NAME`.

`moozi.api` registers `make_player` for these names, so every setting that takes a player accepts them.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Shaped

from moozi.api.agent import Agent, agent_of
from moozi.api.run_access import open_run
from moozi.core.config.uses import code_keys
from moozi.core.errors import UserError
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import EnvSpec
from moozi.envs.vector import live_steps
from moozi.io.run_directory import ENDS, RunDirectory
from moozi.io.zoo import ZOO_PREFIX, label_of

if TYPE_CHECKING:
  from moozi.evaluation.evaluator import Evaluator
  from moozi.evaluation.group import GroupPlayer

_RUNS = Path("runs")
_FACTS = ("name", "frame_shape", "frame_dtype", "num_env_actions")
_FIRST = np.zeros(1, np.int64)


class TrainedName(NamedTuple):
  """The parts of a trained agent's name: the run or `zoo:NAME`, the checkpoint, whether it is `prior:`."""

  run: str
  checkpoint: str | None
  uses_prior: bool


def run_of_approach(name: str, spec: EnvSpec, allow_code: bool = False) -> str:
  """Returns `run:PATH` for `approach:NAME`, and any other name as it is.

  The run is the last one in `runs/`, or in a folder in it such as `runs/testbed`, that completed its training
  with `algorithm: NAME` on the environment of `spec`. Without `allow_code`, runs that name Python modules to
  import are left out.

  Raises: UserError: there is no such algorithm or no such run.
  """
  kind, _, approach = name.partition(":")
  if kind != "approach":
    return name
  from moozi.run.build import env_spec
  from moozi.training.algorithms import ALGORITHMS

  if approach not in ALGORITHMS:
    raise UserError(f"{name}: no such algorithm; must be approach:{', approach:'.join(ALGORITHMS)}")
  found: list[tuple[float, Path]] = []
  refused: list[Path] = []
  for summary in [*_RUNS.glob("*/summary.json"), *_RUNS.glob("*/*/summary.json")]:
    with contextlib.suppress(UserError, OSError):  # not a run, or one that cannot be read
      run = RunDirectory.open(summary.parent)
      config = run.load_config()
      if (
        config.algorithm != approach
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
  """A trained agent's checkpoint as a player of a game.

  Args:
    name: as in `parse_name`.
    simulations: number of simulations per search; None uses that of `planners.test`. Has no effect on an
      algorithm without a search.
    allow_code: whether the run may import the Python modules that it names.

  Attributes:
    agent: the agent.
    source: a name that loads the same checkpoint again, also while its run trains.
    name: the full name. It has the checkpoint's name unless the agent is from the zoo, and the number of
      simulations if it was given and has an effect.

  Raises: UserError: the run or the checkpoint does not exist, or the checkpoint does not fit its run.
  """

  def __init__(self, name: str, simulations: int | None = None, allow_code: bool = False) -> None:
    run, checkpoint, uses_prior = parse_name(name)
    try:
      directory, config = open_run(run, allow_code)
      # An algorithm without a search, such as PPO, refuses a number of simulations.
      simulations = simulations if config.searches else None
      self.agent: Agent = agent_of(directory, config, checkpoint, simulations=simulations)
      assert self.agent.state is not None  # reads the checkpoint, so that damage is reported here
    except UserError as error:
      raise UserError(str(error) if run in str(error) else f"{name}: {error}") from None
    # PPO has no search: it plays with its network under every name.
    self.uses_prior = uses_prior and config.searches
    label = label_of(Path(directory.path))
    if not label.startswith(ZOO_PREFIX):
      label = f"{'' if uses_prior else 'run:'}{run}@{self.agent.checkpoint.lasting_name}"
    self.name = f"prior:{label}" if uses_prior else label
    is_own = self.agent.checkpoint.path.parent == directory.checkpoints_path
    self.source = self.name if is_own else name
    if simulations is not None and not uses_prior:
      self.name += f" ({simulations} simulations)"

  def check(self, spec: EnvSpec, where: str) -> None:
    """Raises UserError, which names `where`, if the agent was trained on another environment."""
    own = self.agent.spec
    if _facts(own) != _facts(spec):
      raise UserError(
        f"{where}: plays {_describe(own)}, not {_describe(spec)}; choose a run that was trained on it"
      )

  @property
  def sees_others(self) -> bool:
    """Whether the agent's history includes the frames and actions of the other players, as in self-play."""
    return self.agent.spec.num_players > 1

  @property
  def settings(self) -> dict[str, Any]:
    """The settings that decide how the checkpoint plays, as plain data."""
    from moozi.evaluation.evaluator import evaluation_planner

    config = self.agent.config
    out: dict[str, Any] = {"network": config.evaluation.network, "search": None}
    out["noise_free"] = config.evaluation.noise_free
    if self.uses_prior:
      out["average_symmetries"] = config.planners.test.average_symmetries
    elif config.searches:
      planner = evaluation_planner(config, self.agent.simulations)
      # Without defaults, because a later version may have further settings.
      out["search"] = planner.model_dump(mode="json", exclude_defaults=True)
      out["discount"] = config.targets.discount
    return out

  def can_advise(self, seats: Collection[int]) -> bool:
    """Whether one history of the agent can follow all `seats`; without `sees_others` it follows one."""
    return self.sees_others or len(seats) == 1

  def group(self, num_games: int, width: int, seed: int) -> "GroupPlayer":
    """Returns the agent as a player of several games; see `GroupPlayer`."""
    from moozi.evaluation.group import GroupPlayer

    agent = self.agent
    evaluator = _evaluator(agent, 1 if self.uses_prior else agent.simulations)
    prior = self.uses_prior
    return GroupPlayer(evaluator, agent.state.variables, num_games, width, uses_prior=prior, seed=seed)


def _facts(spec: EnvSpec) -> list[Any]:
  return [getattr(spec, fact) for fact in _FACTS]


def _describe(spec: EnvSpec) -> str:
  return f"{spec.name} (frames {spec.frame_dtype}{list(spec.frame_shape)}, {spec.num_env_actions} actions)"


_EVALUATORS: dict[Any, "Evaluator"] = {}


def _evaluator(agent: Agent, simulations: int | None) -> "Evaluator":
  """Returns the evaluator. Checkpoints of one run share it, because each evaluator compiles its search."""
  from moozi.training.algorithms import algorithm_of

  key = (agent.config.model_dump_json(exclude={"run", "seed", "checkpoint"}), agent.spec, simulations)
  if key not in _EVALUATORS:
    _EVALUATORS[key] = algorithm_of(agent.config).build_evaluator(agent.config, agent.spec, simulations)
  return _EVALUATORS[key]


# Cached, because an evaluation makes a player for each episode.
@functools.lru_cache(maxsize=8)
def _load(name: str, spec: EnvSpec, allow_code: bool) -> TrainedPlayer:
  player = TrainedPlayer(run_of_approach(name, spec, allow_code), allow_code=allow_code)
  player.check(spec, name)
  return player


def clear_player_cache() -> None:
  """Clears the cache of `make_player`, so that later calls load the newest checkpoints."""
  _load.cache_clear()


def make_player(name: str, spec: EnvSpec, seed: int, allow_code: bool = False) -> "OneGame":
  """Returns a trained agent as the player of one episode. PLAYERS calls it for names such as `run:PATH`.

  With `allow_code`, its run may import the modules that it names.

  Raises: UserError: as `run_of_approach` and `TrainedPlayer`, or the agent plays another environment.
  """
  return OneGame(_load(name, spec, allow_code), seed)


class OneGame:
  """A trained agent in one episode; see `envs.players.Player` and `Observer`."""

  def __init__(self, player: TrainedPlayer, seed: int) -> None:
    self._player, self._seed = player, seed

  def follow(self, position: Callable[[], Any]) -> None:
    self._position = position

  def action(self, observation: Shaped[np.ndarray, "H W C"], legal: Bool[np.ndarray, "E"]) -> int:
    positions = [self._position()] if self._group.plans_with_rules else []
    return int(self._group.choose(_FIRST, self._step(observation, legal), positions)[0]) - 1

  def observe(
    self, observation: Shaped[np.ndarray, "H W C"], legal: Bool[np.ndarray, "E"], action: int
  ) -> None:
    if self._player.sees_others:
      self._group.observe(_FIRST, self._step(observation, legal), np.array([action + 1], np.int32))

  # Created at the first frame, because validating a configuration creates a player that never plays.
  @functools.cached_property
  def _group(self) -> "GroupPlayer":
    return self._player.group(1, 1, self._seed)

  def _step(self, frame: np.ndarray, legal: np.ndarray) -> BatchedTimeStep:
    return live_steps(self._player.agent.spec, [frame], [legal])
