"""Tests of the search: against an oracle, on games with one right answer, and in edge cases."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pydantic import ValidationError

from moozi.agent.planner import plan
from moozi.core.config import PlannerConfig
from tests.agent import puct_oracle
from tests.agent.tiny import one_hot_roots, random_tables, table_model
from tests.fast_jit import fast_jit

N, A = 6, 4
GAMMA = 0.9
PUCT = PlannerConfig(algorithm="puct", num_simulations=12, pb_c_init=1.25)
GUMBEL = PlannerConfig(algorithm="gumbel", num_simulations=12)
GUMBEL_OF_TWO = GUMBEL.model_copy(update={"max_num_considered_actions": 2})


# These options are arguments of the compiled search, so they can change without a recompilation.
TRACED = ("q_range_floor", "dirichlet_fraction", "gumbel_scale", "root_prior_temperature")


@functools.cache
def compiled_search(config, num_players):
  model = table_model(A)

  def search(traced, tables, key, history, legal, temperature):
    traced_config = config.model_copy(update=traced)
    return plan(
      model, traced_config, GAMMA, num_players, tables, {}, key, history, legal, temperature, with_tree=True
    )

  return fast_jit(search)


def run(config, tables, roots, legal, seed=0, temperature=1.0, num_players=1):
  """Runs one search from each root with `temperature` instead of `config.temperature`; returns its output."""
  traced = {name: np.float32(getattr(config, name)) for name in TRACED}
  static_config = config.model_copy(update=dict.fromkeys((*TRACED, "temperature"), 0.0))
  history = one_hot_roots(roots, len(tables["value"]))
  search = compiled_search(static_config, num_players)
  output = search(traced, tables, jax.random.PRNGKey(seed), history, np.asarray(legal, bool), temperature)
  return jax.device_get(output)


LEGAL = np.array([[0, 1, 1, 1], [0, 1, 0, 1], [1, 1, 1, 1], [1, 0, 0, 0]], bool)
ROOTS = [0, 1, 2, 3]


@pytest.mark.parametrize(
  ("num_players", "floor"),
  [
    (2, 0.5),
    *(pytest.param(*other, marks=pytest.mark.slow) for other in [(1, 1e-8), (1, 0.5), (2, 1e-8)]),
  ],
)
def test_puct_equals_oracle(num_players, floor):
  config = PUCT.model_copy(update={"q_range_floor": floor})
  discount = GAMMA if num_players == 1 else -GAMMA
  for seed in range(8):
    tables = random_tables(np.random.default_rng(seed), N, A)
    output = run(config, tables, ROOTS, LEGAL, seed, num_players=num_players)
    for b, state in enumerate(ROOTS):
      root = puct_oracle.search(tables, state, LEGAL[b], 12, discount, 1.25, 19652.0, floor)
      want = [root.child_visits.get(a, 0) / 12 for a in range(A)]
      np.testing.assert_allclose(output.action_probs[b], want, atol=1e-6)
      assert output.root_value[b] == pytest.approx(root.value, abs=1e-3)


@pytest.mark.parametrize(
  "config", [pytest.param(PUCT, marks=pytest.mark.slow, id="puct"), pytest.param(GUMBEL, id="gumbel")]
)
def test_illegal_actions_have_probability_zero(config):
  config = config.model_copy(update={"dirichlet_fraction": 0.25 if config.algorithm == "puct" else 0.0})
  for seed in range(5):
    tables = random_tables(np.random.default_rng(seed), N, A)
    tables["logits"][:, 0] += 20  # the network prefers an illegal action
    output = run(config, tables, ROOTS, LEGAL, seed, num_players=2)
    probs, prior = np.asarray(output.action_probs), np.asarray(output.prior_probs)
    assert np.all(probs[~LEGAL] == 0)
    assert np.all(prior[~LEGAL] == 0)
    np.testing.assert_allclose(probs.sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(prior.sum(-1), 1, rtol=1e-5)
    assert np.all(LEGAL[np.arange(4), np.asarray(output.action)])
    assert output.action.dtype == jnp.int32


@pytest.mark.slow
@pytest.mark.parametrize(
  ("config", "root_value"),
  [
    pytest.param(PUCT, "mean", id="puct-mean"),
    pytest.param(PUCT, "improved", id="puct-improved"),
    pytest.param(GUMBEL_OF_TWO, "improved", id="gumbel-improved"),
  ],
)
def test_only_dummy_legal(config, root_value):
  config = config.model_copy(update={"root_value": root_value})
  tables = random_tables(np.random.default_rng(0), N, A)
  tables["logits"][:, 0] -= 50
  legal = np.zeros((4, A), bool)
  legal[:, 0] = True
  for temperature in (0.0, 1.0):
    output = run(config, tables, ROOTS, legal, temperature=temperature)
    np.testing.assert_array_equal(output.action, np.zeros(4))
    np.testing.assert_array_equal(output.action_probs, legal.astype(np.float32))
    for leaf in (output.root_value, output.q_values, output.prior_probs, output.prior_value):
      assert np.isfinite(leaf).all()


def two_ply_game():
  """Returns tables of a game: after action 1 in state 0 the opponent can win; action 2 is a draw."""
  tables = {
    "next_state": np.full((N, A), 3, np.int32),
    "reward": np.zeros((N, A), np.float32),
    "value": np.zeros(N, np.float32),
    "logits": np.zeros((N, A), np.float32),
  }
  tables["next_state"][0, 1:3] = [1, 2]
  tables["reward"][1, 1] = 1.0
  return tables


TWO_PLY = [[False, True, True, False]] * 4


@pytest.mark.parametrize(
  "config",
  [pytest.param(PUCT, marks=pytest.mark.slow, id="puct"), pytest.param(GUMBEL.noise_free(), id="gumbel")],
)
def test_two_ply_game(config):
  right = run(config, two_ply_game(), [0] * 4, TWO_PLY, temperature=0.0, num_players=2)
  assert int(right.action[0]) == 2
  assert right.action_probs[0, 2] > right.action_probs[0, 1]
  assert right.q_values[0, 1] < -0.1
  assert right.q_values[0, 2] > -0.1


@pytest.mark.slow
@pytest.mark.parametrize("config", [PUCT, GUMBEL.noise_free()], ids=["puct", "gumbel"])
def test_without_a_sign_change_the_opponents_win_counts_as_the_agents(config):
  wrong = run(config, two_ply_game(), [0] * 4, TWO_PLY, temperature=0.0, num_players=1)
  assert int(wrong.action[0]) == 1


def tables_of_equal_values(noise=1e-4):
  rng = np.random.default_rng(0)
  tables = random_tables(rng, N, A)
  tables["reward"] = (noise * rng.normal(size=(N, A))).astype(np.float32)
  tables["value"] = (noise * rng.normal(size=N)).astype(np.float32)
  tables["logits"] *= 0.5
  return tables


@pytest.mark.slow
@pytest.mark.parametrize(
  "config",
  [
    pytest.param(PUCT.noise_free(64), id="puct"),
    pytest.param(GUMBEL.noise_free(64), id="gumbel"),
  ],
)
def test_q_range_floor_suppresses_noise(config):
  legal = np.ones((4, A), bool)
  distance = {}
  for floor in (1e-8, 0.1):
    output = run(config.model_copy(update={"q_range_floor": floor}), tables_of_equal_values(), ROOTS, legal)
    distance[floor] = float(np.abs(output.action_probs - output.prior_probs).max())
  assert distance[0.1] < 0.03
  assert distance[1e-8] > 0.15


@pytest.mark.slow
@pytest.mark.parametrize("config", [PUCT, GUMBEL.noise_free()], ids=["puct", "gumbel"])
def test_root_prior_temperature_divides_the_logits(config):
  config = config.model_copy(update={"q_range_floor": 0.5})
  states = [0, 0, 0, 0]
  tables = tables_of_equal_values()
  tables["next_state"] = np.maximum(tables["next_state"], 1)  # the search does not return to the root's state
  divided = {**tables, "logits": tables["logits"].copy()}
  divided["logits"][0] /= 3
  warm = run(config.model_copy(update={"root_prior_temperature": 3.0}), tables, states, LEGAL)
  want = run(config, divided, states, LEGAL)
  for name in ("action", "action_probs", "root_value", "q_values"):
    np.testing.assert_allclose(getattr(warm, name), getattr(want, name), atol=1e-6)
  plain = run(config, tables, states, LEGAL)
  np.testing.assert_array_equal(warm.prior_probs, plain.prior_probs)
  assert np.abs(warm.action_probs - plain.action_probs).max() > 0.02


@pytest.mark.parametrize("temperature", [1.0, 1.5])
def test_a_certain_prior_is_forgotten_unless_the_search_confirms_it(temperature):
  config = GUMBEL.noise_free().model_copy(update={"root_prior_temperature": temperature})
  tables = tables_of_equal_values(noise=0.0)
  log_odds = 6.0
  for _ in range(12):
    tables["logits"][:] = [log_odds, 0.0, 0.0, 0.0]
    output = run(config, tables, [0] * 4, np.ones((4, A), bool), num_players=2)
    probs = np.asarray(output.action_probs[0])
    log_odds = float(np.log(probs[0] / probs[1]))
  assert log_odds == pytest.approx(6.0 / temperature**12, abs=1e-3)


def test_gumbel_ignores_dirichlet_noise():
  with pytest.raises(ValidationError, match="dirichlet_fraction"):
    PlannerConfig(algorithm="gumbel", dirichlet_fraction=0.25)
  tables = random_tables(np.random.default_rng(0), N, A)
  unchecked = GUMBEL.model_copy(update={"dirichlet_fraction": 0.9})
  a, b = (run(config, tables, ROOTS, LEGAL, num_players=2) for config in (GUMBEL, unchecked))
  np.testing.assert_array_equal(a.action_probs, b.action_probs)


@pytest.mark.parametrize(
  "config",
  [
    pytest.param(PUCT.noise_free(), id="puct", marks=pytest.mark.slow),
    pytest.param(GUMBEL.noise_free(), id="gumbel"),
  ],
)
def test_noise_free_search_ignores_key(config):
  tables = random_tables(np.random.default_rng(3), N, A)
  first = run(config, tables, ROOTS, LEGAL, seed=0, temperature=0.0, num_players=2)
  visits = np.asarray(first.tree.children_visits[:, 0])
  np.testing.assert_array_equal(visits[np.arange(4), np.asarray(first.action)], visits.max(-1))
  for seed in range(1, 6):
    other = run(config, tables, ROOTS, LEGAL, seed=seed, temperature=0.0, num_players=2)
    np.testing.assert_array_equal(first.action, other.action)
    np.testing.assert_array_equal(first.action_probs, other.action_probs)


@pytest.mark.slow
def test_random_actions_change_only_the_action():
  tables = random_tables(np.random.default_rng(3), N, A)
  greedy = run(GUMBEL.noise_free(), tables, ROOTS, LEGAL)
  config = GUMBEL.noise_free().model_copy(update={"random_action_prob": 0.5})
  outputs = [run(config, tables, ROOTS, LEGAL, seed=s) for s in range(200)]
  actions = np.stack([output.action for output in outputs])
  for output in outputs:
    np.testing.assert_array_equal(output.action_probs, greedy.action_probs)
  for lane, legal in enumerate(LEGAL):
    share = np.bincount(actions[:, lane], minlength=A) / len(actions)
    expected = 0.5 * legal / legal.sum()
    expected[int(greedy.action[lane])] += 0.5
    # four standard errors with 200 draws
    np.testing.assert_allclose(share, expected, atol=0.142)
    assert (share[~legal] == 0).all()
  assert config.noise_free().random_action_prob == 0


def test_temperature_changes_only_the_action():
  tables = random_tables(np.random.default_rng(3), N, A)
  tables["logits"] *= 0.2
  expected = run(PUCT, tables, ROOTS, LEGAL, num_players=2).action_probs
  for temperature in (0.0, 1.0, 3.0):
    outputs = [run(PUCT, tables, ROOTS, LEGAL, s, temperature, num_players=2) for s in range(12)]
    for output in outputs:
      np.testing.assert_array_equal(output.action_probs, expected)
    assert (len({int(output.action[0]) for output in outputs}) == 1) == (temperature == 0.0)


def test_a_high_temperature_draws_no_illegal_action():
  tables = random_tables(np.random.default_rng(3), N, A)
  for seed in range(12):
    action = np.asarray(run(PUCT, tables, ROOTS, LEGAL, seed, 1000.0, num_players=2).action)
    assert LEGAL[np.arange(4), action].all()


@pytest.mark.slow
def test_noise_changes_target_and_temperature_only_action():
  tables = random_tables(np.random.default_rng(3), N, A)
  tables["logits"] *= 0.2
  noisy = PUCT.model_copy(update={"dirichlet_fraction": 0.5})
  targets = {np.asarray(run(noisy, tables, ROOTS, LEGAL, seed=s).action_probs).tobytes() for s in range(5)}
  assert len(targets) > 1
  outputs = [run(PUCT, tables, ROOTS, LEGAL, seed=s, temperature=np.float32([1, 1, 0, 0])) for s in range(12)]
  actions = np.stack([o.action for o in outputs])
  assert len(set(actions[:, 0])) > 1
  assert len(set(actions[:, 2])) == 1
  for output in outputs:
    np.testing.assert_array_equal(output.action_probs, outputs[0].action_probs)
  gumbel = {int(run(GUMBEL, tables, ROOTS, LEGAL, seed=s).action[0]) for s in range(12)}
  assert len(gumbel) > 1


@pytest.mark.parametrize(
  ("config", "root_value"),
  [
    pytest.param(PUCT, "mean", id="puct-mean"),
    pytest.param(GUMBEL.noise_free(), "improved", id="gumbel-improved"),
    pytest.param(PUCT, "improved", marks=pytest.mark.slow, id="puct-improved"),
    pytest.param(GUMBEL.noise_free(3), "mean", marks=pytest.mark.slow, id="gumbel-mean"),
  ],
)
def test_root_value_by_hand(config, root_value):
  config = config.model_copy(update={"root_value": root_value})
  tables = random_tables(np.random.default_rng(4), N, A)
  output = run(config, tables, ROOTS, LEGAL, num_players=2)
  for b in range(4):
    tree = jax.tree_util.tree_map(lambda x, b=b: np.asarray(x)[b], output.tree)
    visits, prior = tree.children_visits[0], np.asarray(output.prior_probs[b])
    q = tree.children_rewards[0] + tree.children_discounts[0] * tree.children_values[0]
    seen = visits > 0
    mixed = (output.prior_value[b] + visits.sum() * (prior * q)[seen].sum() / prior[seen].sum()) / (
      1 + visits.sum()
    )
    completed = np.where(seen, q, mixed)
    np.testing.assert_allclose(output.q_values[b], completed, atol=1e-4)
    total = output.prior_value[b] + (visits * q).sum()
    means = {
      "improved": (float((output.action_probs[b] * completed).sum()), 1e-4),
      "mean": (float(total / (1 + visits.sum())), 2e-3),
    }
    want, tolerance = means[root_value]
    assert output.root_value[b] == pytest.approx(want, abs=tolerance)
    assert output.prior_value[b] == pytest.approx(float(tables["value"][ROOTS[b]]), abs=1e-4)


def test_tree_is_optional():
  tables = random_tables(np.random.default_rng(0), N, A)
  history = one_hot_roots(ROOTS, N)
  args = (tables, {}, jax.random.PRNGKey(0), history, LEGAL, 1.0)
  out = jax.eval_shape(lambda *a: plan(table_model(A), PUCT, GAMMA, 1, *a), *args)
  assert out.tree is None
  assert run(PUCT, tables, ROOTS, LEGAL, num_players=2).tree.node_visits.shape == (4, 13)
