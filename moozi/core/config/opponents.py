"""The section of `moozi.core.config` for past selves."""

from pydantic import Field

from moozi.core.config.section import PositiveFloat, PositiveInt, Probability, Section


class OpponentsConfig(Section):
  """Past selves (the agent with earlier parameters) as opponents in self-play."""

  past_share: Probability = Field(
    0.0,
    description="two players: share of the environments in which a past self plays one side, rounded to an "
    "even number of each worker's environments, at least 2; 0: no past selves; OpenAI Five: 0.2",
  )
  pool_size: PositiveInt = Field(
    20, description="number of past selves; a new one replaces that of lowest quality among those not in use"
  )
  period_updates: PositiveInt = Field(
    2_000, description="learner steps between two additions of the current parameters to the pool"
  )
  quality_rate: PositiveFloat = Field(
    0.01,
    description="η: a past self that loses has its quality reduced by η / (N · p); N is the size of the "
    "pool, p the probability with which it was drawn",
  )
