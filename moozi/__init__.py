"""MooZi: a MuZero system that plans with a learned model.

docs/api.md describes the public API. Names are imported on first use, so that `import moozi` is fast.
"""

import typing as _typing

__version__ = "0.1.0"

if _typing.TYPE_CHECKING:
  from moozi.api.agent import Agent
  from moozi.api.arena import Arena, arena
  from moozi.api.compare import Comparison, compare
  from moozi.api.configs import configs
  from moozi.api.environments import make_env
  from moozi.api.loading import load
  from moozi.api.run import Run
  from moozi.api.search import Search
  from moozi.api.training import Training, resume, resume_events, train, train_events
  from moozi.api.trajectories import Episode, read_trajectories, write_trajectories
  from moozi.api.zoo import zoo
  from moozi.core.config import Config
  from moozi.core.errors import UserError
  from moozi.core.plugins import (
    register_algorithm,
    register_callback,
    register_environment,
    register_loss,
    register_network,
    register_player,
    register_search,
    register_wrapper,
  )
  from moozi.core.spec import EnvSpec
  from moozi.envs.environment import Environment, Observation
  from moozi.envs.game import Game, GameEnvironment
  from moozi.envs.observations import Frame
  from moozi.envs.table import Table
  from moozi.io.card import Card
  from moozi.io.config_files import ConfigInfo

# The modules of the public names. The imports above repeat them for type checkers.
_MODULES = {
  "Agent": "moozi.api.agent",
  "Arena": "moozi.api.arena",
  "Card": "moozi.io.card",
  "Comparison": "moozi.api.compare",
  "Config": "moozi.core.config",
  "ConfigInfo": "moozi.io.config_files",
  "EnvSpec": "moozi.core.spec",
  "Environment": "moozi.envs.environment",
  "Episode": "moozi.api.trajectories",
  "Frame": "moozi.envs.observations",
  "Game": "moozi.envs.game",
  "GameEnvironment": "moozi.envs.game",
  "Observation": "moozi.envs.environment",
  "Run": "moozi.api.run",
  "Search": "moozi.api.search",
  "Table": "moozi.envs.table",
  "Training": "moozi.api.training",
  "UserError": "moozi.core.errors",
  "arena": "moozi.api.arena",
  "compare": "moozi.api.compare",
  "configs": "moozi.api.configs",
  "load": "moozi.api.loading",
  "make_env": "moozi.api.environments",
  "read_trajectories": "moozi.api.trajectories",
  "register_algorithm": "moozi.core.plugins",
  "register_callback": "moozi.core.plugins",
  "register_environment": "moozi.core.plugins",
  "register_loss": "moozi.core.plugins",
  "register_network": "moozi.core.plugins",
  "register_player": "moozi.core.plugins",
  "register_search": "moozi.core.plugins",
  "register_wrapper": "moozi.core.plugins",
  "resume": "moozi.api.training",
  "resume_events": "moozi.api.training",
  "train": "moozi.api.training",
  "train_events": "moozi.api.training",
  "write_trajectories": "moozi.api.trajectories",
  "zoo": "moozi.api.zoo",
}

__all__ = [
  "Agent",
  "Arena",
  "Card",
  "Comparison",
  "Config",
  "ConfigInfo",
  "EnvSpec",
  "Environment",
  "Episode",
  "Frame",
  "Game",
  "GameEnvironment",
  "Observation",
  "Run",
  "Search",
  "Table",
  "Training",
  "UserError",
  "arena",
  "compare",
  "configs",
  "load",
  "make_env",
  "read_trajectories",
  "register_algorithm",
  "register_callback",
  "register_environment",
  "register_loss",
  "register_network",
  "register_player",
  "register_search",
  "register_wrapper",
  "resume",
  "resume_events",
  "train",
  "train_events",
  "write_trajectories",
  "zoo",
]


def __getattr__(name: str) -> _typing.Any:
  if name not in _MODULES:
    raise AttributeError(f"module 'moozi' has no attribute {name!r}; it has {', '.join(__all__)}")
  import importlib

  value = globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
  return value


def __dir__() -> list[str]:
  return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
