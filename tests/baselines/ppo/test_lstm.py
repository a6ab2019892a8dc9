"""Tests of PPO with an LSTM: the state in acting, the sequences of updates, and their minibatches."""

import jax
import numpy as np
import pytest

from moozi.acting.collector import TrajectoryCollector
from moozi.acting.on_policy import make_rollout
from moozi.baselines.ppo import algorithm
from moozi.baselines.ppo.lstm import IS_FIRST, LSTM_STATE, Memory
from moozi.baselines.ppo.optimization import make_batch, make_loss, minibatch, minibatch_indices
from moozi.core.config.ppo import PPOConfig
from moozi.core.pytree import replace
from moozi.envs.vector import SyncVectorEnvironment, make_vector
from moozi.io.checkpoints import expected_of
from moozi.io.config import load_config
from moozi.ops.policy import masked_log_probs
from moozi.run import build
from moozi.run.events import Evaluated
from moozi.run.session import RunInputs
from tests.baselines.ppo.conftest import TINY
from tests.envs.environments import make_lives
from tests.fast_jit import fast_jit
from tests.run_events import assert_equal_trees

LSTM = (*TINY, "ppo.network.lstm_size=5", "env.kwargs.max_episode_steps=6")
SHARINGS = ["shared", pytest.param("separate", marks=pytest.mark.slow)]


def configure(*overrides: str):
  return load_config(None, [*LSTM, *overrides])


def strong_variables(config, spec):
  """Returns initial variables with weights so large that the outputs depend on the state."""
  random = np.random.default_rng(0)
  template = jax.eval_shape(lambda: algorithm.initial_training_state(config, spec).params)
  return jax.tree.map(lambda x: random.normal(size=x.shape).astype(x.dtype), template), {}


def collect(collector: TrajectoryCollector):
  steps, acted = collector.run(0)
  after, decision = collector.look_ahead(0)
  return make_rollout(steps, acted.extras, after, decision), steps


def batch_of(segment, config):
  """Returns the batch of a segment, in NumPy."""
  return jax.device_get(fast_jit(lambda x: make_batch(x, config.ppo)[0])(segment))


def collector_of(config, env):
  agent = algorithm.build_agent(config, env.spec)
  collector = TrajectoryCollector(agent, env, config.ppo.segment_length, lambda steps: 1.0, 0, True)
  collector.set_parameters(strong_variables(config, env.spec), 0)
  return collector


@pytest.fixture(scope="module", params=SHARINGS)
def collected(request):
  """Collects two segments of 16 steps of Catch with episodes of six steps, which cross the segments' ends."""
  config = configure(f"ppo.network.sharing={request.param}")
  env = make_vector(config.env.name, config.env.kwargs, 4, 0)
  collector = collector_of(config, env)
  segments = [collect(collector) for _ in range(2)]
  return config, env.spec, collector, segments


# --- the network ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sharing", SHARINGS)
def test_initial_parameters(sharing):
  config = configure(f"ppo.network.sharing={sharing}")
  params = algorithm.initial_training_state(config, build.env_spec(config)).params
  trunks = ["trunk"] if sharing == "shared" else ["policy_trunk", "value_trunk"]
  found = {name for name in params if "lstm" in name}
  assert found == {f"{trunk}_lstm{part}" for trunk in trunks for part in ("", "/input")}
  for name in found:
    weights = np.asarray(params[name]["w"])
    assert weights.shape == (16 if name.endswith("input") else 5, 4 * 5)
    np.testing.assert_allclose(weights @ weights.T, np.eye(len(weights)), atol=1e-5)
    assert not np.asarray(params[name].get("b", 0)).any()


def test_the_forget_gate_alone_has_the_initial_bias():
  config, other = (
    configure("ppo.network.sharing=shared", f"ppo.network.lstm_forget_bias={bias}") for bias in (0, 4)
  )
  plain, biased = (algorithm.initial_training_state(c, build.env_spec(c)).params for c in (config, other))
  change = jax.tree.map(lambda a, b: np.asarray(b) - np.asarray(a), plain, biased)
  gates = change["trunk_lstm/input"].pop("b").reshape(4, 5)
  np.testing.assert_array_equal(gates, [[0] * 5, [4] * 5, [0] * 5, [0] * 5])
  assert not any(x.any() for x in jax.tree.leaves(change))


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def slow_unroll(params, x, hidden, cell):
  """Returns the output and the cell after one frame of one environment, in float64."""
  gates = x @ np.float64(params["input"]["w"]) + params["input"]["b"] + hidden @ np.float64(params[""]["w"])
  i, f, g, o = np.split(gates, 4)
  cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
  return sigmoid(o) * np.tanh(cell), cell


