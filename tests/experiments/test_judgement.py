"""Tests of the solved positions of Connect Four, of the solver, and of how players are judged by them."""

import functools
import random

import numpy as np
import pytest

from experiments.boards import labels as labelling
from experiments.boards.judgement import (
  GAME,
  PHASES,
  choices,
  is_contested,
  is_good,
  is_perfect,
  judge,
  main,
  names_of,
  share,
  table,
)
from experiments.boards.labels import Label, read_labels, read_tactics
from experiments.boards.solver import Solver
from moozi.envs import registry
from moozi.envs.players import SeparatePlayer

pyspiel = pytest.importorskip("pyspiel")


@functools.cache
def game():
  return pyspiel.load_game("connect_four")


def state_of(moves):
  state = game().new_initial_state()
  for column in moves:
    state.apply_action(column)
  return state


def winning(state):
  """Returns the columns that win at once for the player to move."""
  return {
    a for a in state.legal_actions() if (child := state.child(a)).is_terminal() and any(child.returns())
  }


# --- the committed positions


def test_scores_agree_with_the_rules():
  labels = read_labels()
  assert len({label.moves for label in labels}) == len(labels) > 1000
  plies = [len(label.moves) for label in labels]
  assert {*plies} == {*labelling.PLIES} == {ply for phase in PHASES.values() for ply in phase}
  assert max(map(plies.count, labelling.PLIES)) - min(map(plies.count, labelling.PLIES)) <= 1
  assert 0.3 < np.mean([is_contested(label) for label in labels]) < 0.8
  for label in labels[::7]:
    state, win = state_of(label.moves), (43 - len(label.moves)) // 2
    legal = [column for column, score in enumerate(label.scores) if score is not None]
    assert legal == state.legal_actions()
    assert winning(state) == {column for column in legal if label.scores[column] == win}
    for column in legal:
      if (child := state.child(column)).is_terminal():
        continue
      # A column after which the opponent can win at once has the lowest score.
      assert bool(winning(child)) == (label.scores[column] == -((42 - len(label.moves)) // 2))


def test_wins_and_blocks_agree_with_the_rules():
  wins, blocks = read_tactics("wins"), read_tactics("blocks")
  assert len({t.moves for t in wins}) == len({t.moves for t in blocks}) == 500
  for tactic in wins[::5]:
    assert winning(state_of(tactic.moves)) == tactic.columns
  for tactic in blocks[::5]:
    state = state_of(tactic.moves)
    assert not winning(state)
    (block,) = tactic.columns
    for column in state.legal_actions():
      child = state.child(column)
      if column != block:
        assert block in winning(child)


# --- the judgement


def test_good_and_perfect_moves():
  label = Label((), (3, 1, -2, None, 0, 3, -9))
  assert [c for c in range(7) if is_good(label, c)] == [0, 1, 5]
  assert [c for c in range(7) if is_perfect(label, c)] == [0, 5]
  assert is_contested(label)
  lost = Label((), (-3, -1, None, None, None, None, None))
  assert [c for c in range(7) if is_good(lost, c)] == [0, 1]
  assert [c for c in range(7) if is_perfect(lost, c)] == [1]
  assert not is_contested(lost)
  found = share([True] * 90 + [False] * 10)
  assert (found.share, found.positions) == (0.9, 100)
  assert 0.82 < found.low < 0.84
  assert 0.94 < found.high < 0.95


class Fixed:
  """Plays a fixed move in each position, which it knows from the observed moves."""

  name = "fixed"

  def __init__(self, moves):
    self._moves = moves

  def reset(self, places):
    self._seen = {place: [] for place in places}

  def observe(self, views, actions):
    for place, action in actions.items():
      assert views[place].legal[action]
      self._seen[place].append(action)

  def act(self, views):
    return {place: self._moves[tuple(self._seen[place])] for place in views}


@pytest.mark.slow
def test_a_solver_is_perfect_and_chance_is_not(monkeypatch):
  labels, tactics = read_labels()[:46], {name: read_tactics(name)[:20] for name in ("wins", "blocks")}
  monkeypatch.setattr("experiments.boards.judgement.read_tactics", tactics.__getitem__)
  best = {label.moves: label.scores.index(label.best) for label in labels}
  moves = choices(Fixed(best), list(best), functools.partial(registry.make_table, GAME))
  assert all(is_perfect(*pair) for pair in zip(labels, moves, strict=True))
  result = judge(SeparatePlayer("random", registry.make_table(GAME).spec), labels)
  assert 0.4 < result["good"]["share"] < 0.9
  assert result["perfect"]["share"] < 0.6
  assert result["contested"]["good"]["positions"] < 46 == result["good"]["positions"]
  assert result["wins"]["share"] < 0.5
  assert table([result]).count("\n") == 2
  assert judge(SeparatePlayer("random", registry.make_table(GAME).spec), labels) == result

  # A player that misses every win and every block, with its last other legal move.
  solver, missing = Solver(), dict(best)
  for tactic in (tactic for found in tactics.values() for tactic in found):
    legal = [column for column in range(7) if tactic.moves.count(column) < 6]
    missing[tactic.moves] = max(set(legal) - tactic.columns)
  result = judge(Fixed(missing), labels)
  after = [[*tactic.moves, missing[tactic.moves]] for tactic in tactics["wins"]]
  assert result["wins"]["share"] == result["blocks"]["share"] == 0
  assert result["wins"]["won_later"] == sum(best_score(solver, moves) < 0 for moves in after)
  after = [[*tactic.moves, *tactic.columns] for tactic in tactics["blocks"]]
  assert result["blocks"]["lost_anyway"] == sum(best_score(solver, moves) > 0 for moves in after)


def best_score(solver, moves):
  """Returns the score of the player to move, from the scores of its moves."""
  return max(score for score in solver.values(moves) if score is not None)


def test_command_line(capsys):
  assert names_of(["runs/first", "zoo:connect_four", "mcts:5", "prior:runs/first"]) == [
    "run:runs/first",
    "prior:runs/first",
    "zoo:connect_four",
    "prior:zoo:connect_four",
    "mcts:5",
    "prior:runs/first",
  ]
  assert main(["zoo:tic_tac_toe"]) == 2
  assert capsys.readouterr().err.startswith("error: zoo:boards/tic_tac_toe: plays open_spiel:tic_tac_toe")


# --- the solver


LINES = [(0, 1), (1, 0), (1, 1), (1, -1)]


def has_four(columns, player, width, height):
  stones = {(x, y) for x, column in enumerate(columns) for y, who in enumerate(column) if who == player}
  return any(all((x + k * dx, y + k * dy) in stones for k in range(4)) for x, y in stones for dx, dy in LINES)


def slow_score(columns, width, height, memo):
  """Returns a position's score by plain recursion; a column has its stones' players (0, 1), from below."""
  count = sum(map(len, columns))
  if count == width * height:
    return 0
  if columns not in memo:
    best = -width * height
    for x in range(width):
      if len(columns[x]) < height:
        child = (*columns[:x], (*columns[x], count % 2), *columns[x + 1 :])
        if has_four(child, count % 2, width, height):
          score = (width * height + 1 - count) // 2
        else:
          score = -slow_score(child, width, height, memo)
        best = max(best, score)
    memo[columns] = best
  return memo[columns]


def columns_of(moves, width):
  columns = [()] * width
  for i, column in enumerate(moves):
    columns[column] += (i % 2,)
  return tuple(columns)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "height", "plies"), [(4, 4, (6, 9)), (5, 4, (11, 14)), (4, 5, (11, 14))])
