import pydantic
import pytest

from moozi.core.config import Config
from moozi.core.config.ppo import PPOConfig


def test_defaults_equal_the_sources():
  """The source is `ppo.py` of Huang et al. 2022."""
  ppo = Config().ppo
  assert Config().algorithm == "muzero"
  assert (ppo.num_envs, ppo.segment_length, ppo.num_minibatches, ppo.num_epochs) == (4, 128, 4, 4)
  assert (ppo.learning_rate, ppo.anneal_learning_rate, ppo.adam_epsilon) == (2.5e-4, True, 1e-5)
  assert (ppo.discount, ppo.gae_lambda, ppo.bootstrap_truncated) == (0.99, 0.95, False)
  assert (ppo.normalize_advantages, ppo.clip_range, ppo.clip_value) == (True, 0.2, True)
  assert (ppo.entropy_coef, ppo.value_coef, ppo.max_grad_norm) == (0.01, 0.5, 0.5)
  assert (ppo.network.sharing, ppo.network.hidden_sizes, ppo.network.activation) == (
    "separate",
    (64, 64),
    "tanh",
  )
  assert ppo.network.orthogonal_init
  assert ppo.network.lstm_size == 0
  assert ppo.scale_frames
  assert (ppo.initial_bias, ppo.layer_norm, ppo.network.channels) == (0.0, False, 16)
  assert (ppo.value_loss, ppo.conv_stride) == ("squared", 1)
  assert (ppo.target_kl, ppo.anneal_clip_range) == (None, False)
  # Those of `ppo_continuous_action.py`, which config/ppo/mujoco.yaml enables.
  assert (ppo.normalize_observations, ppo.normalize_rewards) == (False, False)
  assert (ppo.observation_clip, ppo.reward_clip) == (10.0, 10.0)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"num_minibatches": 3}, "num_minibatches=3: must divide num_envs × segment_length = 512"),
    ({"num_minibatches": 1024}, "must divide"),
    ({"num_minibatches": 512}, "one sample in a minibatch"),
    (
      {"num_minibatches": 8, "network": {"lstm_size": 8}},
      "num_minibatches=8: must divide num_envs=4 with network.lstm_size, because a minibatch has whole",
    ),
    ({"network": {"lstm_size": -1}}, "greater than or equal to 0"),
    ({"gae_lambda": 1.1}, "less than or equal to 1"),
    ({"clip_range": 0}, "greater than 0"),
    ({"initial_bias": -0.1}, "greater than or equal to 0"),
    ({"network": {"hidden_sizes": (64, 0)}}, "greater than or equal to 1"),
    ({"network": {"channels": ()}}, "at least 1 item"),
    ({"network": {"channels": (16, 0)}}, "greater than or equal to 1"),
    ({"normalize_rewards": True, "clip_rewards": True}, "clip_rewards=true: must be false with"),
    ({"value_loss": "huber"}, "value_loss=huber: has no clipped form; use clip_value=false"),
    ({"value_loss": "categorical"}, "value_loss=categorical: has no clipped form; use clip_value=false"),
  ],
)
def test_rejects_invalid_values(changes, message):
  with pytest.raises(pydantic.ValidationError, match=message):
    PPOConfig.model_validate(changes)


def test_round_steps_and_updates():
  ppo = PPOConfig(num_envs=3, segment_length=8, num_epochs=2, num_minibatches=6)
  assert (ppo.round_steps, ppo.round_updates) == (24, 12)


def test_single_samples_without_normalization():
  assert PPOConfig(num_minibatches=512, normalize_advantages=False).num_minibatches == 512


def test_ppo_has_no_replay_that_must_fit():
  settings = {"replay": {"capacity": 1000}}
  with pytest.raises(pydantic.ValidationError, match=r"replay\.capacity=1000"):
    Config(**settings)
  assert Config(algorithm="ppo", **settings).replay.capacity == 1000
