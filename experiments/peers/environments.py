"""Installs each system into an environment of its own, outside the repository."""

import os
import subprocess
import sys
import venv
from pathlib import Path

from experiments.peers.work import System

STAMP = "installed.txt"


def default_folder() -> Path:
  cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
  return Path(cache) / "moozi" / "peers"


def python_of(system: System, folder: Path) -> Path:
  """Returns the interpreter that runs a system's driver."""
  if not system.requirements:
    return Path(sys.executable)
  return folder / system.key / "bin" / "python"


def install(system: System, folder: Path, log: Path) -> str | None:
  """Makes the system's environment, unless it was already made with the same requirements.

  pip's output is appended to `log`. pip reads the user's settings, such as PIP_FIND_LINKS.

  Returns: None, or why it could not be installed: pip's last line with an error.
  """
  if not system.requirements:
    return None
  home, wanted = folder / system.key, "\n".join((*system.requirements, *system.without_dependencies)) + "\n"
  stamp = home / STAMP
  if stamp.exists() and stamp.read_text("utf-8") == wanted:
    return None
  venv.create(home, clear=True, with_pip=True)
  calls = [list(system.requirements)]
  if system.without_dependencies:
    calls.append(["--no-deps", *system.without_dependencies])
  pip = [str(python_of(system, folder)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
  with log.open("a", encoding="utf-8") as out:
    for arguments in calls:
      result = subprocess.run([*pip, *arguments], capture_output=True, text=True, check=False)
      out.write(result.stdout + result.stderr)
      if result.returncode:
        return reason_of(result.stderr) or f"pip exited with {result.returncode}"
  stamp.write_text(wanted, "utf-8")
  return None


def reason_of(stderr: str) -> str:
  """Returns the last line of an error output that names an error, or without one the last line."""
  lines = [line.strip() for line in stderr.splitlines() if line.strip()]
  errors = [line for line in lines if line.startswith("ERROR") or "Error" in line.partition(":")[0]]
  return (errors or lines or [""])[-1][:300]
