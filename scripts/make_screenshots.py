"""Makes the pictures of docs/images that show programs: `make screenshots`. Needs Chromium and websockets.

`--catch RUN` and `--breakout RUN` choose other agents than those of the zoo, and `--curves RUN` another run
than a new one of tiny/catch, which takes minutes. Commit a new picture only if its content has changed: some
pixels always differ, because runs and fonts differ between machines.
"""

import argparse
import base64
import io
import itertools
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from PIL import Image

from moozi.io.machine import free_port

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
CURVES = ("error/value", "loss/total", "policy/entropy", "train/return_mean")
# The cards of TensorBoard in a window of 1280 pixels, without its menus.
CARDS = (262, 112, 1028, 996)
_LOG_LINE = re.compile(r"\S+ (\S+),\d+ INFO moozi\.(\w+): (.*)")


def moozi(folder: Path, *arguments: str) -> None:
  """Runs a command of moozi in a folder."""
  subprocess.run([sys.executable, "-m", "moozi.cli", *arguments], cwd=folder, check=True)


def page(html: Path, name: str, height: int, width: int = 1280) -> None:
  """Writes the top of a page as a PNG of 256 colours."""
  with tempfile.TemporaryDirectory() as folder:
    shot = Path(folder) / "shot.png"
    options = [f"--screenshot={shot}", "--virtual-time-budget=5000", html.as_uri()]
    subprocess.run(
      _chromium(Path(folder), width, height, *options), check=True, capture_output=True, timeout=120
    )
    _write_png(Image.open(shot), name)


def live_page(address: str, name: str, part: tuple[int, int, int, int], wait_s: float = 20) -> None:
  """Writes the part (left, top, right, bottom) of a page, `wait_s` seconds after it was opened, as a PNG."""
  from websockets.sync.client import connect

  with tempfile.TemporaryDirectory() as folder:
    port_file = Path(folder) / "profile" / "DevToolsActivePort"
    command = _chromium(Path(folder), 1280, part[3] + 200, "--remote-debugging-port=0", address)
    browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
      time.sleep(wait_s)
      port = port_file.read_text().split()[0]
      with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=10) as answer:
        target = next(x for x in json.load(answer) if x["type"] == "page")
      with connect(target["webSocketDebuggerUrl"], max_size=None) as socket_:
        socket_.send(json.dumps({"id": 1, "method": "Page.captureScreenshot"}))
        data = next(x for x in map(json.loads, socket_) if x.get("id") == 1)["result"]["data"]
    finally:
      browser.terminate()
      browser.wait()
    _write_png(Image.open(io.BytesIO(base64.b64decode(data))).crop(part), name)


def _chromium(folder: Path, width: int, height: int, *options: str) -> list[str]:
  """Returns the command that runs Chromium without a window, with a profile in `folder`."""
  program = next((path for path in map(shutil.which, CHROMIUM) if path), None)
  if program is None:
    sys.exit("error: no Chromium; install it, on Debian with: apt-get install chromium")
  fixed = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
  return [program, *fixed, f"--window-size={width},{height}", f"--user-data-dir={folder}/profile", *options]


def _write_png(picture: Image.Image, name: str) -> None:
  picture.convert("RGB").quantize(256, method=Image.Quantize.MEDIANCUT).save(
    IMAGES / f"{name}.png", optimize=True
  )


def tensorboard(run: Path) -> None:
  """Writes the curves of a run in TensorBoard as a PNG."""
  port = free_port("127.0.0.1")
  address = f"http://127.0.0.1:{port}/"
  server = subprocess.Popen(
    [sys.executable, "-m", "tensorboard.main", "--logdir", str(run.parent), "--port", str(port)],
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
  )
  try:
    for _ in range(60):
      try:
        urllib.request.urlopen(f"{address}data/plugins_listing", timeout=5).close()
        break
      except OSError:
        time.sleep(1)
    else:
      sys.exit("error: TensorBoard does not answer")
    time.sleep(5)  # it reads the run
    query = urllib.parse.urlencode(
      {"tagFilter": f"^({'|'.join(CURVES)})$", "smoothing": 0, "darkMode": "false"}
    )
    live_page(f"{address}?{query}#timeseries", "tensorboard", CARDS)
  finally:
    server.terminate()
    server.wait()


def logs(run: Path, num_lines: int = 22) -> None:
  """Writes the first lines of a run's logs, of all actors by time, as an SVG."""
  lines = [line for path in run.glob("logs/*.log") for line in path.read_text("utf-8").splitlines()]
  found = [match.groups() for line in sorted(lines) if (match := _LOG_LINE.fullmatch(line))]
  text = [f"{when}  {actor:<18} {what}" for when, actor, what in found[:num_lines]]
  _write_svg(text, "moozi: the logs of a run's actors", "logs")


def _write_svg(shown: Any, title: str, name: str) -> None:
  """Writes lines of text, or what rich can print, as an SVG without fonts of another host."""
  from rich.console import Console

  console = Console(record=True, width=88, file=io.StringIO(), force_terminal=True, color_system="truecolor")
  for part in shown if isinstance(shown, list) else [shown]:
    console.print(part, highlight=False, overflow="ellipsis", no_wrap=True)
  svg = console.export_svg(title=title, unique_id=name)
  svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
  (IMAGES / f"{name}.svg").write_text(svg.replace("Fira Code, ", ""), "utf-8")


def terminal(run: str, name: str, step: int) -> None:
  """Writes one step of `moozi watch` as an SVG."""
  import moozi
  from moozi.vis.terminal import step_lines, step_view

  agent = moozi.load(run)
  steps = agent.evaluator().play(agent.state.variables, 0)
  played = next(itertools.islice(steps, step, None))
  lines = [f"{agent.spec.name}, {agent.checkpoint.name}", f"episode 0   step {step}"]
  view = step_view(played, agent.spec, [*lines, *step_lines(played, agent.spec)], 88, 26)
  _write_svg(view, f"moozi watch {run if run.startswith('zoo:') else 'RUN'}", name)


def main() -> None:
  """Makes the pictures of docs/images that show programs."""
  parser = argparse.ArgumentParser(description=main.__doc__)
  parser.add_argument("--catch", default="zoo:tiny/catch", metavar="RUN")
  parser.add_argument("--breakout", default="zoo:minatar/breakout", metavar="RUN")
  parser.add_argument("--curves", type=Path, metavar="RUN")
  parser.add_argument("--only-curves", action="store_true", help="make only tensorboard.png and logs.svg")
  runs = parser.parse_args()
  with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    if runs.curves is None:
      moozi(folder, "train", "tiny/catch", "run.name=catch")
    curves: Path = runs.curves or folder / "runs" / "catch"
    tensorboard(curves)
    logs(curves)
    if runs.only_curves:
      return
    moozi(folder, "inspect", runs.catch, "--episode", "0", "--step", "4", "--out", str(folder))
    moozi(folder, "report", runs.breakout, "--max-steps", "120", "--out", str(folder / "report.html"))
    shutil.copy(next(folder.glob("*.svg")), IMAGES / "search_tree.svg")
    page(folder / "report.html", "report", 1400)
  terminal(runs.breakout, "watch", 60)


if __name__ == "__main__":
  main()
