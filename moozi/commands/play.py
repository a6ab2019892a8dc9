"""`moozi play`."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from moozi.commands import common
from moozi.commands.keyboard import END, Keyboard
from moozi.commands.watch import MAX_SPEED
from moozi.core.errors import UserError
from moozi.io.zoo import ZOO_PREFIX

if TYPE_CHECKING:
  from moozi.api.agent import Agent
  from moozi.core.config import Config
  from moozi.core.spec import EnvSpec
  from moozi.envs.environment import Environment

_QUIT = ("q", "escape", END)
# Keys by action name; each action also has a digit or a letter.
_NAMED_KEYS = {
  "left": ("left", "a"),
  "right": ("right", "d"),
  "up": ("up", "w"),
  "down": ("down", "s"),
  "fire": (" ",),
  "noop": (".",),
  "none": (".",),
  "stay": (".", "down"),
}
_SIGNS = "0123456789bcefghijklmnortuvxyz"
_PAUSE = "p"
_HINTS = {
  "start": "any key: start   q: quit",
  "running": "q: quit",
  "timed": f"{_PAUSE}: pause   q: quit",
  "paused": "paused; any key: continue   q: quit",
  "end": "the episode is over; enter: play again   q: quit",
}
_IDLE_NAMES = ("noop", "none", "stay")
_MAX_LISTED_ACTIONS = 40
# Maps a time step and the user's action (None if the opponent is to move) to the action to play.
_Opponent = Callable[[Any, int | None], int]


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
      help="Two players: the opponent, such as agent, mcts:100, run:PATH, zoo:NAME or prior:PATH; with human "
      "or self, you play both seats. Default: the run's agent, or human.",
    ),
  ] = None,
  seat: Annotated[
    int, common.integer("Two players: your seat; 0 moves first.", minimum=0, maximum=1, metavar="0|1")
  ] = 0,
  speed: Annotated[
    str,
    typer.Option(
      metavar="STEPS", help="One player: steps per second after a first key; 0 waits for a key at each step."
    ),
  ] = "0",
  seed: Annotated[int, common.integer("Seed of the environment.", minimum=0)] = 0,
  checkpoint: common.Checkpoint = None,
  simulations: Annotated[
    int | None, common.integer("Simulations per search of the agent or of mcts.")
  ] = None,
  allow_code: common.AllowCode = False,
) -> int:
  """Play an environment yourself, or a two-player game against a run's agent."""
  from moozi.api.agent import check_player
  from moozi.envs import registry

  steps_per_s = common.number_of("--speed", speed, 0, MAX_SPEED, "steps per second")
  config, is_run = _config_of(target, overrides or [], allow_code)
  with common.stdout_to_stderr():
    env = registry.make(config.env.name, seed, is_testing=True, **config.env.arguments)
  spec = env.env_spec
  if spec.num_players == 1:
    if opponent is not None:
      raise UserError(f"--opponent={opponent}: {spec.name} has one player, so it has no opponent")
    return _play_alone(env, steps_per_s)
  opponent = opponent or ("agent" if is_run else "self")
  if opponent == "human":
    opponent = "self"
  check_player("--opponent", opponent, "agent", "human")
  choose: _Opponent | None = None
  if opponent == "agent":
    if not is_run:
      raise UserError(f"--opponent=agent: {target} is not a run; `moozi train` makes one")
    choose = _agent_opponent(common.load_agent(Path(target), checkpoint, allow_code, simulations), env)
  elif opponent != "self":
    from moozi.envs.players import observe
    from moozi.evaluation.opponents import make_opponent

    used = {"opponent": opponent, "opponent_simulations": simulations or 100}
    config = config.model_copy(update={"evaluation": config.evaluation.model_copy(update=used)})
    player = make_opponent(config, spec, env, seed)
    assert player is not None, "two players, and not self"

    def choose(timestep: Any, forced: int | None) -> int:
      frame, legal = timestep.frame[0], timestep.legal_actions_mask[0, 1:]
      if forced is None:
        return player.action(frame, legal)
      observe(player, spec, frame, legal, forced)
      return forced

  return _play_board(env, seat, choose, opponent)


def _config_of(target: str, overrides: list[str], allow_code: bool) -> tuple["Config", bool]:
  """Returns the configuration of a run or an environment, and whether `target` is a run."""
  is_zoo = target.startswith(ZOO_PREFIX)
  if is_zoo or Path(target).is_dir() or ":" not in target:
    if overrides:
      raise UserError(f"{overrides[0]}: a run's options are fixed; name an environment to set them")
    if not is_zoo and not Path(target).exists():
      raise UserError(f"{target}: is neither a run nor an environment; `moozi envs` lists environments")
    from moozi.api.run_access import open_run

    return open_run(target, allow_code)[1], True
  from moozi.io.config import load_config

  return load_config(None, [f"env.name={target}", *(f"env.kwargs.{text}" for text in overrides)]), False


