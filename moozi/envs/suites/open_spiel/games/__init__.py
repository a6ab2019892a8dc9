"""Games that MooZi adds to the package `open_spiel`: simplest, small_othello, stratego, uno.

Importing this package registers them; `suites.open_spiel.rules.package` does so. `pyspiel.load_game` then
loads them by name, and the package's own algorithms and tests run on them.
"""

from moozi.envs.suites.open_spiel.games import simplest, small_othello, stratego, uno

__all__ = ["simplest", "small_othello", "stratego", "uno"]
