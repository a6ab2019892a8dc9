"""The command `moozi report`."""

from pathlib import Path
from typing import Annotated

from moozi.commands import common
from moozi.io.output import say


def report(
  run: common.Run,
  checkpoint: common.Checkpoint = None,
  episode: Annotated[
    int | None,
    common.integer(
      "Number of the evaluation episode, from 0. Default: 0.", "--episode", minimum=0, metavar="I"
    ),
  ] = None,
  max_steps: Annotated[
    int | None, common.integer("Stop the episode after N steps. Default: 1,000.", "--max-steps")
  ] = None,
  simulations: common.Simulations = None,
  out: Annotated[Path | None, common.output("report.html", "FILE")] = None,
  allow_code: common.AllowCode = False,
) -> int:
  """Write an HTML page with a run's curves, its settings and, with a search, an episode to step through."""
  from moozi.api.run import Run

  with common.stdout_to_stderr():
    path = Run(run).report(
      out,
      checkpoint=checkpoint,
      episode=episode,
      max_steps=max_steps,
      simulations=simulations,
      allow_code=allow_code,
      on_step=common.show_steps(episode or 0),
    )
  common.print_progress("\n")
  say(path)
  return 0
