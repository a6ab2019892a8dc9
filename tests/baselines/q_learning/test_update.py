"""Tests of the targets, against values by hand, and of the network's loss, against a slow implementation."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.agent.update import TrainingState, make_optimizer
from moozi.baselines.q_learning.hash_table import cells_of, empty_table, keys_of, values_at
from moozi.baselines.q_learning.update import QBatch, init_state, make_loss, make_update, sample
from moozi.baselines.q_learning.values import QFunction, make_q_function, make_q_learning
from moozi.core.config import Config
from moozi.core.pytree import map_fields, replace
from moozi.envs.vector import blank_step
from moozi.io.config import load_config
from tests.baselines.q_learning.conftest import TABLE, TINY
from tests.envs.environments import NIM_SPEC
from tests.fast_jit import fast_jit
from tests.replay.replay_lanes import make_buffer, make_spec, random_lanes, segment_of

ALL = (False, True, True)  # the dummy is never legal on a live frame
DUMMY = (True, False, False)
LEFT, RIGHT = 1, 2
END = 9


def configure(*overrides: str) -> Config:
  return load_config(None, [*TINY, *overrides])


def frame_of(state: int) -> np.ndarray:
  return np.full((1, 1, 1, 1), state, np.float32)


def batch_of(*steps: tuple) -> QBatch:
  """Returns a batch of (state, action, reward, bootstrap, next state, next legal actions)."""
  state, action, reward, bootstrap, following, legal = zip(*steps, strict=True)
  size, zeros = len(steps), np.zeros(len(steps), np.int32)
  return QBatch(
    frames=np.stack([frame_of(s) for s in state]),
    legal_actions_mask=np.array([ALL] * size),
    action=np.array(action, np.int32),
    reward=np.array(reward, np.float32),
    bootstrap=np.array(bootstrap, np.float32),
    next_frames=np.stack([frame_of(s) for s in following]),
    next_legal_actions_mask=np.array(legal),
    is_live=np.ones(size, bool),
    importance_ratio=np.ones(size, np.float32),
    slot=zeros.astype(np.int64),
    sequence=zeros.astype(np.int64),
    acted_version=zeros,
    searched_version=zeros,
  )


VALUES = fast_jit(lambda table, frames, legal: values_at(table, cells_of(table, keys_of(frames, legal))))
TABLE_64 = QFunction(lambda key: empty_table(64, 3), VALUES)


@functools.cache
def compiled_update(step_size: float):
  return fast_jit(make_update(TABLE_64, configure(TABLE, f"q_learning.step_size={step_size}")))


class Learned:
  """A table in which each step of a batch is learned in order, with γ in the bootstrap."""

  def __init__(self, step_size: float = 0.5) -> None:
    self._update = compiled_update(step_size)
    self.state = init_state(TABLE_64, configure(TABLE), NIM_SPEC, jax.random.PRNGKey(0))

  def learn(self, *steps: tuple, legal=ALL, is_live: bool = True):
    # Steps that are not live fill the batch, so that all tests share a compiled update.
    batch = batch_of(*steps, *[(0, LEFT, 0, 0.0, END, DUMMY)] * (4 - len(steps)))
    live = is_live & (np.arange(4) < len(steps))
    batch = replace(batch, is_live=live, legal_actions_mask=np.array([legal] * 4))
    self.state, output = self._update(self.state, batch)
    return output

  def value(self, state: int, action: int, legal=ALL) -> float:
    return float(VALUES(self.state.params, frame_of(state)[None], np.array([legal]))[0, action])


# --- table --------------------------------------------------------------------------------------------


def test_watkins_on_a_corridor_by_hand():
  """Cells 0, 1, 2; a step to the right from cell 2 ends the episode with reward 1. γ = ½, α = max(½, 1/n)."""
  table = Learned()
  right = [(0, RIGHT, 0, 0.5, 1, ALL), (1, RIGHT, 0, 0.5, 2, ALL), (2, RIGHT, 1, 0.0, END, DUMMY)]
  output = table.learn(*right)
  assert [table.value(s, RIGHT) for s in range(3)] == [0, 0, 1]
  np.testing.assert_allclose(output.value_error[:3], [0, 0, 1])
  table.learn(*right)
  assert [table.value(s, RIGHT) for s in range(3)] == [0, 0.25, 1]  # ½ (0 + ½ · 1)
  table.learn(*right)
  # Q(0) = ½ · ½ · 0.25, because the batch's first step sees the value of cell 1 before its update.
  assert [table.value(s, RIGHT) for s in range(3)] == [0.0625, 0.375, 1]
  table.learn(*reversed(right))
  # In this order each step sees the update of the next cell:
  # Q(1) = ½ (0.375 + ½ · 1), Q(0) = ½ (0.0625 + ½ Q(1)).
  assert [table.value(s, RIGHT) for s in range(3)] == [0.140625, 0.4375, 1]
  # A step back to cell 0 has the target γ · max Q(0) = 0.0703125, the first of this action.
  table.learn((1, LEFT, 0, 0.5, 0, ALL))
  assert table.value(1, LEFT) == 0.0703125
  assert table.value(1, RIGHT) == 0.4375
  assert int(table.state.learner_step) == 5


def test_the_others_best_move_is_this_players_loss():
  """The second player can win 1 (right) or lose 1 (left), so every first move is worth -1."""
  table = Learned(step_size=1.0)
  second = [(1, LEFT, -1, 0.0, END, DUMMY), (1, RIGHT, 1, 0.0, END, DUMMY)]
  table.learn(*second, (0, LEFT, 0, -1.0, 1, ALL))
  assert table.value(1, RIGHT) == 1
  assert table.value(0, LEFT) == -1


def test_target_is_over_legal_actions():
  table = Learned(step_size=1.0)
  only_left = (False, True, False)
  table.learn((5, RIGHT, 7, 0.0, END, DUMMY), (5, LEFT, 2, 0.0, END, DUMMY))
  # The same frame with other legal actions is another entry.
  assert (table.value(5, RIGHT), table.value(5, LEFT, only_left)) == (7, 0)
  # An illegal action with a high value has no effect.
  table.learn((6, RIGHT, 7, 0.0, END, DUMMY), (6, LEFT, 2, 0.0, END, DUMMY), legal=only_left)
  table.learn((4, LEFT, 0, 1.0, 6, only_left))
  assert table.value(4, LEFT) == 2


def test_terminal_target_is_the_reward():
  table = Learned(step_size=1.0)
  table.learn((END, LEFT, 5, 0.0, END, DUMMY))
  table.learn((3, LEFT, -2, 0.0, END, ALL))
  assert table.value(3, LEFT) == -2


def test_steps_at_an_end_are_not_learned():
  table = Learned()
  output = table.learn((0, LEFT, 3, 0.0, END, DUMMY), is_live=False)
  assert table.value(0, LEFT) == 0
  assert output.metrics["q_learning/table_fill"] == output.metrics["q_learning/live_share"] == 0
  assert not output.value_error.any()  # prioritized sampling must not prefer them
  assert table.learn((0, LEFT, 3, 0.0, END, DUMMY)).metrics["q_learning/table_fill"] == 1 / 64


# --- agent --------------------------------------------------------------------------------------------

AGENT = make_q_learning(QFunction(lambda key: None, lambda params, frames, legal: params), NIM_SPEC, 1)
ACT = fast_jit(AGENT.act)


def decide(values, legal, epsilon: float, forced=()):
  """Returns the agent's decision; the batch is filled with copies of the rows, so that it compiles once."""
  size, width = len(values), 4000
  step = blank_step(NIM_SPEC, width)
  step.legal_actions_mask[:] = np.resize(legal, (width, 4))
  variables, key = (np.resize(np.float32(values), (width, 4)), {}), jax.random.PRNGKey(0)
  played = np.resize(np.array(forced or -1, np.int32), width)
  _, output = ACT(variables, AGENT.init(width), step, key, epsilon, played)
  return jax.tree_util.tree_map(lambda x: np.asarray(x)[:size], output)


