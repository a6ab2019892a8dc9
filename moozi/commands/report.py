"""`moozi report`."""

from pathlib import Path
from typing import Annotated

from moozi.commands import common


def report(
  run: common.Run,
  checkpoint: common.Checkpoint = None,
  episode: common.Episode = 0,
  max_steps: Annotated[int, common.integer("Stop the episode after N steps.")] = 1000,
  simulations: common.Simulations = None,
  out: Annotated[Path | None, common.output("report.html", "FILE")] = None,
  allow_code: common.AllowCode = False,
) -> int:
  """Write an HTML page with a run's curves, its settings, and an episode to step through."""
  from moozi.api.run import Run

  with common.stdout_to_stderr():
    path = Run(run).report(
      out,
      checkpoint=checkpoint,
      episode=episode,
      max_steps=max_steps,
      simulations=simulations,
      allow_code=allow_code,
      on_step=common.show_steps(episode),
    )
  common.print_progress("\n")
  print(path)
  return 0
