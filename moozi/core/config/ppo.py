"""The configuration of the PPO baseline.

Source: Huang et al. 2022, "The 37 Implementation Details of Proximal Policy Optimization", and its code.
Keys that `ppo.py` has too have its defaults. The keys' descriptions give the values of `ppo_atari.py` after
"Atari"; config/ppo/atari.yaml sets all of them. docs/ppo.md lists the details with their options; some are
options of the environment, in `env.kwargs`.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from moozi.core.config.learning import DiscountSchedule
from moozi.core.config.section import (
  NonNegativeFloat,
  NonNegativeInt,
  PositiveFloat,
  PositiveInt,
  Probability,
  Section,
)


class BaselineNetworkConfig(Section):
  """The network of a baseline.

  With q_learning, the policy head outputs action values, or with `dueling` advantages; without `dueling`,
  `sharing` is not read.
  """

  kind: Literal["mlp", "conv", "nature_conv", "multi_input"] = Field(
    "mlp",
    description="mlp: on the flattened frame; conv: one 3×3 convolution first, as in MinAtar's agents, or "
    "one for each entry of channels; nature_conv: three convolutions first (Atari; frames of at least "
    "36×36); multi_input: for each image of a Dict or Tuple the convolutions of nature_conv, or those of "
    "conv if a side is below 36, and one dense layer for the other numbers (docs/environments.md)",
  )
  sharing: Literal["separate", "shared"] = Field(
    "separate",
    description="separate: two networks, for policy and value; shared: one network with two heads (Atari)",
  )
  hidden_sizes: tuple[PositiveInt, ...] = Field((64, 64), description="sizes of the dense layers; Atari: 512")
  activation: Literal["tanh", "relu"] = Field(
    "tanh", description="activation of the dense layers; Atari: relu. Convolutions always have relu"
  )
  channels: PositiveInt | Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = Field(
    16,
    description="conv, multi_input: channels of the 3×3 convolution; a list makes one convolution per entry",
  )
  orthogonal_init: bool = Field(
    True,
    description="orthogonal weights, of scale √2 before the heads (1 in an LSTM), 1 in the value's head and "
    "0.01 in the policy's; false: truncated normal weights of variance 1 / inputs",
  )


class PPONetworkConfig(BaselineNetworkConfig):
  """The network of PPO: policy and value."""

  lstm_size: NonNegativeInt = Field(
    0,
    description="size of an LSTM between the dense layers and the heads of each network, which remembers "
    "earlier frames of the episode; 0: none. With an LSTM a minibatch has whole environments, so "
    "num_minibatches must divide num_envs; source: 128",
  )
  lstm_forget_bias: float = Field(
    0.0,
    description="initial bias b of the forget gate: at first a step keeps about σ(b) of the memory (0.5 with "
    "b=0 as in the source, 0.98 with b=4); raise b where a frame matters many steps later",
  )


class PPOConfig(Section):
  """The keys of PPO (`algorithm: ppo`).

  PPO also reads seed, runtime, max_env_steps, max_wall_s, env, run, evaluation (except resources),
  checkpoint, logging (except the two keys of histograms), callbacks, workers.max_env_faults,
  workers.env_timeout_s, workers.max_random_starts, workers.rollout, workers.num_workers, opponents,
  trajectories, replay.max_refused_segments, and scalar_transform with value_loss=categorical; with
  runtime=ray also timeline, evaluation.resources, workers.resources, and ray.address, num_cpus, num_gpus,
  object_store_mib, max_restarts and learner. It reads no other keys. Your own algorithm reads what PPO reads
  of the other sections with runtime=local, except scalar_transform, workers.num_workers and opponents; it
  also reads workers.num_envs, workers.segment_length, targets.history_length and learner.max_skipped_updates.
  """

  num_envs: PositiveInt = Field(
    4, description="number of environments of all workers together; workers.num_workers divides it; Atari: 8"
  )
  segment_length: PositiveInt = Field(128, description="number of vector steps between two rounds of updates")
  num_epochs: PositiveInt = Field(
    4, description="number of passes over a round's samples; fewer if target_kl stops the round"
  )
  num_minibatches: PositiveInt = Field(4, description="number of minibatches in an epoch; one update each")
  history_length: PositiveInt = Field(1, description="number of stacked frames; Atari: 4")
  # The next three keys are not in ppo.network, because existing checkpoints would not match a section with
  # new keys.
  scale_frames: bool = Field(True, description="scale uint8 frames to [0, 1], as for Atari; false: 0 to 255")
  conv_stride: PositiveInt = Field(
    1,
    description="conv, multi_input: stride of the 3×3 convolutions, which are padded if it is above 1; a "
    "stride of 2 makes updates cheaper",
  )
  layer_norm: bool = Field(
    False,
    description="layer norm before every activation: over the channels of each cell, or over the dense layer",
  )
  initial_bias: NonNegativeFloat = Field(0.0, description="initial biases ~ U(0, initial_bias); gymnax: 0.05")
  discount: Probability = Field(0.99, description="γ per environment step")
  discount_schedule: DiscountSchedule = Field(
    (), description="later values of γ, as targets.discount_schedule; γ is constant within a round"
  )
  gae_lambda: Probability = Field(0.95, description="λ of generalized advantage estimation")
  bootstrap_truncated: bool = Field(
    False,
    description="bootstrap from the last frame's value where a time limit truncates an episode; the source "
    "treats truncation as an end",
  )
  normalize_observations: bool = Field(
    False,
    description="subtract the running mean of each entry of the observation and divide by its running "
    "standard deviation; for float32 observations, as in robotics",
  )
  observation_clip: PositiveFloat = Field(
    10.0, description="clip normalized observations to ± this number; read with normalize_observations"
  )
  normalize_rewards: bool = Field(
    False,
    description="divide the training rewards by the standard deviation of a running discounted return; "
    "reported returns are in units of the environment",
  )
  reward_clip: PositiveFloat = Field(
    10.0, description="clip divided rewards to ± this number; read with normalize_rewards"
  )
  clip_rewards: bool = Field(False, description="train on the signs of rewards; Atari: true")
  learning_rate: PositiveFloat = Field(2.5e-4, description="Adam's rate at the start")
  anneal_learning_rate: bool = Field(
    True, description="decay linearly to 0, as anneal_by says; constant within a round of updates"
  )
  anneal_by: Literal["steps", "progress"] = Field(
    "steps",
    description="what the annealed learning rate and clip range follow; steps: the share of the rounds until "
    "max_env_steps; progress: this share or that of max_wall_s that has passed, whichever is larger (with "
    "max_wall_s, the run cannot be reproduced to the bit)",
  )
  adam_epsilon: PositiveFloat = Field(1e-5, description="ε in Adam's denominator; Adam's default is 1e-8")
  max_grad_norm: PositiveFloat | None = Field(
    0.5, description="maximum norm of the whole gradient; null: no clipping"
  )
  max_grad_rms: PositiveFloat | None = Field(None, description="as learner.max_grad_rms")
  normalize_advantages: bool = Field(
    True, description="normalize advantages in each minibatch to mean 0 and standard deviation 1"
  )
  clip_range: PositiveFloat = Field(
    0.2, description="clip the probability ratio to 1 ± clip_range; Atari: 0.1"
  )
  anneal_clip_range: bool = Field(
    False, description="decay clip_range linearly to 0, as anneal_by says, for the ratio and for the value"
  )
  target_kl: PositiveFloat | None = Field(
    None,
    description="limit of ppo/approx_kl: after an epoch whose last minibatch is above it, the round makes no "
    "more updates; null: no early stop",
  )
  value_loss: Literal["squared", "huber", "categorical"] = Field(
    "squared",
    description="squared: half the squared error; huber: linear beyond an error of 1; categorical: "
    "cross-entropy over the support of `scalar_transform`, whose gradient does not grow with the return",
  )
  clip_value: bool = Field(
    True,
    description="also clip the change of the value to ± clip_range, in units of the training rewards; only "
    "with the squared loss",
  )
  entropy_coef: NonNegativeFloat = Field(0.01, description="weight of the entropy bonus")
  value_coef: NonNegativeFloat = Field(0.5, description="weight of the value loss; the policy loss has 1")
  max_skipped_rounds: PositiveInt = Field(
    3,
    description="number of consecutive rounds in which all updates have a non-finite loss or gradient, after "
    "which the run restores the training state of its last checkpoint; the second time since its start or "
    "last resume, or without a checkpoint, it ends",
  )
  network: PPONetworkConfig = PPONetworkConfig()

  @property
  def round_steps(self) -> int:
    """Number of environment steps between two rounds of updates."""
    return self.num_envs * self.segment_length

  @property
  def round_updates(self) -> int:
    """Number of updates in a round, if `target_kl` does not stop it: num_epochs · num_minibatches."""
    return self.num_epochs * self.num_minibatches

  @model_validator(mode="after")
  def _fits(self) -> "PPOConfig":
    size, rest = divmod(self.round_steps, self.num_minibatches)
    if rest or not size:
      raise ValueError(
        f"num_minibatches={self.num_minibatches}: must divide num_envs × segment_length = {self.round_steps}"
      )
    if self.network.lstm_size and self.num_envs % self.num_minibatches:
      raise ValueError(
        f"num_minibatches={self.num_minibatches}: must divide num_envs={self.num_envs} with "
        "network.lstm_size, because a minibatch has whole environments"
      )
    if self.clip_value and self.value_loss != "squared":
      raise ValueError(f"value_loss={self.value_loss}: has no clipped form; use clip_value=false")
    if self.clip_rewards and self.normalize_rewards:
      raise ValueError("clip_rewards=true: must be false with normalize_rewards=true, which has reward_clip")
    if size == 1 and self.normalize_advantages:
      raise ValueError(
        f"num_minibatches={self.num_minibatches}: one sample in a minibatch has a normalized advantage of 0; "
        "use fewer minibatches or normalize_advantages=false"
      )
    return self
