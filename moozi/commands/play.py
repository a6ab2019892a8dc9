"""The command `moozi play`."""

import contextlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from moozi.commands import common
from moozi.commands.keyboard import END, Keyboard
from moozi.commands.steering import IDLE_KEY, Action, Controls, controls_of, dimensions_prompt, own_names
from moozi.commands.watch import MAX_SPEED
from moozi.core.errors import UserError
from moozi.core.text import printable
from moozi.io.output import can_draw, say
from moozi.io.zoo_files import ZOO_PREFIX

if TYPE_CHECKING:
  from moozi.api.match import Match
  from moozi.core.config import Config
  from moozi.core.spec import EnvSpec
  from moozi.envs.environment import Environment
  from moozi.envs.table import Table
  from moozi.io.run_directory import RunDirectory

_QUIT = ("q", "escape", END)
_PAUSE = "p"
_HINTS = {
  "start": "any key: start   q: quit",
  "running": "q: quit",
  "timed": f"{_PAUSE}: pause   q: quit",
  "paused": "paused; any key: continue   q: quit",
  "end": "the episode is over; enter: play again   q: quit",
}
_MAX_LISTED_ACTIONS = 40


def play(
  target: Annotated[
    str,
    typer.Argument(
      metavar="RUN_OR_ENV",
      help="A run, zoo:NAME, or an environment such as minatar:breakout.",
    ),
  ],
  overrides: Annotated[
    list[str] | None,
    typer.Argument(metavar="[OPTION=VALUE]...", help="Options of an environment, as in env.kwargs."),
  ] = None,
  opponent: Annotated[
    str | None,
    typer.Option(
      metavar="agent|human|PLAYER",
      help="Games of several seats: the player of the other seats, such as agent, mcts:100, run:PATH or "
      "zoo:NAME; with human or self, you play all seats. Default: the run's agent, or human.",
    ),
  ] = None,
  seat: Annotated[
    int | None,
    common.integer("Games of several seats: your seat. Default: 0, which moves first.", minimum=0),
  ] = None,
  speed: Annotated[
    str | None,
    typer.Option(
      metavar="STEPS",
      help="One player: steps per second without a key, after a first one; a key is a step at once. Default: "
      "0, which waits for a key at each step.",
    ),
  ] = None,
  seed: Annotated[int, common.integer("Seed of the environment.", minimum=0)] = 0,
  checkpoint: common.Checkpoint = None,
  simulations: Annotated[
    int | None, common.integer("Simulations per search of the agent or of mcts.")
  ] = None,
  advisor: Annotated[
    str | None,
    typer.Option(
      metavar="PLAYER|none",
      help="Games of several seats: the player whose search rates the moves when you enter ?, such as "
      "run:PATH or mcts:1000. Default: the run's or the opponent's agent, or mcts if the game has it.",
    ),
  ] = None,
  web: Annotated[bool, typer.Option("--web", help="Play on a page in the browser, on this machine.")] = False,
  port: Annotated[
    int | None,
    common.integer(
      "With --web: the port on 127.0.0.1. Default: 0, which takes a free one.", minimum=0, maximum=65535
    ),
  ] = None,
  allow_code: common.AllowCode = False,
) -> int:
  """Play an environment yourself, or a game of several seats against a run's agent or another player."""
  steps_per_s = common.number_of("--speed", "0" if speed is None else speed, 0, MAX_SPEED, "steps per second")
  if not web:
    _check_unused({"--port": port}, "--web")
  config, run = _config_of(target, overrides or [], allow_code)
  config = config.allowing_code(allow_code)
  table = None if _plays_one_seat(config, run is not None) else _table(config)
  if table is None:
    from moozi.envs import registry
    from moozi.envs.checked import CheckedEnvironment

    with common.stdout_to_stderr():
      env = CheckedEnvironment(registry.make(config.env.name, seed, is_testing=True, **config.env.arguments))
    with contextlib.closing(env):
      if opponent is not None:
        raise UserError(f"--opponent={opponent}: {config.env.name} has one player, so it has no opponent")
      if web:
        raise UserError(f"--web: {config.env.name} has one player; the page is for games of several seats")
      unused = {
        "--seat": seat,
        "--advisor": advisor,
        "--checkpoint": checkpoint,
        "--simulations": simulations,
      }
      _check_unused(unused, f"a game of several seats; {config.env.name} has one player")
      return _play_alone(env, steps_per_s)
  with contextlib.closing(table):
    _check_unused({"--speed": speed}, f"an environment with one player; {table.spec.name} has several seats")
    if run is None:
      _check_unused({"--checkpoint": checkpoint}, f"a run; {target} is an environment")
    elif checkpoint is not None:
      from moozi.io.checkpoints import find_checkpoint

      find_checkpoint(run.checkpoints_path, checkpoint)  # raises the error, also if the agent only advises
    agent = None if run is None else _agent_name(target, checkpoint)
    from moozi.api.match import make_match

    players = {"opponent": opponent, "agent": agent, "advisor": advisor}
    with common.stdout_to_stderr():
      match, label = make_match(table, seat or 0, seed, simulations, allow_code, **players)
    if label == "self":
      _check_unused({"--seat": seat}, "a player as --opponent; here you play all seats")
    if web:
      from moozi.commands.play_web import serve

      return serve(match, label, port or 0)
    return _play_board(match, seat or 0, label)


