"""A board game of your own: Chomp. A move takes a square and all below and right of it; the top left loses.

In this folder: `moozi train boards/tic_tac_toe env.name=board_game:make`, or `python board_game.py`.
"""

import numpy as np

import moozi


class Chomp(moozi.Game):
  max_moves = 20

  def seed(self, seed):
    pass  # nothing is random

  def reset(self):
    self._left, self._player = np.ones((4, 5, 1), bool), 0

  def step(self, action):
    self._left[action // 5 :, action % 5 :] = False
    self._player = 1 - self._player
    return -float(action == 0), action == 0, False  # the mover's reward, terminal, truncated

  def frame(self):
    return self._left.copy()

  def legal_actions_mask(self):
    return self._left.flatten()

  def to_play(self):
    return self._player


BOARD = {"frame_shape": (4, 5, 1), "frame_dtype": "bool", "action_places": "cells"}
NAMES = tuple(f"{column}{row}" for row in "4321" for column in "abcde")
SPEC = moozi.EnvSpec(name="chomp", num_env_actions=20, num_players=2, action_names=NAMES, **BOARD)
make = moozi.register_environment("chomp")(lambda: moozi.GameEnvironment(Chomp(), SPEC))
if __name__ == "__main__":
  moozi.train("boards/tic_tac_toe", env={"name": "chomp"})
