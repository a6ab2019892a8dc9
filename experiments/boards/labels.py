"""Makes positions of Connect Four: with the scores of all moves, with an immediate win, with a forced block.

    python -m experiments.boards.labels --minutes 55

Writes `labels/scores.csv`, `labels/wins.csv` and `labels/blocks.csv`. A position is the string of the columns
played, numbered from 1. A call continues `scores.csv` where the last one stopped; the positions depend on
`SEED` alone. Needs the package numba (the extra `dev`).

Positions come from games in which both players win at once where they can, else block a win, else play at
random. No two positions of a file are equal or mirror images. `scores.csv` has 2,000 positions when it is
complete, with 30 down to 8 plies in turn. Its scores are those of `experiments.boards.solver`, for the player
to move. In `wins.csv` the player to move has at least one winning move. In `blocks.csv` this player has none,
the opponent threatens exactly one, and after the block the opponent has none. The `columns` are the winning
or blocking moves.
"""

import argparse
import csv
import dataclasses
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.lib.command import command

if TYPE_CHECKING:
  from experiments.boards.solver import Solver

FOLDER = Path(__file__).parent / "labels"
SEED = 0
PLIES = range(8, 31)
NUM_SCORES, NUM_TACTICS = 2000, 500
WIDTH, HEIGHT = 7, 6


@dataclasses.dataclass(frozen=True)
class Label:
  """A position and the score of each column, None where it is full."""

  moves: tuple[int, ...]
  scores: tuple[int | None, ...]

  @property
  def best(self) -> int:
    return max(score for score in self.scores if score is not None)


@dataclasses.dataclass(frozen=True)
class Tactic:
  """A position and the columns that win at once, or that block the opponent's win."""

  moves: tuple[int, ...]
  columns: frozenset[int]


def read_labels() -> list[Label]:
  """Reads `scores.csv`."""
  return [
    Label(_moves(row["moves"]), tuple(int(row[c]) if row[c] else None for c in _COLUMNS))
    for row in _rows(FOLDER / "scores.csv")
  ]


def read_tactics(name: str) -> list[Tactic]:
  """Reads `wins.csv` or `blocks.csv`."""
  rows = _rows(FOLDER / f"{name}.csv")
  return [Tactic(_moves(row["moves"]), frozenset(_moves(row["columns"]))) for row in rows]


_COLUMNS = tuple(str(column + 1) for column in range(WIDTH))


def _moves(text: str) -> tuple[int, ...]:
  return tuple(int(c) - 1 for c in text)


def _text(moves: tuple[int, ...] | list[int]) -> str:
  return "".join(str(column + 1) for column in moves)


def _rows(path: Path) -> list[dict[str, str]]:
  with path.open(newline="") as file:
    return list(csv.DictReader(file))


def positions(solver: "Solver", seed: int, plies: range = PLIES) -> Iterator[list[int]]:
  """Yields positions of unfinished games and never stops; takes `plies` in turn, from the last to the first.

  No two positions are equal or mirror images.
  """
  random, seen = np.random.default_rng(seed), set()
  while True:
    for ply in reversed(plies):
      while True:
        moves = _play(solver, random, ply)
        if moves is None:
          continue
        key = min(_board(moves), _board([WIDTH - 1 - column for column in moves]))
        if key not in seen:
          break
      seen.add(key)
      yield moves


def _play(solver: "Solver", random: np.random.Generator, ply: int) -> list[int] | None:
  """Returns the first `ply` moves of a game; None if a player can win before."""
  moves: list[int] = []
  while len(moves) < ply:
    if solver.immediate_wins(moves):
      return None
    open_columns = [column for column in range(WIDTH) if moves.count(column) < HEIGHT]
    moves.append(int(random.choice(solver.threats(moves) or open_columns)))
  return moves


def _board(moves: list[int]) -> bytes:
  board, heights = np.zeros((WIDTH, HEIGHT), np.int8), [0] * WIDTH
  for i, column in enumerate(moves):
    board[column, heights[column]] = 1 + i % 2
    heights[column] += 1
  return board.tobytes()


@command
def main(argv: Sequence[str] | None = None) -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--minutes", type=float, default=55.0, help="time limit (%(default)g)")
  parser.add_argument("--folder", type=Path, default=FOLDER, help="where to write (%(default)s)")
  arguments = parser.parse_args(argv)
  arguments.folder.mkdir(parents=True, exist_ok=True)
  from experiments.boards.solver import Solver

  solver, end = Solver(WIDTH, HEIGHT), time.monotonic() + 60 * arguments.minutes
  _write_tactics(solver, arguments.folder)
  path = arguments.folder / "scores.csv"
  done = _intact(path, ("moves", *_COLUMNS))
  with path.open("a", newline="") as file:
    for i, moves in zip(range(NUM_SCORES), positions(solver, SEED), strict=False):
      if i < done:
        continue
      if time.monotonic() > end:
        print(f"{i} of {NUM_SCORES} positions; the next call continues")
        return 0
      file.write(
        ",".join([_text(moves), *("" if s is None else str(s) for s in solver.values(moves))]) + "\n"
      )
      file.flush()
      if i % 20 == 19:
        os.fsync(file.fileno())
        print(f"{i + 1} of {NUM_SCORES} positions", flush=True)
  return 0


def _write_tactics(solver: "Solver", folder: Path) -> None:
  wins: list[str] = []
  blocks: list[str] = []
  for moves in positions(solver, SEED + 1):
    threats, own = solver.threats(moves), solver.immediate_wins(moves)
    if own and len(wins) < NUM_TACTICS:
      wins.append(f"{_text(moves)},{_text(own)}\n")
    is_block = not own and len(threats) == 1 and not solver.immediate_wins(moves + threats)
    if is_block and len(blocks) < NUM_TACTICS:
      blocks.append(f"{_text(moves)},{_text(threats)}\n")
    if len(wins) == len(blocks) == NUM_TACTICS:
      break
  for name, rows in (("wins", wins), ("blocks", blocks)):
    (folder / f"{name}.csv").write_text("moves,columns\n" + "".join(rows))


def _intact(path: Path, header: tuple[str, ...]) -> int:
  """Returns the number of complete rows; writes the header of a new file, and removes an incomplete row."""
  if not path.exists():
    path.write_text(",".join(header) + "\n")
  data = path.read_bytes()
  with path.open("r+b") as file:
    file.truncate(data.rfind(b"\n") + 1)
  return data.count(b"\n") - 1


if __name__ == "__main__":
  sys.exit(main())
