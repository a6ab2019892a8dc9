"""Draws the figures of docs/how_it_works.md: `python docs/figures` writes docs/images/*.svg.

`network_graph` and `history_stack` draw what the code computes; the other figures are drawn by hand.
"""

import math
from collections.abc import Callable
from pathlib import Path

from drawing import Drawing
from history_stack import history
from network_graph import network

IMAGES = Path(__file__).resolve().parent.parent / "images"


def unroll() -> Drawing:
  """Returns the figure of the model: its three functions, and the targets of one unroll."""
  d = Drawing(
    860,
    470,
    "The model, unrolled for three steps",
    "Representation h encodes the frames at step t. Dynamics g predicts the next hidden state and the"
    " reward of each action. Prediction f gives policy and value. Below each prediction is its "
    "target.",
  )
  x = [150, 350, 550, 750]
  d.text(20, 52, "frames", anchor="start", style="muted")
  d.box(x[0] - 70, 20, 150, 52, "o\u209c₋ₗ … o\u209c\nL frames and actions", "env", 15)
  d.arrow((x[0], 72), (x[0], 138))
  d.text(x[0] + 12, 110, "h", style="bold", anchor="start", size=17)
  d.text(20, 168, "hidden", anchor="start", style="muted")
  d.text(20, 186, "states", anchor="start", style="muted")
  for k in range(4):
    d.circle(x[k], 168, 30, f"s{'⁰¹²³'[k]}", "net", 19)
    d.arrow((x[k], 198), (x[k], 252))
    d.text(x[k] + 10, 230, "f", style="bold", anchor="start", size=17)
    d.box(x[k] - 48, 252, 96, 40, f"p{'⁰¹²³'[k]},  v{'⁰¹²³'[k]}", "none", 16)
    if k:
      d.arrow((x[k - 1] + 30, 168), (x[k] - 32, 168))
      d.text((x[k - 1] + x[k]) / 2, 156, "g", style="bold", size=17)
      action = "a\u209c" if k == 1 else f"a\u209c₊{'₀₁₂'[k - 1]}"
      d.circle((x[k - 1] + x[k]) / 2, 108, 20, action, "env", 14)
      d.arrow(((x[k - 1] + x[k]) / 2, 128), ((x[k - 1] + x[k]) / 2, 140))
      d.arrow(((x[k - 1] + x[k]) / 2 + 14, 172), ((x[k - 1] + x[k]) / 2 + 26, 252))
      d.box((x[k - 1] + x[k]) / 2 + 4, 252, 44, 40, f"r{'⁰¹²³'[k]}", "none", 16)
  d.text(20, 276, "predictions", anchor="start", style="muted")
  d.text(20, 374, "targets", anchor="start", style="muted")
  for k in range(4):
    step = "\u209c" if k == 0 else f"\u209c₊{'₀₁₂₃'[k]}"
    d.arrow((x[k], 350), (x[k], 296), style="dashed")
    d.box(x[k] - 48, 350, 96, 40, f"π{step},  z{step}", "data", 15)
    if k:
      middle = (x[k - 1] + x[k]) / 2 + 26
      d.arrow((middle, 350), (middle, 296), style="dashed")
      d.box(middle - 22, 350, 44, 40, f"u{step}", "data", 14)
  legend = "π: the search's policy.  z: the n-step return.  u: the reward that was received."
  d.text(20, 424, legend, anchor="start")
  d.text(20, 448, "The unrolled actions are those that were played.", anchor="start", style="muted")
  return d


def loop() -> Drawing:
  """Returns the figure of the actors of a run, and the data that they exchange."""
  d = Drawing(
    860,
    430,
    "Acting, learning and reanalyze",
    "Training workers send segments to the replay buffer. The parameter server takes targets from it "
    "and returns priorities. Reanalyze workers search stored positions again. The driver passes "
    "parameters to the workers, and the testing worker evaluates them.",
  )
  d.box(20, 150, 190, 80, "Training workers\nenvironments and search", "env")
  d.box(335, 150, 190, 80, "Replay buffer\none ring per environment", "data")
  d.box(650, 150, 190, 80, "Parameter server\nloss, optimizer", "net")
  d.box(335, 20, 190, 70, "Reanalyze workers\nsearch again", "search")
  d.box(335, 330, 190, 70, "Testing worker\nnoise-free episodes", "search")
  d.arrow((210, 180), (333, 180))
  d.text(272, 170, "segments")
  d.arrow((525, 175), (648, 175))
  d.text(587, 165, "targets")
  d.arrow((650, 208), (527, 208))
  d.text(587, 228, "priorities")
  d.arrow((400, 150), (400, 92))
  d.text(392, 126, "positions", anchor="end")
  d.arrow((460, 90), (460, 148))
  d.text(468, 126, "new policies, values", anchor="start")
  d.arrow((745, 230), (745, 280), (115, 280), (115, 232), style="accent")
  d.text(430, 272, "parameters, through the driver", style="accent")
  d.arrow((430, 280), (430, 328), style="accent")
  d.arrow((745, 150), (745, 55), (527, 55), style="accent")
  d.text(640, 45, "target parameters", style="accent")
  d.text(535, 370, "returns, GIFs", anchor="start", style="muted")
  return d


