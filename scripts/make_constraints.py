"""Updates constraints.txt with a resolver; run by `make constraints`. Needs the package `uv`."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = "# The versions that moozi is tested with, on every version of Python. Made by `make constraints`.\n"
OPTIONS = [
  "--universal",
  "--fork-strategy=fewest",
  "--python-version=3.11",
  "--no-emit-index-url",
  "--no-emit-find-links",
  "--no-annotate",
  "--no-header",
  "--upgrade",
  "--quiet",
  "--extra=dev",
  "--extra=docs",
  "--extra=envs",
  "--extra=gpu",
  "--extra=mlflow",
  "--extra=wandb",
]


def main() -> None:
  """Writes constraints.txt."""
  command = [sys.executable, "-m", "uv", "pip", "compile", *OPTIONS, "pyproject.toml"]
  done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
  (ROOT / "constraints.txt").write_text(HEADER + done.stdout)


if __name__ == "__main__":
  main()
