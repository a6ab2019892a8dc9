"""Tests of the true rules, against the environments' own steps."""

import numpy as np
import pytest

from moozi.core.errors import UserError
from moozi.core.spec import DUMMY_ACTION
from moozi.envs import registry
from moozi.envs.environment import stack_positions
from moozi.envs.jax.adapters import JaxVectorEnvironment
from moozi.envs.table import EnvironmentTable
from moozi.envs.true_rules import CompiledRules, HostRules
from moozi.envs.vector import make_vector
from moozi.envs.wrappers import RandomStarts, StepCap
from tests.envs.lock import make_jax_lock
from tests.fast_jit import fast_jit

pytest.importorskip("pyspiel")
NIM = "open_spiel:nim(pile_sizes=2;3)"
LOCK = "tests.envs.lock:make_lock"
LANES, STEPS = 6, 40


def host_step(rules):
  """Returns the callback of HostRules: (position, action, is_over) → (frame, legal, reward, is_over)."""
  return rules._play


def compiled_step(rules):
  def step(*args):
    out = rules.step(*args)
    return out.frame, out.legal_actions_mask, out.reward, out.is_over

  return fast_jit(step)


def drawn(spec, mask, random):
  """Returns a random legal action; where only the dummy is legal, the dummy."""
  if spec.is_factored and not mask[DUMMY_ACTION]:
    return random.integers(1, spec.num_actions)
  return random.choice(np.flatnonzero(mask))


def check_step(name, step_of, num_steps=STEPS, **kwargs):
  """Plays at random in several lanes; compares the rules' outcomes with the environment's next steps."""
  rules = registry.true_rules(name, **kwargs)
  check_vector(make_vector(name, kwargs, LANES, seed=0), step_of(rules), num_steps)


def check_vector(env, step_rules, num_steps=STEPS):
  random, now, num_ends = np.random.default_rng(0), env.reset(), 0
  for _ in range(num_steps):
    action = np.array([drawn(env.spec, row, random) for row in now.legal_actions_mask], np.int32)
    is_over = now.is_last & ~now.is_truncated
    found = step_rules(env.positions(), action, is_over)
    frame, legal, reward, has_ended = (np.asarray(x) for x in found)
    now = env.step(action)
    played = ~is_over & ~now.is_first
    assert has_ended[is_over].all()
    assert (reward[is_over] == 0).all()
    np.testing.assert_array_equal(frame[played], now.frame[played])
    np.testing.assert_array_equal(reward[played], now.last_reward[played])
    is_terminal = now.is_last & ~now.is_truncated
    np.testing.assert_array_equal(has_ended[played], is_terminal[played])
    live = played & ~is_terminal
    np.testing.assert_array_equal(legal[live], now.legal_actions_mask[live])
    assert not legal[is_over | (played & is_terminal)].any()
    num_ends += int(is_terminal.sum())
  assert num_ends > 2


@pytest.mark.parametrize("name", ["open_spiel:tic_tac_toe", NIM, LOCK])
def test_host_rules_equal_the_environment(name):
  check_step(name, host_step)


@pytest.mark.parametrize("known", [1, 4])
def test_forgotten_positions_are_replayed(monkeypatch, known):
  monkeypatch.setattr(HostRules, "_MAX_KNOWN", known)
  check_step("open_spiel:tic_tac_toe", host_step)


@pytest.mark.slow
@pytest.mark.parametrize(
  "name", ["open_spiel:connect_four", "open_spiel:small_othello(size=6)", "open_spiel:go(board_size=5)"]
)
def test_host_rules_equal_larger_games(name):
  check_step(name, host_step, 260)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pgx:tic_tac_toe", "pgx:connect_four", "pgx:othello", "pgx:hex"])
def test_compiled_rules_equal_the_environment(name):
  pytest.importorskip("pgx")
  check_step(name, compiled_step, 260)