def _check_unused(options: Mapping[str, object], needs: str) -> None:
  """Raises UserError if an option is given that has no effect; `needs` says what these options need."""
  for option, value in options.items():
    if value is not None:
      raise UserError(f"{option}={value}: needs {needs}")


def _plays_one_seat(config: "Config", is_run: bool) -> bool:
  """Returns whether a person has one seat of the environment, and its own players have the others."""
  return not is_run and config.env.kwargs.get("seat", "all") != "all"


def _table(config: "Config") -> "Table | None":
  """Returns the environment as a table; None if it has one player or cannot be made."""
  from moozi.envs import registry

  try:
    with common.stdout_to_stderr():
      return registry.make_table(config.env.name, **config.env.arguments)
  except UserError:
    return None  # `registry.make` reports what is wrong


def _agent_name(run: str, checkpoint: str | None) -> str:
  name = run if run.startswith(ZOO_PREFIX) else f"run:{run}"
  return name if checkpoint is None else f"{name}@{checkpoint}"


def _config_of(target: str, overrides: list[str], allow_code: bool) -> tuple["Config", "RunDirectory | None"]:
  """Returns the configuration of a run or an environment, and the run's directory if it is a run."""
  is_zoo = target.startswith(ZOO_PREFIX)
  # Unlike Path.is_dir, os.path does not raise for a name that is too long or a folder that cannot be read.
  if is_zoo or os.path.isdir(target) or ":" not in target:
    if overrides:
      raise UserError(f"{overrides[0]}: a run's options are fixed; name an environment to set them")
    if not is_zoo and not os.path.exists(target):
      raise UserError(f"{target}: is neither a run nor an environment; `moozi envs` lists environments")
    from moozi.api.run_access import open_run

    directory, config = open_run(target, allow_code)
    return config, directory
  from moozi.io.config import load_config

  return load_config(None, [f"env.name={target}", *(f"env.kwargs.{text}" for text in overrides)]), None


# --- one player


