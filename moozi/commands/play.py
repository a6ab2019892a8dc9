"""`moozi play`."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from moozi.commands.agent import Agent, load_agent
from moozi.commands.common import AllowCode, Checkpoint, count_of, open_run, stdout_on_stderr
from moozi.commands.keyboard import END, Keyboard
from moozi.commands.watch import speed_of
from moozi.core.errors import UserError
from moozi.core.spec import DUMMY_ACTION

if TYPE_CHECKING:
  from moozi.core.config import Config
  from moozi.core.spec import EnvSpec
  from moozi.envs.environment import Environment

_QUIT = ("q", "quit")
# The actions' own words; every action has a digit or a letter too.
_WORDS = {
  "left": ("left", "a"),
  "right": ("right", "d"),
  "up": ("up", "w"),
  "down": ("down", "s"),
  "fire": (" ",),
  "noop": (".",),
  "none": (".",),
  "stay": (".", "down"),
}
_SIGNS = "0123456789bcefghijklmnoprtuvxyz"
_IDLE = ("noop", "none", "stay")
# From what the environment shows, and the action that is forced here or None, to the action that is played.
_Rival = Callable[[Any, int | None], int]


def play(
  target: Annotated[
    str,
    typer.Argument(metavar="RUN_OR_ENV", help="A run directory, or an environment such as minatar:breakout."),
  ],
  overrides: Annotated[
    list[str] | None,
    typer.Argument(metavar="[OPTION=VALUE]...", help="Of an environment: its options, as in env.kwargs."),
  ] = None,
  opponent: Annotated[
    str | None,
    typer.Option(
      metavar="agent|random|mcts|self",
      help="Two players: who plays the other seat; the run's agent, or without a run you yourself (self).",
    ),
  ] = None,
  seat: Annotated[str, typer.Option(metavar="0|1", help="Two players: yours; 0 moves first.")] = "0",
  speed: Annotated[
    str,
    typer.Option(
      metavar="STEPS", help="One player: steps a second, without a key nothing is done; 0 waits for a key."
    ),
  ] = "0",
  seed: Annotated[str, typer.Option(metavar="N", help="Of the environment's chance.")] = "0",
  checkpoint: Checkpoint = None,
  simulations: Annotated[
    str | None, typer.Option(metavar="N", help="Of each search of the agent's or of mcts.")
  ] = None,
  allow_code: AllowCode = False,
) -> int:
  """Play an environment's game yourself; a game of two players against a run's agent."""
  steps_per_s = speed_of(speed, least=0.0)
  num_simulations = count_of("--simulations", simulations)
  if not (seed.isascii() and seed.isdigit() and len(seed) < 10):
    raise UserError(f"--seed={seed}: must be a whole number from 0")
  if seat not in ("0", "1"):
    raise UserError(f"--seat={seat}: must be 0 or 1")
  config, is_run = _config_of(target, overrides or [], allow_code)
  from moozi.envs import registry

  with stdout_on_stderr():
    env = registry.make(config.env.name, int(seed), is_testing=True, **config.env.kwargs)
  spec = env.env_spec
  if spec.num_players == 1:
    if opponent is not None:
      raise UserError(f"--opponent={opponent}: {spec.name} is played alone")
    return _play_alone(env, steps_per_s)
  opponent = opponent or ("agent" if is_run else "self")
  if opponent not in ("agent", "random", "mcts", "self"):
    raise UserError(f"--opponent={opponent}: must be agent, random, mcts or self")
  rival: _Rival | None = None
  if opponent == "agent":
    if not is_run:
      raise UserError("--opponent=agent: a run is needed, whose agent it is; `moozi train` makes runs")
    rival = _agent_rival(load_agent(Path(target), checkpoint, allow_code), num_simulations)
  elif opponent != "self":
    rival = _bot_rival(env, opponent, num_simulations or 100, int(seed))
  return _play_board(env, spec, int(seat), rival, opponent)


def _config_of(target: str, overrides: list[str], allow_code: bool) -> tuple["Config", bool]:
  """The configuration of a run or of a bare environment, and whether it is a run's."""
  if Path(target).is_dir() or ":" not in target:
    if overrides:
      raise UserError(
        f"{overrides[0]}: a run's environment has the run's own options; name an environment to set others"
      )
    if not Path(target).exists():
      raise UserError(
        f"{target}: neither a run directory nor an environment; `moozi envs` lists the environments"
      )
    return open_run(Path(target), allow_code)[1], True
  from moozi.io.config import load_config

  return load_config(None, [f"env.name={target}", *(f"env.kwargs.{text}" for text in overrides)]), False


