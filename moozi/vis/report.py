"""Writes an HTML page of a run: its curves, its settings, and optionally an episode to step through.

The page needs no server or network. This module computes the page's data; the folder `report_page` has its
HTML, style and scripts.
"""

import base64
import hashlib
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from moozi.core.search_record import InspectedEpisode
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.core.text import html_text
from moozi.io.atomic_write import atomic_path
from moozi.io.plain_data import number_in
from moozi.vis.action_names import action_label, action_name, action_names, dimensions_text
from moozi.vis.frames import draw_frame, named_planes
from moozi.vis.lettering import rounded
from moozi.vis.render_spec import player_name, render_spec_of
from moozi.vis.search_tree import layout_tree

MAX_TREE_NODES = 40
MAX_CURVE_POINTS = 300
# Sizes in pixels of drawn planes and images, of drawn boards and vectors, and of an environment's own
# pictures. The page scales small frames up by an integer.
_CELLS_SIDE, _DRAWN_SIDE, _PICTURE_SIDE = 140, 280, 320
_SHEET_PIXELS = 2_000_000
_SHEET_FRAMES = 100
_TICK_KEYS = ("env_steps", "learner_steps", "wall_s", "test/at_env_steps")
_SCRIPTS, _EPISODE_SCRIPTS = ("charts.js", "page.js"), ("tree.js", "player.js")


def write_report(
  path: Path,
  episode: InspectedEpisode | None,
  spec: EnvSpec,
  *,
  run: Mapping[str, Any],
  ticks: Sequence[Mapping[str, Any]],
  config: str,
  joints: Sequence[tuple[int, str]] = (),
) -> Path:
  """Writes the page atomically. Creates the page's folder if it is missing.

  Args:
    episode: the episode to step through; None leaves it out.
    run: `name`, `checkpoint`, `env_steps`, `learner_steps`, and `figures`, a sentence about the results.
    ticks: the ticks of metrics.jsonl.
    config: the run's configuration as text.
    joints: environment steps and text of each point at which the run took over another run's state; -1 for
      those of earlier runs, which have no place in the curves.

  Returns: `path`.
  """
  data = {
    "run": dict(run) | {"env": spec.name},
    "episode": None if episode is None else episode_data(episode, spec),
    "curves": curve_data(ticks),
    "config": config,
    "joints": [{"x": at, "text": text} for at, text in joints],
  }
  with atomic_path(path) as partial:
    scripts = _SCRIPTS + _EPISODE_SCRIPTS * (data["episode"] is not None)
    partial.write_text(make_page(str(run["name"]), data, scripts=scripts), "utf-8")
  return path


def curve_data(ticks: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[float]]]:
  """Returns the points of each metric, sorted by name: x is environment steps, y is the value.

  The x of an evaluation's metrics is `test/at_env_steps`, if the tick has it, which may be before the tick's
  own steps. A curve of more than 300 points is reduced to 300 by averaging neighbors.
  """
  points: dict[str, tuple[list[float], list[float]]] = {}
  for tick in ticks:
    now = number_in(tick.get("env_steps"))
    tested_at = number_in(tick.get("test/at_env_steps"))
    for name, value in tick.items():
      number = number_in(value)
      at = tested_at if name.startswith("test/") and tested_at is not None else now
      if name not in _TICK_KEYS and number is not None and at is not None:
        xs, ys = points.setdefault(str(name), ([], []))
        xs.append(at)
        ys.append(number)
  return {name: {"x": _thin(xs), "y": _thin(ys)} for name, (xs, ys) in sorted(points.items())}


