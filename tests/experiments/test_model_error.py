"""Tests of the model's errors and of their command, with models of tic-tac-toe that are written by hand."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.boards import model_error
from experiments.boards.model_error import model_errors
from moozi.envs.suites.open_spiel.rules import Rules
from moozi.nn.model import ModelOutput
from moozi.ops.scalar_transform import ScalarTransform
from tests.agent.tiny import encode, model_of
from tests.commands.conftest import make_run

pytest.importorskip("pyspiel")

LINES = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]])
WEIGHTS = np.array([1, -2, 3, 0.5, 2, -1, 1.5, -0.5, 1]) / 12
TRANSFORM = ScalarTransform(-1, 1, 0.5857864)  # linear between -1, 0 and 1 up to rounding
EMPTY, NOUGHTS, CROSSES, NOUGHTS_MOVE = range(4)


@pytest.fixture(name="rules", scope="module")
def _rules():
  return Rules("tic_tac_toe")


def scores(board):
  """Returns whether the player who has just moved has won [B], and the value for the player to move [B]."""
  cells = board.reshape(-1, 9, 4)
  moves = cells[:, 0, NOUGHTS_MOVE] > 0
  mover = jnp.where(moves[:, None], cells[..., NOUGHTS], cells[..., CROSSES])
  other = jnp.where(moves[:, None], cells[..., CROSSES], cells[..., NOUGHTS])
  won = jnp.any(jnp.all(other[:, LINES] > 0, axis=-1), axis=-1)
  is_over = won | jnp.all(cells[..., EMPTY] == 0, axis=-1)
  return won, jnp.where(is_over, 0.0, (mover - other) @ WEIGHTS)


def place(board, action):
  """Returns the boards [B, 3, 3, 4] after the mover's stone is placed."""
  cells = board.reshape(-1, 9, 4)
  stone = jax.nn.one_hot(action - 1, 9)[..., None]
  moves = cells[:, :1, NOUGHTS_MOVE:]
  planes = jnp.concatenate([-jnp.ones_like(moves), moves, 1 - moves], axis=-1) * stone
  turn = jnp.broadcast_to(1 - moves, (*stone.shape[:2], 1))
  return jnp.concatenate([cells[..., :NOUGHTS_MOVE] + planes, turn], axis=-1).reshape(board.shape)


def board_model(step, reward_of_win=1.0):
  """Returns a model whose hidden state is the board; `step` maps it and an action to the next board."""

  def output(board, reward):
    value = scores(board)[1]
    empty = board.reshape(-1, 9, 4)[..., EMPTY]
    logits = jnp.concatenate([jnp.zeros((len(board), 1)), empty], axis=-1)
    return ModelOutput(
      hidden_state=board,
      value_logits=encode(value, TRANSFORM),
      reward_logits=encode(reward, TRANSFORM),
      policy_logits=jnp.where(logits > 0, 0.0, -1e9),
    )

  def root(params, net_state, stacked, is_training):
    board = stacked[..., :4]
    return output(board, jnp.zeros(len(board))), net_state

  def recurrent(params, net_state, board, action, is_training):
    after = step(board, action)
    return output(after, reward_of_win * scores(after)[0]), net_state

  return model_of(10, root, recurrent, TRANSFORM)


def errors_of(rules, model):
  return model_errors(rules, model, ({}, {}), rules.spec, 1, 60)


@pytest.mark.slow
def test_a_model_that_is_the_rules_has_no_error(rules):
  found = errors_of(rules, board_model(place))
  assert found["positions"] == 60 < found["moves"]
  assert found["q_spread"] > 0.1
  assert found["q_error"] == pytest.approx(0, abs=1e-3)
  assert found["q_correlation"] == pytest.approx(1, abs=1e-4)
  assert found["legal_share_model"] == found["legal_share_network"] == pytest.approx(1, abs=1e-6)


@pytest.mark.slow
def test_a_model_that_expects_no_reward_errs_where_the_game_can_be_won(rules):
  found = errors_of(rules, board_model(place, reward_of_win=0.0))
  assert 0 < found["q_error"] < found["q_spread"]
  assert 0 < found["q_correlation"] < 1


@pytest.mark.slow
def test_a_model_that_ignores_the_action_gives_all_moves_one_value(rules):
  found = errors_of(rules, board_model(lambda board, action: board))
  assert found["q_error"] == pytest.approx(found["q_spread"], abs=1e-6)
  assert found["q_correlation"] == pytest.approx(0, abs=1e-6)
  # The taken cell looks free, so its share of the policy is lost.
  assert 0.5 < found["legal_share_model"] < found["legal_share_network"] == pytest.approx(1, abs=1e-6)


@pytest.mark.slow
def test_equal_seeds_give_equal_errors(rules):
  assert errors_of(rules, board_model(place)) == errors_of(rules, board_model(place))


@pytest.mark.parametrize(
  ("overrides", "message"),
  [
    (("env.name=open_spiel:kuhn_poker",), "must have neither chance nor hidden information"),
    pytest.param(
      ("env.name=open_spiel:tic_tac_toe", "algorithm=alphazero", "targets.unroll_steps=0"),
      "algorithm=alphazero has no model",
      marks=pytest.mark.slow,
    ),
  ],
)
def test_runs_without_a_model_of_a_board_game_are_refused(tmp_path, capsys, overrides, message):
  assert model_error.main([str(make_run(tmp_path, "run", *overrides))]) == 2
  assert message in capsys.readouterr().err


@pytest.mark.slow
def test_zoo_agent(capsys):
  assert model_error.main(["zoo:boards/tic_tac_toe", "--positions", "40"]) == 0
  found = json.loads(capsys.readouterr().out)
  assert found["positions"] == 40
  assert found["q_error"] < found["q_spread"]
  assert 0.5 < found["q_correlation"] <= 1
