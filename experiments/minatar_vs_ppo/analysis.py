"""Makes the tables of MuZero and PPO on MinAtar: returns, aggregates, minutes, and published results.

    python -m experiments.minatar_vs_ppo.analysis             # results/table.md, table.json and scores.json
    python -m experiments.minatar_vs_ppo.analysis --readme    # also both README.md, and headers in config/

A run's figure is the mean over its last five milestones (`runs.py`). A cell has the mean over seeds and each
seed's figure. Intervals are 95% bootstrap intervals over seeds, within each game.
"""

import argparse
import json
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.lib.command import command
from experiments.lib.results import ROOT, conditions_of
from experiments.lib.tables import markdown_table, with_interval, write_between_markers
from experiments.minatar_vs_ppo.runs import (
  CORES,
  EPISODES,
  GAMES,
  HERE,
  LABELS,
  NUM_EVALUATED,
  NUM_REPORTED,
  PROTOCOLS,
  RESULTS,
  RIVALS,
  SHORT_AGENTS,
  Run,
  read_runs,
  seconds_per_step,
  select,
)
from moozi.core.errors import UserError
from moozi.experiments.results import write_json
from moozi.experiments.statistics import Aggregate, aggregate_improvement, aggregate_iqm
from moozi.io.atomic_write import write_text
from moozi.io.config import load_config
from moozi.io.plain_data import read_yaml

README = HERE / "README.md"
PROJECT_README = ROOT / "README.md"
CONFIG = ROOT / "config"
PUBLISHED = HERE / "published.yaml"
AT_MINUTES = 25.0
"""The minute at which the table of minutes also compares returns."""

_SMOOTHING = 5
"""A point of a curve over minutes is the mean of this number of evaluations during training."""

_GRID_MINUTES = 0.25
MARK = "minatar_vs_ppo"
HEADER = ("# Time: ", "# Reached: ", "# Measured: ")
"""The lines of a configuration's header that `--readme` writes."""


Groups = dict[tuple[str, str, str], list[Run]]


def rows_of(groups: Groups) -> list[dict[str, Any]]:
  """Returns one row for each agent, game and protocol that has runs."""
  return [_row(key, runs) for key, runs in sorted(groups.items())]


def _row(key: tuple[str, str, str], runs: list[Run]) -> dict[str, Any]:
  minutes = [run.minutes for run in runs if run.minutes is not None]
  return {
    **dict(zip(("agent", "protocol", "game"), key, strict=True)),
    "seeds": [run.seed for run in runs],
    "scores": [run.score for run in runs],
    "mean": float(np.mean([run.score for run in runs])),
    "swings": [run.swing for run in runs],
    "acting_returns": [run.acting_return for run in runs],
    "checkpoints": [[[c["env_steps"], c["return_mean"]] for c in run.checkpoints] for run in runs],
    "max_env_steps": runs[0].max_env_steps,
    "env_steps": [run.last_step for run in runs],
    "episodes": sum(c["episodes"] for run in runs for c in run.checkpoints[-NUM_REPORTED:]),
    "episodes_at_bound": sum(run.num_at_bound for run in runs),
    "distinct_episodes": [c["distinct_episodes"] for run in runs for c in run.checkpoints[-NUM_REPORTED:]],
    "evaluation": conditions_of(runs[0].result.config),
    "minutes": float(np.mean(minutes)) if minutes else None,
    "minutes_by_seed": minutes,
    "cores": sorted({run.result.cores for run in runs}),
    "microseconds": seconds_per_step(run.result for run in runs),
  }


# --- aggregates over games ------------------------------------------------------------------------------


def references_of(published: Sequence[dict[str, Any]]) -> dict[str, float]:
  """Returns the best published return of each game under MinAtar's own protocol (b)."""
  found: dict[str, float] = {}
  for entry in published:
    if "b" in entry["comparable_with"]:
      for game, value in entry["returns"].items():
        found[game] = max(found.get(game, 0.0), float(np.max(value)))
  return found


