"""Tests of pgx games: the contract, players and rewards, frames."""

import itertools
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.envs import registry
from moozi.envs.jax.adapters import JaxVectorEnvironment
from moozi.envs.suites import pgx as pgx_suite
from tests.envs.contract import (
  EnvironmentContract,
  IllegalActionsContract,
  TwoPlayersContract,
  check_vector,
)
from tests.envs.environments import need

need("pgx")

# Games that take minutes to compile.
LARGE = {"chess", "shogi", "gardner_chess", "animal_shogi", "go_19x19", "go_9x9"}
GAMES = sorted(pgx_suite.GAMES)


ONE_PLAYER = {"2048", *(game for game in GAMES if game.startswith("minatar-"))}


class OfGame:
  num_steps = 60

  @pytest.fixture(autouse=True)
  def _set_game(self, request):
    self.game = request.param

  def make(self):
    return registry.make(f"pgx:{self.game}", seed=0, max_episode_steps=50)


@pytest.mark.slow
@pytest.mark.parametrize("_set_game", sorted(ONE_PLAYER - {"2048"}), indirect=True)
class TestMinAtarGames(OfGame, EnvironmentContract):
  pass


@pytest.mark.slow
@pytest.mark.parametrize("_set_game", ["2048"], indirect=True)
class Test2048(OfGame, IllegalActionsContract):
  pass


@pytest.mark.slow
@pytest.mark.parametrize(
  "_set_game", sorted(set(GAMES) - LARGE - ONE_PLAYER - {"connect_four", "kuhn_poker"}), indirect=True
)
class TestBoardGames(OfGame, TwoPlayersContract, IllegalActionsContract):
  pass


@pytest.mark.slow
@pytest.mark.parametrize("_set_game", ["connect_four"], indirect=True)
class TestConnectFour(OfGame, TwoPlayersContract, IllegalActionsContract):
  num_steps = 600  # enough for random play to fill a column


@pytest.mark.slow
@pytest.mark.parametrize("_set_game", ["kuhn_poker"], indirect=True)
class TestKuhnPoker(OfGame, TwoPlayersContract):
  pass


@pytest.mark.slow
@pytest.mark.parametrize("game", sorted(LARGE))
def test_large_games_keep_the_vector_contract(game):
  check_vector(lambda: JaxVectorEnvironment(registry.make_jax_env(f"pgx:{game}"), [0, 1]), 40)


def test_every_game_is_offered_or_refused():
  import pgx

  known = set(pgx.available_envs()) | set(typing.get_args(pgx.EnvId))
  assert known <= set(pgx_suite.GAMES) | set(pgx_suite.REFUSED)
  assert not set(pgx_suite.GAMES) & set(pgx_suite.REFUSED)


def play_at_random(game, num_steps, batch=32, seed=0):
  """Plays `batch` games at random; returns pgx's T + 1 states and the T rewards, which are 0 after an end."""
  env = registry.make_jax_env(f"pgx:{game}").rules
  random = np.random.default_rng(seed)
  init, step = jax.jit(jax.vmap(env.init)), jax.jit(jax.vmap(env.step))
  state = init(jax.random.split(jax.random.PRNGKey(seed), batch))
  states, rewards, ended = [jax.device_get(state)], [], np.zeros(batch, bool)
  for i in range(num_steps):
    mask = np.asarray(env.legal_actions_mask(state)) | ended[:, None]
    action = np.where(mask, random.random(mask.shape), -1.0).argmax(-1).astype(np.int32)
    state, reward, is_terminal, _ = step(state, action, jax.random.split(jax.random.PRNGKey(i), batch))
    rewards.append(np.where(ended, 0.0, reward))
    states.append(jax.device_get(state))
    ended = ended | np.asarray(is_terminal)
  return states, np.array(rewards)


@pytest.mark.parametrize(
  "game", [g if g == "kuhn_poker" else pytest.param(g, marks=pytest.mark.slow) for g in GAMES]
)
def test_game_keeps_its_dtypes(game):
  """Tracing a step raises if it turns, for example, an integer of the state into a float."""
  env = registry.make_jax_env(f"pgx:{game}")
  jax.eval_shape(lambda key: env.step(env.reset(key), jnp.int32(1)), jax.random.PRNGKey(0))


