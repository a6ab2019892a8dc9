"""Tests of PPO's running normalization of observations and of its scaled rewards, against NumPy."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.acting.on_policy import Rollout
from moozi.baselines.observations import OBSERVATIONS
from moozi.baselines.ppo import algorithm as ppo_algorithm
from moozi.baselines.ppo.actor_critic import make_network
from moozi.baselines.ppo.optimization import init_state, make_round
from moozi.baselines.ppo.reward_scaling import RETURNS, return_state, scaled_rewards
from moozi.core.config import Config
from moozi.core.config.ppo import PPOConfig
from moozi.core.errors import UserError
from moozi.core.pytree import map_fields, replace
from moozi.envs.vector import make_vector
from moozi.io.checkpoints import expected_of, load_checkpoint, save_checkpoint
from moozi.io.config import load_config
from moozi.ops.running_stats import EPSILON
from moozi.run import build
from moozi.run.events import Acted, Event, Updated
from moozi.run.session import RunInputs
from moozi.training.algorithms import algorithm_of
from tests.baselines.ppo.conftest import TINY
from tests.baselines.ppo.test_optimization import changed, random_segment
from tests.envs.environments import NIM_SPEC
from tests.fast_jit import fast_jit
from tests.run_events import assert_equal_trees, final_state, first_checkpoint

PLAIN = PPOConfig(
  num_envs=3, segment_length=8, num_epochs=2, num_minibatches=2, network={"hidden_sizes": (8,)}
)
OBSERVING = changed(PLAIN, normalize_observations=True, observation_clip=1.5)
SCALING = changed(PLAIN, normalize_rewards=True, discount=0.9, reward_clip=0.8)
RATE = jnp.float32(0.01)
scale = fast_jit(lambda state, segment: scaled_rewards(state, segment, SCALING))


def later(segment: Rollout, seed: int) -> Rollout:
  """Returns a segment that may follow: its first steps start episodes only where one has ended."""
  out = random_segment(seed, *segment.action.shape)
  is_first, is_live = out.is_first.copy(), out.is_live.copy()
  is_first[0], is_live[0] = ~segment.is_live[-1], ~segment.is_last[-1]
  return replace(out, is_first=is_first, is_live=is_live)


def slow_returns(segments: list[Rollout], discount: float) -> list[np.ndarray]:
  """Returns the running return of each step of consecutive segments by its definition."""
  joined = map_fields(lambda *xs: np.concatenate(xs), *(replace(s, extras=s.action) for s in segments))
  length, width = joined.action.shape
  out = np.zeros((length, width))
  for t, b in itertools.product(range(length), range(width)):
    weight, s = 1.0, t
    while joined.is_live[t, b]:
      out[t, b] += weight * joined.reward[s, b]
      if joined.is_first[s, b] or s == 0:
        break
      s -= 1
      weight *= discount * joined.sign[s, b]
  return np.split(out, len(segments))


# --- rewards ------------------------------------------------------------------------------------------


def test_scaled_rewards_equal_the_definition():
  segments = [random_segment(1, 8, 3, end=0.15)]
  segments += [later(segments[0], seed=2)]
  returns = slow_returns(segments, SCALING.discount)
  # The second segment must continue an episode, and both must end some.
  assert (segments[1].is_live[0] & ~segments[1].is_first[0]).any()
  assert all((~s.is_live).any() for s in segments)
  state, seen = return_state(SCALING), []
  for segment, expected in zip(segments, returns, strict=True):
    state, scaled, metrics = scale(state, segment)
    seen.append(expected[segment.is_live])
    deviation = np.sqrt(np.concatenate(seen).var() + EPSILON)
    by_hand = np.clip(segment.reward / deviation, -0.8, 0.8)
    assert 0 < (np.abs(by_hand) == 0.8).mean() < 1
    np.testing.assert_allclose(scaled.reward, by_hand, rtol=1e-4)
    assert metrics["ppo/return_deviation"] == pytest.approx(deviation, rel=1e-4)
    carried = SCALING.discount * segment.sign[-1] * expected[-1]
    np.testing.assert_allclose(state[RETURNS].carried, carried, rtol=1e-4, atol=1e-6)
  assert_equal_trees(replace(scaled, reward=0), replace(segments[1], reward=0))


def test_environments_that_were_reset_carry_no_return():
  """After a lost segment all environments are reset, although no episode has ended."""
  segment = random_segment(3, 8, 3, end=0.0)
  state, *_ = scale(return_state(SCALING), segment)
  assert (state[RETURNS].carried != 0).all()
  once, *_ = scale(state, segment)
  assert segment.is_first[0].all()
  np.testing.assert_allclose(once[RETURNS].carried, state[RETURNS].carried, rtol=1e-6)


def test_only_the_learned_rewards_are_scaled(events):
  """Each action of CartPole has the reward 1, so a return is a length."""
  acted = [e for e in events if isinstance(e, Acted)]
  assert sum(len(e.episode_returns) for e in acted) > 0
  for event in acted:
    np.testing.assert_array_equal(event.episode_returns, event.episode_lengths)
  deviations = [e.metrics["ppo/return_deviation"] for e in events if isinstance(e, Updated)]
  assert min(deviations) > 1.5


# --- observations -------------------------------------------------------------------------------------


def state_of(config: PPOConfig):
  network = make_network(config.network, NIM_SPEC)
  return fast_jit(lambda key: init_state(network, config, NIM_SPEC, key))(jax.random.PRNGKey(0))


def test_round_learns_from_the_samples_as_they_were_acted_on():
  """The statistics before a round normalize its samples; those after it are of the live frames so far."""
  rounds = [make_round(make_network(x.network, NIM_SPEC), x) for x in (OBSERVING, PLAIN)]
  segments = [random_segment(seed, 8, 3) for seed in (1, 2)]
  state, plain, seen = state_of(OBSERVING), state_of(PLAIN), []
  mean, deviation = np.zeros((1, 1, 2)), np.ones((1, 1, 2))
  for segment in segments:
    state, _ = rounds[0](state, (segment, RATE))
    by_hand = np.clip((segment.frames - mean) / deviation, -1.5, 1.5).astype(np.float32)
    plain, _ = rounds[1](plain, (replace(segment, frames=by_hand), RATE))
    for a, b in zip(jax.tree.leaves(state.params), jax.tree.leaves(plain.params), strict=True):
      np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    seen.append(segment.frames[segment.is_live][:, -1])
    live = np.concatenate(seen)
    mean, deviation = live.mean(axis=0), np.sqrt(live.var(axis=0) + EPSILON)
    stats = state.net_state[OBSERVATIONS]
    assert stats.count == len(live) < 8 * 3 * len(seen)
    np.testing.assert_allclose(stats.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(stats.variance, live.var(axis=0), rtol=1e-4)


CARTPOLE = (
  "env.name=gymnasium:CartPole-v1",
  "evaluation.max_random_starts=0",
  "max_env_steps=256",
)
BOTH = ("ppo.normalize_observations=true", "ppo.normalize_rewards=true", "ppo.history_length=2")


def configure(*overrides: str) -> Config:
  return load_config(None, [*TINY, *CARTPOLE, *overrides])


def run(*overrides: str, **kwargs) -> list[Event]:
  config = configure(*overrides)
  return list(ppo_algorithm.run(RunInputs(config, build.env_spec(config), **kwargs)))


@pytest.fixture(scope="module")
def events() -> list[Event]:
  return run(*BOTH)


def test_statistics_are_of_the_played_frames(events):
  """Every step of the run is counted once, except the last frames of episodes."""
  state = final_state(events).training
  num_updates = sum(isinstance(e, Updated) for e in events)
  stats, returns = state.net_state[OBSERVATIONS], state.net_state[RETURNS]
  ended = sum(len(e.episode_returns) for e in events if isinstance(e, Acted))
  assert num_updates * 64 - 2 * ended <= stats.count <= num_updates * 64 - ended
  assert stats.count == returns.stats.count
  assert stats.mean.shape == stats.variance.shape == (1, 1, 4)
  assert returns.carried.shape == (4,)
  assert (stats.variance > 0).all()


def test_resume_to_the_bit_with_statistics(events):
  at = first_checkpoint(events)
  assert 0 < events[at].env_steps < events[-1].env_steps
  again = run(*BOTH, state=events[at].state)
  assert_equal_trees(final_state(events).training, final_state(again).training)


def test_evaluation_uses_the_statistics(events):
  """An agent with statistics decides as one without them does on normalized and clipped frames."""
  config = configure(*BOTH, "ppo.observation_clip=0.3")
  spec = build.env_spec(config)
  params, net_state = final_state(events).training.variables
  agent = ppo_algorithm.build_agent(config, spec)
  step = make_vector(config.env.name, config.env.kwargs, 4, 0).reset()
  act = fast_jit(lambda variables: agent.act(variables, agent.init(4), step, jax.random.PRNGKey(0), 0.0))
  carry, found = act((params, net_state))
  stats = net_state[OBSERVATIONS]
  unclipped = (carry.frames - stats.mean) / np.sqrt(stats.variance + EPSILON)
  assert 0.1 < (np.abs(unclipped) > 0.3).mean() < 0.9
  frames = np.clip(unclipped, -0.3, 0.3)
  logits, value = fast_jit(ppo_algorithm.network_of(config, spec).apply)(params, frames.astype(np.float32))
  np.testing.assert_allclose(found.root_value, value, rtol=1e-4, atol=1e-5)
  np.testing.assert_array_equal(found.action, 1 + np.argmax(logits[:, 1:], axis=-1))
  np.testing.assert_array_equal(found.extras["frames"], carry.frames)
  _, without = act((params, {}))
  assert np.abs(found.root_value - without.root_value).max() > 0.01


@pytest.mark.parametrize("lstm_size", [pytest.param(0, marks=pytest.mark.slow), 4])
def test_learner_sees_what_was_acted_on(lstm_size):
  """With one update for each segment, its policy is the one that acted, in every segment."""
  one = ("ppo.num_epochs=1", "ppo.num_minibatches=1", "ppo.learning_rate=0.01", "ppo.history_length=1")
  events = run(*BOTH[:2], *one, f"ppo.network.lstm_size={lstm_size}")
  kl = [e.metrics["ppo/approx_kl"] for e in events if isinstance(e, Updated)]
  assert len(kl) == 4
  assert max(np.abs(kl)) < 1e-6


def test_lstm_sees_normalized_frames(events):
  """Acting, and observing another player's move, change the state as the normalized frames do."""
  config = configure(BOTH[0], "ppo.network.lstm_size=4")
  spec = build.env_spec(config)
  agent = ppo_algorithm.build_agent(config, spec)
  params = ppo_algorithm.initial_training_state(config, spec).params
  stats = final_state(events).training.net_state[OBSERVATIONS]
  step = make_vector(config.env.name, config.env.kwargs, 4, 0).reset()
  frame = np.clip((step.frame - stats.mean) / np.sqrt(stats.variance + EPSILON), -10, 10)
  act = fast_jit(lambda variables, x: agent.act(variables, agent.init(4), x, jax.random.PRNGKey(0), 0.0))
  observe = fast_jit(lambda variables, x: agent.observe(variables, agent.init(4), x, np.ones(4, np.int32)))
  found = []
  for net_state, seen in (({OBSERVATIONS: stats}, step), ({}, replace(step, frame=frame.astype(np.float32)))):
    acted, decision = act((params, net_state), seen)
    observed = observe((params, net_state), seen)
    found.append((acted["state"], observed["state"], decision.root_value))
  for a, b in zip(*found, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
  np.testing.assert_allclose(found[0][0], found[0][1], rtol=1e-5, atol=1e-6)


def test_evaluator_uses_the_statistics(events):
  """The network pushes to where the pole falls, which statistics far from the observations hide."""
  config = configure(*BOTH, "ppo.network.hidden_sizes=[]")
  evaluator = ppo_algorithm.build_evaluator(config, build.env_spec(config))
  _, net_state = final_state(events).training.variables
  weights = np.zeros((8, 3), np.float32)
  weights[6:, 2] = 1.0  # the newest angle and its velocity, for the action to the right
  value = {"w": np.zeros((8, 1), np.float32), "b": np.zeros(1, np.float32)}
  params = {"policy": {"w": weights, "b": np.zeros(3, np.float32)}, "value": value}
  stats = net_state[OBSERVATIONS]
  hiding = {**net_state, OBSERVATIONS: replace(stats, mean=stats.mean + np.float32(1e6))}
  lengths = [evaluator.run((params, x), num_episodes=4).lengths for x in (net_state, hiding)]
  assert lengths[0].min() > 2 * lengths[1].max()


@pytest.mark.parametrize(
  ("options", "error_text"),
  [
    ((), "net_state/observations/mean is float32[1,1,3]"),
    (("ppo.num_envs=8",), "net_state/"),
    (("ppo.normalize_observations=false",), "network.observation_clip is 10.0, expected missing"),
    (("ppo.observation_clip=5",), "network.observation_clip is 10.0, expected 5.0"),
    (("ppo.normalize_rewards=false",), "net_state/returns/carried is not expected"),
  ],
)
def test_checkpoint_with_other_statistics_is_refused(events, tmp_path, options, error_text):
  config = configure(*BOTH)
  spec = build.env_spec(config)
  state = final_state(events).training
  if not options:
    wrong = replace(state.net_state[OBSERVATIONS], mean=np.zeros((1, 1, 3), np.float32))
    state = replace(state, net_state={**state.net_state, OBSERVATIONS: wrong})
  meta = {"env_steps": 9, "learner_steps": 3} | expected_of(config, spec)
  path = save_checkpoint(tmp_path, "step_9", state, meta)
  other = configure(*BOTH, *options)
  template = algorithm_of(other).training_state_template(other, spec)
  with pytest.raises(UserError) as caught:
    load_checkpoint(path, template, expected_of(other, spec))
  message = str(caught.value)
  assert error_text.replace(",", ", ") in message or error_text in message
  assert "\n" not in message