def scales_of(
  published: Sequence[dict[str, Any]], played: Sequence[dict[str, Any]]
) -> dict[tuple[str, str], tuple[float, float]]:
  """Returns the returns that normalize to 0 and 1, by protocol and game.

  0 is the return of random play, and 1 the best published one under (b).
  """
  references = references_of(published)
  return {(e["protocol"], e["game"]): (e["mean"], references[e["game"]]) for e in played}


def aggregates_of(groups: Groups, scales: dict[tuple[str, str], tuple[float, float]]) -> list[dict[str, Any]]:
  """Returns a row for each protocol and agent with runs of all games.

  A row has the interquartile mean of normalized scores (`scales_of`), and the probability that a run of
  MuZero exceeds one of the agent. Each game counts with the number of seeds that all games of the agent have.
  """
  out = []
  for protocol in PROTOCOLS:
    scores = {agent: _common_scores(select(groups, agent, protocol)) for agent in ("muzero", *RIVALS)}
    for agent, own in scores.items():
      if own is None:
        continue
      zeros, ones = np.array([scales[protocol, game] for game in GAMES]).T
      iqm = aggregate_iqm(list((own - zeros[:, None]) / (ones - zeros)[:, None]))
      moozi = scores["muzero"]
      better = None if moozi is None or agent == "muzero" else aggregate_improvement(list(moozi), list(own))
      out.append(
        {
          "protocol": protocol,
          "agent": agent,
          "seeds": own.shape[1],
          "iqm": _rounded(iqm),
          "improvement": None if better is None else _rounded(better),
        }
      )
  return out


def _common_scores(runs: dict[str, list[Run]]) -> np.ndarray | None:
  """Returns the scores [G, S] of the seeds that all games have; None if a game has no runs."""
  if runs.keys() != set(GAMES) or not (seeds := min(map(len, runs.values()))):
    return None
  return np.array([[run.score for run in runs[game][:seeds]] for game in GAMES])


def scores_of(groups: Groups, scales: dict[tuple[str, str], tuple[float, float]]) -> dict[str, Any]:
  """Returns {"returns" or "normalized": {protocol: {agent: {game: scores of the seeds}}}}."""
  out: dict[str, Any] = {"returns": {}, "normalized": {}}
  for (agent, protocol, game), runs in sorted(groups.items()):
    zero, one = scales[protocol, game]
    scores = np.array([run.score for run in runs])
    for name, own in (("returns", scores), ("normalized", (scores - zero) / (one - zero))):
      games = out[name].setdefault(protocol, {}).setdefault(agent, {})
      games[game] = [round(float(x), 9) for x in own]
  return out


# --- minutes ---------------------------------------------------------------------------------------------


def minutes_of(groups: Groups) -> list[dict[str, Any]]:
  """Compares MuZero with each PPO at equal minutes, for each protocol and game with measured minutes.

  PPO's score is its return at the minute at which MuZero's runs end, or at PPO's own end if that is earlier.
  `moozi_minutes` is the first minute at which MuZero has at least that return. A curve that ends before
  `at_minutes` keeps its last return. `rival_at_double` is PPO's return at twice `at_minutes`.
  """
  out = []
  for protocol in PROTOCOLS:
    for game in GAMES:
      for agent in RIVALS:
        pair = [
          [run for run in groups.get((name, protocol, game), []) if run.has_minutes]
          for name in ("muzero", agent)
        ]
        if not all(pair):
          continue
        moozi, rival = map(_minutes_curve, pair)
        until = min(moozi[0][-1], rival[0][-1])
        score = float(np.interp(until, *rival))
        reached = np.flatnonzero(moozi[1] >= score)
        out.append(
          {
            "protocol": protocol,
            "game": game,
            "rival": agent,
            "rival_score": score,
            "rival_minutes": float(until),
            "moozi_minutes": float(moozi[0][reached[0]]) if reached.size else None,
            "at_minutes": AT_MINUTES,
            "moozi_then": float(np.interp(AT_MINUTES, *moozi)),
            "moozi_end": float(moozi[0][-1]),
            "rival_then": float(np.interp(AT_MINUTES, *rival)),
            "rival_end": float(rival[0][-1]),
            "rival_at_double": float(np.interp(2 * AT_MINUTES, *rival)),
            "moozi_processors": processors_of(pair[0]),
            "rival_processors": processors_of(pair[1]),
          }
        )
  return out