def _play_alone(env: "Environment", steps_per_s: float) -> int:
  spec = env.env_spec
  controls = controls_of(spec)
  if steps_per_s and controls.idle is None:
    raise UserError(f"--speed={steps_per_s:g}: must be 0, since {spec.name} has no action that does nothing")
  if not (sys.stdin.isatty() and can_draw(sys.stdout)):
    if steps_per_s:
      raise UserError(f"--speed={steps_per_s:g}: needs a terminal; elsewhere, each line is one step")
    return _play_by_lines(env)
  from rich.console import Console
  from rich.live import Live

  from moozi.vis.lettering import rounded

  step, total, steps = env.reset(), 0.0, 0
  # With --speed, the first episode starts when the user presses a key.
  state = "start" if steps_per_s else "running"
  with Keyboard() as keyboard, Live(console=Console(), screen=True, auto_refresh=False) as live:
    while True:
      state = "end" if step.last() else state
      hint = _HINTS["timed" if state == "running" and steps_per_s else state]
      _draw(live, env, step, f"step {steps}   return {rounded(total):g}", controls, hint)
      if state == "end":
        if not _wants_another(keyboard):
          break
        step, total, steps, state = env.reset(), 0.0, 0, "running"
      elif state in ("start", "paused"):
        if keyboard.read(None) in _QUIT:
          break
        state = "running"
      else:
        action = _read_action(keyboard, controls, step.observation.legal_actions_mask, steps_per_s)
        if action is None:
          break
        if isinstance(action, str):
          state = "paused" if action == _PAUSE else state
          continue
        step = env.step(action)
        total += float(step.reward or 0.0)
        steps += 1
  say(f"return {rounded(total):g} in {steps} steps")
  return 0


def _read_action(
  keyboard: Keyboard, controls: Controls, is_legal: np.ndarray, steps_per_s: float
) -> Action | str | None:
  """Returns the action of the next key, or the idle action after a timeout.

  Returns _PAUSE or CHANGED if the screen is to be drawn again, and None if the user quits.
  """
  while True:
    key = keyboard.read(1 / steps_per_s if steps_per_s else None)
    if key is None and steps_per_s:
      key = IDLE_KEY
    if key in _QUIT:
      return None
    if key == _PAUSE and steps_per_s:
      return _PAUSE
    answer = controls.press(key, is_legal)
    if answer is not None:
      return answer


def _wants_another(keyboard: Keyboard) -> bool:
  """Waits for a key; returns True for enter (another episode), and False for a key that quits."""
  while True:
    key = keyboard.read(None)
    if key == "enter" or key in _QUIT:
      return key == "enter"


def _draw(live: Any, env: "Environment", step: Any, figures: str, controls: Controls, hint: str) -> None:
  from rich.table import Table
  from rich.text import Text

  from moozi.ops.pictures import to_picture
  from moozi.vis.terminal import frame_view

  spec, shown = env.env_spec, step.observation
  lines = [spec.name, figures, "", *controls.lines(), "", hint]
  width, height = live.console.width, live.console.height
  grid = Table.grid(padding=(0, 3))
  own = None
  with contextlib.suppress(Exception):  # the frame is drawn instead
    own = to_picture(env.render())
  columns = max(20, width - 40)
  has_color = not live.console.no_color
  picture = frame_view(
    shown.frame, spec, shown.to_play, own, columns, max(4, height - 2), has_color=has_color
  )
  grid.add_row(picture, Text(printable("\n".join(lines))))
  live.update(grid, refresh=True)


def _play_by_lines(env: "Environment") -> int:
  """Reads one action per line, for input that is not a terminal."""
  from moozi.vis.lettering import rounded

  spec, step, total, steps = env.env_spec, env.reset(), 0.0, 0
  while not step.last():
    say(f"step {steps}, return {rounded(total):g}")
    _print_frame(spec, step.observation)
    action = _ask(spec, step.observation, "action")
    if action is None:
      break
    step = env.step(action)
    total += float(step.reward or 0.0)
    steps += 1
  say(f"return {rounded(total):g} in {steps} steps")
  return 0


# --- several seats


