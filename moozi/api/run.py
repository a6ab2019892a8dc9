"""Reads a run directory: its metrics, evaluations, checkpoints, figures and agent."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moozi.api.run_access import check_searches, open_run, place_in_run, writing
from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.core.text import html_text
from moozi.io.checkpoints import CheckpointInfo, list_checkpoints
from moozi.io.metrics import TICK_KEYS, read_metrics
from moozi.io.run_directory import RunDirectory

if TYPE_CHECKING:
  import pandas as pd
  from matplotlib.figure import Figure

  from moozi.api.agent import Agent

_TEST = "test/"
_MAX_STEPS = 1000


class Run(os.PathLike[str]):
  """A run directory, which can be read while the run is in progress.

  Args:
    path: the directory, or another `Run`.

  Attributes:
    directory: the paths of the run's files.

  Raises: UserError: the path is not a run directory.
  """

  def __init__(self, path: str | os.PathLike[str]) -> None:
    self.directory = RunDirectory.open(Path(path))

  @property
  def path(self) -> Path:
    return self.directory.path

  @property
  def name(self) -> str:
    """The directory's name."""
    return self.path.resolve().name

  @property
  def config(self) -> Config:
    """The run's configuration. Raises UserError if this version does not accept it."""
    return self.directory.load_config()

  @property
  def summary(self) -> dict[str, Any]:
    """The results of the whole run. Raises UserError if summary.json is missing or cannot be read."""
    return self.directory.read_summary()

  def metrics(self) -> "pd.DataFrame":
    """Returns the metrics with a row for each line of metrics.jsonl; NaN if the line lacks a metric.

    The columns are env_steps, learner_steps, wall_s (seconds) and the metrics of docs/metrics.md.

    Raises: UserError: metrics.jsonl is missing or cannot be read.
    """
    import pandas as pd

    from moozi.io.plain_data import number_in

    ticks = read_metrics(self.directory.metrics_path)
    names = dict.fromkeys([*TICK_KEYS, *(str(name) for tick in ticks for name in tick)])
    columns = {name: [number_in(tick.get(name)) for tick in ticks] for name in names}
    frame = pd.DataFrame({name: pd.Series(column, dtype=float) for name, column in columns.items()})
    counters = {key: "int64" for key in TICK_KEYS[:2] if frame[key].notna().all()}
    return frame.astype(counters)

  def evaluations(self) -> "pd.DataFrame":
    """Returns a row for each evaluation, with the columns env_steps, return_mean, return_std, episodes, ….

    Without evaluations, the frame has these four columns.

    Raises: UserError: metrics.jsonl is missing or cannot be read.
    """
    import pandas as pd

    frame = self.metrics()
    tested = frame.filter(like=_TEST).rename(columns=lambda name: name.removeprefix(_TEST))
    if "at_env_steps" not in tested:
      columns = {"env_steps": "int64", "return_mean": float, "return_std": float, "episodes": float}
      return pd.DataFrame(columns=list(columns)).astype(columns)
    tested = tested.dropna(subset=["at_env_steps"])
    env_steps = tested.pop("at_env_steps").astype("int64")
    tested.insert(0, "env_steps", env_steps)
    return tested.reset_index(drop=True)

  def checkpoints(self) -> list[CheckpointInfo]:
    """Returns the checkpoints in order of steps, with name, path, env_steps and learner_steps."""
    return list_checkpoints(self.directory.checkpoints_path)

  def agent(self, checkpoint: str | os.PathLike[str] | int | None = None, **options: Any) -> "Agent":
    """Loads the run's agent. The arguments and errors are those of `moozi.load`."""
    from moozi.api.loading import load

    return load(self, checkpoint, **options)

  def figures(self) -> "dict[str, Figure]":
    """Returns matplotlib figures with curves over environment steps, by name: "return", "loss" and "speed".

    Raises: UserError: metrics.jsonl is missing or cannot be read.
    """
    from moozi.vis.curves import curve_figures

    return curve_figures(read_metrics(self.directory.metrics_path), self.name)

  def report(
    self,
    out: str | os.PathLike[str] | None = None,
    *,
    checkpoint: str | os.PathLike[str] | int | None = None,
    episode: int | None = None,
    max_steps: int | None = None,
    simulations: int | None = None,
    allow_code: bool = False,
    on_step: Any = lambda num_frames: None,
  ) -> Path:
    """Writes the HTML page of `moozi report`: curves, settings, and an episode with its searches.

    For an algorithm without a search, the page has no episode, so `episode`, `max_steps` and `simulations`
    must be None.

    Args:
      out: the page's file; None writes report.html in the run directory, for an agent of the zoo in the
        current folder.
      episode: index of the evaluation episode, from 0; None plays the first one.
      max_steps: maximum number of steps of the episode; None stops it after 1,000.
      checkpoint, simulations, allow_code: as in `moozi.load`.
      on_step: called after each step of the episode with the number of frames so far.

    Returns: the page's path.
    Raises: UserError: the page cannot be written, an argument needs a search that the algorithm lacks, or an
      error of `moozi.load` or `Agent.inspect`.
    """
    from moozi.api.loading import agent_of
    from moozi.io.lineage import read_lineage
    from moozi.io.plain_data import dump_yaml
    from moozi.vis.report import write_report

    directory, config = open_run(self, allow_code)
    options = {"--episode": episode, "--max-steps": max_steps, "--simulations": simulations}
    for option, number in options.items():
      if number is not None:
        check_searches(self.path, config, option)
    path = place_in_run(directory, "report.html") if out is None else Path(out)
    with writing("--out", path):
      if path.is_dir():
        raise UserError(f"--out={out}: is a folder; must be a file, such as {path / 'report.html'}")
    agent = agent_of(directory, config, checkpoint, allow_code=allow_code)
    ticks = read_metrics(directory.metrics_path)
    played, figures = None, _last_evaluation(ticks)
    if config.searches:
      played = agent.inspect(
        episode or 0,
        max_steps=_MAX_STEPS if max_steps is None else max_steps,
        simulations=simulations,
        on_step=on_step,
      )
    else:
      figures += f" The algorithm {config.algorithm} has no search, so this page has no episode."
    about = {
      "name": self.name,
      "checkpoint": agent.checkpoint.name,
      "env_steps": agent.checkpoint.env_steps,
      "learner_steps": agent.checkpoint.learner_steps,
      "figures": figures,
    }
    joints = [(joint.at_env_steps, joint.text()) for joint in read_lineage(directory.lineage_path)]
    with writing("--out", path):
      text = dump_yaml(config.model_dump(mode="json"))
      write_report(path, played, agent.spec, run=about, ticks=ticks, config=text, joints=joints)
    return path

  def __fspath__(self) -> str:
    return str(self.path)

  def __eq__(self, other: object) -> bool:
    return isinstance(other, Run) and self.path.resolve() == other.path.resolve()

  def __hash__(self) -> int:
    return hash(self.path.resolve())

  def __repr__(self) -> str:
    return f"Run({str(self.path)!r})"

  def _repr_html_(self) -> str:
    rows = {"run": str(self.path), "environment": self.config.env.name}
    try:
      summary = self.summary
    except UserError:
      rows["state"] = "in progress, or stopped without a summary"
    else:
      rows |= {"environment steps": f"{summary.get('env_steps')}", "ended by": f"{summary.get('reason')}"}
      mean, std = summary.get("test_return_mean"), summary.get("test_return_std")
      if isinstance(mean, int | float) and isinstance(std, int | float):
        episodes = summary.get("test_episodes")
        rows["return"] = f"{mean:z.2f} ± {std:.2f} over {episodes} evaluation episodes"
    cells = "".join(
      f'<tr><th scope="row">{html_text(name)}</th><td>{html_text(text)}</td></tr>'
      for name, text in rows.items()
    )
    return f"<table>{cells}</table>"


def _last_evaluation(ticks: list[dict[str, Any]]) -> str:
  """Returns a sentence about the run's last evaluation; an empty string if there is none."""
  from moozi.io.plain_data import number_in

  names = ("test/return_mean", "test/return_std", "test/episodes", "test/at_env_steps")
  for tick in reversed(ticks):
    mean, std, episodes, at = (number_in(tick.get(name)) for name in names)
    if mean is not None and std is not None and episodes is not None and at is not None:
      return f" Last evaluation: return {mean:.4g} ± {std:.3g} over {episodes:g} episodes at {at:,.0f} steps."
  return ""
