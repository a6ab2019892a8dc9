"""Training targets, replay, loss and optimizer."""

import math
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from moozi.core.config.section import (
  Decay,
  LossNames,
  NonNegativeFloat,
  NonNegativeInt,
  PositiveFloat,
  PositiveInt,
  Probability,
  Section,
)

Discount = Annotated[float, Field(gt=0.0, le=1.0)]


class DiscountPoint(Section):
  """The discount from `env_steps` on (piecewise constant)."""

  env_steps: PositiveInt = Field(description="environment steps from which the discount applies")
  discount: Discount = Field(description="γ from then on")


def check_discounts(points: tuple[DiscountPoint, ...]) -> tuple[DiscountPoint, ...]:
  """Returns the points of a schedule. Raises ValueError if their environment steps do not rise."""
  steps = [point.env_steps for point in points]
  if steps != sorted(set(steps)):
    raise ValueError(f"discount_schedule: env_steps {steps}: must rise")
  return points


DiscountSchedule = Annotated[tuple[DiscountPoint, ...], AfterValidator(check_discounts)]


class TargetsConfig(Section):
  """Training targets. The thesis has L=4, K=5, n=10 and a discount of 0.997."""

  history_length: PositiveInt = Field(
    1, description="L: number of frames, with their actions, that the network sees"
  )
  unroll_steps: NonNegativeInt = Field(
    5,
    description="K: steps that the dynamics network is trained to unroll; alphazero: 0; muzero, q_learning: "
    "at least 1",
  )
  n_step: PositiveInt = Field(
    10,
    description="n: number of rewards in a value target before it bootstraps; fewer at an episode's end",
  )
  search_value_age: PositiveInt | None = Field(
    None,
    description="age of a start step, in environment steps, from which its value targets are search values, "
    "which reanalyze renews, in place of n-step returns; null: never; needs reanalyze.ratio above 0 and "
    "reanalyze.search",
  )
  discount: Discount = Field(0.997, description="γ per environment step")
  discount_schedule: DiscountSchedule = Field(
    (),
    description="later values of γ in targets and searches, as a list of {env_steps, discount}; empty: "
    "always discount. The horizon of γ is 1 / (1 - γ) steps",
  )


class ReplayConfig(Section):
  """The replay buffer. Priorities follow from δ, the absolute difference of a start step's value and target.

  When the step is stored or searched again, the value is the step's root value. With refresh_priorities, each
  update with the step sets δ from the network's value.
  """

  capacity: PositiveInt = Field(1_000_000, description="maximum number of steps, over all environments")
  window_share: Annotated[float, Field(gt=0.0, le=1.0)] = Field(
    1.0,
    description="sample only from the newest steps, whose number is this share of all environment steps so "
    "far, at least window_min and at most capacity; 1: all stored steps",
  )
  window_min: PositiveInt = Field(
    32_768, description="window_share below 1: smallest number of steps to sample from"
  )
  sampling: Literal["uniform", "proportional", "rank"] = Field(
    "rank",
    description="how start steps are drawn; uniform: with equal probability; proportional: in proportion to "
    "a power of δ; rank: in proportion to a power of 1 / rank, where the largest δ has rank 1",
  )
  priority_exponent: NonNegativeFloat = Field(0.6, description="α of prioritized sampling")
  importance_exponent: NonNegativeFloat = Field(1.0, description="β of the importance ratio; the thesis: 1")
  normalize_importance: bool = Field(False, description="divide a batch's importance ratios by their maximum")
  priority_epsilon: PositiveFloat = Field(1e-3, description="proportional: constant added to δ")
  refresh_priorities: bool = Field(
    True, description="after an update, replace the δ of the batch's start steps"
  )
  rank_refresh_updates: PositiveInt = Field(
    200, description="rank: number of batches after which the steps are sorted by δ again, if not before"
  )
  min_steps_to_learn: PositiveInt = Field(
    5_000, description="updates start once replay has this number of steps and can draw a batch"
  )
  max_refused_segments: PositiveInt = Field(
    20, description="number of consecutive refused segments of one worker after which the run ends"
  )

  @property
  def refreshes_priorities(self) -> bool:
    """Whether replay gets a new δ after an update: this is enabled, and the sampling uses priorities."""
    return self.refresh_priorities and self.sampling != "uniform"


