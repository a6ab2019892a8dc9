"""The configuration of the Q-learning baseline.

Sources: Watkins & Dayan 1992 (the table); Mnih et al. 2015 and van Hasselt et al. 2016 (the network).
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from moozi.core.config.ppo import BaselineNetworkConfig
from moozi.core.config.section import PositiveFloat, PositiveInt, Probability, Section


class QLearningConfig(Section):
  """The keys of Q-learning (`algorithm: q_learning`), which always runs in one process.

  Q-learning also reads these keys of other sections: targets.history_length, n_step, discount,
  discount_schedule and unroll_steps (the newest n_step + unroll_steps steps of an environment cannot be
  drawn, so set unroll_steps to 1); learner.batch_size, updates_per_call and samples_per_step, and with a
  network also optimizer, learning_rate, weight_decay, max_grad_norm, max_grad_rms, target_update_period,
  target_decay, max_skipped_updates, num_devices, accumulate and compute_dtype; the sections replay, opponents
  and timeline; the section workers except resources; the two keys of histograms in logging; and the keys of
  other sections that PPO reads with runtime=local, except scalar_transform.
  """

  kind: Literal["table", "network"] = Field(
    "network",
    description="table: one entry per observation and set of legal actions; network: a deep Q-network",
  )
  epsilon_start: Probability = Field(
    1.0, description="probability of a random legal action at the start of training"
  )
  epsilon_end: Probability = Field(
    0.05, description="probability of a random legal action after epsilon_decay_steps"
  )
  epsilon_decay_steps: PositiveInt = Field(
    100_000, description="environment steps of linear decay from epsilon_start to epsilon_end"
  )
  capacity: PositiveInt = Field(
    65_536,
    description="table: maximum number of entries; an observation that finds no free cell is not learned",
  )
  step_size: Annotated[float, Field(gt=0.0, le=1.0)] = Field(
    0.1, description="table: the n-th update of an action's value has the step size max(step_size, 1 / n)"
  )
  double: bool = Field(
    True,
    description="network: double Q-learning, in which the online network chooses the next action and the "
    "target network evaluates it",
  )
  dueling: bool = Field(
    False,
    description="network: dueling, with one head for the state's value and one for the actions' advantages",
  )
  normalize_observations: bool = Field(
    False,
    description="network: subtract the running mean of each entry of the observation, divide by its running "
    "standard deviation and clip to ±10; for float32 observations",
  )
  huber_delta: PositiveFloat = Field(1.0, description="network: error above which the loss grows linearly")
  # As in PPO, this key is not in the section of the network, because existing checkpoints would not match it.
  conv_stride: PositiveInt = Field(
    1, description="network: stride of the 3×3 convolutions of conv and multi_input, as ppo.conv_stride"
  )
  network: BaselineNetworkConfig = BaselineNetworkConfig(activation="relu")

  @model_validator(mode="after")
  def _fits(self) -> "QLearningConfig":
    if self.normalize_observations and self.kind == "table":
      raise ValueError("normalize_observations=true: must be false with kind=table")
    return self
