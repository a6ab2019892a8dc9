"""YAML in and out, without surprises: plain data only, numbers as people write them, no aliases."""

import re
from pathlib import Path
from typing import Any

import yaml

from moozi.core.errors import UserError

MAX_BYTES = 1 << 20
MAX_DEPTH = 50

# Numbers as YAML 1.2 and people have them. PyYAML's own table reads 1e-3 as text, 1:30 as 90, `no` as false.
_INT = re.compile(r"^[-+]?(?:0|[1-9][0-9_]*)$")
_FLOAT = re.compile(
  r"^(?:[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
_BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
_NULL = re.compile(r"^(?:~|null|Null|NULL|)$")
_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = {_TAG + kind for kind in ("null", "bool", "int", "float", "str", "seq", "map")}


class _PlainLoader(yaml.SafeLoader):
  """SafeLoader with its table of implicit types replaced; unknown tags stay errors."""

  yaml_implicit_resolvers = {}  # noqa: RUF012 - as in the base

  def compose_node(self, parent: Any, index: Any) -> Any:
    # An alias inside an alias grows without bound when it is copied; `base:` is the way to share settings.
    if self.check_event(yaml.events.AliasEvent):
      raise yaml.composer.ComposerError(
        None, None, "aliases (*name) are not allowed", self.peek_event().start_mark
      )
    return super().compose_node(parent, index)

  def construct_mapping(self, node: Any, deep: bool = False) -> dict:
    seen = set()
    for key_node, _ in node.value:
      if key_node.tag != _TAG + "str":
        raise yaml.constructor.ConstructorError(
          None, None, f"the key {key_node.value!r} is not text", key_node.start_mark
        )
      if key_node.value in seen:
        raise yaml.constructor.ConstructorError(
          None, None, f"the key {key_node.value!r} is given twice", key_node.start_mark
        )
      seen.add(key_node.value)
    return super().construct_mapping(node, deep)


def _construct_float(loader: _PlainLoader, node: Any) -> int | float:
  """A float; a whole number written with an exponent (1e6) is an int."""
  text = loader.construct_scalar(node).replace("_", "").lower()
  if "inf" in text or "nan" in text:
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))
  value = float(text)
  return int(value) if "e" in text and value.is_integer() and abs(value) < 2**53 else value


for _kind, _pattern, _first in (
  ("bool", _BOOL, "tTfF"),
  ("int", _INT, "-+0123456789"),
  ("float", _FLOAT, "-+0123456789."),
  ("null", _NULL, "~nN"),
):
  _PlainLoader.add_implicit_resolver(_TAG + _kind, _pattern, list(_first) + ([""] if _kind == "null" else []))
_PlainLoader.add_constructor(_TAG + "float", _construct_float)


def parse_yaml(text: str, where: str) -> Any:
  """Plain data (dict, list, str, int, float, bool, None) from YAML text.

  Args:
    text: one YAML document.
    where: what to call the text in an error.
  Raises: UserError: not YAML, a tag that is not plain data (such tags can run code), an alias, a key twice.
  """
  try:
    depth = 0
    for event in yaml.parse(text, _PlainLoader):
      # Checked on the way: the parser's time grows with the square of the depth.
      depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
      if depth > MAX_DEPTH:
        raise UserError(f"{where}: not valid YAML: nested too deep")
      tag = getattr(event, "tag", None)
      if tag is not None and tag not in _PLAIN_TAGS:
        raise UserError(f"{where}: the tag {_tag_as_written(tag)} is not allowed: only plain values are")
    return yaml.load(text, _PlainLoader)  # noqa: S506 - a SafeLoader
  except yaml.MarkedYAMLError as e:
    line = f" at line {e.problem_mark.line + 1}" if e.problem_mark else ""
    raise UserError(f"{where}: not valid YAML{line}: {e.problem or e.context}") from None
  except (yaml.YAMLError, ValueError) as e:
    raise UserError(f"{where}: not valid YAML: {e}") from None


def _tag_as_written(tag: str) -> str:
  return "!!" + tag.removeprefix(_TAG) if tag.startswith(_TAG) else tag


def read_yaml(path: Path) -> Any:
  """Plain data from a YAML file.

  Raises: UserError: missing, not a file, unreadable, not UTF-8 text, larger than 1 MiB, or not plain YAML.
  """
  try:
    if not path.exists():
      raise UserError(f"{path}: no such file")
    if not path.is_file():
      raise UserError(f"{path}: not a file; a YAML file is needed")
    if path.stat().st_size > MAX_BYTES:
      raise UserError(f"{path}: larger than {MAX_BYTES} bytes; this is no configuration")
    text = path.read_bytes().decode("utf-8")
  except UnicodeDecodeError:
    raise UserError(f"{path}: not UTF-8 text; a YAML file is needed") from None
  except (OSError, ValueError) as e:
    reason = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
    raise UserError(f"{str(path)!r}: cannot be read: {reason}") from None
  return parse_yaml(text, str(path))


class _PlainDumper(yaml.SafeDumper):
  """SafeDumper that quotes what `_PlainLoader` would read as something else than text."""

  yaml_implicit_resolvers = dict(yaml.SafeDumper.yaml_implicit_resolvers)  # noqa: RUF012 - as in the base


for _kind, _pattern, _first in (("int", _INT, "-+0123456789"), ("float", _FLOAT, "-+0123456789.")):
  _PlainDumper.add_implicit_resolver(_TAG + _kind, _pattern, list(_first))


def dump_yaml(data: Any) -> str:
  """YAML text that `parse_yaml` reads back as equal data."""
  return yaml.dump(data, Dumper=_PlainDumper, sort_keys=False, allow_unicode=True, width=100)