def processors_of(runs: Sequence[Run]) -> list[str]:
  """Returns the names of the runs' processors, sorted; "unknown" for a run without a name."""
  return sorted({run.result.processor or "unknown" for run in runs})


def _minutes_curve(runs: list[Run]) -> tuple[np.ndarray, np.ndarray]:
  """Returns the mean curve over minutes.

  A seed's curve is the mean of its last five evaluations during training, of ten episodes each. The mean over
  seeds ends with the seed that ends last; a seed that has ended keeps its last value.
  """
  curves = []
  for run in runs:
    _, minutes, returns = run.curve()
    sums = np.convolve(returns, np.ones(_SMOOTHING))[: len(returns)]
    curves.append((minutes, sums / np.minimum(np.arange(len(returns)) + 1, _SMOOTHING)))
  grid = np.arange(0.0, max(minutes[-1] for minutes, _ in curves) + 1e-9, _GRID_MINUTES)
  return grid, np.mean([np.interp(grid, minutes, means, left=0.0) for minutes, means in curves], axis=0)


# --- files -----------------------------------------------------------------------------------------------


def read_published() -> list[dict[str, Any]]:
  """Reads the published results with their conditions."""
  published: list[dict[str, Any]] = read_yaml(PUBLISHED)
  return published


def read_random_play(path: Path, groups: Groups) -> list[dict[str, Any]]:
  """Reads the results of `random_play.py`.

  Raises: UserError: the file is missing or damaged, or its conditions are not those of the runs.
  """
  again = "run `python -m experiments.minatar_vs_ppo.random_play`"
  (some, *_), *_ = groups.values()
  wanted = conditions_of(some.result.config)
  try:
    played: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
    games = sorted((entry["protocol"], entry["game"], float(entry["mean"])) for entry in played)
    few = any(entry["num_episodes"] < EPISODES for entry in played)
    others = [entry["game"] for entry in played if entry["evaluation"] != wanted]
  except OSError as error:
    raise UserError(f"{path}: {error.strerror}; {again}") from None
  except (ValueError, KeyError, TypeError) as error:
    raise UserError(f"{path}: not a file of random_play.py: {type(error).__name__}: {error}") from None
  if others:
    raise UserError(f"{path}: {', '.join(others)} evaluated under other conditions; {again}")
  if few or [x[:2] for x in games] != sorted((protocol, game) for protocol in PROTOCOLS for game in GAMES):
    raise UserError(f"{path}: needs {EPISODES} episodes of each game and protocol; {again}")
  return played


# --- Markdown --------------------------------------------------------------------------------------------


def line_of(label: str, cell: Callable[[str], str]) -> str:
  """Returns a line of a table with one cell per game."""
  return f"| {label} | {' | '.join(cell(game) for game in GAMES)} |"


def head_of(label: str) -> list[str]:
  names = [game.replace("_", " ").title() for game in GAMES]
  return [f"| {label} | {' | '.join(names)} |", "|---" * (len(GAMES) + 1) + "|"]


def table_of(tables: dict[str, Any]) -> str:
  """Returns the tables of this experiment's README in Markdown."""
  parts = [_protocol_table(tables, protocol) for protocol in PROTOCOLS]
  return "\n\n".join([*parts, *comparison_tables(tables), _legend(tables)])


def _rounded(found: Aggregate) -> list[float | None]:
  """Returns the value and its interval with nine decimals; further digits differ between processors."""
  return [None if x is None else round(float(x), 9) for x in (found.value, found.low, found.high)]


def comparison_tables(tables: dict[str, Any]) -> list[str]:
  """Returns the tables of aggregates over games and of minutes; leaves out an empty one."""
  parts = (
    _aggregate_table(tables["aggregates"]),
    _minutes_table(tables["minutes"]),
    _short_table(tables["measured"]),
  )
  return [*filter(None, parts)]


