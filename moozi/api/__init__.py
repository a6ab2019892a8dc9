"""The Python API, which the package `moozi` exports (docs/api.md).

Importing it registers trained agents as players, such as `run:PATH`, without importing `api.players`.
"""

from typing import Any

from moozi.core.plugins import PLAYERS, TRAINED


def _make_player(*args: Any, **kwargs: Any) -> Any:
  from moozi.api.players import make_player

  return make_player(*args, **kwargs)


PLAYERS.registered.update(dict.fromkeys(TRAINED, _make_player))
