"""Loads a run's configuration from YAML files with a `base:` chain and from `key=value` overrides."""

import difflib
import functools
import json
import re
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

import pydantic

from moozi.core import plugins
from moozi.core.config import Config, Section
from moozi.core.config.planner import NOT_INHERITED
from moozi.core.errors import UserError
from moozi.io.atomic_write import write_text
from moozi.io.config_files import find_config, read_chain
from moozi.io.plain_data import MAX_VALUES, dump_yaml, parse_yaml, size_problem

# How many wrong keys an error names after the first.
_MOST_NAMED = 5
_MAX_OVERRIDES = 1_000
# Number of overrides, from the last one, that are tried to find the one that makes a configuration invalid.
_MAX_BLAMED = 50


def load_config(path: str | Path | None, overrides: Sequence[str | Mapping[str, Any]] = ()) -> Config:
  """Returns the validated merge of the defaults, the `base:` chain, the file and the overrides.

  Later layers, in this order, replace the values of earlier ones.

  Args:
    path: a YAML file, or the name of a configuration such as `minatar/breakout`; None uses the defaults. The
      key `base:` in the file names another file, relative to this one, or a configuration.
    overrides: texts `key=value` with a dotted key (`learner.batch_size=128`) and a YAML value, or mappings of
      nested values, as in a file. An empty value (`env.kwargs=`) resets a section to its default.
  Raises: UserError: the configuration is invalid. The message names the file, unless an override makes a
    valid configuration invalid.
  """
  where = None if path is None else str(path)
  if len(overrides) > _MAX_OVERRIDES:
    raise UserError(
      f"{len(overrides):,} overrides; at most {_MAX_OVERRIDES:,} are allowed; use a file for more"
    )
  layers: list[Mapping[str, Any]] = [] if path is None else [*read_chain(find_config(path))]
  num_layers = len(layers)
  added = [_parse_override(x) if isinstance(x, str) else x for x in overrides]
  for settings in added:
    _refuse_large(settings, "")
  layers += added
  try:
    return _merge(layers, where)
  except UserError:
    first = max(num_layers, len(layers) - _MAX_BLAMED)
    for n in reversed(range(first, len(layers))) if where else ():
      if not _error_of(layers[:n]):
        # Override number n - num_layers makes a valid configuration invalid.
        override, message = overrides[n - num_layers], _error_of(layers[: n + 1])
        key = override.partition("=")[0].strip() if isinstance(override, str) else ""
        whole = _error_of(layers)  # with the values of later overrides
        message = whole if key and whole.startswith(f"{key}=") else message
        is_named = message.startswith(key)
        raise UserError(message if is_named else f"{override}: {message}") from None
    raise


def _error_of(layers: Sequence[Mapping[str, Any]]) -> str:
  """Returns the error message of the merged layers; empty if they are valid."""
  try:
    _merge(layers, None)
  except UserError as error:
    return str(error)
  return ""


def _merge(layers: Sequence[Mapping[str, Any]], where: str | None) -> Config:
  """Merges layers, later ones over earlier ones, and validates the result."""
  merged: dict[str, Any] = functools.reduce(_merged, layers, {})
  _refuse_interpolations(merged, "")
  return config_from_dict(merged, where)


def _merged(lower: Any, upper: Any) -> Any:
  """Returns `upper`; if both are mappings, with the keys that only `lower` has."""
  if isinstance(lower, Mapping) and isinstance(upper, Mapping):
    return {**lower, **{key: _merged(lower.get(key), value) for key, value in upper.items()}}
  return upper


def _refuse_interpolations(data: Any, key: str) -> None:
  if isinstance(data, Mapping):
    for name, value in data.items():
      _refuse_interpolations(value, f"{key}.{name}" if key else str(name))
  elif isinstance(data, list):
    for value in data:
      _refuse_interpolations(value, key)
  elif isinstance(data, str) and "${" in data:
    raise UserError(f"{key}={data!r}: interpolations are not supported, only plain values")


def config_from_dict(data: Mapping[str, Any], where: str | None = None) -> Config:
  """Returns the configuration of nested data, by section. A section that is None is empty.

  Validation is strict: text is not read as a number. A whole float, such as 64.0, becomes an integer where a
  key takes integers only. `where` is the file's name in errors.

  Raises: UserError: a key is unknown (the message names the closest known key, or the section's keys), a
    value has a wrong type or is out of range, or values do not fit each other.
  """
  prefix = f"{where}: " if where else ""
  _refuse_large(data, prefix)
  _refuse_objects(data, "", prefix)
  data = _inherit(data)
  data = _with_integers(data, Config)
  try:
    # Strict mode refuses "16" for 16 and true for 1. JSON input allows a list in place of a tuple.
    filled = _fill(data, config_to_dict(Config()))
    return Config.model_validate_json(json.dumps(filled), strict=True)
  except pydantic.ValidationError as e:
    raise UserError(prefix + _describe(e)) from None
  except TypeError as e:
    raise UserError(f"{prefix}{e}: only plain values are allowed") from None


