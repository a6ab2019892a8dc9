import ast
import subprocess
import sys
import types
from pathlib import Path

import pytest

import moozi


def test_import_is_light():
  heavy = "{'jax', 'ray', 'matplotlib', 'numpy', 'pandas', 'pydantic', 'gymnasium'}"
  code = f"import sys, moozi; sys.exit(str({heavy} & set(sys.modules) or '') or 0)"
  done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
  assert done.returncode == 0, done.stderr


def test_every_name_is_found():
  for name in moozi.__all__:
    assert getattr(moozi, name).__name__ == name
  # Completion in a shell and `from moozi import *` show these names only.
  assert {name for name in dir(moozi) if not name.startswith("__")} == set(moozi.__all__)
  others = {k: v for k, v in vars(moozi).items() if not k.startswith("_") and k not in moozi.__all__}
  assert all(isinstance(value, types.ModuleType) for value in others.values()), others
  with pytest.raises(AttributeError, match="no attribute 'lode'; it has Agent, "):
    moozi.lode  # noqa: B018


def test_type_checkers_see_the_same_names():
  tree = ast.parse(Path(moozi.__file__).read_text())
  block = next(node for node in tree.body if isinstance(node, ast.If))
  typed = {
    name.asname or name.name: node.module
    for node in block.body
    if isinstance(node, ast.ImportFrom)
    for name in node.names
  }
  assert typed == moozi._MODULES
  assert sorted(typed) == sorted(moozi.__all__)
  assert Path(moozi.__file__).with_name("py.typed").exists()