def targets() -> Drawing:
  """Returns the figure of the training target of one start index in replay."""
  d = Drawing(
    860,
    420,
    "The targets of one start index",
    "Nine steps of an episode. The history is the frames up to t. The unroll uses K actions and "
    "rewards. The value target sums n rewards and adds the search value n steps later. After a "
    "terminal frame, values are zero; after a truncated frame, steps are masked.",
  )
  left, wide = 130, 78
  names = ["t−1", "t", "t+1", "t+2", "t+3", "t+4", "t+5", "t+6", "t+7"]
  d.text(20, 78, "stored steps", anchor="start", style="muted")
  for i, name in enumerate(names):
    d.box(left + i * wide, 50, wide - 8, 46, name, "env" if i <= 1 else "none")
  d.text(left + wide - 4, 36, "history, L = 2", style="bold")

  def span(first: int, last: int, y: float, text: str, kind: str) -> None:
    d.box(left + first * wide, y, (last - first + 1) * wide - 8, 34, text, kind, 14)

  d.text(20, 146, "unroll, K = 3", anchor="start", style="muted")
  span(1, 3, 124, "actions aₜ, aₜ₊₁, aₜ₊₂", "env")
  text = "policies and values of t … t+3, rewards of t+1 … t+3"
  d.text(left + 4 * wide + 4, 146, text, anchor="start", style="muted")
  d.text(20, 200, "value of t, n = 4", anchor="start", style="muted")
  span(2, 5, 178, "rewards u of t+1 … t+4, discounted", "data")
  d.arrow((left + 6 * wide + 28, 195), (left + 6 * wide - 6, 195))
  d.text(left + 6 * wide + 34, 200, "+ γ⁴ × search value of t+4", anchor="start")
  d.text(20, 264, "Ends", anchor="start", style="bold", size=16)
  for y, end, word, after, note in (
    (282, "terminal", "value 0", "absorbing", "trained on: reward 0, value 0"),
    (346, "truncated", "search value", "masked", "left out of the loss"),
  ):
    d.box(left, y, wide - 8, 46, "t", "none")
    d.box(left + wide, y, wide - 8, 46, "t+1", "none")
    d.box(left + 2 * wide, y, 2 * wide - 8, 46, f"{end}\n{word}", "data", 14)
    d.box(left + 4 * wide, y, 2 * wide - 8, 46, after, "search" if after == "masked" else "none", 14)
    d.text(left + 6 * wide, y + 28, note, anchor="start", style="muted")
  return d


def search() -> Drawing:
  """Returns the figure of one simulation, in three panels: select, expand, back up."""
  d = Drawing(
    860,
    380,
    "One simulation of the search",
    "A tree in three panels. Select: follow the best action down to a new edge. Expand: the dynamics "
    "network predicts the next hidden state and reward, the prediction network its policy and value. "
    "Back up: add rewards and the discounted value along the path.",
  )
  nodes = {"root": (140, 90), "a": (60, 180), "b": (140, 180), "c": (220, 180)}
  nodes |= {"d": (105, 270), "e": (175, 270)}
  edges = [("root", "a"), ("root", "b"), ("root", "c"), ("b", "d")]
  titles = ("1. Select", "2. Expand", "3. Back up")
  notes = (
    ("the action with the best mix of", "Q-value, prior and visits"),
    ("g: next hidden state and reward", "f: policy and value of the leaf"),
    ("Q ← mean of r + γ · value,", "with −γ between two players"),
  )
  for panel in range(3):
    shift = panel * 290
    d.text(140 + shift, 36, titles[panel], size=17, style="bold")
    for parent, child in [*edges, ("b", "e")]:
      if child == "e" and panel == 0:
        continue
      (x1, y1), (x2, y2) = nodes[parent], nodes[child]
      length = math.hypot(x2 - x1, y2 - y1)
      dx, dy = (x2 - x1) / length, (y2 - y1) / length
      start, end = (x1 + shift + 20 * dx, y1 + 20 * dy), (x2 + shift - 21 * dx, y2 - 21 * dy)
      on_path = (parent, child) in (("root", "b"), ("b", "e"))
      if panel == 2 and on_path:
        start, end = end, start
      d.arrow(start, end, style="accent" if on_path and (panel != 1 or child == "e") else "", head=on_path)
    if panel == 0:
      d.arrow((140 + shift + 11, 198), (140 + shift + 30, 246), style="accent dashed")
    for name, (x, y) in nodes.items():
      if name == "e" and panel == 0:
        continue
      d.circle(x + shift, y, 19, {"root": "s⁰"}.get(name, ""), "net" if name != "e" else "search")
    if panel == 1:
      d.text(175 + shift + 26, 268, "s², r", anchor="start", size=15, style="accent")
      d.text(175 + shift + 26, 288, "p, v", anchor="start", size=15, style="accent")
    for i, line in enumerate(notes[panel]):
      d.text(140 + shift, 334 + 20 * i, line, style="muted")
  return d


FIGURES: tuple[Callable[[], Drawing], ...] = (unroll, loop, targets, search, network, history)

if __name__ == "__main__":
  for draw in FIGURES:
    (IMAGES / f"{draw.__name__}.svg").write_text(draw().svg(), "utf-8")
