"""The command `moozi compare`."""

from pathlib import Path
from typing import Annotated

import typer

from moozi.commands import common
from moozi.io.output import say


def compare(
  runs: Annotated[
    list[str],
    typer.Argument(metavar="RUN...", help="Runs, folders of runs, or patterns such as 'runs/first-seed*'."),
  ],
  out: Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Write a page, a picture, the scores and the table into this folder."),
  ] = None,
  center: Annotated[
    str, typer.Option(metavar="iqm|mean", help="Statistic of the curves: interquartile mean, or mean.")
  ] = "iqm",
  as_json: common.AsJson = False,
) -> int:
  """Compare runs: curves, final scores with intervals over seeds, probabilities of improvement.

  Runs of one configuration form a group, and all intervals are over seeds. Runs with different
  environments or evaluation protocols are not compared with each other.
  """
  from moozi.api.compare import compare as compare_runs

  with common.stdout_to_stderr():
    comparison = compare_runs(runs, center=center)
    paths = {} if out is None else comparison.save(out)
  common.print_results(comparison, paths, as_json)
  if out is None and not as_json:
    say("--out DIR writes the curves as a page and a picture.")
  return 0
