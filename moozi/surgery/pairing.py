"""Which planes and actions of two environments have one meaning: by a mapping file, by name, or by number."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from moozi.core.errors import UserError, one_line
from moozi.core.spec import EnvSpec
from moozi.io.plain_data import read_yaml

_SECTIONS = ("planes", "actions")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Correspondence:
  """Which planes and actions of two environments correspond.

  Attributes:
    planes: for each plane of the new environment, the number of that of the old one, or None.
    actions: the same for the entries of a policy without the dummy's.
    is_same_game: whether the environments have one name, so that steps of the old one can be converted.
  """

  planes: tuple[int | None, ...]
  actions: tuple[int | None, ...]
  is_same_game: bool

  def plane_names(self, num_old: int) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """Returns names of the old and of the new planes; planes of one meaning have one name."""
    return _shared_names(self.planes, num_old)

  def entry_names(self, num_old: int) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """Returns names of the old and the new entries of a policy; the dummy's first."""
    old, new = _shared_names(self.actions, num_old)
    return ("dummy", *old), ("dummy", *new)


def _shared_names(
  sources: Sequence[int | None], num_old: int
) -> tuple[tuple[object, ...], tuple[object, ...]]:
  kept = {source: i for i, source in enumerate(sources) if source is not None}
  return tuple(kept.get(j, f"old {j}") for j in range(num_old)), tuple(range(len(sources)))


def correspond(old: EnvSpec, new: EnvSpec, path: Path | None = None) -> Correspondence:
  """Returns which planes and actions of two environments correspond.

  Args:
    path: a YAML file with the sections `planes` and `actions`, each of which has, by the new name or number,
      the old name or number, or null; what it leaves out is new. Without a file or
      a section, those with the same name correspond if both environments name all of them, with different
      names; else those with the same number.

  Raises: UserError: the environments are not of one kind, or have no plane or no action in common; their
    names and more of their specifications differ, and there is no file; or the file is malformed or names
    what does not exist.
  """
  _check_kind(old, new)
  same_name = old.name == new.name
  given = {} if path is None else _read(path)
  if not same_name and path is None and (old.to_dict() | {"name": new.name}) != new.to_dict():
    raise UserError(
      f"env.name={new.name}: the state is of {old.name}, and both differ; name a file that says which planes "
      "and actions correspond"
    )
  pairs = {}
  for section, old_names, new_names, sizes in (
    ("planes", old.frame_names, new.frame_names, (old.frame_shape[2], new.frame_shape[2])),
    ("actions", old.action_names, new.action_names, (_num_actions(old), _num_actions(new))),
  ):
    if section in given:
      pairs[section] = _from_file(path, section, given[section], old_names, new_names, sizes)
    else:
      pairs[section] = _by_name(old_names, new_names, sizes)
  for section, sources in pairs.items():
    if all(source is None for source in sources):
      if section in given:
        raise UserError(f"{path}: {section}: must name one of the old environment, or be left out")
      raise UserError(f"env.name={new.name}: none of its {section} is one of {old.name}; a file can map them")
  return Correspondence(**pairs, is_same_game=same_name)


def _num_actions(spec: EnvSpec) -> int:
  """Returns the number of entries of a policy besides the dummy's."""
  return spec.policy_size - 1


def _check_kind(old: EnvSpec, new: EnvSpec) -> None:
  """Raises UserError if an attribute differs that the arrays of a network cannot be converted for."""
  for name, a, b in (
    ("size of a frame", old.frame_shape[:2], new.frame_shape[:2]),
    ("dtype of a frame", old.frame_dtype, new.frame_dtype),
    ("number of players", old.num_players, new.num_players),
    ("dimensions of actions", old.factors, new.factors),
    ("arrays of an observation", old.frame_parts, new.frame_parts),
    ("places of actions", (old.action_places, old.num_places), (new.action_places, new.num_places)),
  ):
    if a != b:
      found = "another" if len(f"{a}{b}") > 60 else f"{b}, of {old.name} {a}"
      raise UserError(f"env.name={new.name}: the {name} is {found}; surgery needs environments of one kind")


def _by_name(
  old_names: Sequence[str], new_names: Sequence[str], sizes: tuple[int, int]
) -> tuple[int | None, ...]:
  is_named = all(
    len(names) == size == len(set(names)) and all(names)
    for names, size in zip((old_names, new_names), sizes, strict=True)
  )
  if is_named:
    at = {name: i for i, name in enumerate(old_names)}
    return tuple(at.get(name) for name in new_names)
  return tuple(i if i < sizes[0] else None for i in range(sizes[1]))


def _read(path: Path) -> dict[str, Mapping[str, Any]]:
  data = read_yaml(path)
  if not isinstance(data, Mapping) or not data:
    raise UserError(f"{path}: must have the sections planes or actions, each with NEW: OLD")
  for section, pairs in data.items():
    if section not in _SECTIONS:
      raise UserError(f"{path}: {one_line(section, 40)}: unknown section; must be planes or actions")
    if not isinstance(pairs, Mapping):
      raise UserError(f"{path}: {section}: must have lines NEW: OLD, where OLD is a name, a number or null")
  return dict(data)


def _from_file(
  path: Path | None,
  section: str,
  pairs: Mapping[str, Any],
  old_names: Sequence[str],
  new_names: Sequence[str],
  sizes: tuple[int, int],
) -> tuple[int | None, ...]:
  out: list[int | None] = [None] * sizes[1]
  sources: dict[int, str] = {}
  seen: set[int] = set()
  for name, value in pairs.items():
    where = f"{path}: {section}.{one_line(name, 40)}"
    i = _find(name, new_names, sizes[1])
    if i is None:
      raise UserError(
        f"{where}: the new environment has no such {section[:-1]}; {_known(new_names, sizes[1])}"
      )
    if i in seen:
      raise UserError(f"{where}: is given twice, by name and by number")
    seen.add(i)
    if value is None:
      continue
    j = _find(value, old_names, sizes[0])
    if j is None:
      raise UserError(
        f"{where}={one_line(value, 40)}: the old environment has no such {section[:-1]}; "
        f"{_known(old_names, sizes[0])}"
      )
    if j in sources:
      raise UserError(
        f"{where}={one_line(value, 40)}: is also {section}.{sources[j]}; each may be named once"
      )
    sources[j], out[i] = one_line(name, 40), j
  return tuple(out)


def _find(name: object, known: Sequence[str], size: int) -> int | None:
  """Returns the number that a name or a number in a file stands for; None if there is none."""
  text = str(name)
  if isinstance(name, bool):
    return None
  if text in known:
    return list(known).index(text)
  return int(text) if text.isascii() and text.isdigit() and len(text) < 10 and int(text) < size else None


def _known(known: Sequence[str], size: int) -> str:
  return f"it has {', '.join(known[:12])}" if known else f"they have the numbers 0 … {size - 1}"
