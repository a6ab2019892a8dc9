"""The configuration of the PPO baseline: every detail is a key, and its default is the source's.

Source: Huang et al. 2022, "The 37 Implementation Details of Proximal Policy Optimization", and its programs:
`ppo.py` gives the defaults; "Atari's" is what `ppo_atari.py` has instead (config/ppo/atari.yaml has it all).
Of the nine details for Atari four are here: clipped rewards, stacked frames, the shared convolutional
network, and frames scaled to [0, 1]. The other five (no-op starts, skipped frames with their maximum, an
episode for each life, fire on reset, warped frames) are the environment's own: `env.kwargs`.
"""

from typing import Literal

from pydantic import Field, model_validator

from moozi.core.section import NonNegativeFloat, PositiveFloat, PositiveInt, Probability, Section


class PPONetworkConfig(Section):
  """The network of policy and value."""

  kind: Literal["mlp", "conv", "nature_conv"] = Field(
    "mlp",
    description="mlp flattens the frame; conv puts one 3×3 convolution first, as MinAtar's own agents do; "
    "nature_conv three of them (Atari's; frames of at least 36×36)",
  )
  sharing: Literal["separate", "shared"] = Field(
    "separate", description="policy and value: two networks (ppo.py's), or two heads on one (Atari's)"
  )
  hidden_sizes: tuple[PositiveInt, ...] = Field((64, 64), description="of the dense layers; Atari's 512")
  activation: Literal["tanh", "relu"] = Field(
    "tanh", description="of the dense layers; Atari's relu, which convolutions always have"
  )
  channels: PositiveInt = Field(16, description="conv: channels of the convolution")
  orthogonal_init: bool = Field(
    True,
    description="orthogonal weights of scale √2, at the value 1, at the policy 0.01; false is a truncated "
    "normal of variance 1 / inputs everywhere",
  )


class PPOConfig(Section):
  """PPO; read with `algorithm: ppo`, which plays in one process whatever `runtime` says.

  Of the other keys PPO reads seed, max_env_steps, max_wall_s, env, run, evaluation (but for resources),
  checkpoint and logging, of workers what becomes of environments that fail, and replay.max_refused_segments,
  of its
  own segments. The rest is MuZero's and is not read.
  """

  num_envs: PositiveInt = Field(4, description="environments side by side; Atari's 8")
  segment_length: PositiveInt = Field(128, description="vector steps between two rounds of updates")
  num_epochs: PositiveInt = Field(4, description="times that each sample is used")
  num_minibatches: PositiveInt = Field(4, description="into which an epoch is divided; each makes an update")
  history_length: PositiveInt = Field(1, description="frames the network sees, the newest last; Atari's 4")
  # Beside the network, not in it: a key there would make the checkpoints there are those of another network.
  scale_frames: bool = Field(
    True, description="bytes to [0, 1] for the network, Atari's; false shows them as they are, 0 to 255"
  )
  initial_bias: NonNegativeFloat = Field(
    0.0, description="biases of all layers are drawn between 0 and this at first; gymnax's 0.05"
  )
  discount: Probability = 0.99
  gae_lambda: Probability = Field(0.95, description="λ of the advantages; 1 is all of the return")
  bootstrap_truncated: bool = Field(
    False,
    description="where a time limit cut an episode, add the value of its last frame; the source takes the "
    "cut for an end",
  )
  clip_rewards: bool = Field(False, description="learn from the rewards' signs; Atari's true")
  learning_rate: PositiveFloat = 2.5e-4
  anneal_learning_rate: bool = Field(
    True, description="linearly to 0 at max_env_steps, constant in one round of updates"
  )
  adam_epsilon: PositiveFloat = 1e-5
  max_grad_norm: PositiveFloat | None = Field(0.5, description="of all gradients together; null is no limit")
  normalize_advantages: bool = Field(True, description="to mean 0 and deviation 1 in each minibatch")
  clip_range: PositiveFloat = Field(0.2, description="of the probability ratio around 1; Atari's 0.1")
  clip_value: bool = Field(
    True, description="clip the value's change by clip_range too, in units of the rewards learned from"
  )
  entropy_coef: NonNegativeFloat = 0.01
  value_coef: NonNegativeFloat = 0.5
  max_skipped_rounds: PositiveInt = Field(
    3,
    description="when a loss or gradient was not finite in so many rounds' updates, one after the other, the "
    "run goes back to its last checkpoint's parameters; the second time it ends",
  )
  network: PPONetworkConfig = PPONetworkConfig()

  @property
  def round_steps(self) -> int:
    """Environment steps between two rounds of updates."""
    return self.num_envs * self.segment_length

  @property
  def round_updates(self) -> int:
    """Updates in a round: its minibatches, in every epoch."""
    return self.num_epochs * self.num_minibatches

  @model_validator(mode="after")
  def _fits(self) -> "PPOConfig":
    size, rest = divmod(self.round_steps, self.num_minibatches)
    if rest or not size:
      raise ValueError(
        f"num_minibatches={self.num_minibatches}: must divide num_envs × segment_length = {self.round_steps}"
      )
    if size == 1 and self.normalize_advantages:
      raise ValueError(
        f"num_minibatches={self.num_minibatches}: leaves one sample to a minibatch, whose normalized "
        "advantage is 0; allowed are fewer, or normalize_advantages=false"
      )
    return self
