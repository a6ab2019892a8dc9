"""The table of both agents, from results/figures.json."""

import json
from pathlib import Path

from experiments.lib.tables import markdown_table


def table() -> str:
  """Returns a Markdown row for each agent."""
  path = Path(__file__).parent / "results" / "figures.json"
  figures = json.loads(path.read_text("utf-8"))
  half, offline = figures["half_way"], figures["offline"]
  heading = f"return, {half['episodes']} episodes ± standard deviation"
  rows = (
    ("half-way checkpoint", f"{half['env_steps']:,}", half),
    ("offline, with reanalyze", f"the trajectories of the first {figures['steps'] // 2:,}", offline),
  )
  cells = [
    (name, seen, f"{row['return_mean']:.2f} ± {row['return_std']:.2f}", f"{row['wall_s']:.0f}")
    for name, seen, row in rows
  ]
  return markdown_table(("agent", "environment steps seen", heading, "training, s"), cells)


TABLES = {"offline": table}
