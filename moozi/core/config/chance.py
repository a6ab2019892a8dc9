"""The section of `moozi.core.config` for models with chance nodes."""

from typing import Literal

from pydantic import Field

from moozi.core.config.section import NonNegativeFloat, NonNegativeInt, PositiveInt, Section


class ChanceConfig(Section):
  """Chance nodes of the model, after Stochastic MuZero.

  The searches stochastic and stochastic_gumbel branch on outcomes. Others follow the most probable outcome.
  """

  codes: NonNegativeInt = Field(
    0,
    description="number of learned codes for the outcomes of an action; choose more than the number of "
    "outcomes that matter; 0: the model is deterministic",
  )
  reward_from: Literal["outcome", "afterstate"] = Field(
    "outcome",
    description="what predicts the reward; afterstate: for environments in which the reward follows from "
    "state and action, as in 2048",
  )
  encoder_size: PositiveInt | None = Field(
    None, description="hidden size of the encoder, instead of network.latent_size"
  )
  coef: NonNegativeFloat = Field(
    1.0, description="weight of the chance loss, the cross-entropy of the outcome's code"
  )
  commitment_coef: NonNegativeFloat = Field(
    0.01,
    description="weight of the commitment loss, which moves the encoder's outputs towards their codes; with "
    "0.1 or 0.25 and two codes, no seed of six gave the sides of tiny:coin separate codes "
    "(docs/decisions/0018)",
  )