def test_lstm_equals_its_equations():
  """Without dense layers the LSTM sees the frames; the second sequence has a first frame in its middle."""
  config = configure("ppo.network.sharing=shared", "ppo.network.hidden_sizes=[]")
  spec, random = build.env_spec(config), np.random.default_rng(1)
  network = algorithm.network_of(config, spec)
  (params, _), length, width = strong_variables(config, spec), 6, 2
  frames = random.random((length, width, 1, *spec.frame_shape)) < 0.5
  is_first = np.zeros((length, width), bool)
  is_first[3, 1] = True
  state = random.normal(size=(width, 1, 2, 5)).astype(np.float32)
  memory = Memory(state=state, is_first=is_first.reshape(-1))
  logits, _, after = fast_jit(network.unroll)(params, frames.reshape(-1, *frames.shape[2:]), memory)
  cells = {"input": params["trunk_lstm/input"], "": params["trunk_lstm"]}
  for lane in range(width):
    hidden, cell = np.float64(state[lane, 0])
    for t in range(length):
      if is_first[t, lane]:
        hidden, cell = np.zeros(5), np.zeros(5)
      hidden, cell = slow_unroll(cells, np.float64(frames[t, lane].reshape(-1)), hidden, cell)
      expected = hidden @ params["policy"]["w"] + params["policy"]["b"]
      np.testing.assert_allclose(logits[t * width + lane], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(after[lane, 0], [hidden, cell], rtol=1e-4, atol=1e-4)


# --- acting ---------------------------------------------------------------------------------------------


def test_state_continues_across_segments_and_is_kept_in_the_extras(collected):
  *_, collector, segments = collected
  states = np.concatenate([segment.extras[LSTM_STATE] for segment, _ in segments])
  assert not states[0].any()
  assert states[1:].any(axis=(2, 3, 4)).all()
  assert np.abs(states[16] - states[15]).min() > 0
  assert np.abs(collector.carry["state"] - states[-1]).max() > 0
  is_first = np.concatenate([segment.extras[IS_FIRST] for segment, _ in segments])
  np.testing.assert_array_equal(is_first, np.concatenate([steps.is_first for _, steps in segments]))
  assert is_first[1:16].any()
  assert not is_first[16].any()
  assert is_first[17:].any()


def test_a_restored_collector_continues_to_the_bit(collected):
  """Runs restore their collectors like this; in the middle of episodes, so the LSTM's state matters."""
  config, *_ = collected
  whole, again = (
    collector_of(config, make_vector(config.env.name, config.env.kwargs, 4, 0)) for _ in range(2)
  )
  whole.run(0)
  state = whole.get_state()
  assert np.asarray(state["lanes/carry/state"]).any()
  assert again.set_state(state) == 0
  assert_equal_trees(whole.run(0)[0], again.run(0)[0])
  assert_equal_trees(whole.get_state(), again.get_state())


def test_first_frame_has_no_memory(collected):
  """The state after a game's first frame is a function of this frame only."""
  config, spec, _, segments = collected
  network, (params, _) = algorithm.network_of(config, spec), strong_variables(config, spec)
  checked, unroll = 0, fast_jit(network.unroll)
  for segment, _ in segments:
    states, is_first = segment.extras[LSTM_STATE], segment.extras[IS_FIRST]
    for t in range(15):
      blank = Memory(state=np.zeros_like(states[0]), is_first=np.zeros(4, bool))
      after = np.asarray(unroll(params, segment.frames[t], blank)[2])
      np.testing.assert_allclose(states[t + 1][is_first[t]], after[is_first[t]], rtol=1e-4, atol=1e-5)
      is_other = np.abs(states[t + 1] - after).max(axis=(1, 2, 3)) > 1e-3
      assert is_other[~is_first[t]].all()
      checked += is_first[t].sum()
  assert checked >= 8


def test_state_continues_after_a_lost_life():
  config = load_config(None, [*TINY, "ppo.network.lstm_size=5", "ppo.segment_length=64"])
  collector = collector_of(config, SyncVectorEnvironment([make_lives() for _ in range(4)]))
  segment, steps = collect(collector)
  continues = steps.is_last[:-1] & ~steps.is_first[1:]
  assert continues.sum() >= 4
  batch = batch_of(segment, config)
  np.testing.assert_array_equal(batch.memory.is_first.reshape(64, 4), steps.is_first)
  assert_recomputed(config, collector, [segment])


def test_observed_and_forced_actions(collected):
  """Another player's frames change the state as the agent's own do, and its actions do not."""
  config, spec, *_ = collected
  agent, variables = algorithm.build_agent(config, spec), strong_variables(config, spec)
  env, act, observe = make_vector("tiny:catch", {}, 2, 3), fast_jit(agent.act), fast_jit(agent.observe)
  acted = observed = agent.init(2)
  step, random = env.reset(), np.random.default_rng(0)
  for _ in range(12):
    forced = np.where(step.is_last, 0, random.integers(1, 4, 2)).astype(np.int32)
    acted, decision = act(variables, acted, step, jax.random.PRNGKey(0), 1.0, forced)
    observed = observe(variables, observed, step, forced)
    np.testing.assert_array_equal(decision.action, forced)
    for own, other in zip(*map(jax.tree.leaves, (acted, observed)), strict=True):
      np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-6)
    assert np.asarray(acted["state"]).any()
    step = env.step(forced)


