"""Tests of the running normalization of MuZero's and Q-learning's observations, against NumPy."""

import jax
import numpy as np
import pytest

from moozi.agent.update import init_training_state, make_update
from moozi.baselines.observations import OBSERVATIONS
from moozi.baselines.q_learning import algorithm as q_learning
from moozi.baselines.q_learning.update import QBatch, make_loss
from moozi.core.config import Config, NetworkConfig
from moozi.core.config.chance import ChanceConfig
from moozi.core.errors import UserError
from moozi.core.pytree import map_fields, replace
from moozi.core.spec import EnvSpec
from moozi.envs.vector import blank_step
from moozi.io.checkpoints import expected_of
from moozi.io.config import load_config
from moozi.nn.model import make_model
from moozi.ops.running_stats import EPSILON
from moozi.training.checks import check_players
from tests.agent.tiny import random_target
from tests.fast_jit import fast_jit
from tests.nn.test_model import LENGTH, PHI, SHALLOW, VECTOR
from tests.run_events import assert_equal_trees

NORM = "observation_norm"
SIZE = VECTOR.frame_shape[-1]


def histories(seed: int, length: int, actions: int = VECTOR.num_actions) -> np.ndarray:
  """Returns stacked histories of 16 samples, whose entries have different means and deviations."""
  random = np.random.default_rng(seed)
  frames = random.normal(size=(16, 1, 1, length, SIZE)) * np.arange(1, SIZE + 1) + np.arange(SIZE) ** 2
  frames[0, 0, 0, -1, 0] = 1e4  # beyond the bound
  codes = random.random((16, 1, 1, length * actions)) / actions
  return np.concatenate([frames.reshape(16, 1, 1, -1), codes], axis=-1, dtype=np.float32)


def by_hand(stacked: np.ndarray, length: int, frames: np.ndarray) -> np.ndarray:
  """Returns the stacked histories, normalized by the statistics of `frames` [N, D]."""
  deviation = np.sqrt(frames.var(axis=0) + EPSILON)
  shown = stacked[..., : length * SIZE].reshape(-1, 1, 1, length, SIZE)
  shown = np.clip((shown - frames.mean(axis=0)) / deviation, -10, 10).reshape(-1, 1, 1, length * SIZE)
  return np.concatenate([shown, stacked[..., length * SIZE :]], axis=-1, dtype=np.float32)


def newest(stacked: np.ndarray) -> np.ndarray:
  return stacked[:, 0, 0, (LENGTH - 1) * SIZE : LENGTH * SIZE].astype(np.float64)


def initial(model, stacked):
  """Returns the initial (params, net_state)."""
  return fast_jit(model.init)(jax.random.PRNGKey(0), stacked[:2])


def models(**options):
  """Returns the models with and without normalization, which have the same parameters."""
  network = NetworkConfig(kind="mlp", **SHALLOW)
  both = (network.model_copy(update={"normalize_observations": on}) for on in (True, False))
  return [make_model(config, VECTOR, LENGTH, PHI, **options) for config in both]


