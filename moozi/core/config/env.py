"""The environment."""

from typing import Any

from pydantic import Field, model_validator

from moozi.core.config.section import Section, WrapperNames


class EnvConfig(Section):
  """The environment. Its suite, or your function, checks `kwargs`."""

  name: str = Field("minatar:breakout", description="library:game, a registered name, or module:function")
  kwargs: dict[str, Any] = Field(
    default_factory=dict, description="options of the suite, or of your function"
  )
  wrappers: WrapperNames = Field(
    (),
    description="functions that wrap the environment, the innermost first, such as my_module:wrap or "
    "my_module:wrap(k=3); only for gymnasium's and your own environments",
  )

  @property
  def arguments(self) -> dict[str, Any]:
    """Keyword arguments for `envs.registry.make` and `envs.registry.env_spec`."""
    wrappers = {"wrappers": self.wrappers} if self.wrappers else {}
    return self.kwargs | wrappers | ({"allow_code": True} if self.allows_code else {})

  @model_validator(mode="after")
  def _has_options_only(self) -> "EnvConfig":
    if "wrappers" in self.kwargs:
      raise ValueError("kwargs.wrappers: not an option; set env.wrappers")
    if "allow_code" in self.kwargs:
      raise ValueError("kwargs.allow_code: not an option; pass --allow-code")
    return self
