"""Loads runs of games of OpenSpiel."""

from pathlib import Path
from typing import Any

import moozi
from moozi.core.errors import UserError
from moozi.envs.suites.open_spiel.rules import Rules


def load_game(
  run: str | Path, checkpoint: str | None, simulations: int | None = None, *, is_seated: bool = False
) -> tuple[moozi.Agent, Rules, Any]:
  """Returns a run's agent, the rules of its game, and the agent's variables.

  Args:
    checkpoint, simulations: as for `moozi.load`.
    is_seated: whether the agent may have learned to play one seat; see `Rules`.

  Raises: UserError: the run cannot be loaded; its environment is not a game of OpenSpiel; or `is_seated` is
    false and the game was not learned in self-play of two players.
  """
  agent = moozi.load(run, checkpoint, simulations=simulations)
  spec = agent.spec
  library, _, game = spec.name.partition(":")
  if library != "open_spiel" or not (is_seated or spec.num_players == 2):
    how = "" if is_seated else ", learned in self-play of two players"
    raise UserError(f"{run}: env.name={spec.name}; the game must be one of open_spiel{how}")
  return agent, Rules(game, spec.frame_dtype, is_seated), agent.state.variables
