"""Tests of tactics and of their command: positions by hand and by brute force, shares, predicted rewards."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.boards import tactics
from experiments.boards.lines import line_of
from experiments.boards.tactics import Position, chance_shares, find_positions, reward_errors, shares
from moozi.core.errors import UserError
from moozi.envs.suites.open_spiel.rules import Rules
from moozi.nn.model import ModelOutput
from tests.agent.tiny import table_model
from tests.commands.conftest import make_run

pytest.importorskip("pyspiel")


@pytest.fixture(name="rules", scope="module")
def _rules():
  return Rules("tic_tac_toe")


def kind_after(rules, actions):
  state = rules.game.new_initial_state()
  for action in actions:
    state.apply_action(action)
  return tactics._kind_of(state)


class TestKinds:
  """Cells of tic-tac-toe are numbered row by row; x moves first."""

  def test_win(self, rules):
    assert kind_after(rules, [0, 3, 1, 4]) == ("win", [2])  # x x . / o o . / . . .

  def test_a_win_goes_before_a_block(self, rules):
    assert kind_after(rules, [0, 3, 1, 4, 8]) == ("win", [5])  # o can win, and x threatens 2

  def test_block(self, rules):
    assert kind_after(rules, [0, 4, 1]) == ("block", [2])  # o must take the corner

  def test_lost_and_quiet_positions_are_neither(self, rules):
    assert kind_after(rules, []) is None
    assert kind_after(rules, [0, 1, 4, 8, 6]) is None  # x threatens 2 and 3

  def test_positions_of_connect_four(self):
    rules = Rules("connect_four")
    assert kind_after(rules, [0, 6, 1, 6, 2]) == ("block", [3])  # three in the bottom row, free on the right
    assert kind_after(rules, [0, 6, 1, 6, 2, 6]) == ("win", [3])


def best_return(state, player):
  """Returns the best return of one move, and the worst after one more move of the other player."""
  return max(state.child(a).returns()[player] for a in state.legal_actions())


@pytest.mark.parametrize("game", ["tic_tac_toe", "connect_four"])
def test_found_positions_are_what_they_say(game):
  rules = Rules(game)
  positions = find_positions(rules, 20, seed=3)
  assert sum(x.kind == "win" for x in positions) == sum(x.kind == "block" for x in positions) == 20
  assert len({(x.kind, x.line[-1].frame.tobytes()) for x in positions}) == 40
  for x in positions:
    state = rules.game.new_initial_state()
    for move in x.line[:-1]:
      state.apply_action(move.action)
    me, legal = state.current_player(), state.legal_actions()
    if x.kind == "win":
      assert [state.child(a).returns()[me] == 1 for a in legal] == x.right[legal].tolist()
    else:
      assert best_return(state, me) < 1
      children = [state.child(a) for a in legal]
      is_safe = [c.is_terminal() or best_return(c, 1 - me) < 1 for c in children]
      assert is_safe == x.right[legal].tolist()
    assert not x.right[~x.line[-1].legal].any()
  again = find_positions(rules, 20, seed=3)
  assert all((a.line[-1].frame == b.line[-1].frame).all() for a, b in zip(positions, again, strict=True))


def test_games_with_hidden_cards_are_refused():
  with pytest.raises(UserError, match="tactics are for games of two players without chance and hidden"):
    find_positions(Rules("kuhn_poker"), 1)


def test_shares_by_hand(rules):
  win = Position("win", line_of(rules, [0, 3, 1, 4], True), np.arange(9) == 2)
  block = Position("block", line_of(rules, [0, 4, 1], True), np.arange(9) == 2)
  right = {len(win.line): 2, len(block.line): 8}  # takes the win, but misses the block

  def decide(lines):
    return np.stack([np.arange(9) == right[len(line)] for line in lines]).astype(float)

  assert shares([win, block, win], decide) == {"block": 0, "win": 1}
  assert chance_shares([win, block]) == {"block": pytest.approx(1 / 6), "win": pytest.approx(1 / 5)}


def test_reward_errors_of_a_model_that_always_expects_a_win(rules):
  base = table_model(10)

  def root(params, net_state, stacked, is_training):
    zeros = jnp.zeros((len(stacked), 11))
    return ModelOutput(
      hidden_state=zeros, value_logits=zeros, reward_logits=zeros, policy_logits=zeros
    ), net_state

  def recurrent(params, net_state, state, action, is_training):
    logits = jnp.log(jnp.maximum(base.transform.to_probs(jnp.ones(len(state))), 1e-6))
    return ModelOutput(
      hidden_state=state, value_logits=logits, reward_logits=logits, policy_logits=logits
    ), net_state

  model = dataclasses.replace(base, root_inference=root, recurrent_inference=recurrent)
  positions = find_positions(rules, 5)
  found = jax.device_get(reward_errors(positions, model, ({}, {}), rules.spec, 1))
  assert found["reward_win"] == pytest.approx(1, abs=1e-3)
  assert found["reward_other"] == pytest.approx(1, abs=1e-3)
  # In categories a reward of 1 is p at 1 and 1 - p at 0.
  p = np.sqrt(2) - 1 + 0.001
  assert found["reward_loss_win"] == pytest.approx(-p * np.log(p) - (1 - p) * np.log(1 - p), abs=1e-3)
  assert found["reward_loss_other"] == pytest.approx(-np.log(1 - p), abs=1e-3)
  assert reward_errors([x for x in positions if x.kind == "block"], model, ({}, {}), rules.spec, 1) == {}


@pytest.mark.slow
def test_zoo_agent(capsys):
  assert tactics.main(["zoo:boards/tic_tac_toe", "--positions", "20", "--json"]) == 0
  found = json.loads(capsys.readouterr().out)
  assert found["positions"] == {"win": 20, "block": 20}
  for kind in ("win", "block"):
    assert found["random"][kind] < 0.5 < found["search"][kind]
  assert found["reward_other"] < 0.2 < 0.8 < found["reward_win"]


@pytest.mark.slow
def test_search_with_true_rules_finds_what_its_untrained_network_does_not(tmp_path, capsys):
  # Below a win: the values of an untrained network are larger otherwise.
  values = [f"scalar_transform.{key}" for key in ("support_min=-1", "support_max=1", "epsilon=0.6")]
  game = ("env.name=open_spiel:tic_tac_toe", *values)
  run = make_run(tmp_path, "az", "algorithm=alphazero", "targets.unroll_steps=0", *game)
  assert tactics.main([str(run), "--positions", "10", "--simulations", "100", "--json"]) == 0
  found = json.loads(capsys.readouterr().out)
  assert found["prior"]["win"] < found["search"]["win"] == 1
  assert found["prior"]["block"] < found["search"]["block"]
  assert "reward_win" not in found
