"""Tests of PPO's segments and trainer."""

import dataclasses

import jax
import numpy as np
import pytest

from moozi.acting.collector import TrajectoryCollector
from moozi.acting.on_policy import Rollout, check_finite, make_rollout
from moozi.baselines.ppo import algorithm as ppo_algorithm
from moozi.baselines.ppo.optimization import generalized_advantages, init_state
from moozi.core.config import Config
from moozi.core.errors import EnvError, NotFiniteError, SegmentError, UserError
from moozi.core.pytree import replace
from moozi.envs.vector import SyncVectorEnvironment, make_vector
from moozi.io.config import load_config
from moozi.ops.policy import masked_log_probs
from moozi.run import build, session
from moozi.run.events import Acted, Evaluated, Event, Faulted, Finished, Started, StateReady, Updated
from moozi.run.session import RunInputs
from moozi.run.state import RunState
from moozi.training.algorithms import algorithm_of
from tests.baselines.ppo.conftest import TINY
from tests.baselines.ppo.salary import BONUS, LEAVE, SALARY, STAY
from tests.envs import faulty
from tests.envs.environments import NIM_SPEC
from tests.fast_jit import fast_jit
from tests.run_events import Clock, assert_equal_trees, final_state, first_checkpoint


def configure(*overrides: str) -> Config:
  return load_config(None, [*TINY, *overrides])


def run(*overrides: str, **kwargs) -> list[Event]:
  config = configure(*overrides)
  return list(ppo_algorithm.run(RunInputs(config, build.env_spec(config), **kwargs)))


def collector_in(env, config: Config) -> TrajectoryCollector:
  agent = ppo_algorithm.build_agent(config, env.spec)
  return TrajectoryCollector(
    agent, env, config.ppo.segment_length, lambda env_steps: 1.0, 0, keeps_extras=True
  )


def collect(collector: TrajectoryCollector, state):
  """Returns (segment, result, the steps, the step after them) of the next steps."""
  collector.set_parameters(state.variables, int(state.learner_step))
  steps, acted = collector.run(0)
  after, decision = collector.look_ahead(0)
  return make_rollout(steps, acted.extras, after, decision), acted, steps, after


def compiled_init(config: Config, spec):
  """Returns the initial training state, in NumPy."""
  network = ppo_algorithm.network_of(config, spec)
  init = fast_jit(lambda key: init_state(network, config.ppo, spec, key))
  return jax.device_get(init(jax.random.PRNGKey(3)))


def final_training(events: list[Event]):
  return final_state(events).training


def test_random_starts_change_the_first_frames():
  """Without random starts, every lane of the corridor starts in the same cell."""
  distinct = []
  for starts in (0, 3):
    corridor = ("env.name=tiny:corridor", "env.kwargs.length=9", "ppo.num_envs=16")
    config = configure(*corridor, f"workers.max_random_starts={starts}")
    collector = ppo_algorithm.build_collector(config, build.env_spec(config), 0, 0)
    distinct.append(len(np.unique(collector.timestep.frame.reshape(16, -1), axis=0)))
  assert distinct[0] == 1 < distinct[1]


# --- segments -----------------------------------------------------------------------------------------


class Watched(SyncVectorEnvironment):
  """Keeps a list of the time steps that the environment returned."""

  def __init__(self, env: SyncVectorEnvironment) -> None:
    self._inner, self.shown = env, []

  spec = property(lambda self: self._inner.spec)
  num_envs = property(lambda self: self._inner.num_envs)
  num_faults = property(lambda self: self._inner.num_faults)

  def reset(self):
    self.shown.append(self._inner.reset())
    return self.shown[-1]

  def step(self, actions):
    self.shown.append(self._inner.step(actions))
    return self.shown[-1]


@pytest.fixture(scope="module")
def collected():
  """Collects two segments of Catch with episodes of at most seven steps and a history of three frames."""
  config = configure("ppo.history_length=3", "env.kwargs.max_episode_steps=7")
  spec = build.env_spec(config)
  network, state = ppo_algorithm.network_of(config, spec), compiled_init(config, spec)
  # Larger weights make the policy far from uniform.
  state = jax.tree_util.tree_map(lambda x: x * 30 if x.ndim == 2 else x, state)
  env = Watched(make_vector(config.env.name, config.env.kwargs, 4, 0))
  collector = collector_in(env, config)
  return network, state, env.shown, [collect(collector, state)[:2] for _ in range(2)]


