"""The section of `moozi.core.config` for models with chance nodes."""

from pydantic import Field

from moozi.core.config.section import NonNegativeFloat, NonNegativeInt, Section


class ChanceConfig(Section):
  """Chance nodes of the model, after Stochastic MuZero; planners.*.algorithm=stochastic searches them."""

  codes: NonNegativeInt = Field(
    0,
    description="number of codes of an action's outcome, which the model learns; at least the number of "
    "outcomes that matter; 0: the model is deterministic",
  )
  coef: NonNegativeFloat = Field(
    1.0, description="weight of the chance loss, the cross-entropy of the outcome's code"
  )
  commitment_coef: NonNegativeFloat = Field(
    0.01,
    description="weight of the commitment loss, which draws the encoder's outputs to their codes; above "
    "0.03, outcomes that share a code at first keep sharing it",
  )