# --- updates --------------------------------------------------------------------------------------------


def assert_recomputed(config, collector, segments):
  """Checks that an update computes the values and probabilities that acted, in each minibatch."""
  network, params = algorithm.network_of(config, collector._env.spec), collector.variables[0]
  rows = np.asarray(fast_jit(lambda key: minibatch_indices(key, config.ppo))(jax.random.PRNGKey(1)))

  @fast_jit
  def compute(segment, row):
    part = minibatch(make_batch(segment, config.ppo)[0], row)
    logits, value, _ = network.unroll(params, part.frames, part.memory)
    return part, masked_log_probs(logits, part.legal_actions_mask), value

  for segment in segments:
    acted = segment.extras["log_probs"].reshape(segment.action.size, -1)
    for row in rows[: config.ppo.num_minibatches]:
      part, log_probs, value = jax.device_get(compute(segment, row))
      live = part.is_live
      np.testing.assert_allclose(log_probs[live], acted[row][live], rtol=0, atol=1e-5)
      np.testing.assert_allclose(value[live], part.value[live], rtol=0, atol=1e-5)
    assert np.ptp(acted[segment.is_live.reshape(-1)][:, 1:]) > 0.3


def test_learner_recomputes_values_and_probabilities(collected):
  config, _, collector, segments = collected
  assert_recomputed(config, collector, [segment for segment, _ in segments])


@pytest.mark.parametrize("sharing", SHARINGS)
def test_learner_recomputes_densities_of_continuous_actions(sharing):
  options = ("env.name=tiny:point", "env.kwargs.action_bins=0", f"ppo.network.sharing={sharing}")
  config = configure(*options)
  env = make_vector("tiny:point", config.env.kwargs, 4, 0)
  collector, network = collector_of(config, env), algorithm.network_of(config, env.spec)
  params, num_resets = collector.variables[0], 0

  @fast_jit
  def compute(segment):
    """Returns the batch, its first minibatches and their indices, and what the network computes of each."""
    batch, _ = make_batch(segment, config.ppo)
    rows = minibatch_indices(jax.random.PRNGKey(1), config.ppo)[: config.ppo.num_minibatches]
    parts = [minibatch(batch, row) for row in rows]
    return batch, [(row, part, *outputs(part, part.memory)) for row, part in zip(rows, parts, strict=True)]

  def outputs(part, memory):
    gaussian, value, _ = network.unroll(params, part.frames, memory)
    return gaussian, value, network.log_prob(gaussian, part.action)

  for _ in range(2):
    segment, steps = collect(collector)
    num_resets += steps.is_first[1:].sum()
    batch, computed = jax.device_get(compute(segment))
    acted = segment.extras["gaussian"].reshape(-1, 4)
    for row, part, gaussian, value, log_prob in computed:
      live = part.is_live
      np.testing.assert_allclose(gaussian[live], acted[row][live], rtol=0, atol=1e-5)
      np.testing.assert_allclose(value[live], part.value[live], rtol=0, atol=1e-5)
      np.testing.assert_allclose(log_prob[live], part.log_prob[live], rtol=1e-4, atol=1e-4)
    assert np.ptp(batch.log_prob[batch.is_live]) > 0.3
  assert num_resets >= 8
  # Without the state before the segment, the densities of its first actions differ.
  blank = replace(part.memory, state=np.zeros_like(part.memory.state))
  *_, other = fast_jit(outputs)(part, blank)
  assert np.abs(other - log_prob)[live].max() > 1e-2