@pytest.mark.slow
def test_segment_rows(collected):
  _, _, shown, segments = collected
  for number, (segment, _) in enumerate(segments):
    assert isinstance(segment, Rollout)
    for t in range(16):
      seen, then = shown[16 * number + t], shown[16 * number + t + 1]
      np.testing.assert_array_equal(segment.is_live[t], ~seen.is_last)
      np.testing.assert_array_equal(segment.frames[t, :, -1], seen.frame)
      np.testing.assert_array_equal(segment.legal_actions_mask[t], seen.legal_actions_mask)
      np.testing.assert_array_equal(segment.reward[t], then.last_reward)
      np.testing.assert_array_equal(segment.is_last[t], then.is_last)
      np.testing.assert_array_equal(segment.is_truncated[t], then.is_truncated)
      np.testing.assert_array_equal(segment.action[t] == 0, seen.is_last)
  assert segments[0][0].is_truncated.any()


@pytest.mark.slow
def test_learner_recomputes_values_and_probabilities(collected):
  """Before the first update, the learner's probability ratio is 1 for every live sample."""
  network, state, _, segments = collected
  for segment, _ in segments:
    frames = segment.frames.reshape(-1, *segment.frames.shape[2:])
    logits, value = fast_jit(network.apply)(state.params, frames)
    live = segment.is_live.reshape(-1)
    np.testing.assert_allclose(value[live], segment.value[:-1].reshape(-1)[live], rtol=1e-4, atol=1e-5)
    log_probs = masked_log_probs(logits, segment.legal_actions_mask.reshape(len(value), -1))
    acted = segment.extras["log_probs"].reshape(len(value), -1)
    np.testing.assert_allclose(log_probs[live], acted[live], rtol=1e-4, atol=1e-5)
    assert np.ptp(np.asarray(value)) > 0.1


def test_bootstrap_value(collected):
  (first, _), (second, _) = collected[3]
  np.testing.assert_allclose(first.value[-1], second.value[0], rtol=1e-6)


def test_history_spans_segments_and_resets_at_starts(collected):
  _, _, shown, segments = collected
  frames = np.concatenate([segment.frames for segment, _ in segments])
  for t in range(32):
    for lane in range(4):
      for back in range(3):
        # The frame `back` steps ago is zeros if the episode started after it.
        began = any(s < 0 or shown[s].is_first[lane] for s in range(t - back + 1, t + 1))
        expected = np.zeros_like(frames[0, 0, 0]) if began or t < back else shown[t - back].frame[lane]
        np.testing.assert_array_equal(frames[t, lane, 2 - back], expected)


def test_episode_returns(collected):
  _, _, shown, segments = collected
  returns = np.concatenate([acted.episode_returns for _, acted in segments])
  lengths = np.concatenate([acted.episode_lengths for _, acted in segments])
  ended = sum(step.is_first.sum() for step in shown[1:])
  assert len(returns) == len(lengths) == ended > 0
  assert (lengths == 7).all()
  assert (returns == 0).all()
  assert segments[0][1].num_steps == 64


# --- loop ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def events() -> list[Event]:
  return run()


def test_events(events):
  kinds = [type(e) for e in events if not getattr(e, "is_best", False)]
  assert kinds[0] is Started
  assert kinds[-4:] == [StateReady, Evaluated, StateReady, Finished]
  assert kinds.count(Acted) == kinds.count(Updated) == 5
  assert kinds.count(StateReady) >= 3
  assert kinds.count(Evaluated) == 2
  last = events[-1]
  assert (last.env_steps, last.learner_steps, last.reason) == (320, 20, "max_env_steps")
  (final,) = (e for e in events if isinstance(e, Evaluated) and e.is_final)
  assert len(final.result.returns) == 5
  assert sum(e.num_samples for e in events if isinstance(e, Updated)) == 640
  assert last.sample_reuse == 2.0