@pytest.mark.slow
@pytest.mark.parametrize("game", [game for game in GAMES if game not in ONE_PLAYER])
def test_players_alternate_and_the_mover_is_rewarded(game):
  """`JaxEnvironment` takes the player to move from the number of steps; pgx's states agree with it."""
  states, rewards = play_at_random(game, 60)
  first = states[0].current_player
  assert set(first.tolist()) == {0, 1}  # pgx chooses the first player at random
  num_paid = 0
  for t, (before, after) in enumerate(itertools.pairwise(states)):
    live = ~before.terminated
    mover = np.where(t % 2 == 0, first, 1 - first)
    np.testing.assert_array_equal(before.current_player[live], mover[live])
    rows = np.arange(len(mover))
    np.testing.assert_array_equal(rewards[t][live], after.rewards[rows, mover][live])
    np.testing.assert_array_equal(after.rewards.sum(-1), 0.0)
    assert (rewards[t][live & ~after.terminated] == 0).all()
    num_paid += int((rewards[t] != 0).sum())
  assert num_paid > 3 or game in LARGE | {"hex"}  # few of their games end within 60 steps


@pytest.mark.parametrize("game", ["tic_tac_toe", pytest.param("connect_four", marks=pytest.mark.slow)])
def test_frames_and_rewards_are_the_movers(game):
  env = JaxVectorEnvironment(registry.make_jax_env(f"pgx:{game}"), list(range(6)))
  assert env.spec.num_players == 2
  step = env.reset()
  assert step.frame.sum() == 0
  assert (step.to_play == 0).all()
  for i, action in enumerate((1, 2, 1, 2, 1) if game == "connect_four" else (1, 4, 2, 5, 3)):
    assert not step.is_last.any()
    step = env.step(np.full(6, action, np.int32))
    stones = step.frame.sum(axis=(1, 2))
    # Plane 0 has the pieces of the player to move, plane 1 those of the last mover.
    np.testing.assert_array_equal(stones, [[(i + 1) // 2, i // 2 + 1]] * 6)
    assert (step.to_play == (i + 1) % 2).all()
  if game == "connect_four":
    assert not step.is_last.any()
    step = env.step(np.full(6, 2, np.int32))
    step = env.step(np.full(6, 1, np.int32))
  assert (step.last_reward == 1.0).all()
  assert (step.is_last & ~step.is_truncated).all()
  assert step.legal_actions_mask[:, 0].all()


def test_full_board_is_a_draw():
  env = JaxVectorEnvironment(registry.make_jax_env("pgx:tic_tac_toe"), list(range(6)))
  env.reset()
  for action in (1, 2, 3, 5, 4, 6, 8, 7, 9):
    step = env.step(np.full(6, action))
  assert step.is_last.all()
  assert not step.is_truncated.any()
  assert step.last_reward.tolist() == [0.0] * 6


def test_taken_squares_are_illegal():
  env = JaxVectorEnvironment(registry.make_jax_env("pgx:tic_tac_toe"), list(range(6)))
  env.reset()
  assert env.step(np.full(6, 5)).legal_actions_mask[0].tolist() == [False] + [True] * 4 + [False] + [True] * 4
  with pytest.raises(ValueError, match=r"actions\[0\]=5: cannot be played"):
    env.step(np.full(6, 5))


@pytest.mark.slow
@pytest.mark.parametrize(("game", "plane"), [("go_9x9", 16), ("hex", 2)])
def test_frame_shows_the_colour_where_rules_depend_on_it(game, plane):
  """In Go (komi) and Hex (sides to connect) the rules depend on the color, which has its own plane."""
  env = JaxVectorEnvironment(registry.make_jax_env(f"pgx:{game}"), [0, 1])
  step = env.reset()
  for i in range(4):
    assert (step.frame[..., plane] == bool(i % 2)).all()
    step = env.step(np.full(2, i + 1, np.int32))
