"""`moozi timeline`."""

from pathlib import Path
from typing import Annotated

import typer

from moozi.commands.common import Run
from moozi.core.errors import UserError


def timeline(
  run: Run,
  start: Annotated[str, typer.Option(metavar="S", help="Leave out so many seconds at the beginning.")] = "0",
  seconds: Annotated[
    str | None, typer.Option(metavar="S", help="Show so many seconds; all that there are if not given.")
  ] = None,
  out: Annotated[
    Path | None, typer.Option(metavar="DIR", help="Where the files go; RUN/timeline if not given.")
  ] = None,
) -> int:
  """Draw what each actor did when, and say how much of the time each was idle."""
  import json

  from moozi.commands.episode import place_in_run
  from moozi.core.actor_report import ends, idle_share, part_of, shares
  from moozi.io.atomic_write import write_bytes
  from moozi.io.run_directory import RunDirectory
  from moozi.io.timeline import read_timeline, trace_of
  from moozi.vis.timeline import timeline_png

  skipped = _seconds_of("--start", start)
  shown = None if seconds is None else _seconds_of("--seconds", seconds)
  # Nothing is made of the environment's name: a user's own needs no leave here.
  directory = RunDirectory.open(run)
  whole = read_timeline(directory.timeline_path)
  begin_s, end_s = ends(whole)
  since_s = begin_s + skipped
  part = part_of(whole, since_s, end_s if shown is None else min(end_s, since_s + shown))
  if not part:
    raise UserError(
      f"--start={start}"
      + ("" if seconds is None else f" --seconds={seconds}")
      + f": nothing is there to show; the timeline is {end_s - begin_s:.1f} s long"
    )
  folder = place_in_run(directory, "timeline") if out is None else out
  name = directory.path.resolve().name
  after = f"{skipped:g} s after " if skipped else ""
  title = f"{name}: {ends(part)[1] - since_s:.1f} s from {after}the first update on"
  files = {
    "timeline.png": timeline_png(part, title, skipped),
    "timeline.json": json.dumps(trace_of(part, name), allow_nan=False).encode(),
  }
  try:
    folder.mkdir(parents=True, exist_ok=True)
    for file, data in files.items():
      write_bytes(folder / file, data)
  except OSError as e:
    raise UserError(f"{folder}: cannot be written to: {e.strerror or e}") from None
  print(title)
  width = max(len("actor"), *(len(actor) for actor in part))
  print(f"{'actor':<{width}}    idle  busy with")
  for actor, stretches in part.items():
    work = ", ".join(f"{kind} {share:.1%}" for kind, share in shares(stretches).items())
    print(f"{actor:<{width}}  {idle_share(stretches):>6.1%}  {work or '–'}")
  print(f"picture: {folder / 'timeline.png'}")
  print(f"trace:   {folder / 'timeline.json'}, for ui.perfetto.dev or chrome://tracing")
  return 0


def _seconds_of(option: str, text: str) -> float:
  """A number of seconds from 0 on."""
  try:
    value = float(text)
  except ValueError:
    value = -1.0
  if not 0 <= value < 1e9:
    raise UserError(f"{option}={text}: must be a number of seconds from 0 on")
  return value