def test_metrics(events):
  metrics = next(e.metrics for e in events if isinstance(e, Updated))
  wanted = """loss/total loss/policy loss/value loss/entropy ppo/clip_fraction ppo/approx_kl ppo/approx_kl_k1
    ppo/explained_variance update/grad_norm update/learning_rate faults/skipped_updates
    learner/samples_per_s"""
  assert set(wanted.split()) <= set(metrics)
  assert np.isfinite(list(metrics.values())).all()
  rates = [e.metrics["update/learning_rate"] for e in events if isinstance(e, Updated)]
  np.testing.assert_allclose(rates, 2.5e-4 * np.array([1, 0.8, 0.6, 0.4, 0.2]), rtol=1e-5)


def test_rates_by_time(monkeypatch):
  """A round takes a quarter of the time, and a fifth of the steps."""
  clock = Clock()
  monkeypatch.setattr(session, "time", clock)
  config = configure("ppo.anneal_by=progress", "max_wall_s=100", "evaluation.period_env_steps=10000")
  rates = []
  for event in ppo_algorithm.run(RunInputs(config, build.env_spec(config))):
    if isinstance(event, Updated):
      rates.append(event.metrics["update/learning_rate"])
      clock.now += 25
  assert event.reason == "max_wall_s"
  np.testing.assert_allclose(rates, 2.5e-4 * np.array([1, 0.75, 0.5, 0.25]), rtol=1e-5)


@pytest.mark.slow
def test_seed_determines_the_run(events):
  again, other = run(), run("seed=1", "max_env_steps=128", "evaluation.final_episodes=1")
  assert_equal_trees(final_training(events), final_training(again))
  returns = [
    [e.episode_returns.tolist() for e in es if isinstance(e, Acted)] for es in (events, again, other)
  ]
  assert returns[0] == returns[1]
  assert returns[0][:2] != returns[2]


MODERN = (
  "ppo.network.kind=conv",
  "ppo.network.channels=[4,4]",
  "ppo.network.sharing=shared",
  "ppo.bootstrap_truncated=true",
  "ppo.layer_norm=true",
  "ppo.clip_value=false",
  "ppo.value_loss=categorical",
)


LSTM = ("ppo.network.lstm_size=5", "ppo.network.sharing=shared")


@pytest.mark.parametrize("options", [(), *(pytest.param(x, marks=pytest.mark.slow) for x in (LSTM, MODERN))])
def test_resume_to_the_bit(events, options):
  whole = run(*options) if options else events
  at = first_checkpoint(whole)
  if options == LSTM:
    (collector,) = whole[at].state.collectors
    assert np.asarray(collector["lanes/carry/state"]).any()
  assert 0 < whole[at].env_steps < whole[-1].env_steps
  again = run(*options, state=whole[at].state)
  assert_equal_trees(final_training(whole), final_training(again))
  rest = [[(type(e), e.env_steps, e.learner_steps) for e in x] for x in (whole[at + 1 :], again[1:])]
  assert rest[0] == rest[1]


@pytest.mark.learning
@pytest.mark.parametrize(
  ("options", "best", "value"),
  [
    (("ppo.bootstrap_truncated=true",), STAY, SALARY / (1 - 0.9)),
    (("ppo.bootstrap_truncated=true", "ppo.value_loss=categorical"), STAY, SALARY / (1 - 0.9)),
    (("ppo.bootstrap_truncated=true", "ppo.value_loss=huber"), STAY, SALARY / (1 - 0.9)),
    # Without a bootstrap, the value at the time limit is 0, so staying is worth at most CAP · SALARY < BONUS.
    (("ppo.bootstrap_truncated=false",), LEAVE, BONUS),
  ],
)
def test_bootstrap_at_a_time_limit(options, best, value):
  settings = (
    "env.name=tests.baselines.ppo.salary:make_env",
    "ppo.num_envs=16",
    "ppo.segment_length=32",
    "ppo.discount=0.9",
    "ppo.learning_rate=0.01",
    "ppo.anneal_learning_rate=false",
    "ppo.clip_value=false",
    "evaluation.period_env_steps=1000000",
    "max_env_steps=40960",
  )
  config = configure(*settings, *options)
  params = final_training(run(*settings, *options)).params
  network = ppo_algorithm.network_of(config, build.env_spec(config))
  logits, head = network.apply(params, np.ones((1, 1, 1, 1, 1), np.float32))
  # The entropy bonus keeps it below 1: without a bootstrap, seeds 0 to 2 end between 0.77 and 0.87.
  assert jax.nn.softmax(logits[0, 1:])[best] > 0.6
  assert network.value(head)[0] == pytest.approx(value, rel=0.1)


