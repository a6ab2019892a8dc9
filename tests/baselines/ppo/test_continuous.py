"""Tests of PPO with continuous actions: its network, loss, segments, and runs."""

import jax
import numpy as np
import pytest
from scipy import stats

from moozi.baselines.ppo import algorithm as ppo_algorithm
from moozi.baselines.ppo.optimization import PPOBatch, make_batch, make_loss
from moozi.core.config.ppo import PPOConfig
from moozi.core.errors import NotFiniteError, UserError
from moozi.core.pytree import fields_of, replace
from moozi.core.records import TrajectorySample
from moozi.envs.suites import tiny
from moozi.io.config import load_config
from moozi.ops.gaussian import gaussian_log_prob
from moozi.replay.validation import check_segment
from moozi.run import build
from moozi.run.events import Collected, Evaluated, Event
from moozi.run.session import RunInputs
from moozi.training.checks import check_players
from moozi.training.speed import seconds_of
from tests.acting.parameters import random_parameters
from tests.baselines.ppo.conftest import TINY
from tests.baselines.ppo.test_algorithm import collect
from tests.envs.environments import need
from tests.fast_jit import fast_jit
from tests.run_events import assert_equal_trees, final_state, first_checkpoint

POINT = (*TINY, "env.name=tiny:point", "env.kwargs.action_bins=0")
SPEED = tiny.POINT_SPEED


def configure(*overrides: str):
  config = load_config(None, [*POINT, *overrides])
  return config, build.env_spec(config)


def run(*overrides: str, **kwargs) -> list[Event]:
  return list(ppo_algorithm.run(RunInputs(*configure(*overrides), **kwargs)))


@pytest.fixture(scope="module", name="events")
def _events() -> list[Event]:
  return run("trajectories.save=true")


@pytest.fixture(scope="module", name="collected")
def _collected():
  """The configuration, the training state, two segments as `collect` returns them, and their batches."""
  config, spec = configure()
  state = ppo_algorithm.initial_training_state(config, spec)
  collector = ppo_algorithm.build_collector(config, spec, 0, 0)
  segments = [collect(collector, state) for _ in range(2)]
  batch_of = fast_jit(lambda rollout: make_batch(rollout, config.ppo)[0])
  return config, state, segments, [jax.device_get(batch_of(rollout)) for rollout, *_ in segments]


def test_the_deviation_is_a_parameter_of_its_own(collected):
  config, state, segments, _ = collected
  network = ppo_algorithm.network_of(config, build.env_spec(config))
  np.testing.assert_array_equal(state.params["log_std"]["b"], [0.0, 0.0])
  apply, frames = fast_jit(network.apply), segments[0][0].frames[0]
  policy, head = apply(state.params, frames)
  assert (policy.shape, head.shape) == ((4, 4), (4,))
  np.testing.assert_array_equal(policy[:, 2:], 0.0)
  assert np.abs(policy[:, :2]).max() < 0.1
  params = {**state.params, "log_std": {"b": np.float32([0.5, -1.0])}}
  np.testing.assert_allclose(apply(params, frames)[0][:, 2:], [[0.5, -1.0]] * 4)


def test_drawn_actions_are_learned_from_and_clipped_ones_are_played(collected):
  config, _, segments, batches = collected
  moved = 0
  for (rollout, _, steps, after), batch in zip(segments, batches, strict=True):
    drawn, live = rollout.extras["drawn"], rollout.is_live
    np.testing.assert_array_equal(steps.action[live], np.clip(drawn[live], -SPEED, SPEED))
    np.testing.assert_array_equal(steps.action[~live], 0.0)
    assert (np.abs(drawn) > SPEED).mean() > 0.5  # the deviation is 1
    check_segment(steps, build.env_spec(config))
    # The environment moves by the clipped action, up to its walls.
    place = np.concatenate([steps.frame, after.frame[None]])[:, :, 0, 0, :2]
    expected = np.clip(place[:-1] + steps.action, -1, 1)[live]
    np.testing.assert_allclose(place[1:][live], expected, atol=1e-6)
    moved += live.sum()
    np.testing.assert_array_equal(batch.action, drawn.reshape(-1, 2))
    mean, log_std = np.split(rollout.extras["gaussian"].reshape(-1, 4), 2, axis=-1)
    log_prob = stats.norm(mean, np.exp(log_std)).logpdf(drawn.reshape(-1, 2)).sum(-1)
    np.testing.assert_allclose(batch.log_prob, np.where(live.ravel(), log_prob, 0), rtol=1e-4, atol=1e-5)
  assert 64 < moved < 128