def test_solver_agrees_with_plain_recursion(width, height, plies):
  pytest.importorskip("numba")
  solver, memo, rng, count = Solver(width, height), {}, random.Random(0), 0
  assert solver.score([]) == max(solver.values([]))
  while count < 25:
    moves = [rng.randrange(width) for _ in range(rng.randint(*plies))]
    try:
      score = solver.score(moves)
    except ValueError:
      continue
    assert score == slow_score(columns_of(moves, width), width, height, memo), moves
    values = [v for v in solver.values(moves) if v is not None]
    assert max(values, default=0) == score
    count += 1


# Scores from http://blog.gamesolver.org: two examples of part 2, and lines of the test set "end easy".
PUBLISHED = {
  "4455": 18,
  "44455554221": -15,
  "2252576253462244111563365343671351441": -1,
  "7422341735647741166133573473242566": 1,
  "23163416124767223154467471272416755633": 0,
  "65214673556155731566316327373221417": -1,
}


@pytest.mark.slow
def test_solver_on_the_whole_board(tmp_path, monkeypatch, capsys):
  pytest.importorskip("numba")
  solver = Solver()
  for text, score in PUBLISHED.items():
    assert solver.score([int(c) - 1 for c in text]) == score
  for label in [x for x in read_labels() if len(x.moves) > 15][::40]:
    assert solver.values(list(label.moves)) == list(label.scores)
  assert solver.immediate_wins([0, 1, 0, 1, 0, 1]) == [0]
  assert solver.threats([0, 1, 0, 1, 0, 1]) == [1]
  for moves, message in [
    ([0] * 7, "illegal"),
    ([7], "illegal"),
    ([0, 1] * 3 + [0], "over"),
    ([-1], "illegal"),
  ]:
    with pytest.raises(ValueError, match=message):
      solver.score(moves)
  with pytest.raises(ValueError, match="must be at least 4 × 4"):
    Solver(9, 6)
  # A new call makes the committed labels, and a call on an incomplete file continues it.
  monkeypatch.setattr(labelling, "NUM_SCORES", 8)
  monkeypatch.setattr("sys.argv", ["labels", "--folder", str(tmp_path)])
  labelling.main()
  path = tmp_path / "scores.csv"
  whole = path.read_text()
  assert whole == "".join((labelling.FOLDER / "scores.csv").read_text().splitlines(keepends=True)[:9])
  path.write_text(whole[:-30])
  labelling.main()
  assert path.read_text() == whole
  for name in ("wins", "blocks"):
    assert (tmp_path / f"{name}.csv").read_text() == (labelling.FOLDER / f"{name}.csv").read_text()