# -- alone


def keys_of(spec: "EnvSpec") -> dict[str, int]:
  """The environment's action that each key stands for: arrows and letters by name, and a sign for every
  one.
  """
  from moozi.vis.render_spec import action_name

  keys: dict[str, int] = {}
  signs = list(_SIGNS)
  for action in range(spec.num_env_actions):
    for key in _WORDS.get(action_name(spec, action + 1).lower(), ()):
      keys.setdefault(key, action)
  for action in range(min(spec.num_env_actions, len(signs))):
    keys.setdefault(signs[action], action)
  return keys


def _idle_action(spec: "EnvSpec") -> int | None:
  from moozi.vis.render_spec import action_name

  for action in range(spec.num_env_actions):
    if action_name(spec, action + 1).lower() in _IDLE:
      return action
  return None


def _play_alone(env: "Environment", steps_per_s: float) -> int:
  spec = env.env_spec
  idle = _idle_action(spec)
  if steps_per_s and idle is None:
    raise UserError(
      f"--speed={steps_per_s:g}: {spec.name} has no action that does nothing; only 0 is allowed"
    )
  if not (sys.stdin.isatty() and sys.stdout.isatty()):
    return _play_by_lines(env)
  from rich.console import Console
  from rich.live import Live

  keys, step, total, steps = keys_of(spec), env.reset(), 0.0, 0
  console = Console()
  with Keyboard() as keyboard, Live(console=console, screen=True, auto_refresh=False) as live:
    while True:
      _draw(live, env, step, total, steps, keys)
      if step.last():
        if not _wait_for_more(keyboard):
          break
        step, total, steps = env.reset(), 0.0, 0
        continue
      action = _pressed(keyboard, keys, step, idle, steps_per_s)
      if action is None:
        break
      step = env.step(action)
      total += float(step.reward or 0.0)
      steps += 1
  print(f"return {total:g} in {steps} steps")
  return 0


def _pressed(
  keyboard: Keyboard, keys: dict[str, int], step: Any, idle: int | None, steps_per_s: float
) -> int | None:
  """The legal action whose key is pressed; the idle one where time runs out; None to quit."""
  while True:
    key = keyboard.read(1 / steps_per_s if steps_per_s else None)
    if key is None and idle is not None and step.observation.legal_actions_mask[idle]:
      return idle
    if key in ("q", "escape", END):
      return None
    if key in keys and step.observation.legal_actions_mask[keys[key]]:
      return keys[key]


def _wait_for_more(keyboard: Keyboard) -> bool:
  """Whether a new game is wanted: enter, or quit."""
  while True:
    key = keyboard.read(None)
    if key in ("enter", "q", "escape", END):
      return key == "enter"


def _draw(live: Any, env: "Environment", step: Any, total: float, steps: int, keys: dict[str, int]) -> None:
  from rich.table import Table
  from rich.text import Text

  from moozi.vis.render_spec import action_name
  from moozi.vis.terminal import frame_view

  spec, seen = env.env_spec, step.observation
  lines = [spec.name, f"step {steps}   return {total:g}", ""]
  for action in range(min(spec.num_env_actions, 20)):
    names = {" ": "space"}
    pressed = " ".join(names.get(key, key) for key, a in keys.items() if a == action)
    lines.append(f"{action_name(spec, action + 1)}: {pressed}")
  lines += ["", "the game is over; enter: again   q: quit" if step.last() else "q: quit"]
  width, height = live.console.width, live.console.height
  grid = Table.grid(padding=(0, 3))
  picture = frame_view(seen.frame, spec, seen.to_play, env.render(), max(20, width - 40), max(4, height - 2))
  grid.add_row(picture, Text("\n".join(lines)))
  live.update(grid, refresh=True)


def _play_by_lines(env: "Environment") -> int:
  """One action a line, for what is no terminal."""
  spec, step, total, steps = env.env_spec, env.reset(), 0.0, 0
  while not step.last():
    print(f"step {steps}, return {total:g}")
    _print_frame(spec, step.observation)
    action = _ask(spec, step.observation, "action")
    if action is None:
      break
    step = env.step(action)
    total += float(step.reward or 0.0)
    steps += 1
  print(f"return {total:g} in {steps} steps")
  return 0


# -- two players


