"""Writes docs/configuration.md from the schema: `python scripts/make_config_page.py`; `make docs` runs it."""

import json
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from moozi.core.config import Config, TemperaturePoint
from moozi.core.config.learning import DiscountPoint

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
HEAD = """\
# Configuration reference

<!-- Made by `python scripts/make_config_page.py`; do not edit it. -->

A configuration is a YAML file; [usage](usage.md#train) shows how files, bases and overrides combine. Every
key has a default. A key is written with dots on the command line (`learner.batch_size=64`), and nested in a
file (`learner: {batch_size: 64}`). An unknown key or a value out of range ends the command with a
one-line error.
"""
WORDS = {bool: "true or false", int: "integer", float: "number", str: "text", dict: "mapping"}
SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def is_section(kind: Any) -> bool:
  return isinstance(kind, type) and issubclass(kind, BaseModel)


def sections(model: BaseModel, path: str = "") -> list[tuple[str, BaseModel]]:
  """Returns every section with its dotted path; the first is the whole configuration (path "")."""
  found = [(path, model)]
  for name, field in type(model).model_fields.items():
    if is_section(field.annotation):
      found += sections(getattr(model, name), f"{path}.{name}".lstrip("."))
  return found


def allowed(kind: Any, bounds: list[Any]) -> str:
  """Returns the values that a key may have, in words."""
  arguments = get_args(kind)
  if get_origin(kind) in (Union, UnionType):
    return " or ".join("null" if a is NoneType else allowed(a, bounds) for a in arguments)
  if get_origin(kind) is Literal:
    return ", ".join(f"`{a}`" for a in arguments)
  if hasattr(kind, "__metadata__"):
    extra = [b for item in kind.__metadata__ for b in getattr(item, "metadata", [item])]
    return allowed(kind.__origin__, bounds + extra)
  if get_origin(kind) in (tuple, list):
    return f"list of {allowed(arguments[0], bounds)}"
  if is_section(kind):
    return "{" + ", ".join(kind.model_fields) + "}"
  if kind is int and {type(b) for b in bounds} == {Ge, Lt}:  # a seed
    return "integer from 0 to 2³¹ − 1"
  word = WORDS.get(get_origin(kind) or kind, str(kind))
  limits = [
    f"{sign} {getattr(b, name):g}" for b in bounds for name, sign in SIGNS.items() if hasattr(b, name)
  ]
  return " ".join([word, " and ".join(limits)]).strip()


def default(value: Any) -> str:
  plain = isinstance(value, int) and not isinstance(value, bool)
  return f"`{value if isinstance(value, str) else f'{value:_}' if plain else json.dumps(value)}`"


def row(name: str, field: FieldInfo, owners: list[tuple[str, BaseModel]]) -> str:
  """Returns the table row of a key, with an anchor for each of its dotted names."""
  anchors = "".join(f'<a id="{f"{path}.{name}".lstrip(".")}"></a>' for path, _ in owners)
  first = getattr(owners[0][1], name, None) if owners[0][0] or len(owners) == 1 else None
  values = default(first)
  for path, owner in owners[1:]:
    if getattr(owner, name) != first:
      values += f"; {path.removesuffix('.resources').split('.')[-1]} {default(getattr(owner, name))}"
  kind = allowed(field.annotation, list(field.metadata))
  meaning = (field.description or "").replace("|", "\\|")
  return f"| {anchors}`{name}` | {values} | {meaning}. *{kind}* |"


def page() -> str:
  """Returns the text of docs/configuration.md."""
  by_class: dict[type[BaseModel], list[tuple[str, BaseModel]]] = {}
  for path, model in sections(Config()):
    by_class.setdefault(type(model), []).append((path, model))
  text = [HEAD]
  for kind, owners in by_class.items():
    keys = {n: f for n, f in kind.model_fields.items() if not is_section(f.annotation)}
    if not keys:
      continue
    title = ", ".join(f"`{path}`" for path, _ in owners) if owners[0][0] else "Top level"
    about = " ".join((kind.__doc__ or "").split())
    text += [f"## {title}\n", about, "\n| key | default | meaning |", "|---|---|---|"]
    text += [row(name, field, owners) for name, field in keys.items()]
    text.append("")
  for name, kind in (("temperature", TemperaturePoint), ("discount", DiscountPoint)):
    point = " and ".join(f"`{n}` ({f.description})" for n, f in kind.model_fields.items())
    text.append(f"A point of a {name} schedule has two keys: {point}.")
  return "\n".join(text) + "\n"


if __name__ == "__main__":
  PAGE.write_text(page(), "utf-8")