@pytest.mark.slow
def test_start_from_a_state(events):
  state = final_training(events)
  again = run("max_env_steps=64", state=RunState(training=state))
  assert again[0].learner_steps == 20
  assert again[-1].learner_steps == 24
  rate = next(e.metrics["update/learning_rate"] for e in again if isinstance(e, Updated))
  assert rate == pytest.approx(2.5e-4)
  changes = [
    np.abs(a - b).max()
    for a, b in zip(
      jax.tree_util.tree_leaves(final_training(again).params),
      jax.tree_util.tree_leaves(state.params),
      strict=True,
    )
  ]
  assert 0 < max(changes) < 0.01


def test_training_state_template(events):
  config = configure()
  template = algorithm_of(config).training_state_template(config, build.env_spec(config))
  state = final_training(events)
  assert jax.tree_util.tree_structure(template) == jax.tree_util.tree_structure(state)
  for a, b in zip(jax.tree_util.tree_leaves(template), jax.tree_util.tree_leaves(state), strict=True):
    assert (a.shape, a.dtype) == (b.shape, b.dtype)


def test_evaluation_is_greedy_without_noise(events):
  state = final_training(events)
  played = []
  for noise_free in ("true", "false"):
    # Without random starts, only the ball's column varies, so noise-free episodes often repeat.
    config = configure(f"evaluation.noise_free={noise_free}", "evaluation.max_random_starts=0")
    evaluator = ppo_algorithm.build_evaluator(config, build.env_spec(config))
    played.append(evaluator.run(state.variables, num_episodes=40).num_distinct)
  assert played[0] <= 5
  assert played[1] > 20


@pytest.mark.slow
def test_skipped_rounds_raise(collected):
  """Training ends after two skipped rounds in a row; a good round in between resets the count."""
  options = ("ppo.history_length=3", "ppo.max_skipped_rounds=2")
  _, state, _, segments = collected
  config = configure(*options)
  learner = ppo_algorithm.build_learner(config, build.env_spec(config))
  learner.set_state(jax.device_get(state))
  good = segments[0][0]
  bad = replace(good, reward=np.full_like(good.reward, np.nan))
  for segment, skipped in ((bad, 4), (good, 0), (bad, 4)):
    _, metrics = learner.advance((segment, np.float32(1e-3)), segment.is_live.size)
    assert metrics["faults/skipped_updates"] == skipped
    assert metrics.get("faults/not_finite_policy", 0) == skipped
  before = learner.get_state()
  error_text = r"^loss/policy is not finite: 8 updates in a row.* step 15; ppo\.max_skipped_rounds=2 allows"
  with pytest.raises(NotFiniteError, match=error_text):
    learner.advance((bad, np.float32(1e-3)), bad.is_live.size)
  assert_equal_trees(before.params, learner.get_state().params)


@pytest.mark.slow
def test_rollback_once(events):
  saved, received = final_training(events), []
  options = ("ppo.learning_rate=1e30", "ppo.max_skipped_rounds=1", "max_env_steps=6400")
  config = configure(
    *options, "ppo.network.activation=relu", "checkpoint.period_s=1e9", "checkpoint.first_s=null"
  )
  started = ppo_algorithm.run(
    RunInputs(config, build.env_spec(config), latest=lambda: RunState(training=saved))
  )
  with pytest.raises(NotFiniteError, match=r"ppo\.max_skipped_rounds=1 allows no more"):
    received.extend(started)
  (fault,) = [e for e in received if isinstance(e, Faulted)]
  assert fault.counts["rollbacks"] == 1
  assert fault.counts["lost_updates"] == fault.learner_steps - 20
  assert "learner step 20" in fault.message
  assert isinstance(received[-1], StateReady)
  assert received[-1].is_final