def _protocol_table(tables: dict[str, Any], protocol: str) -> str:
  lines = [f"**({protocol})** {PROTOCOLS[protocol].conditions}:", "", *head_of(f"({protocol}), mean return")]
  for agent in ("muzero", *RIVALS):
    label = LABELS[agent]
    rows = {r["game"]: r for r in tables["measured"] if (r["agent"], r["protocol"]) == (agent, protocol)}
    if rows:
      steps = _steps_of(rows)
      name = f"**{label}**" if agent == "muzero" else label
      longer = f", {steps} steps" if agent == "ppo_tuned" else ""
      lines.append(line_of(f"{name}{longer}", lambda game: _cell(rows.get(game))))  # noqa: B023
      lines.append(line_of(f"{label}: swing", lambda game: _swing(rows.get(game))))  # noqa: B023
      lines.append(
        line_of(f"{label}: training return", lambda game: _acting(rows.get(game)))  # noqa: B023
      )
      lines.append(line_of(f"{label}: minutes", lambda game: _minutes(rows.get(game))))  # noqa: B023
      if agent == "muzero":
        goals = PROTOCOLS[protocol].goals
        lines.append(line_of("goal", lambda game: f"{goals[game]}"))  # noqa: B023
  played = {e["game"]: e["mean"] for e in tables["random_play"] if e["protocol"] == protocol}
  lines.append(line_of("random play", lambda game: f"{played[game]:.1f}"))
  for entry in tables["published"]:
    if protocol in entry["comparable_with"] or (protocol == "a" and not entry["comparable_with"]):
      lines.append(line_of(_conditions(entry), lambda game: published_cell(entry, game)))  # noqa: B023
  return "\n".join(lines)


def _cell(row: dict[str, Any] | None) -> str:
  if row is None:
    return "–"
  seeds = ", ".join(f"{score:.1f}" for score in row["scores"])
  bound = (
    f"; {row['episodes_at_bound']} of {row['episodes']} at the bound" if row["episodes_at_bound"] else ""
  )
  return f"**{row['mean']:.1f}** ({seeds}){bound}"


def _swing(row: dict[str, Any] | None) -> str:
  return "–" if row is None else ", ".join("–" if x is None else f"{x:.0%}" for x in row["swings"])


def _acting(row: dict[str, Any] | None) -> str:
  found = [x for x in row["acting_returns"] if x is not None] if row else []
  return f"{np.mean(found):.1f}" if found else "–"


def _minutes(row: dict[str, Any] | None) -> str:
  if row is None or row["minutes"] is None:
    return "–"
  costs = row["microseconds"]
  spans = [_span(sorted(map(round, costs[name]))) for name in ("t_act", "t_learn") if costs[name]]
  machine = f" ({', '.join(spans)} µs)" if spans else ""
  return f"{', '.join(f'{minutes:.0f}' for minutes in row['minutes_by_seed'])}{machine}"


def published_cell(entry: dict[str, Any], game: str) -> str:
  """Returns a published return; ≈ means that it was read off a plot."""
  value = entry["returns"].get(game, "–")
  text = "–".join(f"{x:g}" for x in value) if isinstance(value, list) else str(value)
  return f"≈ {text}" if entry["is_read_off"] and text != "–" else text


def _conditions(entry: dict[str, Any]) -> str:
  steps = "" if entry["env_steps"] is None else f", {_millions(entry['env_steps'])} steps"
  alike = "" if entry["comparable_with"] else "; comparable with neither protocol"
  return f"{entry['agent']}: {entry['environment']}, step cap {entry['step_cap']}{steps}{alike}"