# --- one player


def _names(spec: "EnvSpec") -> list[str]:
  """Returns the names of the environment's own actions."""
  from moozi.vis.render_spec import action_names

  return list(action_names(spec)[1:])


def keys_of(spec: "EnvSpec") -> dict[str, int]:
  """Maps keys to the environment's actions: digits and letters, and keys for some names of actions."""
  keys = dict(zip(_SIGNS, range(spec.num_env_actions), strict=False))
  named: dict[str, int] = {}
  for action, name in enumerate(_names(spec)):
    named |= {key: action for key in _NAMED_KEYS.get(name.lower(), ()) if key not in named}
  return named | {key: action for key, action in keys.items() if key not in named}


def _play_alone(env: "Environment", steps_per_s: float) -> int:
  spec = env.env_spec
  idle = next((a for a, name in enumerate(_names(spec)) if name.lower() in _IDLE_NAMES), None)
  if steps_per_s and idle is None:
    raise UserError(f"--speed={steps_per_s:g}: must be 0, since {spec.name} has no action that does nothing")
  if not (sys.stdin.isatty() and sys.stdout.isatty()):
    return _play_by_lines(env)
  from rich.console import Console
  from rich.live import Live

  from moozi.vis.lettering import rounded

  keys, step, total, steps = keys_of(spec), env.reset(), 0.0, 0
  # With --speed, the first episode starts when the user presses a key.
  state = "start" if steps_per_s else "running"
  with Keyboard() as keyboard, Live(console=Console(), screen=True, auto_refresh=False) as live:
    while True:
      state = "end" if step.last() else state
      hint = _HINTS["timed" if state == "running" and steps_per_s else state]
      _draw(live, env, step, f"step {steps}   return {rounded(total):g}", keys, hint)
      if state == "end":
        if not _wants_another(keyboard):
          break
        step, total, steps, state = env.reset(), 0.0, 0, "running"
      elif state in ("start", "paused"):
        if keyboard.read(None) in _QUIT:
          break
        state = "running"
      else:
        action = _read_action(keyboard, keys, step.observation.legal_actions_mask, idle, steps_per_s)
        if action is None:
          break
        if action == _PAUSE:
          state = "paused"
          continue
        step = env.step(int(action))
        total += float(step.reward or 0.0)
        steps += 1
  print(f"return {rounded(total):g} in {steps} steps")
  return 0


def _read_action(
  keyboard: Keyboard, keys: dict[str, int], is_legal: np.ndarray, idle: int | None, steps_per_s: float
) -> int | str | None:
  """Returns the action of the next key, the no-op after a timeout, _PAUSE, or None if the user quits."""
  while True:
    key = keyboard.read(1 / steps_per_s if steps_per_s else None)
    if key is None and idle is not None and is_legal[idle]:
      return idle
    if key in _QUIT:
      return None
    if key == _PAUSE and steps_per_s:
      return _PAUSE
    if key in keys and is_legal[keys[key]]:
      return keys[key]


def _wants_another(keyboard: Keyboard) -> bool:
  """Waits for a key; returns True for enter (another episode), and False for a key that quits."""
  while True:
    key = keyboard.read(None)
    if key == "enter" or key in _QUIT:
      return key == "enter"


def _draw(live: Any, env: "Environment", step: Any, figures: str, keys: dict[str, int], hint: str) -> None:
  from rich.table import Table
  from rich.text import Text

  from moozi.vis.terminal import frame_view

  spec, shown = env.env_spec, step.observation
  lines = [spec.name, figures, ""]
  for action, name in enumerate(_names(spec)[:20]):
    pressed = " ".join("space" if key == " " else key for key, a in keys.items() if a == action)
    lines.append(f"{name}: {pressed}")
  lines += ["", hint]
  width, height = live.console.width, live.console.height
  grid = Table.grid(padding=(0, 3))
  picture = frame_view(
    shown.frame, spec, shown.to_play, env.render(), max(20, width - 40), max(4, height - 2)
  )
  grid.add_row(picture, Text("\n".join(lines)))
  live.update(grid, refresh=True)


