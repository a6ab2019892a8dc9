"""Compares runs: curves, final scores with intervals over seeds, and probabilities of improvement."""

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moozi.api.run_access import writing
from moozi.core.errors import UserError, reason_of
from moozi.core.text import printable
from moozi.experiments.comparison import (
  CENTERS,
  INTERVAL_NOTE,
  LAST,
  Task,
  comparison_data,
  make_tasks,
  pairs_of,
  read_runs,
  scores,
)
from moozi.io.atomic_write import write_text
from moozi.io.plain_data import to_plain_json
from moozi.io.zoo_files import resolve_run

if TYPE_CHECKING:
  import pandas as pd
  from matplotlib.figure import Figure

FILES = {"page": "compare.html", "picture": "compare.png", "scores": "compare.json", "table": "compare.csv"}

_HEADINGS = ("", "seeds", "finished", "env steps", "minutes", "mean", "95%", "IQM", "95%", "by seed")


@dataclasses.dataclass(frozen=True)
class Comparison:
  """A comparison of runs. A task has one environment and evaluation protocol, and groups of runs.

  Attributes:
    tasks: the tasks; results of different tasks are never averaged. `task.groups` has the runs of a task by
      configuration.
    center: the statistic over seeds in curves and pictures, "iqm" or "mean".
    left_out: paths of the runs without evaluations.
  """

  tasks: tuple[Task, ...]
  center: str = "iqm"
  left_out: tuple[Path, ...] = ()

  def table(self) -> "pd.DataFrame":
    """Returns a row for each group, with the mean and interquartile mean (`iqm`) of its final scores.

    A run's final score is the mean return of its last five evaluations, or of all if there are fewer. `*_low`
    and `*_high` bound the 95% bootstrap interval over seeds; they are NaN with one seed. `env_steps` and
    `minutes` are those of a run's last evaluation: the minimum and the mean over the group's runs.
    """
    import pandas as pd

    rows = []
    for task in self.tasks:
      for group in task.groups:
        row: dict[str, Any] = {
          "task": task.name,
          "group": group.name,
          "seeds": len(group.runs),
          "finished": sum(run.is_finished for run in group.runs),
          "env_steps": int(min(run.env_steps[-1] for run in group.runs)),
          "minutes": sum(run.minutes[-1] for run in group.runs) / len(group.runs),
        }
        for center in ("mean", "iqm"):
          value, low, high = group.final(center)
          row |= {center: value, f"{center}_low": low, f"{center}_high": high}
        rows.append(row | {"finals": tuple(group.finals.tolist())})
    frame = pd.DataFrame(rows)
    bounds = [f"{center}_{end}" for center in ("mean", "iqm") for end in ("low", "high")]
    return frame.astype(dict.fromkeys(bounds, float))

  def pairs(self) -> "pd.DataFrame":
    """Returns a row for each pair of groups in a task.

    `probability` is the share of the pairs of runs in which that of the group `first` has the higher final
    score; a tie counts one half. `low` and `high` bound its 95% bootstrap interval over seeds; they are
    missing if a group has one seed.
    """
    import pandas as pd

    rows = [{"task": task.name, **pair} for task in self.tasks for pair in pairs_of(task)]
    columns = ["task", "first", "second", "value", "low", "high"]
    return pd.DataFrame(rows, columns=columns).rename(columns={"value": "probability"})

  def figure(self) -> "Figure":
    """Returns the curves over environment steps and over minutes; the figure has a row for each task."""
    from moozi.vis.comparison import comparison_figure

    return comparison_figure(self.data())

  def data(self) -> dict[str, Any]:
    """Returns the content of the HTML page as plain data."""
    return comparison_data(self.tasks, self.center, self.left_out)

  def to_json(self) -> dict[str, Any]:
    """Returns the comparison as plain data, as `save` writes it to compare.json.

    `scores` is {group: {task: [runs × checkpoints]}}; `metadata` describes it. docs/compare.md shows how to
    pass the final scores to rliable.
    """

    def by_group(value: Any) -> dict[str, dict[str, Any]]:
      out: dict[str, dict[str, Any]] = {}
      for task in self.tasks:
        for group in task.groups:
          out.setdefault(group.name, {})[task.name] = value(group)
      return out

    metadata = {
      "checkpoints": {task.name: task.checkpoints().tolist() for task in self.tasks},
      "tasks": {task.name: dict(task.conditions) for task in self.tasks},
      "seeds": by_group(lambda group: [run.seed for run in group.runs]),
      "runs": by_group(lambda group: [run.name for run in group.runs]),
      "finished": by_group(lambda group: [run.is_finished for run in group.runs]),
      "unit": "seeds",
      "interval": INTERVAL_NOTE,
      "final": f"mean of a run's last {LAST} evaluations",
      "left_out": [path.name for path in self.left_out],
    }
    out = {
      "scores": scores(self.tasks),
      "final": by_group(lambda group: group.finals),
      "table": self.table().to_dict("records"),
      "pairs": self.pairs().to_dict("records"),
      "metadata": metadata,
    }
    plain: dict[str, Any] = to_plain_json(out)
    return plain

  def save(self, folder: str | os.PathLike[str]) -> dict[str, Path]:
    """Writes the page, the picture, the scores and the table into a folder; returns their paths.

    Raises: UserError: a file cannot be written.
    """
    from moozi.vis.comparison import write_comparison_page, write_figure

    paths = {kind: Path(folder) / name for kind, name in FILES.items()}
    with writing("--out", Path(folder)):
      Path(folder).mkdir(parents=True, exist_ok=True)
      write_comparison_page(paths["page"], self.data())
      write_figure(paths["picture"], self.figure())
      write_text(paths["scores"], json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n")
      write_text(paths["table"], printable(self.table().to_csv(index=False)))
    return paths

  def __str__(self) -> str:
    """Returns the table and the probabilities of improvement as text."""
    table, pairs = self.table(), self.pairs()
    lines: list[str] = []
    for task in self.tasks:
      rows = [_row(row) for _, row in table[table["task"] == task.name].iterrows()]
      lines += [task.name, text_table(_HEADINGS, rows)]
      for _, pair in pairs[pairs["task"] == task.name].iterrows():
        found = _interval(pair["low"], pair["high"]).replace("–", "(one seed: no interval)")
        lines.append(f"P({pair['first']} > {pair['second']}) = {pair['probability']:.2f} {found}")
      lines.append("")
    lines.append(f"Final scores: the mean of a run's last {LAST} evaluations.")
    lines.append(INTERVAL_NOTE)
    if self.left_out:
      lines.append(f"Left out, without evaluations: {', '.join(path.name for path in self.left_out)}.")
    return "\n".join(lines)

  def _repr_html_(self) -> str:
    html: str = self.table().drop(columns="finals").to_html(index=False, float_format="{:.4g}".format)
    return html


def compare(
  runs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], *, center: str = "iqm"
) -> Comparison:
  """Compares runs that differ in configuration or seed.

  Runs that differ only in the seed, or in settings that do not affect results, form a group, whose seeds are
  the unit of all intervals. Runs with different environments or evaluation protocols are never compared with
  each other.

  Args:
    runs: run directories, folders that contain run directories, or patterns such as `runs/breakout-seed*`.
    center: the statistic of curves over seeds, "iqm" (interquartile mean) or "mean".

  Raises: UserError: `center` has another value, a path has no run, a run is damaged, no run has an
    evaluation, or two runs of a group have the same seed.
  """
  if center not in CENTERS:
    raise UserError(f"center={center!r}: must be one of {', '.join(CENTERS)}")
  paths = [runs] if isinstance(runs, str | os.PathLike) else list(runs)
  texts = [os.fspath(path) for path in paths]
  # The shell expands a pattern such as runs/first-seed* also to the logs beside the runs.
  folders = [text for text in texts if not os.path.isfile(resolve_run(text))] or texts
  found, left_out = read_runs([run for text in folders for run in find_runs(text)])
  return Comparison(tuple(make_tasks(found)), center, tuple(left_out))


