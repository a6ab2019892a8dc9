"""What the sections of the configuration are made of: their base, and numbers within bounds."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Probability = Annotated[float, Field(ge=0.0, le=1.0)]
PositiveInt = Annotated[int, Field(ge=1)]
NonNegativeInt = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0.0)]
NonNegativeFloat = Annotated[float, Field(ge=0.0)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]


class Section(BaseModel):
  """Base of every section: unknown keys are errors, values do not change, no silent coercion of bools."""

  model_config = ConfigDict(
    frozen=True, extra="forbid", validate_default=True, protected_namespaces=(), allow_inf_nan=False
  )


class ActorResources(Section):
  """Shares of one kind of Ray actor, and the threads XLA may use in it."""

  num_cpus: NonNegativeFloat = 1.0
  num_gpus: NonNegativeFloat = 0.0
  num_threads: NonNegativeInt = Field(1, description="compute threads; 0 leaves the choice to XLA")
  niceness: Annotated[int, Field(ge=0, le=19)] = 0
