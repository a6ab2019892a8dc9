"""Builds MooZi outside of the clone, and makes virtual environments without downloads."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# pip's settings: local files only.
OFFLINE = {
  "PIP_NO_INDEX": "1",
  "PIP_NO_DEPS": "1",
  "PIP_NO_BUILD_ISOLATION": "0",
  "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}


def environment(venv: Path | None = None) -> dict[str, str]:
  """Returns the environment variables of a command: those of this process without the clone's paths."""
  bin_path = [str(venv / "bin")] if venv else [str(Path(sys.executable).parent)]
  kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
  return kept | OFFLINE | {"PATH": os.pathsep.join([*bin_path, os.environ["PATH"]])}


def run(*command: object, cwd: Path, venv: Path | None = None, timeout_s: float = 540) -> str:
  """Runs a command; returns its standard output, or fails with all of its output."""
  words = [str(word) for word in command]
  done = subprocess.run(
    words, cwd=cwd, env=environment(venv), capture_output=True, text=True, timeout=timeout_s, check=False
  )
  assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
  return done.stdout


def copy_sources(to: Path) -> Path:
  """Copies the clone, which a build would write to, without generated files; returns the folder."""
  hidden = (".git", ".venv", ".*_cache", ".hypothesis")
  ignored = shutil.ignore_patterns(*hidden, "__pycache__", "*.egg-info", "build", "dist", "runs", "site")
  shutil.copytree(ROOT, to, ignore=ignored, dirs_exist_ok=True)
  return to


def make_venv(at: Path) -> Path:
  """Makes a virtual environment and returns its path.

  It also finds the packages of the current environment, except MooZi. There MooZi is an
  editable install, which the new environment does not see.
  """
  run(sys.executable, "-m", "venv", at, cwd=at.parent)
  # Python 3.11 adds a setuptools that is too old to build MooZi; later versions add none.
  run("python", "-m", "pip", "uninstall", "--yes", "setuptools", cwd=at, venv=at)
  site = Path(sysconfig.get_path("purelib", vars={"base": str(at), "platbase": str(at)}))
  (site / "shared.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
  return at