def find_runs(text: str) -> list[Path]:
  """Returns the run directories for a path, which is a run, a folder that contains runs, or a pattern.

  Raises: UserError: there are no runs, or the path cannot be read.
  """
  path = resolve_run(text)
  try:
    if path.exists():
      candidates = [path]
    else:
      candidates = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    found = [run for candidate in candidates for run in _runs_in(candidate)]
  except (OSError, ValueError) as e:
    raise UserError(f"{text}: cannot be read: {reason_of(e)}") from None
  if not found:
    raise UserError(f"{text}: no run; must be a run, a folder of runs, or a pattern such as runs/first-seed*")
  return found


def _runs_in(path: Path) -> list[Path]:
  if (path / "config.yaml").is_file():
    return [path]
  if not path.is_dir():
    return []
  return [child for child in sorted(path.iterdir()) if (child / "config.yaml").is_file()]


def text_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  """Returns a table as text; the first column is aligned left, the others right."""
  cells = [headings, *rows]
  widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
  lines = []
  for row in cells:
    rest = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
    lines.append("  ".join([row[0].ljust(widths[0]), *rest]).rstrip())
  return "\n".join(lines)


def _row(row: Mapping[str, Any]) -> list[str]:
  out = [
    row["group"],
    f"{row['seeds']}",
    f"{row['finished']}",
    f"{row['env_steps']:,}",
    f"{row['minutes']:.1f}",
  ]
  for center in ("mean", "iqm"):
    out += [f"{row[center]:.2f}", _interval(row[f"{center}_low"], row[f"{center}_high"])]
  return [*out, " ".join(f"{value:.2f}" for value in row["finals"])]


def _interval(low: float | None, high: float | None) -> str:
  """Returns `[low, high]`, or a dash if there is no interval."""
  return "–" if low is None or low != low else f"[{low:.2f}, {high:.2f}]"
