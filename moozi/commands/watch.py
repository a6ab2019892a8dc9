"""The command `moozi watch`."""

import functools
import itertools
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moozi.commands import common
from moozi.commands.keyboard import END, Keyboard
from moozi.io.output import can_draw, say

if TYPE_CHECKING:
  from rich.live import Live

  from moozi.api.agent import Agent
  from moozi.core.search_record import PlayedStep

_MIN_SPEED, MAX_SPEED = 0.25, 60.0
_HELP = "space: pause   n: one step   + -: speed   e: next episode   q: quit"


def watch(
  run: common.Run,
  checkpoint: common.Checkpoint = None,
  episodes: Annotated[
    int | None, common.integer("Number of episodes. Default: 1, or until you quit in a terminal.")
  ] = None,
  speed: Annotated[
    str, typer.Option(metavar="STEPS", help="Steps per second in a terminal; no limit elsewhere.")
  ] = "8",
  simulations: common.Simulations = None,
  allow_code: common.AllowCode = False,
) -> int:
  """Watch a run's agent play evaluation episodes in the terminal."""
  steps_per_s = common.number_of("--speed", speed, _MIN_SPEED, MAX_SPEED, "steps per second")
  from moozi.api.loading import load

  with common.stdout_to_stderr():
    agent = load(run, checkpoint, simulations=simulations, allow_code=allow_code)
  evaluator = agent.evaluator()
  if not can_draw(sys.stdout):
    for episode in range(episodes or 1):
      _print_episode(agent, evaluator, episode)
    return 0
  from rich.console import Console
  from rich.live import Live

  with (
    Keyboard() as keyboard,
    Live(console=Console(), screen=True, auto_refresh=False, vertical_overflow="crop") as live,
  ):
    show = _Show(agent, evaluator, keyboard, live, steps_per_s)
    numbers = itertools.count() if episodes is None else range(episodes)
    ends = [show.play(episode) for episode in itertools.takewhile(lambda _: not show.is_over, numbers)]
  for line in ends:
    say(line)
  return 0


def _print_episode(agent: "Agent", evaluator: Any, episode: int) -> None:
  """Plays an episode and prints a line per step."""
  from moozi.vis.terminal import step_line

  for number, step in enumerate(evaluator.play(agent.state.variables, episode)):
    say(f"episode {episode} step {number}: {step_line(step, agent.spec)}")
  say(_end(episode, number, step))


def _end(episode: int, steps: int, step: "PlayedStep") -> str:
  """Returns an episode's result as text, given the number of steps and the last one."""
  from moozi.vis.lettering import rounded

  return f"episode {episode}: return {rounded(step.total):g} in {steps} steps"


class _Show:
  """Shows episodes in a terminal; keys control the playback."""

  def __init__(
    self, agent: "Agent", evaluator: Any, keyboard: Keyboard, live: "Live", steps_per_s: float
  ) -> None:
    self._agent, self._evaluator, self._keyboard, self._live = agent, evaluator, keyboard, live
    self._steps_per_s, self._is_paused, self._is_skipping = steps_per_s, False, False
    self.is_over = False

  def play(self, episode: int) -> str:
    """Shows one episode and returns its result as text."""
    self._is_skipping = False
    start = time.monotonic()
    for number, step in enumerate(self._evaluator.play(self._agent.state.variables, episode)):
      redraw = functools.partial(self._draw, step, episode, number)
      redraw()
      self._wait(start, redraw)
      start = time.monotonic()
      if self.is_over or self._is_skipping:
        return f"{_end(episode, number, step)} so far"
    return _end(episode, number, step)

  def _draw(self, step: "PlayedStep", episode: int, number: int) -> None:
    from rich.console import Group
    from rich.text import Text

    from moozi.vis.lettering import rounded
    from moozi.vis.terminal import step_lines, step_view

    console = self._live.console
    lines = [f"{self._agent.spec.name}, {self._agent.checkpoint.name}"]
    lines += [f"episode {episode}   step {number}   return {rounded(step.total):g}"]
    lines += step_lines(step, self._agent.spec)
    view = step_view(
      step, self._agent.spec, lines, console.width, console.height - 2, has_color=not console.no_color
    )
    pace = "paused" if self._is_paused else f"{self._steps_per_s:g} steps/s"
    self._live.update(Group(view, Text(f"{pace}   {_HELP}", "dim", no_wrap=True)), refresh=True)

  def _wait(self, start: float, redraw: Callable[[], None]) -> None:
    """Handles keys until the next step is due, starting with those that were pressed during the search."""
    while not self.is_over:
      remaining = start + 1 / self._steps_per_s - time.monotonic()
      key = self._keyboard.read(None if self._is_paused else max(0.0, remaining))
      if key is None:
        return
      if key in ("q", END, "escape"):
        self.is_over = True
      elif key == " ":
        self._is_paused = not self._is_paused
      elif key == "n":
        self._is_paused = True
        return
      elif key == "e":
        self._is_skipping = True
        return
      elif key in ("+", "=", "-"):
        factor = 0.5 if key == "-" else 2.0
        self._steps_per_s = min(MAX_SPEED, max(_MIN_SPEED, self._steps_per_s * factor))
      redraw()
