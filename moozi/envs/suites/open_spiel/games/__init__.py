"""Games that MooZi adds to the package `open_spiel`: simplest, small_othello, stratego, uno.

An import of this module registers the games; `suites.open_spiel.rules.package` imports it.
`pyspiel.load_game` then loads the games by name, and open_spiel's own algorithms and tests run on them.
"""

from moozi.envs.suites.open_spiel.games import simplest, small_othello, stratego, uno

__all__ = ["simplest", "small_othello", "stratego", "uno"]
