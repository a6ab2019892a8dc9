"""Tests of the Dockerfile without Docker: a linter, and its instructions run by a Python class.

Each stage is a folder. Its virtual environments have the dependencies already, so that pip downloads nothing.
`useradd` and `install -o`, which need a container, are replaced.
"""

import fnmatch
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from moozi.io.config_files import list_configs
from tests.install.build import ROOT, environment, make_venv
from tests.tiny_run import TINY

STUBS = {"useradd": "exit 0", "install": 'for last; do :; done; mkdir -p "$last"'}


def instructions() -> list[tuple[str, str]]:
  """Returns (instruction, arguments) of each line of the Dockerfile."""
  text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text("utf-8"), flags=re.MULTILINE)
  lines = text.replace("\\\n", " ").splitlines()
  return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines if line.strip())]


def last(name: str) -> str:
  return next(text for word, text in reversed(instructions()) if word == name)


def is_in_context(path: Path) -> bool:
  """Returns whether .dockerignore keeps a path in the build context; the last matching pattern decides."""
  is_kept = True
  for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines():
    pattern = line.removeprefix("!")
    if line and not line.startswith("#"):
      parts = [path, *path.parents] if not pattern.startswith("**/") else [Path(part) for part in path.parts]
      if any(fnmatch.fnmatch(str(part), pattern.removeprefix("**/")) for part in parts):
        is_kept = line.startswith("!")
  return is_kept


def test_linter_finds_nothing():
  hadolint = Path(sys.executable).with_name("hadolint")
  if not hadolint.is_file():
    pytest.skip("no hadolint on this platform")
  done = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
  assert (done.returncode, done.stdout) == (0, "")


def test_it_runs_the_main_job_without_privileges():
  assert json.loads(last("ENTRYPOINT")) == ["moozi"]
  command = json.loads(last("CMD"))
  assert command[0] == "train"
  info = next(info for info in list_configs() if info.name == command[1])
  assert f"EXTRAS={info.extra}" in dict.fromkeys(text for word, text in instructions() if word == "ARG")
  assert last("USER") == "${UID}"
  assert "UID=1000" in [text for word, text in instructions() if word == "ARG"]


def test_context_has_what_the_build_needs_and_no_more():
  kept = {path.name for path in ROOT.iterdir() if is_in_context(path.relative_to(ROOT))}
  assert {"config", "moozi", "constraints.txt", "pyproject.toml", "setup.py", "README.md", "LICENSE"} <= kept
  assert not {".git", ".venv", "runs", "tests", "experiments", "docs"} & kept
  assert is_in_context(Path("moozi/cli.py"))
  assert not is_in_context(Path("moozi/io/__pycache__/config.pyc"))


@pytest.mark.slow
def test_steps_run_as_a_script(tmp_path):
  container = Container(tmp_path)
  for word, text in instructions():
    getattr(container, f"do_{word.lower()}", lambda _: None)(text)
  settings = [text for text in TINY if not text.startswith("env.name=")]
  out = container.start("runtime=local", "run.name=first", "logging.progress=none", *settings)
  assert "return:" in out
  assert (container.place("runs/first/summary.json")).is_file()


class Container:
  """Runs a Dockerfile without Docker: each stage is a folder. Instructions without a method are ignored."""

  def __init__(self, path: Path) -> None:
    self._path, self._stages = path, {}

  def place(self, name: str) -> Path:
    """Returns the path of a file of the current stage; `name` may be relative to the working directory."""
    return self._root / (self._workdir / name).relative_to("/")

  def do_from(self, text: str) -> None:
    stage = text.partition(" AS ")[2] or f"stage {len(self._stages)}"
    self._root = self._stages[stage] = self._path / stage.replace(" ", "_")
    self._root.mkdir()
    self._workdir, self._variables = Path("/"), {}
    self._venv = make_venv(self._path / f"{self._root.name}_venv")
    for name, script in STUBS.items():
      (self._venv / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
      (self._venv / "bin" / name).chmod(0o755)

  def do_arg(self, text: str) -> None:
    name, _, value = text.partition("=")
    self._variables[name] = value.strip('"')

  def do_workdir(self, text: str) -> None:
    self._workdir = Path(text)
    self.place(".").mkdir(parents=True, exist_ok=True)

  def do_copy(self, text: str) -> None:
    option, *names = text.split() if text.startswith("--from=") else ["", *text.split()]
    *sources, target = names
    for source in sources:
      if option:
        shutil.copytree(self._stages[option.removeprefix("--from=")] / source[1:], self.place(target))
        continue
      files = (
        [path for path in (ROOT / source).rglob("*") if path.is_file()] if source == "." else [ROOT / source]
      )
      for path in files:
        relative = path.relative_to(ROOT)
        if is_in_context(relative):
          to = self.place(target) / relative
          to.parent.mkdir(parents=True, exist_ok=True)
          shutil.copy(path, to)

  def do_run(self, text: str) -> None:
    self._call(["sh", "-ec", text.replace(" /", f" {self._root}/")])

  def start(self, *arguments: str) -> str:
    """Runs the entry point with the default command and further arguments; returns its output."""
    return self._call([*json.loads(last("ENTRYPOINT")), *json.loads(last("CMD")), *arguments])

  def _call(self, command: list[str]) -> str:
    variables = environment(self._venv) | self._variables | {"HOME": str(self._path)}
    done = subprocess.run(
      command, cwd=self.place("."), env=variables, capture_output=True, text=True, timeout=540, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
