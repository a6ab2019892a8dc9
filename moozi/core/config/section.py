"""The base class of configuration sections, the types of their values, and `ActorResources`."""

from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr
from pydantic_core import PydanticCustomError

from moozi.core import plugins, user_code
from moozi.core.seeds import NUM_SEEDS

Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Decay = Annotated[float, Field(ge=0.0, lt=1.0)]
PositiveInt = Annotated[int, Field(ge=1)]
NonNegativeInt = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0.0)]
NonNegativeFloat = Annotated[float, Field(ge=0.0)]
Seed = Annotated[int, Field(ge=0, lt=NUM_SEEDS)]


class Section(BaseModel):
  """Base of every section: frozen; unknown keys, NaN and infinity are errors."""

  model_config = ConfigDict(
    frozen=True, extra="forbid", validate_default=True, protected_namespaces=(), allow_inf_nan=False
  )
  _allows_code: bool = PrivateAttr(False)

  @property
  def allows_code(self) -> bool:
    """Whether runs that this section names as players may import the modules that they name."""
    return self._allows_code

  def allowing_code(self, is_allowed: bool) -> Self:
    """Returns a copy with this value of `allows_code`, which is not a key, so that no file can set it."""
    out = self.model_copy()
    out._allows_code = is_allowed
    return out


def _checked(registry: plugins.Registry) -> AfterValidator:
  def check(value: str) -> str:
    if not registry.accepts(value):
      raise PydanticCustomError("plugin", "{allowed}", {"allowed": registry.allowed(value)})
    return value

  return AfterValidator(check)


def _checked_call(registry: plugins.Registry) -> AfterValidator:
  def check(value: str) -> str:
    try:
      name, arguments = user_code.split_call(value)
    except ValueError:
      raise PydanticCustomError("plugin", "NAME or NAME(key=value, …), where values are literals") from None
    if not registry.accepts(name):
      raise PydanticCustomError("plugin", "{allowed}", {"allowed": registry.allowed(name)})
    if arguments and registry.is_built_in(name):
      raise PydanticCustomError("plugin", "{name}, which has no arguments", {"name": name})
    return value

  return AfterValidator(check)


def _as_calls(value: Any) -> Any:
  """Converts as `_as_list`, and joins the parts of a call that a list in YAML has split at its commas."""
  out: list[Any] = []
  for part in _as_list(value) if isinstance(value, str | list | tuple) else (value,):
    is_open = out and isinstance(out[-1], str) and out[-1].count("(") > out[-1].count(")")
    if is_open and isinstance(part, str):
      out[-1] = f"{out[-1]}, {part}"
    else:
      out.append(part)
  return tuple(out)


def _as_list(value: Any) -> Any:
  """Converts one name to a list of one, for `callbacks=my_callbacks:make`."""
  return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


# Longest list of names.
_MAX_NAMES = 64


# Types of values that name functions: a built-in or registered name, an entry point, or module:function.
AlgorithmName = Annotated[str, _checked_call(plugins.ALGORITHMS)]  # may have arguments
NetworkName = Annotated[str, _checked(plugins.NETWORKS)]
SearchName = Annotated[str, _checked(plugins.SEARCHES)]
PlayerName = Annotated[str, _checked(plugins.PLAYERS)]
LossNames = Annotated[
  tuple[Annotated[str, _checked(plugins.LOSSES)], ...],
  Field(max_length=_MAX_NAMES),
  BeforeValidator(_as_list),
]
# Wrappers may have arguments: my_module:wrap(k=3).
WrapperNames = Annotated[
  tuple[Annotated[str, _checked_call(plugins.WRAPPERS)], ...],
  Field(max_length=_MAX_NAMES),
  BeforeValidator(_as_calls),
]
CallbackNames = Annotated[
  tuple[Annotated[str, _checked(plugins.CALLBACKS)], ...],
  Field(max_length=_MAX_NAMES),
  BeforeValidator(_as_list),
]


class ActorResources(Section):
  """The resources of one kind of Ray actor, its number of threads, and its niceness."""

  num_cpus: NonNegativeFloat = Field(1.0, description="cores that Ray reserves; a fraction shares a core")
  num_gpus: NonNegativeFloat = Field(0.0, description="GPUs that Ray reserves; 0: the actor sees no GPU")
  num_threads: NonNegativeInt = Field(1, description="threads of XLA and NumPy; 0: their defaults")
  niceness: Annotated[int, Field(ge=0, le=19)] = Field(
    0, description="added to the process's niceness; a process of higher niceness gets less processor time"
  )
