"""Plays OpenSpiel's two MCTS bots, in C++ and in Python, against each other, and measures their time.

    python -m experiments.boards.mcts_bots      # results/mcts_bots.json

`mcts:N` is the bot in C++ for games in C++. Each opening has two random moves and is played with both
seatings. A score of 0.5 means equal strength.
"""

import argparse
import functools
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from experiments.lib.command import command, positive_int
from moozi.evaluation.opponents import margin
from moozi.experiments.results import write_json

RESULT = Path(__file__).parent / "results" / "mcts_bots.json"
# (game, simulations)
PAIRS = (("connect_four", 100), ("connect_four", 1000), ("tic_tac_toe", 100), ("go(board_size=5)", 100))


@command
def main(arguments: list[str] | None = None) -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--games", type=positive_int, default=200, help="games of each pair; default: 200")
  parser.add_argument("--out", type=Path, default=RESULT)
  options = parser.parse_args(arguments)
  rows = []
  for game, simulations in PAIRS:
    rows.append(compare(game, simulations, options.games))
    print(rows[-1], flush=True)
  write_json(options.out, rows)
  return 0


def _same(state: Any) -> Any:
  return state


def compare(game: str, simulations: int, num_games: int) -> dict:
  """Returns the score of the bot in C++ with its 95% margin, and both bots' seconds per move."""
  from moozi.envs.suites.open_spiel.bots import bot_by_rules
  from moozi.envs.suites.open_spiel.rules import Rules

  fast, slow = Rules(game), Rules(game)
  slow.is_in_python = True
  assert not fast.is_in_python
  scores, seconds, moves = [], np.zeros(2), np.zeros(2)
  for i in range(num_games):
    state, random = fast.game.new_initial_state(), np.random.default_rng(i // 2)
    position = functools.partial(_same, state)
    bots = [
      bot_by_rules("mcts", rules, simulations, 10 * i + k, position) for k, rules in enumerate((fast, slow))
    ]
    for _ in range(2):
      state.apply_action(int(random.choice(state.legal_actions())))
    while not state.is_terminal():
      k = (state.current_player() + i) % 2
      begin = time.perf_counter()
      action = bots[k].action(np.empty(0), np.empty(0))
      seconds[k] += time.perf_counter() - begin
      moves[k] += 1
      state.apply_action(action)
    scores.append((state.returns()[i % 2] + 1) / 2)
  return {
    "game": game,
    "simulations": simulations,
    "games": num_games,
    "score_of_cpp": float(np.mean(scores)),
    "margin": margin(np.array(scores)),
    "seconds_per_move": dict(zip(("cpp", "python"), (seconds / moves).tolist(), strict=True)),
  }


if __name__ == "__main__":
  sys.exit(main())