def test_greedy_action_is_the_best_legal_one():
  legal = np.array([[False, True, False, True]] * 3)
  values = [[9, 1, 8, 2], [0, -5, 0, -6], [0, 3, 9, 3]]
  output = decide(values, legal, 0.0)
  assert output.action.tolist() == [3, 1, 1]
  assert output.root_value.tolist() == [2, -5, 3]
  np.testing.assert_array_equal(output.action_probs, np.eye(4)[output.action])
  assert decide(values, legal, 0.0, forced=[-1, 3, 1]).action.tolist() == [3, 3, 1]


def test_values_that_are_not_finite_are_not_preferred():
  legal = np.array([[False, True, True, True]] * 2)
  assert decide([[0, np.nan, 1, 0], [0, -1, np.inf, 2]], legal, 0.0).action.tolist() == [2, 3]
  output = decide([[0, -3, np.nan, -5], [0, np.nan, np.nan, -np.inf]], legal, 0.0)
  assert output.action.tolist() == [1, 1]
  assert output.root_value.tolist() == [-3, 0]


def test_random_actions_are_legal_and_uniform():
  legal = np.tile([[False, True, False, True]], (4000, 1))
  output = decide(np.tile([[9, 1, 8, 0]], (4000, 1)), legal, 0.4)
  counts = np.bincount(output.action, minlength=4) / 4000
  np.testing.assert_allclose(counts, [0, 0.8, 0, 0.2], atol=0.03)
  np.testing.assert_allclose(output.action_probs[0], [0, 0.8, 0, 0.2], rtol=1e-6)