def _aggregate_table(aggregates: Sequence[dict[str, Any]]) -> str:
  if not aggregates:
    return ""
  has_intervals = any(row["iqm"][1] is not None for row in aggregates)
  brackets = (
    "Brackets have 95% intervals of a bootstrap over seeds, within each game. Intervals from few seeds are "
    "too narrow. "
  )
  text = (
    "The next table has aggregates over the five games, with equal numbers of seeds. "
    f"{brackets if has_intervals else ''}Returns are normalized: 0 is random play, and 1 the best published "
    "return under (b):"
  )
  lines = [
    text,
    "",
    "| protocol | agent | seeds per game | interquartile mean | probability that MuZero's run is better |",
    "|---|---|---|---|---|",
  ]
  for row in aggregates:
    iqm = interval_text(Aggregate(*row["iqm"]))
    better = interval_text(Aggregate(*row["improvement"])) if row["improvement"] else "–"
    lines.append(f"| ({row['protocol']}) | {LABELS[row['agent']]} | {row['seeds']} | {iqm} | {better} |")
  return "\n".join(lines)


def interval_text(found: Aggregate) -> str:
  if found.low is None or found.high is None:
    return f"{found.value:.2f}"
  return with_interval(found.value, found.low, found.high, 2)


def _minutes_table(minutes: Sequence[dict[str, Any]]) -> str:
  if not minutes:
    return ""
  then = f"minute {AT_MINUTES:.0f}"
  columns = ("protocol", "game", "rival", "minute", "rival's return", "MuZero reaches it at minute")
  rows = [
    (
      f"({row['protocol']})",
      row["game"].replace("_", " "),
      LABELS[row["rival"]],
      f"{row['rival_minutes']:.0f}",
      f"{row['rival_score']:.1f}",
      "–" if row["moozi_minutes"] is None else f"{row['moozi_minutes']:.1f}",
      _then(row, "moozi"),
      _then(row, "rival"),
    )
    for row in minutes
  ]
  table = markdown_table((*columns, f"MuZero, {then}", f"rival, {then}"), rows)
  early = sum(row["rival_end"] < row["at_minutes"] for row in minutes)
  ended = (
    f"In {early} of {len(minutes)} rows the rival had ended by {then}; the table has its return at its end. "
  )
  compared = (
    f"The next table compares agents at equal minutes on {CORES} core. A return at a minute is the mean over "
    "seeds of a run's last five evaluations until then, of ten episodes each. *Minute* is the end of "
    "MuZero's runs, or of the rival's if they end earlier:"
  )
  counted = (
    f"{ended if early else ''}Minutes on different processors are not equal work. The next table counts the "
    f"games on which MuZero's return at {then} is above the rival's at {then}, and at minute "
    f"{2 * AT_MINUTES:.0f}. The goal at {then} is four of five:"
  )
  return "\n\n".join([compared, table, counted, _ahead_table(minutes)])


def _ahead_table(minutes: Sequence[dict[str, Any]]) -> str:
  """Returns on how many games MuZero is ahead; a row for each protocol and rival."""
  rows = []
  for protocol, rival in dict.fromkeys((row["protocol"], row["rival"]) for row in minutes):
    found = [row for row in minutes if (row["protocol"], row["rival"]) == (protocol, rival)]
    ahead = (_games_ahead(found, key) for key in ("rival_then", "rival_at_double"))
    processors = (", ".join(_names(found, f"{agent}_processors")) for agent in ("moozi", "rival"))
    rows.append((f"({protocol})", LABELS[rival], *ahead, *processors))
  moments = (f"ahead of the rival at minute {n * AT_MINUTES:.0f}" for n in (1, 2))
  columns = ("protocol", "rival", *moments, "MuZero's processor", "rival's processors")
  return markdown_table(columns, rows)


def _games_ahead(rows: Sequence[dict[str, Any]], rival: str) -> str:
  """Returns on how many games MuZero's return at `at_minutes` exceeds that of the rival with this key."""
  ahead, missing = sum(row["moozi_then"] > row[rival] for row in rows), len(GAMES) - len(rows)
  return f"{ahead} of {len(GAMES)}" + (f" ({missing} not compared)" if missing else "")


