"""A player of your own: the opponent in evaluation. It plays the middle cell, or else a random one.

In this folder: `moozi train boards/tic_tac_toe evaluation.opponent=player:make`, or `python player.py`.
A trained agent can play against it: `moozi evaluate runs/NAME --opponent player:make`.
"""

import numpy as np

import moozi


@moozi.register_player("middle")
class Middle:
  """The player of one episode."""

  def __init__(self, env_spec, seed):
    self._middle = env_spec.num_env_actions // 2
    self._random = np.random.default_rng(seed)

  def action(self, observation, legal):
    """Returns one of the environment's actions for the player to move; `legal` is a mask."""
    return self._middle if legal[self._middle] else int(self._random.choice(np.flatnonzero(legal)))


make = Middle
if __name__ == "__main__":
  moozi.train("boards/tic_tac_toe", evaluation={"opponent": "middle"})
