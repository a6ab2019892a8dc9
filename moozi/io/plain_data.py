"""Reads and writes plain data (dict, list, str, int, float, bool, None) as JSON and YAML."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import yaml

from moozi.core.errors import UserError, reason_of
from moozi.io.bounded_read import read_bounded, read_lines

MAX_BYTES = 1 << 20
MAX_DEPTH = 50
# Largest number of keys and values in YAML. A run's resolved configuration has about 300.
MAX_VALUES = 10_000
# JSON allows integers that are too large for a float.
_MAX_FIGURE = 1e100

_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = {_TAG + kind for kind in ("null", "bool", "int", "float", "str", "seq", "map")}
# Scalars of YAML 1.2: (kind, pattern, first characters). PyYAML follows YAML 1.1, and reads 1e-3 as text,
# 1:30 as 90 and `no` as false.
_SCALARS = (
  ("bool", r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
  ("int", r"[-+]?(?:0|[1-9][0-9_]*)", [*"-+0123456789"]),
  (
    "float",
    r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    [*"-+0123456789."],
  ),
  ("null", r"~|null|Null|NULL|", [*"~nN", ""]),
)


def to_plain_json(value: Any) -> Any:
  """Returns nested plain values and arrays (NumPy, JAX) as JSON types; NaN and infinities become None.

  Raises: TypeError: a value has another type.
  """
  if value is None or isinstance(value, str | bool | int):
    return value
  if isinstance(value, float):
    return value if math.isfinite(value) else None
  if isinstance(value, Mapping):
    return {str(key): to_plain_json(item) for key, item in value.items()}
  if isinstance(value, list | tuple):
    return [to_plain_json(item) for item in value]
  if hasattr(value, "__array__") and np.asarray(value).dtype.kind in "biufU":
    return to_plain_json(np.asarray(value).tolist())
  raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def size_problem(value: Any, max_values: int, max_depth: int = MAX_DEPTH) -> str | None:
  """Returns why nested data is too large, in a few words; None if it is not.

  Args:
    max_values: largest number of keys and items. The check visits few more, even in a list that contains
      itself.
    max_depth: largest number of nested lists and mappings.
  """
  waiting, count = [(value, 1)], 0
  while waiting:
    item, depth = waiting.pop()
    if not isinstance(item, Mapping | list | tuple):
      continue
    count += len(item)
    if depth > max_depth:
      return f"nested deeper than {max_depth} levels"
    if count > max_values:
      return f"more than {max_values:,} keys and values"
    waiting.extend((inner, depth + 1) for inner in (item.values() if isinstance(item, Mapping) else item))
  return None


def number_in(value: Any) -> float | None:
  """Returns a metric's value if it is a number of magnitude at most 1e100, else None."""
  if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _MAX_FIGURE:
    return None
  return value


def first_difference(value: Any, expected: Any, key: str) -> tuple[str, Any, Any] | None:
  """Returns the first difference of two nested values as (key, value, expected value); None if there is none.

  The key is dotted, with indices in lists of lists or mappings: `spec.parts[0].values`.
  """
  nested = list | tuple | Mapping
  is_list = type(value) is type(expected) and isinstance(value, list | tuple) and len(value) == len(expected)
  if is_list and any(isinstance(item, nested) for item in value):
    pairs = enumerate(zip(value, expected, strict=True))
    all_found = (first_difference(own, other, f"{key}[{i}]") for i, (own, other) in pairs)
    return next((difference for difference in all_found if difference is not None), None)
  if not (isinstance(value, Mapping) and isinstance(expected, Mapping)):
    return None if value == expected else (key, value, expected)
  for name in dict.fromkeys([*expected, *value]):
    if name not in value or name not in expected:
      return f"{key}.{name}", value.get(name, "missing"), expected.get(name, "missing")
    found = first_difference(value[name], expected[name], f"{key}.{name}")
    if found is not None:
      return found
  return None


def parse_yaml(text: str, where: str) -> Any:
  """Returns the plain data of one YAML document; `where` is its name in errors.

  Raises: UserError: the text is not valid YAML, is nested deeper than 50 levels, has more than 10,000
    keys and values, or has an alias, a duplicate key, a key that is not text, or a tag that plain data does
    not use. Other YAML loaders may run code for such a tag.
  """
  try:
    depth = count = 0
    for event in yaml.parse(text, _PlainLoader):
      count += isinstance(event, yaml.NodeEvent)
      if count > MAX_VALUES:
        raise UserError(
          f"{where}: more than {MAX_VALUES:,} keys and values; a YAML file here has a few hundred"
        )
      # Checks the depth before yaml.load composes the document, which takes time quadratic in the depth.
      depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
      if depth > MAX_DEPTH:
        raise UserError(f"{where}: not valid YAML: nested too deep")
      tag = getattr(event, "tag", None)
      if tag is not None and tag not in _PLAIN_TAGS:
        raise UserError(f"{where}: the tag {tag.replace(_TAG, '!!')} is not allowed; use plain values")
      if isinstance(event, yaml.AliasEvent):
        # Nested aliases can expand exponentially. Configurations share settings by `base:` instead.
        raise UserError(f"{where}: not valid YAML: aliases (*{event.anchor}) are not allowed")
    return yaml.load(text, _PlainLoader)  # noqa: S506 - a SafeLoader
  except yaml.MarkedYAMLError as e:
    line = f" at line {e.problem_mark.line + 1}" if e.problem_mark else ""
    raise UserError(f"{where}: not valid YAML{line}: {e.problem or e.context}") from None
  except (yaml.YAMLError, ValueError) as e:
    raise UserError(f"{where}: not valid YAML: {e}") from None
  except (KeyError, IndexError, TypeError):
    # PyYAML's constructors fail if a value does not have the form of its explicit tag.
    raise UserError(f"{where}: not valid YAML: a value does not have the form of its tag") from None


