"""`moozi report`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from moozi.commands import common
from moozi.core.errors import UserError


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
  from moozi.io.metrics import read_metrics
  from moozi.io.plain_data import dump_yaml
  from moozi.training.algorithms import algorithm_of
  from moozi.vis.report import write_report

  directory, config = common.open_run(run, allow_code)
  path = common.place_in_run(directory, "report.html") if out is None else out
  if path.is_dir():
    raise UserError(f"--out={out}: is a folder; must be a file, such as {path / 'report.html'}")
  with common.stdout_to_stderr():
    agent = common.agent_of(directory, config, checkpoint)
    ticks = read_metrics(directory.metrics_path)
    played, figures = None, _last_evaluation(ticks)
    if algorithm_of(config).has_model:
      played = common.play_episode(agent, index=episode, max_steps=max_steps, num_simulations=simulations)
    else:
      figures += f" The algorithm {config.algorithm} has no search, so this page has no episode."
  about = {
    "name": directory.path.resolve().name,
    "checkpoint": agent.checkpoint.name,
    "env_steps": agent.checkpoint.env_steps,
    "learner_steps": agent.checkpoint.learner_steps,
    "figures": figures,
  }
  with common.writing("--out", path):
    text = dump_yaml(config.model_dump(mode="json"))
    write_report(path, played, agent.spec, run=about, ticks=ticks, config=text)
  print(path)
  return 0


def _last_evaluation(ticks: Sequence[Mapping[str, Any]]) -> str:
  """Returns a sentence about the run's last evaluation; an empty string if there is none."""
  from moozi.vis.report import number_in

  names = ("test/return_mean", "test/return_std", "test/episodes", "test/at_env_steps")
  for tick in reversed(ticks):
    mean, std, episodes, at = numbers = [number_in(tick.get(name)) for name in names]
    if None not in numbers:
      return f" Last evaluation: return {mean:.4g} ± {std:.3g} over {episodes:g} episodes at {at:,.0f} steps."
  return ""
