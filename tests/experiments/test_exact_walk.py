"""Tests of the walk of a whole game tree, against plain recursion and with players of known results."""

import jax
import numpy as np
import pytest

from experiments.boards.exact_walk import agent, walk
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


def perfect(positions):
  out = []
  for p in positions:
    sign = 1 if p.state.current_player() == 0 else -1
    out.append(max(p.state.legal_actions(), key=lambda a, p=p, s=sign: s * best(p.state.child(a))))
  return out


def first_legal(positions):
  return [int(np.flatnonzero(p.legal_actions_mask)[0]) for p in positions]


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
  result = walk(rules, seat, perfect)
  assert result.losses == 0
  assert result.lost == []
  assert result.wins > 0
  assert result.draws > 0
  assert result.seat == seat


@pytest.mark.slow
@pytest.mark.parametrize("seat", [0, 1])
def test_bad_player_loses_as_listed(rules, seat):
  result = walk(rules, seat, first_legal)
  assert result.losses > 0
  for line in result.lost:
    state = rules.game.new_initial_state()
    for action in line:
      if state.current_player() == seat:
        assert action == state.legal_actions()[0]
      state.apply_action(action)
    assert state.returns()[seat] == -1


@pytest.mark.parametrize("seat", [0, 1])
def test_counts_match_recursion(rules, seat):
  result = walk(rules, seat, first_legal)
  assert (result.wins, result.draws, result.losses) == by_recursion(
    rules, seat, lambda state: state.legal_actions()[0]
  )


@pytest.mark.slow
@pytest.mark.parametrize("reply", range(1, 9))
def test_every_reply_is_played(rules, reply):
  """The walk finds the losses of a player that errs only after one of the opponent's replies."""

  def bad_after_reply(positions):
    out = perfect(positions)
    for i, p in enumerate(positions):
      if p.state.history()[:2] == [0, reply]:
        out[i] = min(p.state.legal_actions(), key=lambda a, p=p: best(p.state.child(a)))
      elif not p.state.history():
        out[i] = 0
    return out

  result = walk(rules, 0, bad_after_reply)
  assert result.losses > 0
  assert all(line[:2] == [0, reply] for line in result.lost)


@pytest.mark.parametrize("length", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_history_equals_that_of_play(rules, length):
  """In each position, the walk's history equals the one that the environment's steps give."""
  env = registry.make("open_spiel:tic_tac_toe", seed=0)
  checked = 0

  def check(positions):
    nonlocal checked
    for p in positions[:: max(1, len(positions) // 7)]:
      history, step = init_history(1, length, rules.spec), env.reset()
      for action in p.state.history():
        history = push_frame(history, step.observation.frame[None], np.array([step.first()]))
        history = push_action(history, np.array([action + 1], np.int32))
        step = env.step(action)
      np.testing.assert_array_equal(step.observation.frame, p.frame)
      np.testing.assert_array_equal(step.observation.legal_actions_mask, p.legal_actions_mask)
      assert p.is_first == step.first()
      np.testing.assert_array_equal(history.actions, p.history.actions)
      np.testing.assert_array_equal(history.frames[:, 1:], p.history.frames[:, 1:])
      checked += 1
    return first_legal(positions)

  walk(rules, 1, check, history_length=length)
  assert checked > 15


@pytest.mark.slow
def test_longer_history_distinguishes_more_positions(rules):
  assert walk(rules, 1, first_legal, 3).positions > walk(rules, 1, first_legal, 1).positions


@pytest.mark.slow
@pytest.mark.parametrize(("prior", "widths"), [(False, (7, 64)), (True, (64,))])
def test_agent_choices_do_not_depend_on_batch(rules, prior, widths):
  config = load_config(None, [*TINY, "env.name=open_spiel:tic_tac_toe"])
  spec = build.env_spec(config)
  params, net_state, _ = build.build_learner(config, spec).parameters()
  random = np.random.default_rng(0)
  params = jax.tree_util.tree_map(lambda x: x + 0.3 * random.standard_normal(x.shape, np.float32), params)
  evaluator = build.build_evaluator(config, spec, 1 if prior else None)

  def choose(width):
    return agent(evaluator, (params, net_state), spec, prior=prior, width=width)

  results = [walk(rules, 0, choose(width)) for width in widths]
  assert results[0] == results[-1]
  assert results[0].losses > 0


@pytest.mark.parametrize("game", ["kuhn_poker", pytest.param("2048", marks=pytest.mark.slow)])
def test_rejects_chance(game):
  with pytest.raises(UserError, match="only deterministic two-player games"):
    walk(Rules(game), 0, first_legal)


def test_rejects_too_many_positions(rules):
  with pytest.raises(UserError, match="more than 100 positions"):
    walk(rules, 0, first_legal, max_positions=100)


def test_rejects_illegal_choice(rules):
  with pytest.raises(ValueError, match="illegal after"):
    walk(rules, 0, lambda positions: [0 for _ in positions])
