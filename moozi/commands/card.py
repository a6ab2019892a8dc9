"""The command `moozi card`."""

from pathlib import Path
from typing import Annotated

from moozi.commands.common import Run, output
from moozi.core.errors import UserError
from moozi.io.output import say


def card(run: Run, out: Annotated[Path | None, output("card.md", "DIR")] = None) -> int:
  """Write the card of a run: conditions, settings, result with interval, curve, hardware and limits."""
  from moozi.api.run_access import place_in_run, writing
  from moozi.io.run_directory import RunDirectory
  from moozi.vis.card_page import write_card

  # The run is opened without --allow-code, because the command creates no environment.
  directory = RunDirectory.open(run)
  folder = place_in_run(directory, "card.md").parent if out is None else out
  with writing("--out", folder):
    if folder.exists() and not folder.is_dir():
      raise UserError(f"--out={out}: is a file; must be a folder")
    say(*write_card(directory, folder))
  return 0