def test_networks_see_normalized_frames():
  """Training normalizes by the statistics before the call, to which it adds the newest frames."""
  model, plain = models()
  first, second = histories(0, LENGTH), histories(1, LENGTH)
  params, state = initial(model, first)
  assert state[NORM]["stats"].count == 0
  assert_equal_trees(params, initial(plain, first)[0])
  represent = fast_jit(model.represent, static_argnums=3)
  expected = fast_jit(lambda x: plain.represent(params, {}, x, False)[0])
  hidden, state = represent(params, state, first, True)
  np.testing.assert_allclose(hidden, expected(np.clip(first, -10, 10)), rtol=1e-4, atol=1e-4)
  seen = newest(first)
  for x, is_training in ((second, True), (first, False)):
    hidden, after = represent(params, state, x, is_training)
    np.testing.assert_allclose(hidden, expected(by_hand(x, LENGTH, seen)), rtol=1e-3, atol=1e-3)
    seen = np.concatenate([seen, newest(x)]) if is_training else seen
    stats = after[NORM]["stats"]
    assert stats.count == len(seen)
    np.testing.assert_allclose(stats.mean[0, 0], seen.mean(axis=0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(stats.variance[0, 0], seen.var(axis=0), rtol=1e-3)
    state = after


def test_encoder_of_outcomes_uses_the_same_statistics():
  model, plain = models(chance=ChanceConfig(codes=4))
  history, transition = histories(0, LENGTH), histories(1, LENGTH + 1)
  params, state = initial(model, history)
  assert list(state) == [NORM]
  _, state = fast_jit(model.represent, static_argnums=3)(params, state, history, True)
  encode, plain_encode = (fast_jit(m.chance.encode, static_argnums=3) for m in (model, plain))
  codes, after = encode(params, state, transition, True)
  expected, _ = plain_encode(params, {}, by_hand(transition, LENGTH + 1, newest(history)), True)
  np.testing.assert_allclose(codes, expected, rtol=1e-3, atol=1e-4)
  assert after[NORM]["stats"].count == state[NORM]["stats"].count == 16


def test_update_counts_each_root_once():
  """The frames of the consistency loss do not enter; a skipped update changes no statistics."""
  config = Config(
    network=NetworkConfig(kind="mlp", normalize_observations=True, **SHALLOW),
    targets={"unroll_steps": 1, "history_length": LENGTH, "n_step": 2},
  )
  model = make_model(config.network, VECTOR, LENGTH, PHI)
  state = fast_jit(lambda key: init_training_state(model, config, VECTOR, key))(jax.random.PRNGKey(0))
  assert state.net_state[NORM]["stats"].count == 0
  update = fast_jit(make_update(model, config, VECTOR))
  target = random_target(np.random.default_rng(0), 4, 1, LENGTH, VECTOR.frame_shape, VECTOR.num_actions)
  target = replace(target, frames=target.frames.astype(np.float32), consistency_mask=np.ones(4, np.float32))
  state, output = update(state, target)
  assert output.bad_term == -1
  stats = state.net_state[NORM]["stats"]
  assert stats.count == 4
  np.testing.assert_allclose(stats.mean, target.frames[:, LENGTH - 1].mean(axis=0), rtol=1e-5, atol=1e-6)
  bad = replace(target, importance_ratio=np.full(4, np.nan, np.float32))
  state, output = update(state, bad)
  assert output.bad_term >= 0
  assert state.net_state[NORM]["stats"].count == 4


# --- Q-learning ---------------------------------------------------------------------------------------

Q = ("algorithm=q_learning", "env.name=gymnasium:CartPole-v1", "q_learning.network.hidden_sizes=[]")
NORMALIZED = "q_learning.normalize_observations=true"


def q_batch(seed: int) -> QBatch:
  random = np.random.default_rng(seed)
  zeros, mask = np.zeros(8, np.int32), np.tile([False, True, True], (8, 1))
  frames = (3 + 2 * random.normal(size=(2, 8, 1, *VECTOR.frame_shape))).astype(np.float32)
  return QBatch(
    frames=frames[0],
    legal_actions_mask=mask,
    action=random.integers(1, 3, 8).astype(np.int32),
    reward=random.random(8).astype(np.float32),
    bootstrap=np.full(8, 0.9, np.float32),
    next_frames=frames[1],
    next_legal_actions_mask=mask,
    is_live=random.random(8) < 0.7,
    importance_ratio=np.ones(8, np.float32),
    slot=zeros.astype(np.int64),
    sequence=zeros.astype(np.int64),
    acted_version=zeros,
    searched_version=zeros,
  )


def test_q_learning_normalizes_frames_and_next_frames():
  config = load_config(None, [*Q, NORMALIZED])
  q_function = q_learning.make_q_function(config, VECTOR)
  update = fast_jit(q_learning.make_update_many(q_function, config))
  loss = fast_jit(make_loss(q_function, config))
  state = q_learning.initial_training_state(config, VECTOR)
  batches, seen = [q_batch(0), q_batch(1)], []
  for batch in batches:
    live = np.concatenate(seen) if seen else None

    def shown(frames, live=live):
      if live is None:
        return np.clip(frames, -10, 10)
      return np.clip((frames - live.mean(axis=0)) / np.sqrt(live.var(axis=0) + EPSILON), -10, 10)

    normalized = replace(batch, frames=shown(batch.frames), next_frames=shown(batch.next_frames))
    expected, _ = loss(state.params, state.target_params, normalized)
    lead = map_fields(lambda x: x[None], batch)
    state, output = update(state, lead)
    assert output.metrics["loss/value"] == pytest.approx(float(expected), rel=1e-3)
    seen.append(batch.frames[batch.is_live][:, -1])
  live, stats = np.concatenate(seen), jax.device_get(state.net_state[OBSERVATIONS])
  assert stats.count == len(live) < 16
  np.testing.assert_allclose(stats.mean, live.mean(axis=0), rtol=1e-5)
  np.testing.assert_allclose(stats.variance, live.var(axis=0), rtol=1e-4)
  agent = q_learning.build_agent(config, VECTOR)
  step = replace(
    blank_step(VECTOR, 8), frame=batch.frames[:, -1], legal_actions_mask=batch.legal_actions_mask
  )
  _, decision = fast_jit(agent.act)(state.variables, agent.init(8), step, jax.random.PRNGKey(0), 0.0)
  frames = np.clip((batch.frames - stats.mean) / np.sqrt(stats.variance + EPSILON), -10, 10)
  values = fast_jit(q_function.apply)(state.params, frames, batch.legal_actions_mask)
  np.testing.assert_allclose(decision.root_value, np.max(values[:, 1:], axis=-1), rtol=1e-4, atol=1e-5)


# --- settings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ("overrides", "error_text"),
  [
    ((NORMALIZED, *Q, "q_learning.kind=table"), "normalize_observations=true: must be false with kind=table"),
    (("network.normalize_observations=true", *Q), "needs algorithm=muzero or alphazero, not q_learning"),
    (
      ("network.normalize_observations=true", "network.center_frames=true"),
      "false with center_frames",
    ),
  ],
)
def test_wrong_settings_are_refused(overrides, error_text):
  with pytest.raises(UserError) as caught:
    load_config(None, list(overrides))
  assert error_text in str(caught.value)
  assert "\n" not in str(caught.value)


@pytest.mark.parametrize("algorithm", ["muzero", "q_learning", "ppo"])
def test_pictures_are_not_normalized(algorithm):
  section = "network" if algorithm == "muzero" else algorithm
  key = f"{section}.normalize_observations=true"
  config = load_config(None, [f"algorithm={algorithm}", "env.name=atari:Pong", key])
  pictures = EnvSpec(name="atari:Pong", frame_shape=(84, 84, 1), frame_dtype="uint8", num_env_actions=6)
  with pytest.raises(UserError, match=f"^{key}: must be false with .*atari:Pong, whose frames are uint8"):
    check_players(config, pictures)


def test_checkpoints_name_the_normalization():
  """Networks without it have the same description as before the key existed."""
  plain, normalized = (
    expected_of(load_config(None, [f"network.normalize_observations={on}"]), VECTOR)["network"]
    for on in ("false", "true")
  )
  assert normalized == plain | {"normalize_observations": True}
  assert "normalize_observations" not in plain
