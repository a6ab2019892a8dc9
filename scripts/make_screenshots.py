"""Makes the pictures of docs/images that show programs: `make screenshots`. Needs Chromium.

`--catch RUN` and `--breakout RUN` choose other agents than those of the zoo. Commit a new picture only if its
content has changed: pixels always differ a little, because agents and fonts differ between machines.
"""

import argparse
import io
import itertools
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def moozi(folder: Path, *arguments: str) -> None:
  """Runs a command of moozi in a folder."""
  subprocess.run([sys.executable, "-m", "moozi.cli", *arguments], cwd=folder, check=True)


def page(html: Path, name: str, height: int, width: int = 1280) -> None:
  """Writes the top of a page as a PNG of 256 colours."""
  program = next((path for path in map(shutil.which, CHROMIUM) if path), None)
  if program is None:
    sys.exit("error: no Chromium; install it, on Debian with: apt-get install chromium")
  with tempfile.TemporaryDirectory() as folder:
    shot = Path(folder) / "shot.png"
    options = [
      "--headless",
      "--no-sandbox",
      "--disable-gpu",
      "--hide-scrollbars",
      "--virtual-time-budget=5000",
    ]
    options += [
      f"--screenshot={shot}",
      f"--window-size={width},{height}",
      f"--user-data-dir={folder}/profile",
    ]
    subprocess.run([program, *options, html.as_uri()], check=True, capture_output=True, timeout=120)
    picture = Image.open(shot).convert("RGB").quantize(256, method=Image.Quantize.MEDIANCUT)
    picture.save(IMAGES / f"{name}.png", optimize=True)


def terminal(run: str, name: str, step: int) -> None:
  """Writes one step of `moozi watch` as an SVG without fonts of another host."""
  from rich.console import Console

  import moozi
  from moozi.vis.terminal import step_lines, step_view

  agent = moozi.load(run)
  steps = agent.evaluator().play(agent.state.variables, 0)
  played = next(itertools.islice(steps, step, None))
  console = Console(record=True, width=88, file=io.StringIO(), force_terminal=True, color_system="truecolor")
  lines = [f"{agent.spec.name}, {agent.checkpoint.name}", f"episode 0   step {step}"]
  console.print(step_view(played, agent.spec, [*lines, *step_lines(played, agent.spec)], 88, 26))
  title = f"moozi watch {run if run.startswith('zoo:') else 'RUN'}"
  svg = console.export_svg(title=title, unique_id=name)
  svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
  (IMAGES / f"{name}.svg").write_text(svg.replace("Fira Code, ", ""), "utf-8")


def main() -> None:
  """Makes the pictures of docs/images that show programs."""
  parser = argparse.ArgumentParser(description=main.__doc__)
  parser.add_argument("--catch", default="zoo:tiny/catch", metavar="RUN")
  parser.add_argument("--breakout", default="zoo:minatar/breakout", metavar="RUN")
  runs = parser.parse_args()
  with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    moozi(folder, "inspect", runs.catch, "--episode", "0", "--step", "4", "--out", str(folder))
    moozi(folder, "report", runs.breakout, "--max-steps", "120", "--out", str(folder / "report.html"))
    shutil.copy(next(folder.glob("*.svg")), IMAGES / "search_tree.svg")
    page(folder / "report.html", "report", 1400)
  terminal(runs.breakout, "watch", 60)


if __name__ == "__main__":
  main()