def episode_data(episode: InspectedEpisode, spec: EnvSpec) -> dict[str, Any]:
  """Returns the episode as JSON values. Arrays are flattened row by row; None is an unknown value."""
  legal = episode.legal_actions_mask.copy()
  # The agent does not choose an action at the last frame.
  legal[-1] = False
  visits = np.zeros(episode.action_probs.shape, np.int64)
  for t, tree in enumerate(episode.trees):
    if tree is not None:
      visits[t] = tree.root_visits(episode.choices_at(t))
  by_action = {
    "prior_probs": episode.prior_probs,
    "action_probs": episode.action_probs,
    "network_q": episode.network_q_values,
    "search_q": episode.q_values,
  }
  facts = ("index", "end", "seat", "discount", "signed_discount", "num_simulations", "num_frames")
  numbers = ("rewards", "root_values", "prior_values", "returns", "imagined_rewards", "imagined_values")
  return {
    **{name: getattr(episode, name) for name in facts},
    "return": number_in(float(episode.totals[-1])),
    "num_players": spec.num_players,
    "unroll_steps": episode.imagined_rewards.shape[1],
    **_names(episode, spec),
    "player_names": [player_name(spec, player) for player in range(spec.num_players)],
    "planes": [
      {"name": name, "color": "#{:02x}{:02x}{:02x}".format(*color)}
      for name, color in (named_planes(spec) if episode.pictures is None else ())
    ],
    "frames": _sheets(_pictures(episode, spec)),
    "actions": episode.actions.tolist(),
    "is_agents": episode.is_agents.astype(int).tolist(),
    "to_play": episode.to_play.tolist(),
    "seat_sign": episode.seat_sign.astype(int).tolist(),
    **{name: _numbers(getattr(episode, name)) for name in numbers},
    **{name: _numbers(values, legal) for name, values in by_action.items()},
    "root_visits": visits.ravel().tolist(),
    "trees": _trees(episode),
  }


def _names(episode: InspectedEpisode, spec: EnvSpec) -> dict[str, Any]:
  """Returns the names of all actions; with sampled choices, those of the actions shown, and the choices.

  `labels` are the short names of actions in trees, and `dimensions` names the dimensions of their values.
  """
  if episode.choices is None:
    return {"names": list(action_names(spec))}
  trees = [tree.action for tree in episode.trees if tree is not None]
  shown = np.unique(np.concatenate([episode.choices.ravel(), episode.actions, *trees]))
  actions = shown[shown >= DUMMY_ACTION].tolist()
  return {
    "names": {action: action_name(spec, action) for action in actions},
    "labels": {action: action_label(spec, action) for action in actions},
    "dimensions": dimensions_text(spec),
    "choices": episode.choices.ravel().tolist(),
  }


def _trees(episode: InspectedEpisode) -> dict[str, list[Any]]:
  """Returns the drawn nodes of the search trees of all steps, as columns.

  The rows of step t are start[t] … start[t+1]-1. The whole tree of step t has total[t] nodes.
  """
  columns = (
    "parent",
    "action",
    "visits",
    "value",
    "raw",
    "reward",
    "prior",
    "row",
    "principal",
    "left_out",
    "chance",
  )
  out: dict[str, list[Any]] = {name: [] for name in columns}
  out |= {"start": [0], "total": [0 if tree is None else tree.num_nodes for tree in episode.trees]}
  for t, tree in enumerate(episode.trees):
    if tree is not None:
      is_choice = episode.is_agents[t] and t < episode.num_decisions
      layout = layout_tree(tree, MAX_TREE_NODES, int(episode.actions[t]) if is_choice else None)
      node = layout.node
      out["parent"] += layout.parent.tolist()
      out["action"] += tree.action[node].tolist()
      out["visits"] += tree.visits[node].tolist()
      out["value"] += _numbers(tree.value[node])
      out["raw"] += _numbers(tree.raw_value[node])
      out["reward"] += _numbers(tree.reward[node])
      out["prior"] += _numbers(tree.prior[node])
      out["row"] += _numbers(layout.row)
      out["principal"] += layout.is_principal.astype(int).tolist()
      out["left_out"] += layout.num_left_out.tolist()
      out["chance"] += tree.is_chance[node].astype(int).tolist()
    out["start"].append(len(out["parent"]))
  return out


def _pictures(episode: InspectedEpisode, spec: EnvSpec) -> list[np.ndarray]:
  """Returns the drawn frames, [h, w, 3] uint8 each, all of one size."""
  if episode.pictures is not None:
    size = min(_PICTURE_SIDE, max(episode.pictures.shape[1:3]))
  elif render_spec_of(spec).kind in ("board", "facts", "vector"):
    size = _DRAWN_SIDE
  else:
    size = min(_PICTURE_SIDE, max(_CELLS_SIDE, *spec.frame_shape[:2]))
  own = [None] * episode.num_frames if episode.pictures is None else episode.pictures
  moments = zip(episode.frames, episode.to_play.tolist(), own, strict=True)
  return [draw_frame(frame, spec, size, player, picture) for frame, player, picture in moments]