def _short_table(measured: Sequence[dict[str, Any]]) -> str:
  """Compares the runs of 25 minutes; empty if there are none."""
  moozi, rival = ({r["game"]: r for r in measured if r["agent"] == agent} for agent in SHORT_AGENTS)
  games = [game for game in GAMES if game in moozi or game in rival]
  if not games:
    return ""
  names = [f"{name}: {part}" for name in ("MuZero", "PPO, tuned") for part in ("return", "steps", "minutes")]

  def line(game: str) -> str:
    parts = [cell(rows.get(game)) for rows in (moozi, rival) for cell in (_cell, _made, _minutes)]
    return f"| {game.replace('_', ' ')} | {' | '.join(parts)} |"

  both = [game for game in games if game in moozi and game in rival]
  ahead = sum(moozi[game]["mean"] > rival[game]["mean"] for game in both)
  budget = f"{AT_MINUTES:.0f} minutes on {CORES} core"
  text = (
    f"The next runs make about as many steps as the longer runs made in {budget}. Their learning rates fall "
    "until the last step:"
  )
  return "\n".join(
    [
      text,
      "",
      f"| (a), game | {' | '.join(names)} |",
      "|---" * (len(names) + 1) + "|",
      *map(line, games),
      "",
      f"In these runs MuZero is ahead on {ahead} of {len(both)} games.",
    ]
  )


def _made(row: dict[str, Any] | None) -> str:
  return "–" if row is None else _millions(row["max_env_steps"])


def _names(rows: Sequence[dict[str, Any]], key: str) -> list[str]:
  return sorted({name for row in rows for name in row[key]})


def _then(row: dict[str, Any], agent: str) -> str:
  end = row[f"{agent}_end"]
  return f"{row[f'{agent}_then']:.1f}" + (f" (ended at {end:.0f})" if end < row["at_minutes"] else "")


NOT_RUN = "– means not run, or not published."


def _legend(tables: dict[str, Any]) -> str:
  conditions = tables["measured"][0]["evaluation"]
  noise = "noise-free" if conditions["noise_free"] else "not noise-free"
  return (
    f"A seed's figure is the mean over its last {NUM_REPORTED} milestones, of {EPISODES} {noise} "
    "evaluation episodes each. A cell has the mean over seeds, and in parentheses each seed's figure. An "
    f"evaluation episode begins with up to {conditions['max_random_starts']} random actions and ends after "
    f"{conditions['max_episode_steps']:,} steps at the latest; a cell states how many of its episodes reach "
    "this bound, if any do. The swing of a seed is the sample standard deviation over its last "
    f"{NUM_EVALUATED} milestones, divided by their mean. Minutes are those of training on {CORES} core "
    "without evaluations; some runs shared their core. The parentheses after minutes have the time of the "
    "search alone per step and that of the update alone per sample, from the fastest run to the slowest. "
    "Published returns have their own conditions (published.yaml); ≈ marks those read off a plot. "
    f"{NOT_RUN}"
  )


def _millions(steps: float) -> str:
  return f"{steps / 1e6:g}M"


def _steps_of(rows: Mapping[str, dict[str, Any]]) -> str:
  made = [row["max_env_steps"] for row in rows.values()]
  return " to ".join(dict.fromkeys(map(_millions, (min(made), max(made)))))


def project_table(tables: dict[str, Any], protocol: str) -> str:
  """Returns the short table of a protocol, for the project's README. Bold is the best of a column."""
  shown = [
    row for row in tables["measured"] if row["protocol"] == protocol and row["agent"] not in SHORT_AGENTS
  ]
  labels, returns = [], []
  for agent in ("muzero", "ppo_tuned", "ppo_replica"):
    rows = {row["game"]: row for row in shown if row["agent"] == agent}
    if not rows:
      continue
    minutes = sorted(round(row["minutes"]) for row in rows.values() if row["minutes"] is not None)
    seeds = sorted({len(row["seeds"]) for row in rows.values()})
    spent = _span(minutes) if minutes else "–"
    labels.append(f"{LABELS[agent]} | {_steps_of(rows)} | {spent} | {_span(seeds)}")
    returns.append(
      {game: ("≥ " * bool(r["episodes_at_bound"]), r["mean"], ".1f") for game, r in rows.items()}
    )
  best = _best_published(tables["published"], protocol)
  if best:
    labels.append(f"{best['label']} | {best['steps']} | – | –")
    returns.append(best["returns"])
  largest = {game: max((r[game][1] for r in returns if game in r), default=None) for game in GAMES}

  def cell(of: Mapping[str, tuple[str, float, str]], game: str) -> str:
    if game not in of:
      return "–"
    mark, value, form = of[game]
    bold = "**" * (value == largest[game])
    return f"{bold}{mark}{value:{form}}{bold}"

  lines = head_of("agent | steps | minutes | seeds")
  lines[1] += "---|" * 3
  lines += [
    line_of(label, lambda game: cell(of, game))  # noqa: B023
    for label, of in zip(labels, returns, strict=True)
  ]
  return "\n".join(lines)


