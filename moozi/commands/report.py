"""`moozi report`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from moozi.commands.agent import agent_of
from moozi.commands.common import (
  AllowCode,
  Checkpoint,
  Run,
  Simulations,
  count_of,
  open_run,
  stdout_on_stderr,
)
from moozi.commands.episode import check_searches, number_of, place_in_run, play_episode
from moozi.core.errors import UserError


def report(
  run: Run,
  checkpoint: Checkpoint = None,
  episode: Annotated[str, typer.Option(metavar="I", help="Which of the evaluation's episodes.")] = "0",
  max_steps: Annotated[
    str, typer.Option(metavar="N", help="Leave the episode after so many steps.")
  ] = "1000",
  simulations: Simulations = None,
  out: Annotated[
    Path | None, typer.Option(metavar="FILE", help="Where the page goes; RUN/report.html if not given.")
  ] = None,
  allow_code: AllowCode = False,
) -> int:
  """Write one page about a run: its curves, its settings, and an episode to step through."""
  from moozi.io.metrics import read_metrics
  from moozi.io.plain_data import dump_yaml
  from moozi.vis.report import write_report

  index = number_of("--episode", episode)
  limit, num_simulations = count_of("--max-steps", max_steps), count_of("--simulations", simulations)
  directory, settings = open_run(run, allow_code)
  check_searches(run, settings, "report")
  path = place_in_run(directory, "report.html") if out is None else out
  if path.is_dir():
    raise UserError(f"--out={path}: is a folder; the page is one file")
  with stdout_on_stderr():
    agent = agent_of(directory, settings, checkpoint)
    ticks = read_metrics(directory.metrics_path)
    played = play_episode(agent, index=index, max_steps=limit, num_simulations=num_simulations)
  found = agent.checkpoint
  about = {
    "name": directory.path.resolve().name,
    "checkpoint": found.name,
    "env_steps": found.env_steps,
    "learner_steps": found.learner_steps,
    "figures": _figures(ticks),
  }
  try:
    write_report(
      path, played, agent.spec, run=about, ticks=ticks, config=dump_yaml(settings.model_dump(mode="json"))
    )
  except OSError as e:
    raise UserError(f"{path}: cannot be written: {e.strerror or e}") from None
  print(path)
  return 0


def _figures(ticks: Sequence[Mapping[str, Any]]) -> str:
  """A sentence about the run's last evaluation; nothing where there was none."""
  from moozi.vis.report import number_in

  names = ("test/return_mean", "test/return_std", "test/episodes", "test/at_env_steps")
  for tick in reversed(ticks):
    mean, std, episodes, at = numbers = [number_in(tick.get(name)) for name in names]
    if None not in numbers:
      return (
        f" Last evaluation: return {mean:.4g} ± {std:.3g} over {episodes:g} episodes, at {at:,.0f} steps."
      )
  return ""
