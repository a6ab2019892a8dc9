"""Finds and reads configurations: names and headers of those that come with MooZi, and chains of `base:`.

A configuration's name is its path below `config/` without `.yaml`, such as `minatar/breakout`. Its header is
the comment at the beginning of the file:

    # One line that says what it is.
    # Needs: hardware beyond two cores
    # Time: how long a run took, or the shortest and the longest of several, and on how many cores if not two
    # Reached: the mean return in evaluation at the end of that time
    # Curve: the returns of seeds in evaluations during training, by environment steps
    # Measured: the results that Time and Reached are from, as paths in the repository

The last five lines are optional, and other comment lines are ignored. For runs in
`experiments/minatar_vs_ppo`, Time excludes evaluations, and Reached is the mean over seeds and over the last
five milestones of a run; ≥ marks a return with episodes that reached the evaluation's limit of steps.
"""

import dataclasses
import difflib
import importlib.util
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from moozi.core.errors import UserError, reason_of
from moozi.core.text import extra_of
from moozi.io.plain_data import read_yaml

BASE_KEY = "base"
_HEADER = re.compile(r"# (Needs|Time|Reached|Curve|Measured): (.+)")
# The Python module of each environment library that has an extra, `core.text.extra_of(library)`.
PACKAGES = {
  "atari": "ale_py",
  "dm_control": "dm_control",
  "gymnasium": "gymnasium",
  "gymnax": "gymnax",
  "minatar": "minatar",
  "open_spiel": "pyspiel",
  "pgx": "pgx",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigInfo:
  """One configuration that comes with MooZi.

  Attributes:
    name: the name that `moozi train` takes.
    path: path of its file.
    summary: the first line of its header.
    env: value of `env.name`.
    extra: the extra of MooZi that its environment needs; None if it needs none.
    is_installed: whether the environment's package is installed.
    hardware: the hardware that it needs beyond two cores; None if two cores suffice.
    time: how long a run took, or the shortest and the longest of several, and on how many cores if not two.
      If the time is not measured, the limit of `max_wall_s`, or None.
    reached: the return, as Reached in the header; None if it is not measured.
    curve: returns by environment steps, as text; None if they are not listed.
    measured: paths in the repository of the results from which `time` and `reached` are taken.
  """

  name: str
  path: Path
  summary: str
  env: str
  extra: str | None = None
  is_installed: bool = True
  hardware: str | None = None
  time: str | None = None
  reached: str | None = None
  curve: str | None = None
  measured: tuple[str, ...] = ()


def data_root(name: str) -> Path:
  """Returns a folder of files that come with MooZi, such as `config`.

  The folder is inside the package if MooZi was installed from a wheel, and at the top level of a clone
  otherwise.
  """
  package = Path(__file__).resolve().parents[1]
  packaged = package / "data" / name
  return packaged if packaged.is_dir() else package.parent / name


def config_root() -> Path:
  """Returns the folder of the configurations that come with MooZi."""
  return data_root("config")


def find_config(text: str | Path) -> Path:
  """Returns the file of a configuration.

  Args:
    text: the path of a file, or a name such as `minatar/breakout`. An existing file takes precedence.
  Raises: UserError: there is no such file or name; the message suggests similar names.
  """
  text = str(text)
  if os.path.isfile(text):
    return Path(text)
  names = _names()
  if path := names.get(text.removesuffix(".yaml")):
    return path
  if os.path.lexists(text) or "\0" in text:
    return Path(text)  # `read_chain` then raises an error that says why this is not a configuration
  raise _no_such_config(text, text, names)


def list_configs() -> list[ConfigInfo]:
  """Returns the configurations that set `env.name`, sorted by name. The other files are bases of these."""
  return [info for name, path in sorted(_names().items()) if (info := _info(name, path)) is not None]


def describe_duration(text: str | Path, env: str | None = None) -> str | None:
  """Returns one line with the time that a configuration takes and the return that it reaches.

  Returns None if the configuration does not come with MooZi, or has neither a measured time nor `max_wall_s`.

  Args:
    env: the environment of the run; None: the configuration's. The return is stated only for the
      configuration's environment.
  """
  path = find_config(text).resolve()
  name = next((name for name, known in _names().items() if known.resolve() == path), None)
  info = None if name is None else _info(name, path)
  if info is None or info.time is None:
    return None
  value, game = info.reached, ""
  if env not in (None, info.env):
    value, game = None, f" in {env}"
  reached = "" if "not yet measured" in info.time else f"; return{game}: {value or 'not yet measured'}"
  if info.curve is not None and value is not None:
    reached += f"; during training: {info.curve}"
  if "core" in info.time:
    return f"{info.name}: {info.time}{reached}"
  where = f"needs {info.hardware}" if info.hardware else "on two cores"
  return f"{info.name} {where}: {info.time}{reached}"


def read_chain(path: Path) -> list[dict]:
  """Returns the content of a file and of its bases, the deepest base first.

  `base:` is a path relative to the file that has it, or the name of a configuration that comes with MooZi.

  Raises: UserError: a file cannot be read or is not a mapping, or the chain is a cycle.
  """
  layers: list[dict] = []
  chain: list[Path] = []
  current = path
  while True:
    try:
      resolved = current.resolve()
    except (OSError, RuntimeError, ValueError) as e:
      raise UserError(f"{str(current)!r}: cannot be read: {reason_of(e)}") from None
    if resolved in chain:
      names = " -> ".join(p.name for p in [*chain, resolved])
      raise UserError(f"{path}: {BASE_KEY}: the chain of bases is a cycle: {names}")
    chain.append(resolved)
    try:
      data = read_yaml(current)
    except UserError as e:
      raise (UserError(f"{chain[-2].name}: {BASE_KEY}: {e}") if len(chain) > 1 else e) from None
    if data is None:
      raise UserError(f"{current}: empty; a configuration needs at least one key, such as `seed: 0`")
    if not isinstance(data, dict):
      raise UserError(f"{current}: holds {data!r:.60}; a mapping of keys to values is needed")
    base = data.pop(BASE_KEY, None)
    layers.insert(0, data)
    if base is None:
      return layers
    if not isinstance(base, str) or not base:
      raise UserError(f"{current}: {BASE_KEY}={base!r:.60}: must be the path of a YAML file")
    relative = current.parent / base
    if not os.path.lexists(relative):
      known = _names()
      if base not in known and "\0" not in base:
        raise _no_such_config(f"{current}: {BASE_KEY}: {base}", base, known)
      relative = known.get(base, relative)
    current = relative


def _names() -> dict[str, Path]:
  """Returns the path of each configuration file by name."""
  root = config_root()
  return {path.relative_to(root).with_suffix("").as_posix(): path for path in root.rglob("*.yaml")}


def _no_such_config(where: str, text: str, names: Mapping[str, Path]) -> UserError:
  near = _nearest(text, list(names))
  hint = f"did you mean {', '.join(near[:-1])}{' or ' if near[1:] else ''}{near[-1]}? " if near else ""
  return UserError(f"{where}: no such file or configuration; {hint}`moozi configs` lists the configurations")


def _nearest(text: str, names: list[str]) -> list[str]:
  """Returns the names with the same last part as `text`, or else up to three names of similar spelling."""
  text = text.removesuffix(".yaml").removeprefix("config/").replace("-", "_").lower()
  if text in names:
    return [text]
  same = [name for name in sorted(names) if name.rpartition("/")[2] == text]
  return same or difflib.get_close_matches(text, names, n=3, cutoff=0.7)


def _info(name: str, path: Path) -> ConfigInfo | None:
  chain = read_chain(path)
  env = _last(chain, "env", "name")
  if env is None:
    return None
  summary, header = _read_header(path)
  library = str(env).partition(":")[0]
  limit = _last(chain, "max_wall_s")
  return ConfigInfo(
    name=name,
    path=path,
    summary=summary,
    env=str(env),
    extra=extra_of(library) if library in PACKAGES else None,
    is_installed=library not in PACKAGES or importlib.util.find_spec(PACKAGES[library]) is not None,
    hardware=header.get("Needs"),
    time=header.get("Time") or (f"at most {math.ceil(limit / 60)} min" if limit else None),
    reached=header.get("Reached"),
    curve=header.get("Curve"),
    measured=tuple(header.get("Measured", "").replace(",", " ").split()),
  )


def _last(chain: list[dict], *keys: str) -> Any:
  """Returns the value of nested keys in the last layer that has them; None if no layer does."""
  values: Iterator[Any] = (_get(layer, keys) for layer in reversed(chain))
  return next((value for value in values if value is not None), None)


def _get(value: Any, keys: tuple[str, ...]) -> Any:
  for key in keys:
    value = value.get(key) if isinstance(value, Mapping) else None
  return value


def _read_header(path: Path) -> tuple[str, dict[str, str]]:
  """Returns the summary of a file's header, and its optional lines by keyword."""
  lines = path.read_text("utf-8").splitlines()
  length = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
  found = (_HEADER.fullmatch(line) for line in lines[1:length])
  return lines[0].removeprefix("# ") if length else "", {m[1]: m[2].strip() for m in found if m}
