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
