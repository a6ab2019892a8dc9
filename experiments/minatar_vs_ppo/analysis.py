"""Tabulates the returns of MooZi and PPO on MinAtar from `results/`, with published results.

    python -m experiments.minatar_vs_ppo.analysis             # writes results/table.md and results/table.json
    python -m experiments.minatar_vs_ppo.analysis --readme    # also writes the table into README.md here

A figure is the mean of the seeds' mean returns in evaluation, with a 95% bootstrap interval over seeds and
episodes. The evaluated checkpoint is at the stated environment step or just after it.
"""

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.lib.jobs import matches_step
from experiments.lib.results import (
  Result,
  check_alike,
  check_same_conditions,
  conditions_of,
  read_results,
  write_json,
)
from moozi.core.errors import UserError
from moozi.experiments.statistics import estimate
from moozi.io.atomic_write import write_text
from moozi.io.plain_data import read_yaml

HERE = Path(__file__).resolve().parent
README = HERE / "README.md"
PUBLISHED = HERE / "published.yaml"
GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
AT_STEPS = (1_000_000, 3_000_000, 5_000_000)
AT_END = math.inf
"""Stands for a run's last environment step if that is not one of AT_STEPS."""

MIN_EPISODES = 100
BEGIN, END = "<!-- minatar_vs_ppo: begin -->", "<!-- minatar_vs_ppo: end -->"
SUITE = "minatar:"


def rows_of(results: Sequence[Result]) -> list[dict[str, Any]]:
  """Returns one row for each agent, sticky-action probability, environment step and game with results.

  If several evaluations of a run match a step, the earliest checkpoint counts. Evaluations with a stated
  number of simulations are ignored. A run that ended at another step because of its time limit has a separate
  row.

  Raises: UserError: results of one row differ in more than the seed, or were evaluated differently.
  """
  groups: dict[tuple[Any, ...], list[tuple[Result, dict[str, Any]]]] = {}
  for result in results:
    if not result.config.env.name.startswith(SUITE):
      continue
    counted = [e for e in result.evaluations if _is_counted(e)]
    for steps in AT_STEPS:
      found = [e for e in counted if matches_step(e["env_steps"], steps)]
      if found:
        first = min(found, key=lambda e: e["env_steps"])
        groups.setdefault(_key(result, steps), []).append((result, first))
    for last in counted:
      if last["wanted"] == "last" and not any(matches_step(last["env_steps"], steps) for steps in AT_STEPS):
        groups.setdefault(_key(result, AT_END), []).append((result, last))
  for members in groups.values():
    check_alike([result for result, _ in members])
  check_same_conditions([result for members in groups.values() for result, _ in members])
  return [_row(key, members) for key, members in sorted(groups.items())]


def _key(result: Result, steps: float) -> tuple[str, float, float, str]:
  return result.agent, result.sticky_action_prob or 0.0, steps, result.game


def _is_counted(evaluation: dict[str, Any]) -> bool:
  return evaluation["simulations"] is None and evaluation["episodes"] >= MIN_EPISODES


def _row(key: tuple[Any, ...], members: list[tuple[Result, dict[str, Any]]]) -> dict[str, Any]:
  agent, sticky, steps, game = key
  evaluations = [e for _, e in members]
  return {
    "agent": agent,
    "sticky_action_prob": sticky,
    "at_env_steps": None if steps == AT_END else steps,
    "game": game,
    "seeds": [result.config.seed for result, _ in members],
    "step_cap": sorted({result.config.env.kwargs.get("max_episode_steps") or 0 for result, _ in members}),
    "cores": sorted({result.cores for result, _ in members}),
    "evaluation": conditions_of(members[0][0].config),
    "consistency_coef": members[0][0].config.learner.consistency_coef if agent == "MooZi" else None,
    "episodes": [e["episodes"] for e in evaluations],
    "env_steps": [e["env_steps"] for e in evaluations],
    "distinct_episodes": [e["distinct_episodes"] for e in evaluations],
    "wall_min": sum(r.without_evaluations(e["wall_s"]) for r, e in members) / len(members) / 60,
    **dataclasses.asdict(estimate([e["returns"] for e in evaluations])),
  }