def _play_by_lines(env: "Environment") -> int:
  """Reads one action per line, for input that is not a terminal."""
  from moozi.vis.lettering import rounded

  spec, step, total, steps = env.env_spec, env.reset(), 0.0, 0
  while not step.last():
    print(f"step {steps}, return {rounded(total):g}")
    _print_frame(spec, step.observation)
    action = _ask(spec, step.observation, "action")
    if action is None:
      break
    step = env.step(action)
    total += float(step.reward or 0.0)
    steps += 1
  print(f"return {rounded(total):g} in {steps} steps")
  return 0


# --- two players


def _agent_opponent(agent: "Agent", env: "Environment") -> _Opponent:
  from moozi.envs.environment import Observation

  def choose(timestep: Any, forced: int | None) -> int:
    mask, to_play = timestep.legal_actions_mask[0, 1:], int(timestep.to_play[0])
    observation = Observation(timestep.frame[0], mask, to_play)
    if forced is None:
      return agent.act(observation, position=env.position() if agent.config.plans_with_rules else None)
    agent.observe(observation, forced)
    return forced

  return choose


def _play_board(env: "Environment", seat: int, choose: _Opponent | None, opponent: str) -> int:
  """Plays one episode with prompts. The opponent receives every time step, because it keeps a history."""
  from moozi.envs.vector import SyncVectorEnvironment
  from moozi.vis.render_spec import action_name, player_name, render_spec_of

  spec, vector = env.env_spec, SyncVectorEnvironment([env])
  step, returns = vector.reset(), [0.0, 0.0]

  def observation() -> Any:
    mask = step.legal_actions_mask[0, 1:]
    return SimpleNamespace(frame=step.frame[0], to_play=int(step.to_play[0]), legal_actions_mask=mask)

  if choose is not None:
    print(f"you are {player_name(spec, seat)}; {opponent} is {player_name(spec, 1 - seat)}")
  while not step.is_last[0]:
    mover = int(step.to_play[0])
    is_users = choose is None or mover == seat
    action: int | None = None
    if is_users:
      _print_frame(spec, observation())
      action = _ask(spec, observation(), player_name(spec, mover))
      if action is None:
        print("quit before the end of the game")
        return 0
    if choose is not None:
      action = choose(step, action)
    assert action is not None
    if choose is None or not is_users:
      print(f"{player_name(spec, mover)} plays {action_name(spec, action + 1)}")
    step = vector.step(np.array([action + 1]))
    reward = float(step.last_reward[0])
    returns[mover] += reward
    returns[1 - mover] -= reward
  # The last frame of a game with hidden information is not shown, because it is one player's view.
  if render_spec_of(spec).board is not None:
    _print_frame(spec, observation())
  print(_outcome(spec, returns, seat, choose is not None))
  return 0


def _outcome(spec: "EnvSpec", returns: list[float], seat: int, has_opponent: bool) -> str:
  from moozi.vis.lettering import rounded
  from moozi.vis.render_spec import player_name

  if has_opponent:
    word = "won" if returns[seat] > 0 else "lost" if returns[seat] < 0 else "drew"
    return f"you {word} (return {rounded(returns[seat]):g})"
  if returns[0] == 0:
    return "a draw"
  winner = 0 if returns[0] > 0 else 1
  return f"{player_name(spec, winner)} won (return {rounded(returns[winner]):g})"


def _print_frame(spec: "EnvSpec", shown: Any) -> None:
  from moozi.vis.terminal import frame_text, frame_view

  if not sys.stdout.isatty():
    print(frame_text(shown.frame, spec, shown.to_play))
    return
  from rich.console import Console

  console = Console()
  height = min(24, max(8, console.height - 6))
  console.print(frame_view(shown.frame, spec, shown.to_play, None, min(60, console.width), height))


def _ask(spec: "EnvSpec", shown: Any, who: str) -> int | None:
  """Prompts for a legal action by number or name; returns None if the user quits."""
  names = _names(spec)
  legal = np.flatnonzero(shown.legal_actions_mask).tolist()
  listed = [str(a) if names[a] == str(a) else f"{a} {names[a]}" for a in legal[:_MAX_LISTED_ACTIONS]]
  if len(legal) > len(listed):
    listed.append(f"… ({len(legal)} in all)")
  while True:
    print(f"{who} [{', '.join(listed)}; q]: ", end="", flush=True)
    line = sys.stdin.readline()
    if not sys.stdin.isatty():
      print()
    text = line.strip()
    if not line or text.lower() in ("q", "quit"):
      if not line:
        print()
      return None
    found = [a for a in legal if text in (str(a), names[a])]
    if found:
      return int(found[0])
    print(f"{text!r}: not a legal move")