def test_sequences_need_the_first_state_and_the_resets(collected):
  config, spec, collector, segments = collected
  batch = batch_of(segments[1][0], config)
  loss = fast_jit(make_loss(algorithm.network_of(config, spec), config.ppo))
  memory = batch.memory
  changes = {
    "none": memory,
    "state": replace(memory, state=np.zeros_like(memory.state)),
    "resets": replace(memory, is_first=np.zeros_like(memory.is_first)),
  }
  kl = {
    name: float(loss(collector.variables[0], replace(batch, memory=changed))[1]["ppo/approx_kl"])
    for name, changed in changes.items()
  }
  assert abs(kl["none"]) < 1e-6
  assert min(kl["state"], kl["resets"]) > 1e-3


def test_minibatches_have_whole_environments():
  network = {"lstm_size": 8}
  config = PPOConfig(num_envs=6, segment_length=5, num_epochs=3, num_minibatches=2, network=network)
  indices = np.asarray(fast_jit(lambda key: minibatch_indices(key, config))(jax.random.PRNGKey(0)))
  assert indices.shape == (6, 15)
  t, envs = np.divmod(indices.reshape(6, 5, 3), 6)
  assert (t == np.arange(5)[:, None]).all()
  assert (envs == envs[:, :1]).all()
  epochs = envs[:, 0].reshape(3, 6)
  assert all(sorted(epoch) == list(range(6)) for epoch in epochs)
  assert len({tuple(epoch) for epoch in epochs}) == 3


def test_gradient_reaches_earlier_frames(collected):
  """The loss of the last step alone changes with the weights through the state of earlier steps."""
  config, spec, collector, segments = collected
  batch = batch_of(segments[0][0], config)
  network, params = algorithm.network_of(config, spec), collector.variables[0]
  frames, memory = batch.frames.astype(np.float32), batch.memory

  def last_value(frames):
    return network.unroll(params, frames, memory)[1][-4]  # of lane 0

  slopes = np.abs(fast_jit(jax.grad(last_value))(frames)).max(axis=(1, 2, 3, 4)).reshape(16, 4)
  start = np.flatnonzero(np.asarray(memory.is_first).reshape(16, 4)[:, 0])[-1]
  assert start > 0
  assert (slopes[start:, 0] > 0).all()
  assert not slopes[:start, 0].any()
  assert not slopes[:, 1:].any()


# --- runs -----------------------------------------------------------------------------------------------


def test_checkpoints_of_other_sizes_are_refused():
  found = []
  for size in (0, 5, 8):
    config = load_config(None, [*TINY, f"ppo.network.lstm_size={size}"])
    found.append(expected_of(config, build.env_spec(config))["network"].get("lstm_size"))
  assert found == [None, 5, 8]


@pytest.mark.learning
@pytest.mark.parametrize(("lstm_size", "low", "high"), [(64, 0.95, 1.0), (0, -0.4, 0.4)])
def test_tmaze_needs_memory(lstm_size, low, high):
  config = load_config("ppo/tiny/tmaze", [f"ppo.network.lstm_size={lstm_size}"])
  events = list(algorithm.run(RunInputs(config, build.env_spec(config))))
  (final,) = (event for event in events if isinstance(event, Evaluated) and event.is_final)
  assert low <= final.result.returns.mean() <= high
