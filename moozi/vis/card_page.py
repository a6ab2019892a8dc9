"""Writes a run's card: the page card.md, the data card.json, the curve of its evaluations, and a GIF."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from moozi.core.text import html_text, markdown_code, markdown_text, one_cell
from moozi.io.atomic_write import write_bytes, write_text
from moozi.io.bounded_read import read_bounded
from moozi.io.card import CARD, Card, Evaluation, card_of
from moozi.io.run_directory import RunDirectory

_MAX_GIF_BYTES = 64 << 20

_NOT_RECORDED = "not recorded"
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _PAD = 480, 220, 56, 34, 14


CURVE, GIF, PAGE = "curve.svg", "play.gif", "card.md"


def write_card(run: RunDirectory, folder: Path) -> list[Path]:
  """Writes card.md, card.json and their pictures into a folder, and returns their paths.

  For a zoo agent, the card's data and the GIF are the agent's own. For a run, the GIF is its latest one of a
  single evaluation episode. A GIF of more than 64 MiB is skipped.

  Raises: UserError: a file of the run cannot be read. OSError: a file cannot be written.
  """
  card = card_of(run)
  gifs = [run.path / GIF] if run.is_zoo_agent else sorted(run.gifs_path.glob("step_" + "[0-9]" * 9 + ".gif"))
  gif = next((path for path in reversed(gifs) if _can_copy(path)), None)
  folder.mkdir(parents=True, exist_ok=True)
  if gif is not None:
    write_bytes(folder / GIF, read_bounded(gif, _MAX_GIF_BYTES))
  return write_card_files(card, folder, has_gif=gif is not None)


def _can_copy(path: Path) -> bool:
  return path.is_file() and not path.is_symlink() and path.stat().st_size <= _MAX_GIF_BYTES


def write_card_files(card: Card, folder: Path, *, has_gif: bool) -> list[Path]:
  """Writes a card into a folder that has its GIF if `has_gif`; returns the paths of all its files."""
  has_curve = len(card.curve) > 1
  if has_curve:
    label = f"{card.name}: mean return of the evaluations by environment steps"
    write_text(folder / CURVE, curve_svg(card.curve, label))
  write_text(folder / PAGE, card_markdown(card, has_curve=has_curve, has_gif=has_gif))
  write_text(folder / CARD, card.model_dump_json(indent=1) + "\n")
  names = [PAGE, CARD, *([CURVE] if has_curve else []), *([GIF] if has_gif else [])]
  return [folder / name for name in names]


def card_markdown(card: Card, *, has_curve: bool, has_gif: bool) -> str:
  """Returns the card as Markdown, which refers to the pictures `curve.svg` and `play.gif` beside it."""
  options = f", {markdown_text(_options(card.env_kwargs))}" if card.env_kwargs else ""
  version = f"{card.moozi or _NOT_RECORDED}, commit {card.commit or _NOT_RECORDED}"
  rows = [
    ("environment", markdown_code(card.env) + options),
    ("actions", markdown_text(card.actions or _NOT_RECORDED)),
    *((markdown_text(name), markdown_text(text)) for name, text in card.conditions.items()),
    ("algorithm", markdown_text(card.algorithm)),
    ("seeds", f"{len(card.seeds)} (seed {', '.join(map(str, card.seeds))})"),
    ("environment steps", _steps(card)),
    ("learner steps", _count(card.learner_steps)),
    ("minutes", _NOT_RECORDED if card.minutes is None else f"{card.minutes:g}"),
    ("ended by", markdown_text(card.ended_by or _NOT_RECORDED)),
    ("hardware of the training", markdown_text(_hardware(card))),
    ("MooZi", markdown_text(version)),
    ("checkpoint", markdown_code(card.checkpoint) if card.checkpoint else _NOT_RECORDED),
    ("license", markdown_text(card.license or _NOT_RECORDED)),
  ]
  lines = [f"# {markdown_text(card.name)}", "", _result(card.evaluation) + _random_play(card), ""]
  if card.command is not None:
    lines += ["This command plays the same episodes again:", "", f"    {one_cell(card.command)}", ""]
  elif card.evaluation is not None:
    lines += ["The checkpoint of this evaluation was not kept, so no command repeats it.", ""]
  lines += ["![an evaluation episode](play.gif)" if has_gif else f"GIF: {_NOT_RECORDED}.", ""]
  lines += ["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows), ""]
  lines += ["## Curve", ""]
  lines += ["![mean return of the evaluations](curve.svg)" if has_curve else f"Curve: {_NOT_RECORDED}.", ""]
  lines += ["## Configuration", "", "The run's `config.yaml` has every key.", ""]
  lines += [
    *_differences(card),
    "",
    "## Limits",
    "",
    *(f"- {markdown_text(limit)}" for limit in card.limits),
    "",
  ]
  return "\n".join(lines)


def opponent_text(evaluation: Evaluation | None) -> str:
  """Returns the opponent of an evaluation with two players; a dash if there is none."""
  return "–" if evaluation is None or evaluation.opponent is None else evaluation.opponent


def result_text(evaluation: Evaluation | None) -> str:
  """Returns the mean return as text, with its 95% interval if there is one: `12.49 [10.75, 14.23]`."""
  if evaluation is None:
    return _NOT_RECORDED
  if evaluation.low is None:
    return f"{evaluation.return_mean:.2f}"
  return f"{evaluation.return_mean:.2f} [{evaluation.low:.2f}, {evaluation.high:.2f}]"


def curve_svg(points: Sequence[tuple[float, float]], label: str) -> str:
  """Returns an SVG curve through (environment steps, mean return) points.

  `label` is its text for screen readers.
  """
  xs, ys = [x for x, _ in points], [y for _, y in points]
  low, high = min([0.0, *ys]), max([0.0, *ys])
  low, high = (low, high) if high > low else (low, low + 1)
  right = max([1.0, *xs])

  def place(x: float, y: float) -> tuple[float, float]:
    across = _LEFT + x / right * (_WIDTH - _LEFT - _PAD)
    return across, _PAD + (high - y) / (high - low) * (_HEIGHT - _PAD - _BOTTOM)

  parts = []
  for tick in _ticks(low, high):
    at = place(0, tick)[1]
    parts += [f'<line x1="{_LEFT}" y1="{at:.1f}" x2="{_WIDTH - _PAD}" y2="{at:.1f}" stroke="#8884"/>']
    parts += [f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{tick:g}</text>']
  for tick in _ticks(0, right):
    at = place(tick, low)[0]
    text = f"{tick / 1e6:g}M" if right >= 1e6 else f"{tick / 1e3:g}k" if right >= 1e3 else f"{tick:g}"
    parts += [f'<text x="{at:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{text}</text>']
  line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
  parts += [f'<polyline points="{line}" fill="none" stroke="#0072b2" stroke-width="2"/>']
  middle = (_LEFT + _WIDTH - _PAD) / 2
  parts += [f'<text x="{middle}" y="{_HEIGHT - 4}" text-anchor="middle">environment steps</text>']
  name = html_text(label)
  return (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
    f'height="{_HEIGHT}" role="img" aria-label="{name}">\n'
    "<style>text{font:12px sans-serif;fill:#666}"
    "@media(prefers-color-scheme:dark){text{fill:#bbb}}</style>\n" + "\n".join(parts) + "\n</svg>\n"
  )


def _result(evaluation: Evaluation | None) -> str:
  if evaluation is None:
    return f"**Return: {_NOT_RECORDED}.**"
  number = evaluation.distinct_episodes
  distinct = f"the number of distinct ones is {_NOT_RECORDED}" if number is None else f"{number} distinct"
  at = f"with `evaluation.seed={evaluation.seed}`, at {evaluation.at_env_steps:,} environment steps."
  if evaluation.low is None:
    text = (
      f"**Return {evaluation.return_mean:.2f}** in one evaluation episode {at} One episode has no interval."
    )
  else:
    text = (
      f"**Return {evaluation.return_mean:.2f}, 95% interval {evaluation.low:.2f} to {evaluation.high:.2f}**, "
      f"standard deviation {evaluation.return_std:.2f}, over {evaluation.episodes} evaluation episodes "
      f"({distinct}) {at} The interval covers the episodes of one trained agent; it says nothing about other "
      "seeds."
    )
  if evaluation.human_normalized is not None:
    text += f" Human-normalized score: {evaluation.human_normalized:.3f} (random play 0, human 1)."
  if evaluation.score is not None:
    opponent = markdown_text(evaluation.opponent or _NOT_RECORDED)
    text += f" Score against {opponent}: {evaluation.score:.3f} (a win is 1, a draw ½)."
  return text


def _random_play(card: Card) -> str:
  """Returns a sentence with the return of random play, if it is recorded."""
  if card.evaluation is None or card.random_return is None:
    return ""
  return f" Random play returns {card.random_return:z.2f} in as many episodes."


def _steps(card: Card) -> str:
  if card.is_offline:
    return f"none acted; learned from trajectories on disk, for the updates of {_count(card.env_steps)} steps"
  return _count(card.env_steps)


def _differences(card: Card) -> list[str]:
  if card.config_name is None:
    return ["No named configuration has this environment."]
  if not card.differences:
    return [f"No key differs from the named configuration {markdown_code(card.config_name)}."]
  rows = [
    f"| {markdown_code(key)} | {markdown_text(str(a))} | {markdown_text(str(b))} |"
    for key, (a, b) in card.differences.items()
  ]
  table = ["| key | named configuration | this run |", "|---|---|---|", *rows]
  command = [
    "",
    "This command trains with the same settings:",
    "",
    f"    {one_cell(card.train_command or '')}",
  ]
  return [
    f"Keys that differ from the named configuration {markdown_code(card.config_name)}:",
    "",
    *table,
    *(command if card.train_command else []),
  ]


def _hardware(card: Card) -> str:
  if card.hardware is None:
    return _NOT_RECORDED
  return card.hardware + (" (stated by the author; the run did not record it)" if _is_stated(card) else "")


def _is_stated(card: Card) -> bool:
  return card.hardware_source == "stated"


def _options(kwargs: dict[str, Any]) -> str:
  return ", ".join(f"{key}={_value(value)}" for key, value in kwargs.items())


def _value(value: Any) -> str:
  """Returns a setting as YAML spells it."""
  return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _count(number: int | None) -> str:
  return _NOT_RECORDED if number is None else f"{number:,}"


def _ticks(low: float, high: float) -> list[float]:
  """Returns at most five round numbers from `low` to `high`."""
  step = 10 ** math.floor(math.log10((high - low) / 2))
  step *= next(k for k in (1, 2, 5, 10) if (high - low) / (k * step) <= 4.5)
  return [step * i for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
