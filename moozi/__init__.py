"""MooZi: a MuZero system that plans with a learned model.

Names are imported on first use, so that `import moozi` stays fast.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
  from moozi.core.plugins import (
    register_callback,
    register_environment,
    register_loss,
    register_network,
    register_player,
    register_search,
    register_wrapper,
  )

# The module of each public name. The imports above repeat it for type checkers.
_MODULES = {
  "register_callback": "moozi.core.plugins",
  "register_environment": "moozi.core.plugins",
  "register_loss": "moozi.core.plugins",
  "register_network": "moozi.core.plugins",
  "register_player": "moozi.core.plugins",
  "register_search": "moozi.core.plugins",
  "register_wrapper": "moozi.core.plugins",
}

__all__ = [
  "register_callback",
  "register_environment",
  "register_loss",
  "register_network",
  "register_player",
  "register_search",
  "register_wrapper",
]


def __getattr__(name: str) -> Any:
  if name not in _MODULES:
    raise AttributeError(f"module 'moozi' has no attribute {name!r}; it has {', '.join(__all__)}")
  import importlib

  value = globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
  return value


def __dir__() -> list[str]:
  return sorted({*globals(), *__all__})