def test_the_loss_is_that_of_the_drawn_actions(collected):
  config, state, _, (batch, _) = collected
  plain = PPOConfig(normalize_advantages=False, entropy_coef=0.1, value_coef=0.0, clip_range=0.3)
  network = ppo_algorithm.network_of(config, build.env_spec(config))
  apply = fast_jit(network.apply)
  grad_fn = fast_jit(jax.value_and_grad(make_loss(network, plain), has_aux=True))
  (_, same), grads = grad_fn(state.params, batch)
  live = batch.is_live
  # Parameters that have acted have the ratio 1, and a standard normal has the entropy log √(2πe).
  assert same["loss/policy"] == pytest.approx(-batch.advantage[live].mean(), rel=1e-4)
  assert same["loss/entropy"] == pytest.approx(2 * stats.norm().entropy(), rel=1e-5)
  assert same["ppo/clip_fraction"] == 0
  # d(log density)/d(log deviation) = z² − 1, and the entropy's derivative is 1.
  policy = np.asarray(apply(state.params, batch.frames)[0])
  z = batch.action - policy[:, :2]
  expected = -((z**2 - 1) * batch.advantage[:, None])[live].mean(0) - plain.entropy_coef
  np.testing.assert_allclose(grads["log_std"]["b"], expected, rtol=1e-3, atol=1e-5)
  assert np.abs(grads["policy"]["w"]).max() > 0
  # Other parameters: the ratio of the densities, clipped.
  other = {**state.params, "log_std": {"b": np.float32([0.2, -0.1])}}
  (_, found), _ = grad_fn(other, batch)
  log_ratio = fast_jit(gaussian_log_prob)(apply(other, batch.frames)[0], batch.action) - batch.log_prob
  ratio, advantage = np.exp(log_ratio)[live], batch.advantage[live]
  terms = np.minimum(ratio * advantage, np.clip(ratio, 0.7, 1.3) * advantage)
  assert found["loss/policy"] == pytest.approx(-terms.mean(), rel=1e-4)
  assert 0 < found["ppo/clip_fraction"] < 1


def test_last_frames_do_not_train(collected):
  """A sample that is not live has no influence, whatever was drawn on it."""
  config, state, _, (batch, _) = collected
  network = ppo_algorithm.network_of(config, build.env_spec(config))
  dead = ~batch.is_live[:, None]
  assert dead.any()
  wild = replace(batch, action=np.where(dead, np.float32(1e3), batch.action))
  grad_fn = fast_jit(jax.grad(lambda params, x: make_loss(network, config.ppo)(params, x)[0]))
  assert_equal_trees(grad_fn(state.params, batch), grad_fn(state.params, wild))
  assert isinstance(batch, PPOBatch)


def test_bad_parameters_draw_valid_actions(collected):
  config, state, segments, _ = collected
  spec = build.env_spec(config)
  agent, (_, _, _, after) = ppo_algorithm.build_agent(config, spec), segments[0]
  act = fast_jit(agent.act)
  for bad, temperature in ((np.nan, 1.0), (np.inf, 1.0), (np.nan, 0.0)):
    params = jax.tree_util.tree_map(lambda x, bad=bad: np.full(x.shape, bad, np.float32), state.params)
    _, decision = act((params, {}), agent.init(4), after, jax.random.PRNGKey(0), temperature)
    assert (np.abs(decision.action) <= SPEED).all()


def test_a_policy_that_is_not_finite_ends_learning(collected):
  """The updates are skipped, so the other parameters are not lost, and then one line says why."""
  _, state, segments, _ = collected
  config, spec = configure("ppo.max_skipped_rounds=1")
  learner = ppo_algorithm.build_learner(config, spec)
  bad = {**state.params, "log_std": {"b": np.full(2, np.nan, np.float32)}}
  learner.set_state(jax.device_get(replace(state, params=bad)))
  batch = ppo_algorithm.batch_of(config, segments[0][0], 0)
  with pytest.raises(NotFiniteError, match=r"^loss/policy is not finite: 4 updates in a row") as error:
    learner.advance(batch, 64)
  assert "\n" not in str(error.value)
  assert_equal_trees(learner.get_state().params, bad)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gymnax:Pendulum-v1", "gymnax:MountainCarContinuous-v0"])
def test_scan_equals_step(name):
  need("gymnax")
  found = []
  for rollout in ("step", "scan"):
    options = (f"env.name={name}", "env.kwargs.max_episode_steps=9", f"workers.rollout={rollout}")
    config, spec = configure(*options)
    collector = ppo_algorithm.build_collector(config, spec, 0, 0)
    collector.set_parameters(random_parameters(config, spec), 3)
    for _ in range(3):
      segment, result = collector.run(50)
      check_segment(segment, spec)
      after, decision = collector.look_ahead(50)
      arrays = {**fields_of(segment), **result.extras, "returns": result.episode_returns}
      arrays |= {f"after/{name}": x for name, x in {**fields_of(after), **decision.extras}.items()}
      found.append(arrays)
  assert sum(len(arrays["returns"]) for arrays in found) > 10
  for a, b in zip(found[:3], found[3:], strict=True):
    assert a.keys() == b.keys()
    for field, x in a.items():
      np.testing.assert_allclose(np.float64(x), np.float64(b[field]), rtol=1e-3, atol=1e-4, err_msg=field)


