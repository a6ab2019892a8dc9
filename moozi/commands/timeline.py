"""The command `moozi timeline`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from moozi.commands.common import Run, number_of, output
from moozi.core.errors import UserError
from moozi.io.output import say


def timeline(
  run: Run,
  start: Annotated[str, typer.Option(metavar="S", help="Skip the first S seconds.")] = "0",
  seconds: Annotated[
    str | None, typer.Option(metavar="S", help="Show S seconds. Default: all that remain.")
  ] = None,
  out: Annotated[Path | None, output("timeline")] = None,
) -> int:
  """Draw when each actor was busy, and print its idle share."""
  from moozi.api.run_access import place_in_run, writing
  from moozi.core.actor_report import ends, idle_share, part_of, shares
  from moozi.io.atomic_write import write_bytes
  from moozi.io.run_directory import RunDirectory
  from moozi.io.timeline import read_timeline, trace_of
  from moozi.vis.timeline_figure import timeline_png

  skipped = number_of("--start", start, 0, 1e9, "seconds")
  shown = None if seconds is None else number_of("--seconds", seconds, 0, 1e9, "seconds")
  # The run is opened without --allow-code, because the command creates no environment.
  directory = RunDirectory.open(run)
  whole = read_timeline(directory.timeline_path)
  begin_s, end_s = ends(whole)
  since_s = begin_s + skipped
  part = part_of(whole, since_s, end_s if shown is None else min(end_s, since_s + shown))
  if not part:
    options = f"--start={start}" + ("" if seconds is None else f" --seconds={seconds}")
    raise UserError(f"{options}: shows nothing; the timeline is {end_s - begin_s:.1f} s long")
  folder = place_in_run(directory, "timeline") if out is None else out
  name = directory.path.resolve().name
  title = f"{name}: {ends(part)[1] - since_s:.1f} s from {skipped:g} s after the first update"
  with writing("--out", folder):
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / "timeline.png", timeline_png(part, title, skipped))
    write_bytes(folder / "timeline.json", json.dumps(trace_of(part, name), allow_nan=False).encode())
  say(title)
  width = max(len("actor"), *(len(actor) for actor in part))
  say(f"{'actor':<{width}}    idle  busy with")
  for actor, stretches in part.items():
    work = ", ".join(f"{kind} {share:.1%}" for kind, share in shares(stretches).items())
    say(f"{actor:<{width}}  {idle_share(stretches):>6.1%}  {work or '–'}")
  say(f"picture: {folder / 'timeline.png'}")
  say(f"trace:   {folder / 'timeline.json'} (open in ui.perfetto.dev)")
  return 0