def _play_board(match: "Match", seat: int, label: str) -> int:
  """Plays one game with prompts."""
  from moozi.vis.boards import player_on_board
  from moozi.vis.render_spec import player_name, render_spec_of

  table, spec = match.table, match.table.spec
  has_opponent = label != "self"
  if has_opponent:
    others = ", ".join(player_on_board(spec, i) for i in range(table.num_seats) if i != seat)
    say(f"you are {player_on_board(spec, seat)}; {label} is {others}")
  while not match.is_over:
    mover = table.to_play
    if match.is_users_turn:
      _print_frame(spec, _shown(match))
      action = _ask(spec, _shown(match), player_name(spec, mover), match)
      if action is None:
        say("quit before the end of the game")
        return 0
      match.play(action)
    else:
      match.reply()
    if not (has_opponent and mover == seat):
      say(match.move_text(match.moves[-1]))
  # The last frame of a game with hidden information is not shown, because it is one player's view.
  if render_spec_of(spec).board is not None and spec.is_perfect_information:
    _print_frame(spec, _shown(match))
  say(match.outcome_text())
  return 0


def _shown(match: "Match") -> Any:
  view = match.table.view()
  return SimpleNamespace(frame=view.frame, to_play=match.table.to_play, legal_actions_mask=view.legal)


def _print_opinion(match: "Match") -> None:
  """Prints the advisor's opinion: its value, and the 12 best legal actions."""
  from moozi.vis.action_names import action_name
  from moozi.vis.lettering import rounded

  with common.stdout_to_stderr():
    opinion = match.opinion()
  value = "" if opinion.value is None else f": value {rounded(opinion.value):+.3f}"
  say(f"{opinion.by}{value}")
  for advice in opinion.advice[:12]:
    value = "" if advice.value is None else f"  value {rounded(advice.value):+.3f}"
    say(f"  {action_name(match.table.spec, advice.action + 1):12} {advice.share:6.1%}{value}")


def _print_frame(spec: "EnvSpec", shown: Any) -> None:
  from moozi.vis.terminal import frame_text, frame_view

  if not can_draw(sys.stdout):
    say(frame_text(shown.frame, spec, shown.to_play))
    return
  from rich.console import Console

  console = Console()
  height = min(24, max(8, console.height - 6))
  has_color = not console.no_color
  columns = min(60, console.width)
  console.print(frame_view(shown.frame, spec, shown.to_play, None, columns, height, has_color=has_color))


def _ask(spec: "EnvSpec", shown: Any, who: str, match: "Match | None" = None) -> Any:
  """Prompts for a legal action; returns None if the user quits. `?` prints the advisor's opinion."""
  has_advisor = match is not None and match.advisor is not None
  listed, read = _reader(spec, shown.legal_actions_mask)
  while True:
    keys = "?; q" if has_advisor else "q"
    say(f"{who} [{listed}; {keys}]: ", end="")
    line = sys.stdin.readline()
    if not sys.stdin.isatty():
      say()
    text = line.strip()
    if not line or text.lower() in ("q", "quit"):
      if not line:
        say()
      return None
    if text == "?" and match is not None and has_advisor:
      _print_opinion(match)
      continue
    try:
      return read(text)
    except ValueError as error:
      say(str(error))


def _reader(spec: "EnvSpec", mask: np.ndarray) -> tuple[str, Callable[[str], Action]]:
  """Returns a text about the legal actions, and a function that reads one of them or raises ValueError.

  The text lists at most 40 actions. Actions with dimensions are read as values, others by number or name. If
  a name is a number, such as that of a card, only names are accepted.
  """
  from moozi.envs.environment import check_action

  factors = spec.factors
  if factors is not None:
    return dimensions_prompt(factors), lambda text: check_action(factors.parse(text), spec, mask)
  names = own_names(spec)
  has_numbers = any(re.fullmatch(r"-?\d+", name) for name in names)
  legal = np.flatnonzero(mask).tolist()
  listed = [names[a] if has_numbers else f"{a} {names[a]}" for a in legal[:_MAX_LISTED_ACTIONS]]
  if len(legal) > len(listed):
    listed.append(f"… ({len(legal)} in all)")

  def read(text: str) -> int:
    found = [a for a in legal if text == names[a] or (text == str(a) and not has_numbers)]
    if not found:
      raise ValueError(f"{text!r}: not a legal move")
    return int(found[0])

  return ", ".join(listed), read
