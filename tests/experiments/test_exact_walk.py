"""Tests of the walk of a whole game tree, against plain recursion and with players of known results."""

import jax
import numpy as np
import pytest

from experiments.boards.exact_walk import walk
from experiments.boards.lines import agent_decides, histories_of
from moozi.agent.agent import make_agent
from moozi.core.errors import UserError
from moozi.envs import registry
from moozi.envs.suites.open_spiel.rules import Rules
from moozi.io.config import load_config
from moozi.ops.history import init_history, push_action, push_frame
from moozi.run import build
from tests.tiny_run import TINY

pytest.importorskip("pyspiel")


@pytest.fixture(scope="module")
def rules():
  return Rules("tic_tac_toe")


MEMO: dict[str, float] = {}


def best(state):
  """Returns the minimax value of a state for player 0, memoized."""
  key = str(state)
  if key not in MEMO:
    if state.is_terminal():
      MEMO[key] = state.returns()[0]
    else:
      values = [best(state.child(a)) for a in state.legal_actions()]
      MEMO[key] = max(values) if state.current_player() == 0 else min(values)
  return MEMO[key]


def player(rules, choose):
  """Returns the player of a function that maps a state to an action."""

  def decide(lines):
    actions = []
    for line in lines:
      state = rules.game.new_initial_state()
      for move in line[:-1]:
        state.apply_action(move.action)
      actions.append(choose(state))
    return np.eye(9)[actions]

  return decide


def perfect(state):
  sign = 1 if state.current_player() == 0 else -1
  return max(state.legal_actions(), key=lambda action: sign * best(state.child(action)))


def first_legal(state):
  return state.legal_actions()[0]


def by_recursion(rules, seat, choose_one):
  """Returns {terminal state: return} of all reachable ends, by recursion."""
  ends = {}

  def visit(state):
    if state.is_terminal():
      ends[str(state)] = state.returns()[seat]
      return
    actions = [choose_one(state)] if state.current_player() == seat else state.legal_actions()
    for action in actions:
      visit(state.child(action))

  visit(rules.game.new_initial_state())
  values = list(ends.values())
  return sum(v > 0 for v in values), sum(v == 0 for v in values), sum(v < 0 for v in values)


@pytest.mark.parametrize("seat", [0, 1])
def test_perfect_player_never_loses(rules, seat):
  result = walk(rules, seat, player(rules, perfect))
  assert result.losses == 0
  assert result.lost == []
  assert result.wins > 0
  assert result.draws > 0
  assert result.seat == seat


@pytest.mark.slow
@pytest.mark.parametrize("seat", [0, 1])
def test_bad_player_loses_as_listed(rules, seat):
  result = walk(rules, seat, player(rules, first_legal))
  assert result.losses > 0
  for line in result.lost:
    state = rules.game.new_initial_state()
    for action in line:
      if state.current_player() == seat:
        assert action == first_legal(state)
      state.apply_action(action)
    assert state.returns()[seat] == -1


@pytest.mark.parametrize("seat", [0, 1])
def test_counts_match_recursion(rules, seat):
  result = walk(rules, seat, player(rules, first_legal))
  assert (result.wins, result.draws, result.losses) == by_recursion(rules, seat, first_legal)


@pytest.mark.slow
@pytest.mark.parametrize("reply", range(1, 9))
def test_every_reply_is_played(rules, reply):
  """The walk finds the losses of a player that errs only after one of the opponent's replies."""

  def bad_after_reply(state):
    if not state.history():
      return 0
    if state.history()[:2] == [0, reply]:
      return min(state.legal_actions(), key=lambda action: best(state.child(action)))
    return perfect(state)

  result = walk(rules, 0, player(rules, bad_after_reply))
  assert result.losses > 0
  assert all(line[:2] == [0, reply] for line in result.lost)


@pytest.mark.parametrize("length", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_history_equals_that_of_play(rules, length):
  """In each position, the line of play gives the history that the environment's steps give."""
  env = registry.make("open_spiel:tic_tac_toe", seed=0)
  checked, agent = 0, make_agent(lambda *args: None, rules.spec, length)

  def check(lines):
    nonlocal checked
    for line in lines[:: max(1, len(lines) // 7)]:
      history, step = init_history(1, length, rules.spec), env.reset()
      for move in line[:-1]:
        history = push_frame(history, step.observation.frame[None], np.array([step.first()]))
        history = push_action(history, np.array([move.action + 1], np.int32))
        step = env.step(move.action)
      found, last = histories_of([line], agent, None, rules.spec)
      np.testing.assert_array_equal(step.observation.frame, last.frame[0])
      np.testing.assert_array_equal(step.observation.legal_actions_mask, last.legal_actions_mask[0, 1:])
      assert last.is_first[0] == step.first()
      np.testing.assert_array_equal(history.actions, found.actions)
      np.testing.assert_array_equal(history.frames, found.frames)
      checked += 1
    return player(rules, first_legal)(lines)

  walk(rules, 1, check, history_length=length)
  assert checked > 15


@pytest.mark.slow
def test_longer_history_distinguishes_more_positions(rules):
  decide = player(rules, first_legal)
  assert walk(rules, 1, decide, 3).positions > walk(rules, 1, decide, 1).positions


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "widths"), [("played", (7, 64)), ("prior", (64,))])
def test_agent_choices_do_not_depend_on_batch(rules, kind, widths):
  config = load_config(None, [*TINY, "env.name=open_spiel:tic_tac_toe"])
  spec = build.env_spec(config)
  (params, net_state), _ = build.build_learner(config, spec).parameters()
  random = np.random.default_rng(0)
  params = jax.tree_util.tree_map(lambda x: x + 0.3 * random.standard_normal(x.shape, np.float32), params)
  evaluator = build.build_evaluator(config, spec, 1 if kind == "prior" else None)
  agents = [agent_decides(evaluator, (params, net_state), spec, width, kind) for width in widths]
  results = [walk(rules, 0, agent) for agent in agents]
  assert results[0] == results[-1]
  assert results[0].losses > 0


@pytest.mark.parametrize("game", ["kuhn_poker", pytest.param("2048", marks=pytest.mark.slow)])
def test_rejects_chance(game):
  with pytest.raises(UserError, match="only deterministic two-player games"):
    walk(Rules(game), 0, None)


def test_rejects_too_many_positions(rules):
  with pytest.raises(UserError, match="more than 100 positions"):
    walk(rules, 0, player(rules, first_legal), max_positions=100)


def test_rejects_illegal_choice(rules):
  with pytest.raises(ValueError, match="illegal after"):
    walk(rules, 0, player(rules, lambda state: 0))