def read_yaml(path: Path) -> Any:
  """Reads plain data from a YAML file.

  Raises: UserError: the path is missing or not a file; the file is unreadable, not UTF-8 or larger than 1
    MiB; or `parse_yaml` refuses its text.
  """
  try:
    if not path.exists():
      raise UserError(f"{path}: no such file")
    if not path.is_file():
      raise UserError(f"{path}: not a file; a YAML file is needed")
    if path.stat().st_size > MAX_BYTES:
      raise UserError(f"{path}: larger than {MAX_BYTES} bytes; not a configuration")
    text = read_bounded(path, MAX_BYTES).decode("utf-8")
  except UnicodeDecodeError:
    raise UserError(f"{path}: not UTF-8 text; a YAML file is needed") from None
  except (OSError, ValueError) as e:
    raise UserError(f"{str(path)!r}: cannot be read: {reason_of(e)}") from None
  return parse_yaml(text, str(path))


def read_json_object(path: Path) -> dict[str, Any]:
  """Reads a JSON object from a file of at most 1 MiB.

  Raises: FileNotFoundError: there is no such file. OSError: the file cannot be read. ValueError: the file is
    larger, or is not a JSON object.
  """
  try:
    found = json.loads(read_bounded(path, MAX_BYTES))
  except RecursionError:
    raise ValueError("nested too deep") from None
  if not isinstance(found, dict):
    raise ValueError("not a JSON object")
  return found


def read_json_lines(path: Path, parse: Callable[[Any], Any]) -> Iterator[Any]:
  """Yields the result of `parse` for the JSON value of each line; skips an incomplete last line.

  Raises: UserError: the file cannot be read in bounded memory (`read_lines`), or a complete line is not JSON
    that `parse` accepts.
  """
  try:
    for number, line in enumerate(read_lines(path), start=1):
      try:
        parsed = parse(json.loads(line))
      except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as e:
        if not line.endswith(b"\n"):
          break
        raise UserError(f"{path}: line {number} is not valid: {e!r}") from None
      yield parsed
  except FileNotFoundError:
    raise UserError(f"{path}: no such file; `moozi train` writes it") from None
  except (OSError, ValueError) as e:
    raise UserError(f"{path}: cannot be read: {reason_of(e)}") from None


def dump_yaml(data: Any) -> str:
  """Returns YAML text that `parse_yaml` reads back as equal data."""
  text = yaml.dump(data, Dumper=_PlainDumper, sort_keys=False, allow_unicode=True, width=100)
  if any(line_break in text for line_break in "\x85\u2028\u2029"):
    # Escapes these characters, because a YAML reader takes them for line breaks.
    text = yaml.dump(data, Dumper=_PlainDumper, sort_keys=False, allow_unicode=False, width=100)
  return text


# libyaml parses a configuration in a tenth of the time. PyYAML's wheels have it.
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _PlainLoader(_SafeLoader):
  """SafeLoader with the scalars of YAML 1.2, text keys and no duplicate keys."""

  yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

  def construct_mapping(self, node: Any, deep: bool = False) -> dict:
    seen = set()
    for key, _ in node.value:
      problem = "is not text" if key.tag != _TAG + "str" else "is given twice" if key.value in seen else None
      if problem:
        raise yaml.MarkedYAMLError(None, None, f"the key {key.value!r} {problem}", key.start_mark)
      seen.add(key.value)
    return super().construct_mapping(node, deep)

  def construct_number(self, node: Any) -> int | float:
    """Returns a float; for a whole number with an exponent, such as 1e6, an int."""
    text = self.construct_scalar(node).replace("_", "").lower()
    value = float(text.replace(".inf", "inf").replace(".nan", "nan"))
    return int(value) if "e" in text and value.is_integer() and abs(value) < 2**53 else value


class _PlainDumper(yaml.SafeDumper):
  """SafeDumper that quotes text which `_PlainLoader` would read as a number."""

  yaml_implicit_resolvers = dict(yaml.SafeDumper.yaml_implicit_resolvers)  # noqa: RUF012 - as in the base


for _kind, _pattern, _first in _SCALARS:
  for _class in (_PlainLoader, _PlainDumper):
    _class.add_implicit_resolver(_TAG + _kind, re.compile(f"^(?:{_pattern})$"), _first)
_PlainLoader.add_constructor(_TAG + "float", _PlainLoader.construct_number)