def project_block(tables: dict[str, Any]) -> str:
  """Returns the block of the project's README: a table, and the games on which the tuned PPO is ahead."""
  rows = [row for row in tables["minutes"] if (row["protocol"], row["rival"]) == ("a", "ppo_tuned")]
  if not rows:
    return project_table(tables, "a")
  ahead = [row["game"].replace("_", " ").title() for row in rows if row["rival_then"] > row["moozi_then"]]
  numbers = ("no game", "one game", "two games", "three games", "four games", "five games")
  text = (
    f"At minute {AT_MINUTES:.0f}, before the end of these runs, the tuned PPO is ahead of MuZero on "
    f"{' and '.join(ahead) or 'no game'}, and behind it on {numbers[len(rows) - len(ahead)]} "
    "([both returns](docs/results.md#minatar))."
  )
  text = textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)
  return f"{project_table(tables, 'a')}\n\n{text}"


def project_conditions(tables: dict[str, Any]) -> str:
  """Returns the conditions of `project_table`."""
  shown = [row for row in tables["measured"] if row["agent"] not in SHORT_AGENTS]
  apart = sorted({r["max_env_steps"] // PROTOCOLS[r["protocol"]].num_milestones for r in shown})
  return (
    "A return is the mean over seeds. A seed's figure is the mean over its run's last "
    f"{NUM_REPORTED} milestones (checkpoints {_span(apart)} steps apart), of {EPISODES} noise-free episodes "
    "each. An episode of Freeway has at most 2,501 steps. In the other games, episodes without sticky "
    "actions are cut off after 1,000 steps. With sticky actions only evaluation has a limit, 10,000 steps; ≥ "
    "marks figures with episodes at this limit. Bold is the best of a column. Minutes are a game's mean over "
    "seeds, from the fastest game to the slowest. Each run had one core, which some runs shared. If a source "
    "has a range of returns, the table has its upper end. ≈ marks returns that were read off a plot. "
    f"{NOT_RUN}"
  )


def _best_published(published: Sequence[dict[str, Any]], protocol: str) -> dict[str, Any] | None:
  """Returns the best published return of each game; the label names the agent if all are of one entry."""
  found = [entry for entry in published if protocol in entry["comparable_with"]]
  if not found:
    return None
  values = {
    game: [(float(np.max(e["returns"][game])), e["is_read_off"], e) for e in found if game in e["returns"]]
    for game in GAMES
  }
  best = {game: max(of, key=lambda each: each[:2]) for game, of in values.items() if of}
  (first, *others) = [entry for _, _, entry in best.values()]
  alike = all(entry is first for entry in others)
  steps = [_millions(entry["env_steps"]) for entry in sorted(found, key=lambda entry: entry["env_steps"])]
  return {
    "label": f"published: {first['agent']}" if alike else "best published",
    "steps": _millions(first["env_steps"]) if alike else f"{steps[0]} to {steps[-1]}",
    "returns": {game: ("≈ " * is_read_off, value, "g") for game, (value, is_read_off, _) in best.items()},
  }


def _span(values: Sequence[int]) -> str:
  return f"{values[0]:,}" if values[0] == values[-1] else f"{values[0]:,} to {values[-1]:,}"


def header_of(runs: Sequence[Run], configured_steps: int) -> list[str]:
  """Returns the lines Time, Reached and Measured of the header of a configuration with these steps.

  The return is marked ≥ if an episode of a figure reached the limit of the evaluation.
  """
  minutes = [run.minutes for run in runs if run.minutes is not None]
  mean, seeds = float(np.mean([run.score for run in runs])), len(runs)
  steps = f"{_millions(runs[0].max_env_steps)} steps, {seeds} seed{'s' * (seeds > 1)}"
  paths = ", ".join(str(run.result.path.resolve().relative_to(ROOT)) for run in runs)
  made = runs[0].max_env_steps
  of = f" for {_millions(made)} of {_millions(configured_steps)} steps" if made < configured_steps else ""
  ends = dict.fromkeys(f"{end:.0f}" for end in (min(minutes), max(minutes))) if minutes else {}
  time = [f"# Time: {' to '.join(ends)} min on one core (runtime=local){of}"] if minutes else []
  mark = "≥ " * any(run.num_at_bound for run in runs)
  return [*time, f"# Reached: {mark}{mean:.1f} at {steps}", f"# Measured: {paths}"]


def headers_of(groups: Groups) -> dict[Path, list[str]]:
  """Returns the lines of `header_of` by configuration file, for the files that have runs of the sweep."""
  paths = {_config_path(*key): runs for key, runs in groups.items()}
  return {
    path: header_of(runs, load_config(path).max_env_steps) for path, runs in paths.items() if path is not None
  }


def _config_path(agent: str, protocol: str, game: str) -> Path | None:
  """Returns the configuration whose header states an agent's runs; None if there is none."""
  folders = {("muzero", name): terms.folder for name, terms in PROTOCOLS.items()}
  folders |= {("ppo_replica", "a"): "ppo/minatar", ("ppo_tuned", "a"): "ppo/minatar_tuned"}
  folder = folders.get((agent, protocol))
  return None if folder is None else CONFIG / folder / f"{game}.yaml"


def write_headers(headers: dict[Path, list[str]]) -> None:
  """Replaces the lines Time, Reached and Measured in the headers of configurations."""
  for path, own in headers.items():
    lines = path.read_text("utf-8").splitlines()
    kept = [line for line in lines if not line.startswith(HEADER)]
    write_text(path, "\n".join([kept[0], *own, *kept[1:]]) + "\n")


def tables_of(results: Path) -> tuple[dict[str, Any], Groups]:
  """Returns everything that is tabulated, and the runs. Raises UserError: as `read_runs`."""
  groups = read_runs(results)
  if not groups:
    raise UserError(
      f"{results}: no results; run `moozi sweep experiments/minatar_vs_ppo/minatar_vs_ppo.yaml`"
    )
  published, played = read_published(), read_random_play(results / "random_play.json", groups)
  scales = scales_of(published, played)
  tables = {
    "measured": rows_of(groups),
    "aggregates": aggregates_of(groups, scales),
    "scores": scores_of(groups, scales),
    "minutes": minutes_of(groups),
    "random_play": played,
    "published": published,
  }
  return tables, groups


@command
def main(arguments: Sequence[str] | None = None) -> int:
  """Writes the tables; returns the exit status."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--results", type=Path, default=RESULTS)
  parser.add_argument(
    "--readme",
    type=Path,
    nargs="*",
    metavar="FILE",
    help="also write the tables into these two files; without FILE: into README.md here and the project's, "
    "and the headers of the configurations",
  )
  options = parser.parse_args(arguments)
  if options.readme is not None and len(options.readme) not in (0, 2):
    raise UserError("--readme: takes no file or two, this experiment's README and the project's")
  tables, groups = tables_of(options.results)
  table = table_of(tables)
  write_json(options.results / "scores.json", tables.pop("scores"))
  write_json(options.results / "table.json", tables)
  write_text(options.results / "table.md", table + "\n")
  if options.readme is not None:
    own, project = options.readme or (README, PROJECT_README)
    write_between_markers(own, MARK, table)
    write_between_markers(project, MARK, project_block(tables))
    if not options.readme:
      write_headers(headers_of(groups))
  print(table)
  return 0


if __name__ == "__main__":
  sys.exit(main())