def _refuse_large(data: Any, prefix: str) -> None:
  """Raises UserError for nested data that is too large or too deep for a configuration."""
  if problem := size_problem(data, MAX_VALUES):
    raise UserError(f"{prefix or 'configuration: '}{problem}; set only keys that differ from the defaults")


def _refuse_objects(data: Any, key: str, prefix: str) -> None:
  """Raises UserError for the first value that is not plain, such as an environment instead of its name."""
  if isinstance(data, Mapping):
    for name, value in data.items():
      _refuse_objects(value, f"{key}.{name}" if key else str(name), prefix)
  elif isinstance(data, list | tuple):
    for i, value in enumerate(data):
      _refuse_objects(value, f"{key}[{i}]", prefix)
  elif data is not None and not isinstance(data, str | int | float):
    raise UserError(prefix + plugins.describe_object(key, data))


def config_to_dict(config: Config) -> dict[str, Any]:
  """Returns a configuration as plain nested data; inverts `config_from_dict`."""
  return config.model_dump(mode="json")


def save_config(config: Config, path: Path) -> None:
  """Writes the resolved configuration as YAML, atomically."""
  write_text(path, dump_yaml(config_to_dict(config)))


def _parse_override(text: str) -> dict:
  """Returns the nested data of an override `a.b=value`."""
  key, equals, raw = text.partition("=")
  key = key.strip()
  parts = key.split(".")
  if not equals or not all(parts):
    raise UserError(f"{text!r}: an override is key=value, such as learner.batch_size=128")
  value = parse_yaml(raw, key)
  found, annotation = _walk(parts)
  if value is not None and found == key and str in _members(annotation):
    # Text without quotes is not YAML: run.name=007 is a name, and ` #` in a path starts no comment.
    value = value if raw.lstrip()[:1] in ("'", '"') else raw.strip()
  for part in reversed(parts):
    value = {part: value}
  return value


def _inherit(data: Mapping[str, Any]) -> Mapping[str, Any]:
  """Returns the data with the keys that `planners.reanalyze` does not set taken from `planners.train`.

  Those of NOT_INHERITED stay unset.
  """
  planners = data.get("planners")
  if not isinstance(planners, Mapping):
    return data
  train, reanalyze = planners.get("train"), planners.get("reanalyze")
  if not isinstance(train, Mapping) or not isinstance(reanalyze, Mapping):
    return data
  inherited = {key: value for key, value in train.items() if key not in NOT_INHERITED}
  return {**data, "planners": {**planners, "reanalyze": {**inherited, **reanalyze}}}


def _fill(data: Any, defaults: Any) -> Any:
  """Returns the data with missing keys filled from the defaults of the whole configuration.

  The defaults of a section's class may differ from these: `planners.test` is noise-free, but
  `PlannerConfig()` is not. A section that is None (`learner:` without keys in YAML) is empty.
  """
  if not isinstance(defaults, Mapping) or not isinstance(data, Mapping | None):
    return data
  return dict(defaults) | {key: _fill(value, defaults.get(key)) for key, value in (data or {}).items()}


def _with_integers(value: Any, annotation: Any) -> Any:
  """Returns the value with a whole float, such as 64.0, as an integer where a key takes integers only."""
  members = _members(annotation)
  if isinstance(value, float) and int in members and float not in members:
    return int(value) if value.is_integer() and abs(value) < 2**53 else value
  fields = next((found for m in members if (found := _fields(m)) is not None), None)
  if isinstance(value, Mapping) and fields is not None:
    return {key: _with_integers(item, fields.get(key)) for key, item in value.items()}
  if isinstance(value, list | tuple):
    items = next((get_args(m)[0] for m in members if get_origin(m) is tuple), None)
    return [_with_integers(item, items) for item in value]
  return value


def _fields(annotation: Any) -> dict[str, Any] | None:
  """Returns the annotations of a section's fields by name; None if `annotation` is not a section."""
  if isinstance(annotation, type) and issubclass(annotation, Section):
    return {name: info.annotation for name, info in annotation.model_fields.items()}
  return None


def _members(annotation: Any) -> tuple[Any, ...]:
  """Returns the members of a union annotation, or else the annotation itself; removes `Annotated`."""
  if get_origin(annotation) is typing.Annotated:
    return _members(get_args(annotation)[0])
  if get_origin(annotation) in (typing.Union, types.UnionType):
    return tuple(m for a in get_args(annotation) for m in _members(a))
  return (annotation,)