@pytest.mark.slow
def test_failed_environment_leaves_a_last_state():
  """Each environment raises in the fifth step of its second episode, which is its step 15."""
  options = ("env.name=tests.envs.faulty:make_env", "ppo.segment_length=8", "workers.max_env_faults=1")
  config, received = configure(*options), []
  with pytest.raises(EnvError, match="the environment's own error"):
    received.extend(ppo_algorithm.run(RunInputs(config, build.env_spec(config))))
  last = received[-1]
  assert isinstance(last, StateReady)
  assert last.is_final
  assert last.env_steps == 32
  assert last.state.collectors == ()
  again = run(*options, "env.kwargs.episode=999999", "max_env_steps=96", state=last.state)
  assert again[0].message == "PPO, one process; all environments are reset"
  assert (again[0].env_steps, again[-1].env_steps, again[-1].reason) == (32, 96, "max_env_steps")
  # If the environment fails in the first segment, there is no state to save.
  config, received = configure(*options, "ppo.segment_length=16"), []
  with pytest.raises(EnvError):
    received.extend(ppo_algorithm.run(RunInputs(config, build.env_spec(config))))
  assert [type(e) for e in received] == [Started]


FAULTY = "env.name=tests.envs.faulty:make_env"


@pytest.mark.slow
def test_non_finite_segment_is_refused():
  """Only the second episode of each environment, in the first segment, has a NaN reward."""
  received = run(FAULTY, "env.kwargs.how=nan", "evaluation.period_env_steps=100000", "evaluation.episodes=1")
  (fault,) = [e for e in received if isinstance(e, Faulted)]
  assert fault.counts == {"refused_segments": 1, "lost_steps": 64}
  assert fault.message.startswith(
    "training_worker_0: a segment of 64 steps is refused: last_reward is not finite"
  )
  assert fault.env_steps == 64
  updates = [e.metrics for e in received if isinstance(e, Updated)]
  assert len(updates) == 4
  assert all(m["faults/skipped_updates"] == 0 for m in updates)
  assert (received[-1].env_steps, received[-1].learner_steps) == (320, 16)
  second = [e for e in received if isinstance(e, Acted)][1]
  assert second.episode_lengths.tolist() == [9] * 4


@pytest.mark.slow
def test_consecutive_refused_segments_end_the_run():
  options = (FAULTY, "replay.max_refused_segments=2", "env.kwargs.sound_envs=0")
  config, received = configure(*options, "env.kwargs.how=nan"), []
  error_text = (
    r"training_worker_0: 2 segments in a row were refused, the last: last_reward .*max_refused_segments=2"
  )
  with pytest.raises(SegmentError, match=error_text):
    received.extend(ppo_algorithm.run(RunInputs(config, faulty.SPEC)))  # a trial episode would find the fault
  assert [type(e) for e in received] == [Started, Acted, Faulted, Acted, Faulted, StateReady]
  last = received[-1]
  assert (last.is_final, last.env_steps, last.learner_steps, last.state.collectors) == (True, 128, 0, ())
  again = run(FAULTY, "env.kwargs.episode=999999", "max_env_steps=192", state=last.state)
  assert again[0].message == "PPO, one process; all environments are reset"
  assert (again[-1].env_steps, again[-1].learner_steps) == (192, 4)


@pytest.mark.slow
def test_env_that_fails_after_a_refused_segment_leaves_a_last_state(monkeypatch):
  def fail(self):
    raise EnvError("the environment failed")

  config, received = configure(FAULTY, "env.kwargs.how=nan"), []
  monkeypatch.setattr(TrajectoryCollector, "reset", fail)
  with pytest.raises(EnvError):
    received.extend(ppo_algorithm.run(RunInputs(config, build.env_spec(config))))
  last = received[-1]
  assert isinstance(last, StateReady)
  assert (last.is_final, last.state.collectors) == (True, ())