# --- network ------------------------------------------------------------------------------------------

# The network's outputs are its params: a table of values for each of two kinds of frame.
TWO = QFunction(lambda key: None, lambda params, frames, legal: params[frames[:, 0, 0, 0, 0].astype(int)])


def slow_loss(params, target_params, batch: QBatch, double: bool, delta: float) -> tuple[float, list[float]]:
  losses, errors = [], []
  for i in range(len(batch.action)):
    now, then = int(batch.frames[i].flat[0]), int(batch.next_frames[i].flat[0])
    legal = np.flatnonzero(batch.next_legal_actions_mask[i])
    chooser = params if double else target_params
    best = max(legal, key=lambda a: chooser[then, a])
    target = batch.reward[i] + batch.bootstrap[i] * target_params[then, best]
    errors.append(target - params[now, batch.action[i]])
    size = abs(errors[-1])
    huber = 0.5 * size**2 if size <= delta else delta * (size - 0.5 * delta)
    if batch.is_live[i]:
      losses.append(batch.importance_ratio[i] * huber)
  return sum(losses) / len(losses), errors


@pytest.mark.parametrize(("double", "delta"), [(True, 1.0), (False, 0.5)])
def test_loss_equals_a_slow_one(double, delta):
  random = np.random.default_rng(3)
  params, target_params = random.normal(size=(2, 40, 3)).astype(np.float32) * 2
  legal = random.random((32, 3)) < 0.5
  legal[np.arange(32), random.integers(3, size=32)] = True
  steps = zip(
    *(random.integers(40, size=32), random.integers(3, size=32), random.normal(size=32)),
    *(random.choice([-0.9, 0.9, 0.0], 32), random.integers(40, size=32), legal),
    strict=True,
  )
  batch = replace(
    batch_of(*steps),
    is_live=random.random(32) < 0.8,
    importance_ratio=random.random(32).astype(np.float32),
  )
  config = configure(f"q_learning.double={double}", f"q_learning.huber_delta={delta}")
  loss = make_loss(TWO, config)
  (found, (errors, metrics)), grads = fast_jit(jax.value_and_grad(loss, has_aux=True))(
    params, target_params, batch
  )
  want, want_errors = slow_loss(params, target_params, batch, double, delta)
  assert found == pytest.approx(want, rel=1e-5)
  np.testing.assert_allclose(errors, want_errors, rtol=1e-4, atol=1e-5)
  assert metrics["loss/value"] == found
  # Only the values of the played actions have a gradient; the target has none.
  played = np.zeros((40, 3), bool)
  live = batch.is_live
  played[batch.frames[live].reshape(-1).astype(int), batch.action[live]] = True
  assert not np.asarray(grads)[~played].any()
  assert np.asarray(grads)[played].any()


