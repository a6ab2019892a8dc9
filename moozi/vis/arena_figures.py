"""Draws the results of an arena: a cross-table with ratings, and ratings over training."""

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from moozi.core.text import printable

if TYPE_CHECKING:
  from matplotlib.figure import Figure

_MAX_NAME = 40


def arena_figure(data: Mapping[str, Any]) -> "Figure":
  """Returns a figure: the cross-table, with players from the strongest to the weakest, and their ratings.

  Rows have the players' numbers and names, columns their numbers.

  Args:
    data: the result of `Arena.to_json`.
  """
  from matplotlib.figure import Figure

  players = data["players"]
  labels = _labels([player["name"] for player in players])
  size = len(players)
  figure = Figure((7.5 + 0.75 * size, 1.4 + 0.55 * size), dpi=110, layout="constrained")
  table, ratings = figure.subplots(1, 2, width_ratios=(max(size, 3), 3), sharey=True)
  nan = float("nan")
  scores = [[nan if pair is None else pair["score"] for pair in row] for row in data["scores"]]
  table.imshow(scores, vmin=-0.4, vmax=1.4, cmap="RdBu", aspect="auto")
  for i, row in enumerate(data["scores"]):
    for j, pair in enumerate(row):
      if pair is not None:
        text = f"{pair['score']:.2f}"
        if pair["low"] is not None:
          text += f"\n{pair['low']:.2f}–{pair['high']:.2f}"
        table.text(j, i, text, ha="center", va="center", fontsize="small")
  table.set_xticks(range(size), range(1, size + 1))
  rows = [f"{label}  {number}" for number, label in enumerate(labels.values(), 1)]
  table.set_yticks(range(size), rows, parse_math=False)
  table.set_title("score of the row against the column, 95% interval", loc="left", fontsize="medium")
  values = [player["rating"] for player in players]
  ratings.errorbar(
    values, range(size), xerr=_errors(players), fmt="o", color="#0072b2", ecolor="#0072b2", capsize=3
  )
  ratings.set_title(f"rating (Elo; {labels[data['pinned']]} is 0)", fontsize="medium", parse_math=False)
  ratings.grid(alpha=0.3)
  figure.suptitle(_title(data), fontsize="medium", x=0.01, ha="left", parse_math=False)
  return figure


def arena_text(data: Mapping[str, Any], num_seats: int) -> str:
  """Returns the ratings and the results of each pair as lines of text; `data` as in `arena_figure`."""
  players = data["players"]
  width = max(len(player["name"]) for player in players)
  title = (
    f"{data['env']}: {data['num_games']} games ({data['num_distinct']} distinct), {data['num_openings']} "
    f"openings, random moves at the start: {data['opening_plies']}, seed {data['seed']}"
  )
  lines = [title, f"{'':{width}}  rating  95% interval    score  95% interval   openskill"]
  for player in players:
    lines.append(
      f"{player['name']:{width}}  {player['rating']:z6.0f}  {_bound(player['low'], 'z6.0f')} … "
      f"{_bound(player['high'], '<z6.0f')}  {player['score']:.3f}  {_bound(player['score_low'])} … "
      f"{_bound(player['score_high'])}  {player['skill']:.1f} ± {player['skill_sigma']:.1f}"
    )
  lines.append(f"rating: Elo, {data['pinned']} is 0")
  unit = ", pairs of seats" if num_seats > 2 else ""
  for (i, first), (j, second) in itertools.combinations(enumerate(players), 2):
    if (pair := data["scores"][i][j]) is not None:
      lines.append(
        f"{first['name']} against {second['name']}: {pair['score']:.3f} [{_bound(pair['low'])}, "
        f"{_bound(pair['high'])}] ({pair['wins']} won, {pair['draws']} drawn, {pair['losses']} lost{unit}), "
        f"return {pair['return_mean']:z.3f}"
      )
  return "\n".join(lines)


def _bound(bound: float | None, form: str = ".3f") -> str:
  return "–" if bound is None else format(bound, form)


def milestones_figure(data: Mapping[str, Any], steps: Mapping[str, int]) -> "Figure":
  """Returns a figure: ratings of a run's milestones over environment steps, other players as horizontal
  lines.

  Args:
    data: as in `arena_figure`.
    steps: for each player that is a milestone, its environment steps, by name.
  """
  from matplotlib.figure import Figure

  figure = Figure((8, 4.5), dpi=110, layout="constrained")
  axis = figure.subplots()
  own = sorted((p for p in data["players"] if p["name"] in steps), key=lambda p: steps[p["name"]])
  x = [steps[player["name"]] / 1e6 for player in own]
  axis.errorbar(x, [p["rating"] for p in own], yerr=_errors(own), marker="o", color="#0072b2", capsize=3)
  others = [player for player in data["players"] if player["name"] not in steps]
  labels = _labels([player["name"] for player in others])
  for color, player in zip(("#d55e00", "#009e73", "#cc79a7", "#8a6d00") * len(others), others, strict=False):
    if player["low"] is not None:
      axis.axhspan(player["low"], player["high"], color=color, alpha=0.12, linewidth=0)
    axis.axhline(player["rating"], color=color, linestyle="--")
    axis.annotate(
      labels[player["name"]], (x[0], player["rating"]), va="bottom", fontsize="small", parse_math=False
    )
  axis.set_xlabel("environment steps (millions)")
  axis.set_ylabel("rating (Elo), 95% interval")
  axis.set_title(_title(data), fontsize="medium", loc="left", parse_math=False)
  axis.grid(alpha=0.3)
  return figure


def _errors(players: Sequence[Mapping[str, Any]]) -> list[list[float]] | None:
  """Returns the distances to the bounds of the intervals; None without intervals."""
  if any(player["low"] is None for player in players):
    return None
  return [
    [max(0.0, player["rating"] - player["low"]) for player in players],
    [max(0.0, player["high"] - player["rating"]) for player in players],
  ]


def _title(data: Mapping[str, Any]) -> str:
  return printable(
    f"{data['env']}: {data['num_games']} games, {data['num_openings']} openings, random moves at the start: "
    f"{data['opening_plies']}"
  )


def _labels(names: Sequence[str]) -> dict[str, str]:
  """Returns the label of each name: without folders and `run:` if the labels then differ; cut if long."""
  labels = []
  for name in names:
    kind, colon, place = name.partition(":")
    labels.append(("" if kind == "run" else kind + colon) + place.rpartition("/")[2])
  chosen = labels if len(set(labels)) == len(names) else names
  return {
    name: printable(label if len(label) <= _MAX_NAME else f"…{label[1 - _MAX_NAME :]}")
    for name, label in zip(names, chosen, strict=True)
  }