@pytest.mark.slow
@pytest.mark.parametrize(("length", "is_in_it"), [(8, True), (5, False)])
def test_non_finite_frames_are_refused(length, is_in_it):
  """In the first episode of each environment, frame 5 is NaN."""
  config = configure(FAULTY, f"ppo.segment_length={length}", "ppo.history_length=3")
  spec = build.env_spec(config)
  state = compiled_init(config, spec)
  env = make_vector(config.env.name, {"how": "nan_frame", "episode": 0}, 4, 0)
  collector = collector_in(env, config)
  segment, _, steps, after = collect(collector, state)
  assert np.isfinite(segment.frames).all() != is_in_it
  with pytest.raises(ValueError, match="frame is not finite"):
    check_finite(steps, after)
  collector.reset()
  segment, _, steps, after = collect(collector, state)
  check_finite(steps, after)
  assert np.isfinite(segment.value).all()


@pytest.mark.parametrize(("scale", "factor"), [("true", 1.0), ("false", 255.0)])
def test_scale_frames(scale, factor):
  spec = dataclasses.replace(build.env_spec(configure()), frame_dtype="uint8")
  network = ppo_algorithm.network_of(
    configure(f"ppo.scale_frames={scale}", "ppo.network.hidden_sizes=[]"), spec
  )
  frames = np.full((1, 1, *spec.frame_shape), 255, np.uint8)
  params = fast_jit(network.init)(jax.random.PRNGKey(0), frames)
  weights = np.asarray(params["value"]["w"])
  assert float(fast_jit(network.apply)(params, frames)[1][0]) == pytest.approx(
    factor * weights.sum(), rel=1e-4
  )


@pytest.mark.parametrize("kind", ["mlp", pytest.param("conv", marks=pytest.mark.slow)])
def test_initial_bias(kind):
  spec = build.env_spec(configure())
  network = ppo_algorithm.network_of(configure("ppo.initial_bias=0.05", f"ppo.network.kind={kind}"), spec)
  params = fast_jit(network.init)(jax.random.PRNGKey(0), np.zeros((1, 1, *spec.frame_shape), bool))
  biases = np.concatenate([np.asarray(layer["b"]) for layer in params.values()])
  assert 0 <= biases.min() < 0.01
  assert 0.04 < biases.max() < 0.05
  assert all(layer["b"].any() for layer in params.values())


def test_unsupported_environments_are_refused():
  hidden = dataclasses.replace(NIM_SPEC, is_perfect_information=False)
  with pytest.raises(UserError, match=r"algorithm=ppo: self-play needs a game without hidden information"):
    ppo_algorithm.check_env(configure(), hidden)
  config = configure()
  with pytest.raises(UserError, match=r"nature_conv: .* 36×36.* 10×5"):
    ppo_algorithm.check_env(configure("ppo.network.kind=nature_conv"), build.env_spec(config))
  with pytest.raises(UserError, match=r"--simulations=9: .* does not search"):
    ppo_algorithm.build_evaluator(config, build.env_spec(config), 9)


def test_failed_environment_truncates_its_episode():
  """In every environment, frames 0 … 9 are an episode; the next one fails after frame 14."""
  config = configure(
    "env.name=tests.envs.faulty:make_env", "ppo.segment_length=16", "ppo.bootstrap_truncated=true"
  )
  spec = build.env_spec(config)
  state, workers = compiled_init(config, spec), config.workers
  env = make_vector(config.env.name, {}, 4, 0, workers.max_env_faults, workers.env_timeout_s)
  collector = collector_in(env, config)
  segment, acted, *_ = collect(collector, state)
  assert segment.is_last[:, 0].tolist() == [t in (8, 13) for t in range(16)]
  assert segment.is_truncated[:, 0].tolist() == [t == 13 for t in range(16)]
  assert segment.is_live[:, 0].tolist() == [t not in (9, 14) for t in range(16)]
  advantage = np.asarray(fast_jit(lambda x: generalized_advantages(x, config.ppo))(segment))
  expected = segment.reward[13] + config.ppo.discount * segment.value[14] - segment.value[13]
  np.testing.assert_allclose(advantage[13], expected, rtol=1e-5)
  assert acted.metrics["faults/env_errors"] == 4
  assert acted.episode_returns.tolist() == [9.0] * 4
  # The truncated episode's rewards are not added to the next return.
  _, then, *_ = collect(collector, state)
  assert (then.episode_returns.tolist(), then.episode_lengths.tolist()) == ([9.0] * 4, [9] * 4)