class LearningRateConfig(Section):
  """The learning rate by learner step: warm-up, then decay over `decay_steps` (null: no decay).

  With `decay_steps: budget` the decay ends at max_env_steps; if the run ends earlier, the rate is still above
  `end`. With `progress` it ends at max_env_steps or max_wall_s, whichever the run reaches first; in the
  warm-up, the rate is then the lower one of both. A run that is resumed with another max_env_steps, or with
  `progress` another max_wall_s, continues on the schedule of the new value.
  """

  kind: Literal["constant", "cosine", "linear"] = Field(
    "constant", description="shape of the decay; constant: none"
  )
  peak: PositiveFloat = Field(1e-3, description="rate after the warm-up")
  end: NonNegativeFloat = Field(0.0, description="rate after the decay")
  warmup_steps: NonNegativeInt = Field(0, description="learner steps of linear rise from 0 to peak; 0: none")
  decay_steps: PositiveInt | Literal["budget", "progress"] | None = Field(
    None,
    description="cosine, linear: number of learner steps from peak to end; budget: all of the run's learner "
    "steps after the warm-up, about (max_env_steps - replay.min_steps_to_learn) × samples_per_step / "
    "batch_size - warmup_steps; progress: as budget, but the decay is at least as far as the share of "
    "max_wall_s that has passed, so the rate also reaches end at max_wall_s (with max_wall_s, the run cannot "
    "be reproduced to the bit)",
  )

  @model_validator(mode="after")
  def _has_length(self) -> "LearningRateConfig":
    if self.kind != "constant" and self.decay_steps is None:
      raise ValueError(f"decay_steps: needed with kind={self.kind}")
    return self