def test_compiled_rules_of_joint_actions():
  env = make_jax_lock()
  check_vector(JaxVectorEnvironment(env, list(range(LANES))), compiled_step(CompiledRules(env)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["open_spiel:tic_tac_toe", "pgx:tic_tac_toe"])
def test_step_caps_are_no_ends(name):
  check_step(name, compiled_step, max_episode_steps=7)


@pytest.mark.parametrize(
  "name", ["open_spiel:tic_tac_toe", pytest.param("pgx:tic_tac_toe", marks=pytest.mark.slow)]
)
def test_actions_that_are_not_played(name):
  """The dummy, an illegal action and an action after an end lead to an end with reward 0."""
  rules, env = registry.true_rules(name), registry.make(name, seed=0)
  env.reset()
  env.step(4)
  step = host_step(rules) if isinstance(rules, HostRules) else compiled_step(rules)
  position = stack_positions([env.position()] * 4)
  action, is_over = np.array([DUMMY_ACTION, 1 + 4, 1, 1], np.int32), np.array([False, False, True, False])
  _, legal, reward, has_ended = (np.asarray(x) for x in step(position, action, is_over))
  assert has_ended.tolist() == [True, True, True, False]
  assert reward.tolist() == [0, 0, 0, 0]
  assert legal.sum(axis=-1).tolist() == [0, 0, 0, 7]


def test_the_dummy_is_not_played_where_joint_actions_have_no_entries():
  env, compiled = registry.make(LOCK, seed=0), make_jax_lock()
  env.reset()
  state = JaxVectorEnvironment(compiled, [0, 0])
  state.reset()
  host, moves = host_step(registry.true_rules(LOCK)), stack_positions([env.position()] * 2)
  action, is_over = np.array([DUMMY_ACTION, 21], np.int32), np.zeros(2, bool)
  for step, position in ((host, moves), (compiled_step(CompiledRules(compiled)), state.positions())):
    _, legal, reward, has_ended = (np.asarray(x) for x in step(position, action, is_over))
    assert has_ended.tolist() == [True, False]
    assert reward.tolist() == [0, 0]
    assert legal.sum(axis=-1).tolist() == [0, 12]


def test_position_of_wrapped_environments_and_tables():
  """A position includes random starts, and continues after a copy."""
  env = StepCap(RandomStarts(registry.make("open_spiel:tic_tac_toe", seed=3), 4), 3)
  env.seed(3)
  step = env.reset()
  moves = env.position()
  assert moves.shape == (9,)
  played = moves[moves >= 0]
  assert len(played) == 9 - step.observation.legal_actions_mask.sum()
  copy = env.clone()
  action = int(np.flatnonzero(step.observation.legal_actions_mask)[0])
  after = copy.step(action).observation
  np.testing.assert_array_equal(env.position(), moves)
  np.testing.assert_array_equal(env.step(action).observation.frame, after.frame)
  for other in (copy, env.clone()):
    np.testing.assert_array_equal(other.position(), env.position())
  table, other = registry.make_table("open_spiel:tic_tac_toe"), EnvironmentTable(registry.make(NIM, seed=0))
  table.reset(0)
  other.reset(0)
  for seat in (table, other):
    seat.step(3)
    assert seat.position()[:2].tolist() == [3, -1]


@pytest.mark.parametrize(
  ("name", "kwargs", "message"),
  [
    ("open_spiel:kuhn_poker", {}, "players have hidden information; use muzero"),
    ("open_spiel:pig", {"seat": 0}, "set env.kwargs.seat=all"),
    ("open_spiel:2048", {}, "has chance, or its environment lacks `clone`"),
    ("tiny:catch", {}, "has chance, or its environment lacks `clone`"),
    pytest.param("pgx:2048", {}, "this game has chance", marks=pytest.mark.slow),
    pytest.param("gymnax:CartPole-v1", {}, "this game has chance", marks=pytest.mark.slow),
  ],
)
def test_other_environments_are_refused(name, kwargs, message):
  if name.startswith(("pgx", "gymnax")):
    pytest.importorskip(name.partition(":")[0])
  with pytest.raises(UserError, match=f"algorithm=alphazero.*{message}") as caught:
    registry.true_rules(name, **kwargs)
  assert "\n" not in str(caught.value)
