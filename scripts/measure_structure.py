"""Counts lines, types, import cycles, and names that are used more than once.

`python scripts/measure_structure.py` prints the counts of the working tree, and what was counted.
"""

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import grimp
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

ROOT = Path(__file__).resolve().parent.parent
LONG = 450  # lines
EXPERIMENTS = (
  "experiments",
  "moozi/experiments",
  *(f"moozi/commands/{name}.py" for name in ("compare", "seeds", "sweep")),
  "moozi/api/compare.py",
)
# A class chooses a move if it has one of these methods, or if its name says that it moves.
CHOOSING = {"act", "step_action"}
MOVERS = re.compile(r"\w*(Agent|Player|Seats|Bots?|Follower|Entrant|Seated|Singles|Advisor|PastSel(f|ves))")


def files(*paths: str) -> list[Path]:
  """Returns the Python files at and below paths relative to the root, in order."""
  found: list[Path] = []
  for path in paths:
    here = ROOT / path
    found += [here] if here.is_file() else sorted(here.rglob("*.py"))
  return found


def lines(paths: Sequence[Path]) -> int:
  return sum(len(path.read_text("utf-8").splitlines()) for path in paths)


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
  """Yields each top-level class of moozi/, after the file's path."""
  for path in files("moozi"):
    tree = ast.parse(path.read_text("utf-8"))
    for node in tree.body:
      if isinstance(node, ast.ClassDef):
        yield str(path.relative_to(ROOT)), node


def choosing_types() -> list[str]:
  """Returns `file:class` of the classes that choose a move, protocols included."""
  return [
    f"{path}:{node.name}"
    for path, node in classes()
    if MOVERS.fullmatch(node.name)
    or any(isinstance(entry, ast.FunctionDef) and entry.name in CHOOSING for entry in node.body)
  ]


def circles() -> list[list[str]]:
  """Returns the sets of modules that import each other, without imports for type checkers only."""
  graph = grimp.build_graph("moozi", exclude_type_checking_imports=True, cache_dir=None)
  modules = sorted(graph.modules)
  number = {module: index for index, module in enumerate(modules)}
  pairs = [(number[m], number[o]) for m in modules for o in graph.find_modules_directly_imported_by(m)]
  start, end = np.array(pairs).T
  edges = coo_array((np.ones(len(pairs)), (start, end)), shape=(len(modules),) * 2)
  _, labels = connected_components(edges, connection="strong")
  sets: dict[int, list[str]] = defaultdict(list)
  for module, label in zip(modules, labels, strict=True):
    sets[int(label)].append(module)
  return [entry for entry in sets.values() if len(entry) > 1]


def repeated(names: Sequence[str], more_than: int) -> list[str]:
  return sorted(name for name, count in Counter(names).items() if count > more_than)


def class_names() -> list[str]:
  """Returns the names of public classes."""
  return [node.name for _, node in classes() if not node.name.startswith("_")]


def module_names() -> list[str]:
  return [path.stem for path in files("moozi") if path.stem != "__init__"]


def long_files() -> list[str]:
  return [str(p.relative_to(ROOT)) for p in files("moozi") if lines([p]) > LONG]


def measures() -> dict[str, tuple[int, list[str]]]:
  """Returns each count by its words, with what was counted where it is few."""
  collectors = [f"{p}:{n.name}" for p, n in classes() if re.fullmatch(r"\w+Collector", n.name)]
  listed = {
    "collectors": collectors,
    "types that choose a move": choosing_types(),
    "circles of files": [" ".join(circle) for circle in circles()],
    f"files over {LONG} lines": long_files(),
    "class names used twice": repeated(class_names(), 1),
    "module names used three times": repeated(module_names(), 2),
  }
  return {
    "lines of `moozi/`": (lines(files("moozi")), []),
    "lines of `tests/`": (lines(files("tests")), []),
    "lines of `experiments/`, `moozi/experiments`, compare, seeds, sweep": (lines(files(*EXPERIMENTS)), []),
  } | {words: (len(entries), entries) for words, entries in listed.items()}


def main() -> None:
  sys.path.insert(0, str(ROOT))  # for grimp, which finds the package by its name
  for words, (count, entries) in measures().items():
    print(f"{count:>7,}  {words}")
    for entry in entries:
      print(f"           {entry}")


if __name__ == "__main__":
  main()