def _agent_rival(agent: Agent, simulations: int | None) -> _Rival:
  """The agent, who sees every frame."""
  player = agent.evaluator(simulations).player(agent.state.params, agent.state.net_state)

  def think(timestep: Any, forced: int | None) -> int:
    given = np.array([-1 if forced is None else forced + 1], np.int32)
    return int(player.decide(timestep, given).action) - 1

  return think


def _bot_rival(env: "Environment", kind: str, simulations: int, seed: int) -> _Rival:
  bot = env.make_bot(kind, simulations, seed)

  def think(timestep: Any, forced: int | None) -> int:
    return forced if forced is not None else bot.action(timestep.legal_actions_mask[0, 1:])

  return think


def _play_board(
  env: "Environment",
  spec: "EnvSpec",
  seat: int,
  rival: _Rival | None,
  rival_name: str,
) -> int:
  """One game, by a prompt of numbers; the rival sees every frame, in the agent's terms."""
  from moozi.envs.vector import SyncVectorEnvironment
  from moozi.vis.render_spec import action_name, player_name, render_spec_of

  world = SyncVectorEnvironment([env])
  step, returns = world.reset(), [0.0, 0.0]
  if rival is not None:
    print(f"you are {player_name(spec, seat)}; {rival_name} is {player_name(spec, 1 - seat)}")
  while not step.is_last[0]:
    mover = int(step.to_play[0])
    action: int | None = None
    if rival is None or mover == seat:
      seen = _Seen(step.frame[0], mover, step.legal_actions_mask[0, 1:])
      _print_frame(spec, seen)
      action = _ask(spec, seen, player_name(spec, mover))
      if action is None:
        print("the game was left")
        return 0
    if rival is not None:
      action = rival(step, action)
    assert action is not None, "somebody has moved"
    if rival is None or mover != seat:
      print(f"{player_name(spec, mover)} plays {action_name(spec, action + 1)}")
    step = world.step(np.array([action + 1]))
    reward = float(step.last_reward[0])
    returns[mover] += reward
    returns[1 - mover] -= reward
  # At the end of a hidden game the frame would show what only one of the players may see.
  if render_spec_of(spec).board is not None:
    _print_frame(spec, _Seen(step.frame[0], int(step.to_play[0]), step.legal_actions_mask[0, 1:]))
  print(_outcome(spec, returns, seat, rival is not None))
  return 0


def _outcome(spec: "EnvSpec", returns: list[float], seat: int, has_rival: bool) -> str:
  from moozi.vis.render_spec import player_name

  if has_rival:
    word = "won" if returns[seat] > 0 else "lost" if returns[seat] < 0 else "drew"
    return f"you {word} (return {returns[seat]:g})"
  if returns[0] == 0:
    return "a draw"
  winner = 0 if returns[0] > 0 else 1
  return f"{player_name(spec, winner)} won (return {returns[winner]:g})"


class _Seen:
  """What a player sees, with the names of `envs.environment.Observation`."""

  def __init__(self, frame: np.ndarray, to_play: int, legal_actions_mask: np.ndarray) -> None:
    self.frame, self.to_play, self.legal_actions_mask = frame, to_play, legal_actions_mask


def _print_frame(spec: "EnvSpec", seen: Any) -> None:
  from moozi.vis.terminal import frame_text, frame_view

  if not sys.stdout.isatty():
    print(frame_text(seen.frame, spec, seen.to_play))
    return
  from rich.console import Console

  console = Console()
  height = min(24, max(8, console.height - 6))
  console.print(frame_view(seen.frame, spec, seen.to_play, None, min(60, console.width), height))


def _ask(spec: "EnvSpec", seen: Any, who: str) -> int | None:
  """A legal action of the environment's own, by its number or its name; None to quit."""
  from moozi.vis.render_spec import action_name

  legal = [int(a) for a in np.flatnonzero(seen.legal_actions_mask) if a + 1 != DUMMY_ACTION]
  names = {a: action_name(spec, a + 1) for a in legal}
  # Where a name is nothing but the number there is no need to say it twice.
  told = ", ".join(str(a) if names[a] == str(a) else f"{a} {names[a]}" for a in legal[:40])
  more = f", … ({len(legal)} in all)" if len(legal) > 40 else ""
  while True:
    print(f"{who} [{told}{more}; q]: ", end="", flush=True)
    line = sys.stdin.readline()
    if not sys.stdin.isatty():
      print()
    text = line.strip()
    if not line or text.lower() in _QUIT:
      if not line:
        print()
      return None
    found = [a for a in legal if text in (str(a), names[a])]
    if found:
      return found[0]
    print(f"{text!r}: not a legal move")
