"""The games of the package `minatar`.

Source: Young and Tian 2019, MinAtar, and its package. Departures:
  - A time limit truncates. Freeway has no terminal step: its clock truncates an episode after 2,501 steps.
  - A reset clears the action that a sticky action repeats. The package keeps it, so episodes depend on
    earlier ones.
  - An action out of range is an error. The package accepts negative actions.
  - Any non-negative seed is allowed; the package takes seeds of at most 32 bits.
"""

import functools
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from pydantic import Field

from moozi.core.config import PositiveInt, Probability, Section
from moozi.core.errors import UserError
from moozi.core.seed_streams import SeededState
from moozi.core.spec import EnvSpec
from moozi.core.text import missing_package
from moozi.envs.environment import Environment
from moozi.envs.game import Game, GameEnvironment
from moozi.envs.suite import Suite

GAMES = {
  "asterix": "collect treasure, avoid enemies",
  "breakout": "break bricks with a ball",
  "freeway": "cross eight lanes of cars; truncated by its clock",
  "seaquest": "shoot, rescue divers, surface for air",
  "space_invaders": "shoot aliens before they land",
}

_ACTION_NAMES = {"n": "noop", "l": "left", "u": "up", "r": "right", "d": "down", "f": "fire"}
# Games that only a clock ends. Their end is a truncation.
_ENDS_BY_CLOCK = frozenset({"freeway"})


class MinAtarOptions(Section):
  """Options of `minatar:*`; defaults are the package's, except for `minimal_actions`."""

  sticky_action_prob: Probability = Field(0.1, description="probability that the last action is repeated")
  difficulty_ramping: bool = Field(
    True, description="asterix, seaquest and space_invaders become harder with time"
  )
  minimal_actions: bool = Field(True, description="only the actions with an effect; false keeps all six")
  max_episode_steps: PositiveInt | None = Field(
    None, description="truncate an episode after this number of steps"
  )


def make_spec(game: str, options: MinAtarOptions) -> EnvSpec:
  rules = load_game(game).Env(ramping=options.difficulty_ramping)
  height, width, channels = rules.state_shape()
  actions = _actions(rules, options.minimal_actions)
  return EnvSpec(
    name=f"minatar:{game}",
    frame_shape=(height, width, channels),
    frame_dtype="bool",
    num_env_actions=len(actions),
    action_names=tuple(_ACTION_NAMES[rules.action_map[a]] for a in actions),
  )


def make_environment(game: str, options: MinAtarOptions) -> Environment:
  return GameEnvironment(_MinAtarGame(game, options), make_spec(game, options), options.max_episode_steps)


class _MinAtarGame(Game):
  """The package's rules for one game, with its sticky actions."""

  def __init__(self, game: str, options: MinAtarOptions) -> None:
    self._rules = load_game(game).Env(ramping=options.difficulty_ramping)
    self._actions = _actions(self._rules, options.minimal_actions)
    self._sticky_action_prob = options.sticky_action_prob
    self._ends_by_clock = game in _ENDS_BY_CLOCK
    self._last_action = 0
    self._states = SeededState()
    self.seed(0)

  def seed(self, seed: int) -> None:
    # Sticky actions and rules draw from one generator, as in the package.
    self._random = self._states.seed(seed)
    self._rules.random = self._random

  def reset(self) -> None:
    self._rules.reset()
    self._last_action = 0

  def step(self, action: int) -> tuple[float, bool, bool]:
    action = self._actions[action]
    if self._random.rand() < self._sticky_action_prob:
      action = self._last_action
    self._last_action = action
    reward, is_over = self._rules.act(action)
    return float(reward), is_over and not self._ends_by_clock, is_over and self._ends_by_clock

  def frame(self) -> np.ndarray:
    frame: np.ndarray = self._rules.state()
    return frame


def _actions(rules: Any, minimal_actions: bool) -> list[int]:
  return list(rules.minimal_action_set()) if minimal_actions else list(range(len(rules.action_map)))


@functools.cache
def load_game(game: str) -> ModuleType:
  """Loads the package's module of one game from its file; the package itself imports plotting libraries."""
  package = importlib.util.find_spec("minatar")
  if package is None or not package.submodule_search_locations:
    raise missing_package(f"env.name=minatar:{game}", "minatar")
  path = Path(package.submodule_search_locations[0]) / "environments" / f"{game}.py"
  spec = importlib.util.spec_from_file_location(f"moozi_minatar_{game}", path)
  if not path.is_file() or spec is None or spec.loader is None:
    raise UserError(f"env.name=minatar:{game}: the installed package minatar has no such game")
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


SUITE = Suite(
  summary="five Atari games on a grid of 10 x 10 cells",
  package="minatar",
  list_games=lambda: GAMES,
  options=lambda game: MinAtarOptions,
  make_spec=make_spec,
  make_environment=make_environment,
)