class LearnerConfig(Section):
  """The loss (thesis, 4.3.8, with a coefficient of rewards), the optimizer, updates and augmentation."""

  batch_size: PositiveInt = Field(
    256, description="number of targets in one update; a multiple of num_hosts · num_devices · accumulate"
  )
  num_devices: PositiveInt = Field(
    1,
    description="number of devices of each host, among which each batch is divided; above 1 with "
    "runtime=ray, ray.learner.num_gpus must be at least this number, or 0; must be 1 for ppo, your own "
    "algorithms and q_learning.kind=table",
  )
  num_hosts: PositiveInt = Field(
    1,
    description="number of machines of a cluster that learn together; each has a process with the resources "
    "ray.learner and num_devices devices, among which each batch is divided; above 1: with runtime=ray, for "
    "muzero and alphazero",
  )
  accumulate: PositiveInt = Field(
    1,
    description="number of micro-batches in which a device computes the network for its share of a batch, "
    "for batches that do not fit in its memory; above 1, the network is computed twice for each gradient; "
    "slow for convolutions on a CPU; not with network.norm=batch or network.normalize_observations, nor "
    "where num_devices must be 1",
  )
  compute_dtype: Literal["float32", "bfloat16"] = Field(
    "float32",
    description="type in which dense and convolutional layers compute in updates; parameters, norms, losses "
    "and optimizer are float32. With float32, JAX may still round the factors of matrix products, on GPUs to "
    "TF32 unless the environment variable JAX_DEFAULT_MATMUL_PRECISION=float32 is set; bfloat16: not where "
    "num_devices must be 1",
  )
  updates_per_call: PositiveInt = Field(8, description="number of updates in one call of the learner")
  samples_per_step: PositiveFloat = Field(4.0, description="sample reuse: targets used per environment step")
  optimizer: Literal["adam", "adamw"] = Field("adamw", description="adamw: adam with weight_decay")
  learning_rate: LearningRateConfig = LearningRateConfig()
  weight_decay: NonNegativeFloat = Field(1e-4, description="adamw: decay of weights, not of biases and norms")
  max_grad_norm: PositiveFloat = Field(
    5.0, description="maximum norm of the gradient of all parameters; a larger one is scaled down"
  )
  max_grad_rms: PositiveFloat | None = Field(
    None,
    description="clip each entry of the gradient to ± this number times the root of the running mean of its "
    "square, before max_grad_norm; null: no; OpenAI Five: 5",
  )
  value_coef: NonNegativeFloat = Field(0.25, description="weight of the value loss; the policy loss has 1")
  reward_coef: NonNegativeFloat = Field(1.0, description="weight of the reward loss")
  consistency_coef: NonNegativeFloat = Field(
    2.0, description="weight of the self-consistency loss; 0: off, which makes updates cheaper"
  )
  l2_coef: NonNegativeFloat = Field(0.0, description="weight of the squared norm of all parameters; 0: off")
  extra_losses: LossNames = Field((), description="loss terms of your own, by name or module:function")
  symmetries: bool = Field(
    False,
    description="board games: transform each sampled target by a random symmetry of the environment, such as "
    "the reflection in Connect Four",
  )
  scale_reward_loss: bool = Field(True, description="divide unrolled reward losses by K; the thesis: false")
  dynamics_gradient_scale: Probability = Field(
    0.5, description="factor on the gradient into each unrolled hidden state; MuZero: 0.5"
  )
  target_update_period: PositiveInt = Field(
    500,
    description="learner steps between two copies of the parameters to the target network; until the first "
    "of these copies the target network is copied at every step; not read with target_decay. Reanalyze "
    "searches with the target network; consistency_from_target, workers.network and evaluation.network can "
    "select it",
  )
  target_decay: Decay = Field(
    0.0,
    description="0: the target network is a copy of the parameters; otherwise it is their exponential moving "
    "average with this decay per update, or a smaller one during the first updates",
  )
  consistency_from_target: bool = Field(
    False, description="compute the target of the self-consistency loss with the target network"
  )
  consistency_warmup_steps: NonNegativeInt = Field(
    0, description="learner steps of linear rise of consistency_coef from 0; 0: none"
  )
  max_shift: NonNegativeInt = Field(
    0,
    description="augmentation: shift the frames of each sample by up to this number of cells on each axis; "
    "DrQ: 4 for Atari; 0: off",
  )
  intensity_jitter: NonNegativeFloat = Field(
    0.0,
    description="augmentation: scale the frames of each sample by 1 + intensity_jitter · ε, where ε is a "
    "standard normal number clipped to ±2; SPR: 0.05; 0: off",
  )
  max_skipped_updates: PositiveInt = Field(
    20,
    description="number of consecutive updates with a non-finite loss or gradient after which the run "
    "restores the training state of its last checkpoint; the second time since its start or last resume, or "
    "without a checkpoint, it ends",
  )

  @model_validator(mode="after")
  def _divides(self) -> "LearnerConfig":
    names = ("num_hosts",) * (self.num_hosts > 1) + ("num_devices", "accumulate")
    counts = [getattr(self, name) for name in names]
    shares = math.prod(counts)
    if self.batch_size % shares:
      raise ValueError(
        f"batch_size={self.batch_size}: must be a multiple of {' · '.join(names)} = "
        f"{' · '.join(map(str, counts))} = {shares}"
      )
    return self

  def check_gpus(self, num_gpus: float) -> None:
    """Raises ValueError if the learner's process has GPUs, but fewer than `num_devices`.

    With one device and one host, it may have a fraction of a GPU.
    """
    if 0 < num_gpus < self.num_devices and max(self.num_devices, self.num_hosts) > 1:
      raise ValueError(
        f"learner.num_devices={self.num_devices}: needs ray.learner.num_gpus={self.num_devices}, not "
        f"{num_gpus:g}"
      )

  def check_hosts(self, algorithm: str, runtime: str) -> None:
    """Raises ValueError if a run cannot learn on `num_hosts` hosts."""
    if self.num_hosts > 1 and algorithm not in ("muzero", "alphazero"):
      raise ValueError(
        f"learner.num_hosts={self.num_hosts} needs algorithm=muzero or alphazero, not {algorithm}"
      )
    if self.num_hosts > 1 and runtime != "ray":
      raise ValueError(f"learner.num_hosts={self.num_hosts} needs runtime=ray, not {runtime}")

  @property
  def augments(self) -> bool:
    """Whether the frames of a training batch are augmented."""
    return self.max_shift > 0 or self.intensity_jitter > 0