def _sheets(pictures: list[np.ndarray]) -> dict[str, Any]:
  """Combines the pictures into sheets of at most 100 pictures. The page decodes one sheet at a time."""
  height, width = pictures[0].shape[:2]
  per_sheet = max(1, min(_SHEET_FRAMES, _SHEET_PIXELS // (height * width)))
  columns = math.ceil(math.sqrt(min(per_sheet, len(pictures))))
  sheets = []
  for begin in range(0, len(pictures), per_sheet):
    group = pictures[begin : begin + per_sheet]
    sheet = np.zeros((math.ceil(len(group) / columns) * height, columns * width, 3), np.uint8)
    for i, picture in enumerate(group):
      top, left = i // columns * height, i % columns * width
      sheet[top : top + height, left : left + width] = picture
    sheets.append("data:image/png;base64," + base64.b64encode(_png(sheet)).decode())
  return {"width": width, "height": height, "columns": columns, "per_sheet": per_sheet, "sheets": sheets}


def _png(picture: np.ndarray) -> bytes:
  """Encodes a picture as a PNG with a palette: exactly if it has at most 256 colors, else quantized."""
  packed = picture.astype(np.uint32) @ np.array([65536, 256, 1], np.uint32)
  colors, index = np.unique(packed, return_inverse=True)
  if len(colors) <= 256:
    image = Image.fromarray(index.reshape(packed.shape).astype(np.uint8), mode="P")
    image.putpalette(
      np.stack([colors >> 16, colors >> 8 & 255, colors & 255], axis=1).astype(np.uint8).tobytes()
    )
  else:
    image = Image.fromarray(picture).quantize(
      colors=256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
    )
  out = io.BytesIO()
  image.save(out, format="PNG", optimize=True)
  return out.getvalue()


def make_page(
  title: str,
  data: Mapping[str, Any],
  template: str = "page.html",
  scripts: Sequence[str] = _SCRIPTS,
  styles: Sequence[str] = ("page.css",),
  connects_to_its_server: bool = False,
) -> str:
  """Returns the HTML of a page, built from files in the folder `report_page`.

  The page loads no other files. Its content security policy allows only its own script and style, and images
  in data URLs. With `connects_to_its_server`, the script may also send requests to the page's server.
  """
  parts = resources.files("moozi.vis") / "report_page"
  style = "\n".join((parts / name).read_text("utf-8") for name in styles)
  code = "\n".join((parts / name).read_text("utf-8") for name in scripts)
  script = f'"use strict";\n(() => {{\n{code}\n}})();\n'
  policy = (
    f"default-src 'none'; img-src data:; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
    "base-uri 'none'; form-action 'none'" + "; connect-src 'self'" * connects_to_its_server
  )
  # Escapes `<`, so that no text can end the script element.
  text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
  page = (parts / "shell.html").read_text("utf-8").replace("@BODY@", (parts / template).read_text("utf-8"))
  filled = {
    "POLICY": html_text(policy),
    "TITLE": html_text(f"{title} – moozi"),
    "STYLE": style,
    "EPISODE": (parts / "episode.html").read_text("utf-8") if data.get("episode") else "",
    "DATA": text,
    "SCRIPT": script,
  }
  # All placeholders are filled in one pass, so that placeholders in the run's own text are not replaced.
  return re.sub("@([A-Z]+)@", lambda mark: filled[mark[1]], page)


def _digest(text: str) -> str:
  return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _thin(values: list[float]) -> list[float]:
  if len(values) > MAX_CURVE_POINTS:
    values = [float(part.mean()) for part in np.array_split(np.asarray(values, float), MAX_CURVE_POINTS)]
  return [_short(value) for value in values]


def _numbers(values: np.ndarray, is_known: np.ndarray | None = None) -> list[float | None]:
  """Rounds numbers to six decimals and as `_short`; unknown or non-finite numbers become None."""
  flat = np.asarray(values, np.float64).ravel()
  known = np.isfinite(flat) if is_known is None else np.isfinite(flat) & is_known.ravel()
  return [_short(rounded(x)) if k else None for x, k in zip(flat.tolist(), known.tolist(), strict=True)]


def _short(value: float) -> float:
  """Rounds a number: below 10,000 to four significant digits, else to an integer. Whole ones are ints."""
  short = float(f"{value:.4g}") if abs(value) < 1e4 else round(value)
  return int(short) if short == int(short) else short