def test_a_compiled_rollout_checks_actions():
  need("gymnax")
  config, spec = configure("env.name=gymnax:Pendulum-v1", "workers.rollout=scan", "ppo.segment_length=2")
  collector = ppo_algorithm.build_collector(config, spec, 0, 0)
  collector.set_parameters(random_parameters(config, spec), 0)
  segment, _ = collector.run(0)
  assert (segment.action.dtype, segment.action.shape) == (np.float32, (2, 4, 1))
  assert np.abs(segment.action).max() <= 2


def test_a_run_saves_valid_trajectories(events):
  parts = [fields_of(event.segment) for event in events if isinstance(event, Collected)]
  whole = TrajectorySample(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
  check_segment(whole, configure()[1])
  assert whole.action.shape == (80, 4, 2)
  bad = replace(whole, action=np.where(whole.is_last[..., None], whole.action, 0.3).astype(np.float32))
  with pytest.raises(ValueError, match="action out of bounds"):
    check_segment(bad, configure()[1])
  with pytest.raises(ValueError, match="last frame must be the dummy"):
    check_segment(replace(whole, action=np.full_like(whole.action, 0.1)), configure()[1])


@pytest.mark.parametrize(
  "options",
  [
    (),
    pytest.param(("env.name=gymnax:Pendulum-v1",), marks=pytest.mark.slow),
    pytest.param(("env.name=gymnasium:Pendulum-v1",), marks=pytest.mark.slow),
  ],
)
def test_resume_to_the_bit(events, options):
  if options:
    need(options[0].partition("=")[2].partition(":")[0])
  whole = run(*options) if options else events
  at = first_checkpoint(whole)
  assert 0 < whole[at].env_steps < whole[-1].env_steps
  again = run(*options, state=whole[at].state)
  assert_equal_trees(final_state(whole).training, final_state(again).training)
  returns = [[e.result.returns.tolist() for e in x if isinstance(e, Evaluated)][-1] for x in (whole, again)]
  assert returns[0] == returns[1]


def test_evaluation_without_noise_plays_the_mean(events):
  state = final_state(events).training
  for noise_free in (True, False):
    config, spec = configure(f"evaluation.noise_free={noise_free}")
    played = list(ppo_algorithm.build_evaluator(config, spec).play(state.variables, 0))
    apply = fast_jit(ppo_algorithm.network_of(config, spec).apply)
    mean = np.stack([apply(state.params, s.frame[None, None])[0][0, :2] for s in played[:-1]])
    actions = np.stack([step.action for step in played[:-1]])
    assert np.allclose(actions, np.clip(mean, -SPEED, SPEED), atol=1e-5) == noise_free
    assert np.isnan(played[-1].action).all()


def test_other_algorithms_are_refused():
  for algorithm in ("muzero", "alphazero", "q_learning", "tests.baselines.test_custom:make"):
    config = load_config(None, ["env.name=tiny:point", "env.kwargs.action_bins=0"])
    config = config.model_copy(update={"algorithm": algorithm})
    with pytest.raises(UserError, match=r"cannot be used with env.kwargs.action_bins=0; .*algorithm=ppo"):
      check_players(config, build.env_spec(config))


def test_speed_is_measured():
  for part in ("act", "learn"):
    assert seconds_of(part, configure()[0], 0.01) > 0


@pytest.mark.learning
def test_point_is_learned():
  """The best mean return is about −0.7, and the first policy has about −7. Seed 0 ends at −1.8."""
  options = (
    "ppo.num_envs=16",
    "ppo.segment_length=64",
    "ppo.num_epochs=10",
    "ppo.num_minibatches=8",
    "ppo.learning_rate=2e-3",
    "ppo.entropy_coef=0",
    "ppo.discount=0.9",
    "ppo.network.hidden_sizes=[32]",
    "evaluation.max_random_starts=0",
    "evaluation.period_env_steps=1000000",
    "evaluation.final_episodes=100",
    "evaluation.num_envs=20",
    "max_env_steps=60000",
  )
  events = run(*options)
  (final,) = (e for e in events if isinstance(e, Evaluated) and e.is_final)
  assert final.result.returns.mean() > -2.5
  # The deviations, 1 at first, fall.
  assert final_state(events).training.params["log_std"]["b"].max() < 0