def read_published(path: Path = PUBLISHED) -> list[dict[str, Any]]:
  """Reads the published results with their conditions."""
  published: list[dict[str, Any]] = read_yaml(path)
  return published


def read_random_play(path: Path, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
  """Reads the results of `random_play.py`; returns an empty list if the file does not exist.

  Raises: UserError: the file is damaged, or its conditions are not those of the rows.
  """
  if not path.exists():
    return []
  try:
    played: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
    envs = {(entry["sticky_action_prob"], entry["game"]): _interval_cell(entry) for entry in played}
    few = min((entry["num_episodes"] for entry in played), default=0)
    others = [entry["game"] for entry in played if entry["evaluation"] != rows[0]["evaluation"]]
  except (ValueError, KeyError, TypeError) as error:
    raise UserError(f"{path}: not a file of random_play.py: {type(error).__name__}: {error}") from None
  if others:
    raise UserError(f"{path}: {', '.join(others)} evaluated under other conditions; run random_play.py again")
  if few < MIN_EPISODES or len(envs) < len(played):
    raise UserError(
      f"{path}: fewer than {MIN_EPISODES} episodes of a game, or a duplicate; run random_play.py again"
    )
  return played


def table_of(
  rows: Sequence[dict[str, Any]],
  published: Sequence[dict[str, Any]],
  random_play: Sequence[dict[str, Any]] = (),
) -> str:
  """Returns the table in Markdown, with one line per agent and condition, and its legend."""
  names = [game.replace("_", " ") for game in GAMES]
  lines = [f"| agent, conditions | {' | '.join(names)} |", "|---" * (len(GAMES) + 1) + "|"]
  for agent, sticky, steps in sorted({_kind(r) for r in rows}, key=lambda k: (k[1], k[0], k[2])):
    cells = {r["game"]: _cell(r) for r in rows if _kind(r) == (agent, sticky, steps)}
    when = "where its time ended" if steps == AT_END else f"{_millions(steps)} steps"
    label = f"**{agent}**, package minatar, {_sticky(sticky)}, {when}"
    lines.append(f"| {label} | {' | '.join(cells.get(game, '–') for game in GAMES)} |")
  for sticky in sorted({entry["sticky_action_prob"] for entry in random_play}):
    cells = {e["game"]: _interval_cell(e) for e in random_play if e["sticky_action_prob"] == sticky}
    label = f"random play, package minatar, {_sticky(sticky)}"
    lines.append(f"| {label} | {' | '.join(cells.get(game, '–') for game in GAMES)} |")
  for entry in published:
    cells = {game: _published_cell(value, entry["is_read_off"]) for game, value in entry["returns"].items()}
    lines.append(f"| {_conditions(entry)} | {' | '.join(cells.get(game, '–') for game in GAMES)} |")
  return "\n".join([*lines, "", _legend(rows)])


def _kind(row: dict[str, Any]) -> tuple[str, float, float]:
  return row["agent"], row["sticky_action_prob"], row["at_env_steps"] or AT_END


def _cell(row: dict[str, Any]) -> str:
  seeds = len(row["seeds"])
  parts = [f"**{row['mean']:.1f}** {_interval(row)}"]
  if row["iqm"] is not None:
    parts.append(f"IQM {row['iqm']:.1f} [{row['iqm_low']:.1f}, {row['iqm_high']:.1f}]")
  if row["at_env_steps"] is None:
    parts[0] += f" at {'–'.join(f'{x / 1e6:.2f}' for x in sorted({*row['env_steps']}))}M"
  distinct, episodes = sum(row["distinct_episodes"]), sum(row["episodes"])
  alike = f"; {distinct} of {episodes} distinct" if distinct < episodes else ""
  return f"{', '.join(parts)}{alike}; {row['wall_min']:.0f} min, {seeds} seed{'s' * (seeds > 1)}"


def _interval_cell(estimated: dict[str, Any]) -> str:
  return f"{estimated['mean']:.1f} {_interval(estimated)}"


def _interval(estimated: dict[str, Any]) -> str:
  return f"[{estimated['low']:.1f}, {estimated['high']:.1f}]"


def _published_cell(value: Any, is_read_off: bool) -> str:
  text = "–".join(f"{x:g}" for x in value) if isinstance(value, list) else str(value)
  return f"≈ {text}" if is_read_off else text


def _conditions(entry: dict[str, Any]) -> str:
  steps = "" if entry["env_steps"] is None else f", {_millions(entry['env_steps'])} steps"
  cap = f"step cap {entry['step_cap']}"
  return f"{entry['agent']}: {entry['environment']}, {_sticky(entry['sticky_action_prob'])}, {cap}{steps}"


def _sticky(probability: float) -> str:
  return f"sticky {probability:g}" if probability else "no sticky actions"


def _millions(steps: float) -> str:
  return f"{steps / 1e6:g}M"


def _legend(rows: Sequence[dict[str, Any]]) -> str:
  cores = sorted({count for row in rows for count in row["cores"]})
  caps = {row["game"]: row["step_cap"] for row in rows}
  others = ", ".join(f"{game.replace('_', ' ')} {cap[0]:,}" for game, cap in caps.items() if cap != [1000])
  conditions = rows[0]["evaluation"]
  noise = "noise-free" if conditions["noise_free"] else "not noise-free"
  plain = sorted({row["game"].replace("_", " ") for row in rows if row["consistency_coef"] == 0})
  return (
    f"The rows of MooZi, PPO and random play give the mean return of {MIN_EPISODES} evaluation episodes "
    f"per seed, {noise}. Episodes begin with up to {conditions['max_random_starts']} random actions. "
    "Figures are from the checkpoint at the stated step or just after it. Brackets contain the 95% "
    "bootstrap interval over seeds and episodes. With one seed the interval covers only the episodes, as if "
    "all were distinct. The number of distinct episodes is stated if some are equal. Minutes are the wall "
    "time of training until that checkpoint on "
    f"{' or '.join(map(str, cores))} cores. PPO waits for its evaluations, and their time is subtracted. "
    "Episodes are cut off after 1,000 steps"
    f"{f' ({others})' if others else ''}."
    f"{f' MooZi learned {_and(plain)} without the consistency loss.' if plain else ''} "
    "The other rows are as published, under their own conditions; ≈ means read off a plot. Sources and "
    "evaluations: experiments/minatar_vs_ppo/published.yaml."
  )


def _and(names: Sequence[str]) -> str:
  return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def write_between_markers(path: Path, text: str) -> None:
  """Replaces the text between the markers of a file.

  Raises: UserError: the file does not have both markers once, in order.
  """
  whole = path.read_text("utf-8")
  if whole.count(BEGIN) != 1 or whole.count(END) != 1 or whole.index(BEGIN) > whole.index(END):
    raise UserError(f"{path}: needs one line {BEGIN} and, after it, one line {END}")
  before, _, rest = whole.partition(BEGIN)
  write_text(path, f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}")


def main(arguments: Sequence[str] | None = None) -> int:
  """Writes the tables; returns the exit status."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--results", type=Path, default=HERE / "results")
  parser.add_argument(
    "--readme",
    type=Path,
    nargs="?",
    const=README,
    metavar="FILE",
    help="also write the table into this file (README.md here)",
  )
  options = parser.parse_args(arguments)
  try:
    rows = rows_of(read_results(options.results))
    if not rows:
      raise UserError(f"{options.results}: no results; run `python -m experiments.minatar_vs_ppo.sweep`")
    published, random_play = read_published(), read_random_play(options.results / "random_play.json", rows)
    table = table_of(rows, published, random_play)
    tables = {"measured": rows, "random_play": random_play, "published": published}
    write_json(options.results / "table.json", tables)
    write_text(options.results / "table.md", table + "\n")
    if options.readme is not None:
      write_between_markers(options.readme, table)
  except UserError as error:
    print(f"error: {error}", file=sys.stderr)
    return 2
  print(table)
  return 0


if __name__ == "__main__":
  sys.exit(main())