def _walk(loc: Sequence[str | int]) -> tuple[str, Any]:
  """Returns the dotted key of an error's location, and the annotation of that key.

  Skips the names of union members, which Pydantic adds to locations.
  """
  annotation: Any = Config
  key = ""
  for item in loc:
    if isinstance(item, int):
      key += f"[{item}]"
      annotation = next((get_args(m)[0] for m in _members(annotation) if get_origin(m) is tuple), None)
      continue
    section = next((m for m in _members(annotation) if _fields(m) is not None), None)
    fields = _fields(section) or {}
    if item in fields:
      annotation = fields[item]
    elif section is None and get_origin(annotation) is not dict:
      continue
    key += f".{item}" if key else item
  return key, annotation


def _describe(error: pydantic.ValidationError) -> str:
  """Returns one line about the first wrong key: its name, its value, and what is allowed."""
  located = [(*_walk(e["loc"]), e) for e in error.errors(include_url=False)]
  # If a list in a union has a wrong item, the other members of the union cause errors too. The error of the
  # item is more specific, so only it is kept.
  parents = {key[: m.start()] for key, _, _ in located for m in re.finditer(r"[.\[]", key)}
  located = [x for x in located if x[0] not in parents] or located
  key, annotation, _ = located[0]
  same = [e for k, _, e in located if k == key]
  more = _describe_others([k for k in dict.fromkeys(k for k, _, _ in located) if k != key])
  first = same[0]
  match first["type"]:
    case "extra_forbidden":
      return _describe_unknown(first["loc"]) + more
    case "too_long":
      limits = first["ctx"]
      return f"{key}: must have at most {limits['max_length']} items{more}"
    case "missing":
      return f"{key}: missing; a value is required{more}"
    case "value_error":
      return f"{key}: ".removeprefix(": ") + str(first["ctx"]["error"]) + more
  # Pydantic's messages are like "Input should be a valid integer" or "Input should be an object".
  words = (e["msg"].removeprefix("Input should be ").replace("an object", "a mapping") for e in same)
  allowed = " or ".join(dict.fromkeys(words))
  section = next((m for m in _members(annotation) if _fields(m) is not None), None)
  if section is not None:
    allowed += f" of keys{_describe_key_for(section, key, first['input'])}"
  if type(None) in _members(annotation):
    allowed += " or null"
  return f"{key}={_show(first['input'])}: must be {allowed}{more}"


def _describe_others(keys: Sequence[str]) -> str:
  """Returns how many more keys are wrong, with the names of the first ones."""
  if not keys:
    return ""
  names = [f"{key:.60}" for key in keys[:_MOST_NAMED]] + ["…"] * (len(keys) > _MOST_NAMED)
  return f" (and {len(keys)} more wrong key{'s' if len(keys) > 1 else ''}: {', '.join(names)})"


def _describe_key_for(section: type[Section], key: str, value: Any) -> str:
  """Returns the first key of a section that takes the value that the section itself was given."""
  for name in section.model_fields:
    try:
      section.model_validate_json(json.dumps({name: value}), strict=True)
    except pydantic.ValidationError as error:
      if any(e["loc"][:1] == (name,) for e in error.errors()):
        continue
    return f", such as {key}.{name}={_show(value)}"
  return f": {', '.join(section.model_fields)}"


def _describe_unknown(loc: Sequence[str | int]) -> str:
  parent, annotation = _walk(loc[:-1])
  name = str(loc[-1])
  section = next((m for m in _members(annotation) if _fields(m) is not None), Config)
  siblings = list(_fields(section) or {})
  key = f"{parent}.{name}" if parent else name
  dot = f"{parent}." if parent else ""
  # The best suggestion is the same name in another section (learner.batch_size for batch_size).
  everywhere = {k.rpartition(".")[2]: k for k in reversed(_all_keys(Config))}
  near = [everywhere[name]] if name in everywhere else []
  near = near or [dot + n for n in difflib.get_close_matches(name, siblings, n=1)]
  near = near or [everywhere[n] for n in difflib.get_close_matches(name, everywhere, n=1, cutoff=0.75)]
  if near:
    return f"{key}: unknown key; did you mean {near[0]}?"
  return f"{key}: unknown key; must be one of {', '.join(siblings)}"


def _all_keys(annotation: Any, prefix: str = "") -> list[str]:
  keys = []
  for name, inner in (_fields(annotation) or {}).items():
    keys += [prefix + name, *_all_keys(inner, f"{prefix}{name}.")]
  return keys


def _show(value: Any) -> str:
  """Returns a value as JSON text, about as the user wrote it, in at most 60 characters."""
  text = json.dumps(value, ensure_ascii=False, default=str)
  return text if len(text) <= 60 else text[:57] + "..."