def test_rate_by_time():
  rate = ("learner.learning_rate.kind=linear", "learner.learning_rate.peak=0.1")
  config = configure(*rate, "learner.learning_rate.decay_steps=progress", "max_wall_s=60")
  params = np.zeros((8, 3), np.float32)
  state = TrainingState(
    params=params,
    target_params=params,
    net_state={},
    opt_state=make_optimizer(config.learner).init(params),
    learner_step=np.int32(0),
    rng_key=jax.random.PRNGKey(0),
  )
  update, batch = fast_jit(make_update(TWO, config)), batch_of((0, RIGHT, 1.0, 0.5, 1, ALL))
  for time_share, expected in ((0, 0.1), (0.25, 0.075), (1, 0)):
    _, output = update(state, batch, np.float32(time_share))
    assert output.metrics["update/learning_rate"] == pytest.approx(expected, abs=1e-7)


@pytest.mark.slow
def test_dueling_subtracts_the_mean_of_legal_actions():
  plain, dueling = (
    make_q_function(configure(f"q_learning.dueling={on}", "q_learning.network.sharing=shared"), NIM_SPEC)
    for on in (False, True)
  )
  params = jax.tree_util.tree_map(lambda x: x + 0.1, plain.init(jax.random.PRNGKey(0)))
  frames, legal = (
    np.ones((2, 1, *NIM_SPEC.frame_shape), np.float32),
    np.array([[0, 1, 1, 0], [0, 1, 1, 1]], bool),
  )
  advantages, values = plain.apply(params, frames, legal), dueling.apply(params, frames, legal)
  for row, mask in enumerate(legal):
    of_legal = np.asarray(advantages)[row][mask]
    difference = np.asarray(values)[row][mask] - (of_legal - of_legal.mean())
    np.testing.assert_allclose(difference, difference[0], rtol=1e-5)  # the state's value
  assert np.asarray(values)[0][1] != np.asarray(values)[1][1]


# --- replay -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("players", "n_step"), [(1, 1), (2, 3)])
def test_sample_has_the_steps_that_returns_bootstrap_from(players, n_step):
  """R + bootstrap · ν of the next frame is the n-step return that replay makes with root values ν."""
  spec = make_spec(num_players=players)
  segment = segment_of(random_lanes(5, 2, 40, spec, 0.2), 0, 40, spec)
  bare = replace(segment, root_value=np.zeros_like(segment.root_value))
  buffers = [make_buffer(spec, n_step=n_step, history_length=2) for _ in range(2)]
  for buffer, steps in zip(buffers, (segment, bare), strict=True):
    buffer.add(steps, 0)
  with_roots = buffers[0].sample_many(2, 64)
  batch = sample(buffers[1], 2, 64)
  np.testing.assert_array_equal(with_roots.slot, batch.slot)
  storage = buffers[0].storage
  following, _ = storage.bootstraps(batch.slot.reshape(-1))
  root = storage.arrays["root_value"][following].reshape(2, 64)
  np.testing.assert_allclose(
    batch.reward + batch.bootstrap * root, with_roots.n_step_returns[..., 0], rtol=1e-4, atol=1e-5
  )
  lane, t = following // 40, following % 40
  newest = batch.next_frames.reshape(-1, 2, *spec.frame_shape)[:, 1]
  np.testing.assert_array_equal(newest, segment.frame[t, lane])
  live = batch.is_live.reshape(-1)
  np.testing.assert_array_equal(
    live, ~segment.is_last[batch.slot.reshape(-1) % 40, batch.slot.reshape(-1) // 40]
  )
  ahead = t - batch.slot.reshape(-1) % 40
  assert set(ahead[live].tolist()) == set(range(1, n_step + 1))
  is_terminal = (segment.is_last & ~segment.is_truncated)[t, lane]
  np.testing.assert_array_equal(batch.bootstrap.reshape(-1) == 0, is_terminal)
  assert is_terminal.any()
  assert (live & segment.is_truncated[t, lane]).any()
  np.testing.assert_array_equal(
    batch.next_legal_actions_mask.reshape(-1, spec.num_actions), segment.legal_actions_mask[t, lane]
  )
  first = map_fields(lambda x: x[0], batch)
  assert first.frames.shape == (64, 2, *spec.frame_shape)
  assert jnp.isfinite(first.reward).all()
