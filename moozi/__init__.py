"""MooZi: a MuZero system that plans with a learned model.

The public API is described in docs/api.md. Names are imported on first use, so that `import moozi` stays
fast.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
  from moozi.api.agent import Agent, load
  from moozi.api.environments import make_env
  from moozi.api.run import Run
  from moozi.api.search import Search
  from moozi.api.training import Training, resume, resume_events, train, train_events
  from moozi.core.config import Config
  from moozi.core.errors import UserError
  from moozi.envs.environment import Environment, Observation

# The module of each public name. The imports above repeat it for type checkers.
_MODULES = {
  "Agent": "moozi.api.agent",
  "Config": "moozi.core.config",
  "Environment": "moozi.envs.environment",
  "Observation": "moozi.envs.environment",
  "Run": "moozi.api.run",
  "Search": "moozi.api.search",
  "Training": "moozi.api.training",
  "UserError": "moozi.core.errors",
  "load": "moozi.api.agent",
  "make_env": "moozi.api.environments",
  "resume": "moozi.api.training",
  "resume_events": "moozi.api.training",
  "train": "moozi.api.training",
  "train_events": "moozi.api.training",
}

__all__ = [
  "Agent",
  "Config",
  "Environment",
  "Observation",
  "Run",
  "Search",
  "Training",
  "UserError",
  "load",
  "make_env",
  "resume",
  "resume_events",
  "train",
  "train_events",
]


def __getattr__(name: str) -> Any:
  if name not in _MODULES:
    raise AttributeError(f"module 'moozi' has no attribute {name!r}; it has {', '.join(__all__)}")
  import importlib

  value = globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
  return value


def __dir__() -> list[str]:
  return sorted({*globals(), *__all__})
