"""Draws the input of the network for one step of Catch, as the code makes it from frames and actions."""

import numpy as np
from drawing import Drawing

from moozi.core.spec import EnvSpec
from moozi.envs import registry
from moozi.ops.history import init_history, network_input, push_action, push_frame

GAME, LENGTH, MOVES = "tiny:catch", 3, (2, 0)


def stacked() -> tuple[EnvSpec, np.ndarray, np.ndarray, np.ndarray]:
  """Returns the spec, the last L frames [L, H, W, C] and actions [L], and the network's input [H, W, Ch]."""
  env = registry.make(GAME, seed=3)
  spec, step = env.env_spec, env.reset()
  history = init_history(1, LENGTH, spec)
  for number, move in enumerate((*MOVES, None)):
    is_first = np.array([number == 0])
    history = push_frame(history, step.observation.frame[None], is_first)
    if move is not None:
      history = push_action(history, np.array([move + 1], np.int32))
      step = env.step(move)
  frames, actions = np.asarray(history.frames[0]), np.asarray(history.actions[0])
  return spec, frames, actions, np.asarray(network_input(frames, actions, spec))


def history() -> Drawing:
  """Returns the figure of the history: frames and actions, the actions' codes, and the stacked planes."""
  spec, frames, actions, planes = stacked()
  length, size, cell = len(actions), spec.policy_size, 8
  height, width, channels = planes.shape
  own = spec.frame_shape[2]
  d = Drawing(
    860,
    440,
    "The network's input: stacked frames and actions",
    f"Step 2 of an episode of {GAME}. The last {length} frames give {length * own} planes. Each of the last "
    f"{length} actions becomes {size} constant planes; that of the action has the value 1/{size}. The action "
    "before the episode's start is the dummy.",
  )
  pitch, wide = (860 - 40) / channels, width * cell
  left = [20 + pitch * i for i in range(channels)]
  names, first = ("end", *spec.action_names), length * own
  start = f"Step 2 of {GAME}: the last L = {length} frames of C = {own} planes, and the actions before them."
  d.text(20, 32, start, anchor="start", style="muted")
  for i, frame in enumerate(frames):
    middle = (left[own * i] + left[own * i + own - 1] + wide) / 2
    d.text(middle, 66, f"o{'₀₁₂'[i]}", style="bold", size=17)
    for j in range(own):
      x = left[own * i + j]
      d.plane(x, 78, frame[..., j].astype(float).tolist(), cell)
      d.arrow((x + wide / 2, 78 + height * cell), (x + wide / 2, 262))
  for i, action in enumerate(actions):
    begin = first + size * i
    middle = (left[begin] + left[begin + size - 1] + wide) / 2
    d.text(middle, 66, f"a{('₋₁', '₀', '₁')[i]}", style="bold", size=17)
    d.box(middle - 55, 78, 110, 38, f"{names[action]} ({action})", "env", 16)
    d.arrow((middle, 116), (middle, 146))
    for j, value in enumerate(planes[0, 0, begin : begin + size]):
      x = left[begin + j]
      d.box(x, 148, wide, 36, f"1/{size}" if value else "0", "data" if value else "none", 15)
      d.arrow((x + wide / 2, 184), (x + wide / 2, 262))
  for i in range(channels):
    d.plane(left[i], 264, planes[..., i].tolist(), cell)
  low = 264 + height * cell + 28
  d.text(left[0], low, f"L · C = {first} frame planes", anchor="start", style="bold", size=15)
  text = f"L · A = {length * size} action planes: one-hot codes, divided by A = {size}"
  d.text(left[first], low, text, anchor="start", style="bold", size=15)
  text = f"The input has the shape {height} × {width} × {channels}: H × W × L·(C + A). Oldest planes first."
  d.text(20, low + 30, text, anchor="start", style="muted")
  return d
