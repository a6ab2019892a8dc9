"""One game of the package `open_spiel`: its kind, and the frames of its states."""

import contextlib
import importlib
import itertools
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.core.symmetry import SQUARE, board_symmetries
from moozi.core.text import missing_package
from moozi.envs.environment import moves_array
from moozi.envs.table import num_seat_planes, write_seat

# The package's player numbers at a chance node and at an end.
CHANCE, TERMINAL = -1, -4
SEATED = (
  "self-play is for two players who alternate strictly; env.kwargs.seat=random lets the agent play one seat"
)
# fmt: off
# Games in which a move may be hidden from the other players, such as a move of an unseen piece, a sealed bid,
# or cards that are put aside or passed on face down.
_HIDING_MOVES = frozenset({
  "battleship", "cribbage", "dark_chess", "dark_hex", "dark_hex_ir", "euchre", "first_sealed_auction",
  "hearts", "kriegspiel", "latent_ttt", "phantom_go", "phantom_ttt", "phantom_ttt_ir", "rbc", "sheriff",
  "skat", "social_deduction", "stratego", "tarok",
})
# fmt: on
# Symmetries of boards whose actions are their cells. Those of Othello preserve the initial position.
_TURNS = {
  "connect_four": ("mirror",),
  "go": SQUARE,
  "hex": ("rotate_180",),
  "othello": ("rotate_180", "transpose", "antitranspose"),
  "small_othello": ("rotate_180", "transpose", "antitranspose"),
  "tic_tac_toe": SQUARE,
}
# Planes that every symmetry swaps; in Hex, a player's stones connected to one or the other of its two sides.
_SWAPPED_PLANES = {"hex": ((1, 2), (6, 7))}
# The last plane, the player to move, is added here.
_PLAYER_PLANES = {"connect_four": (0, 1, 3), "go": (0, 1, 4), "tic_tac_toe": (2, 1, 3)}
# The number of random steps that probe a game when it is loaded.
_PROBE_STEPS = 600
_MAX_CACHED_MASKS = 4096
# The syntax of a game with parameters. No supported game has another game as a parameter.
_KEY = re.compile(r"[(,](\w+)=")
# Parameters that are the size of a board, a hand or a deck.
_SIZE = re.compile(
  r"[(,](\w*(?:size|rows|col|width|height|dice|cards|ranks|suits|players)\w*|[mnk])=(\d+)(?=[,)])"
)
_MAX_SIZE = 200
_MAX_ACTIONS = 1_000_000
_FORM = re.compile(r"\w+(\((\w+=[^(),=]+(,\w+=[^(),=]+)*)?\))?")
_CPP_PLACE = re.compile(r"^\S+\.(?:cc|cpp|h):\d+:?\s+")


class Rules:
  """One game: its spec, and the frames and masks of its states.

  Args:
    name: the game and its parameters, as the user writes them.
    frame_dtype: "auto", "bool" or "float32"; auto is bool where random play shows only 0 and 1.
    is_seated: whether each seat of the game has its own player; a game with more than two seats needs it.

  Attributes:
    game: the package's game.
    num_seats: number of players of the game.
    spec: the environment's specification.
    is_perfect_information: whether nothing is hidden from any player.
    is_deterministic: whether the game has no chance nodes.
    max_moves: the largest number of actions in a game; None with chance or hidden information.
    is_in_python: whether the game's rules are written in Python.
    hides_moves: whether a player's move may be hidden from the others.

  Raises: UserError: the package rejects the name or a parameter, or the kind of game is not supported.
  """

  def __init__(self, name: str, frame_dtype: str = "auto", is_seated: bool = False) -> None:
    self._name = f"env.name=open_spiel:{name}"
    self.game = _load_game(name)
    pyspiel = package()
    kind = self.game.get_type()
    self.num_seats: int = self.game.num_players()
    self._is_seated = is_seated
    if is_seated and self.num_seats == 1:
      raise UserError(f"{self._name}: has one player; env.kwargs.seat must be all")
    if not is_seated and self.num_seats > 2:
      raise UserError(f"{self._name}: {self.num_seats} players; {SEATED}")
    self.is_perfect_information = kind.information == pyspiel.GameType.Information.PERFECT_INFORMATION
    self.is_deterministic = kind.chance_mode == pyspiel.GameType.ChanceMode.DETERMINISTIC
    is_searchable = self.is_perfect_information and self.is_deterministic
    self.max_moves: int | None = self.game.max_game_length() if is_searchable else None
    # Some games in C++ have their own class in the package.
    self.is_in_python = type(self.game).__module__.partition(".")[0] != pyspiel.__name__
    self.hides_moves = kind.short_name in _HIDING_MOVES
    self._is_information_state = kind.provides_information_state_tensor and (
      not self.is_perfect_information or not kind.provides_observation_tensor
    )
    self._shape, self._axes = self._tensor_shape()
    self._ones = np.ones(int(np.prod(self._shape)), np.float32)
    self._use_observer(self._make_observer())
    self._masks: dict[tuple[int, ...], np.ndarray] = {}
    self._is_bool = False
    is_binary, names = self._probe()
    self._is_bool = is_binary if frame_dtype == "auto" else frame_dtype == "bool"
    game: str = kind.short_name
    places: Literal["cells", "columns"] = "columns" if game == "connect_four" else "cells"
    self.spec = EnvSpec(
      name=f"open_spiel:{name}",
      frame_shape=self._frame_shape,
      frame_dtype="bool" if self._is_bool else "float32",
      num_env_actions=self.game.num_distinct_actions(),
      num_players=1 if is_seated else self.num_seats,
      action_names=names,
      is_perfect_information=self.is_perfect_information,
      num_seats=self.num_seats if is_seated else 0,
      action_places=places if game in _TURNS else "none",
      player_planes=None if self._is_egocentric() else _PLAYER_PLANES.get(game),
      symmetries=board_symmetries(
        _TURNS.get(game, ()),
        self._frame_shape,
        self.game.num_distinct_actions(),
        places,
        _SWAPPED_PLANES.get(game, ()),
      ),
    )

  def _is_egocentric(self) -> bool:
    """Returns whether a parameter of the game makes frames from the view of the player to move."""
    return any(value for key, value in self.game.get_parameters().items() if key.startswith("egocentric"))

  def frame(self, state: Any, to_play: int) -> np.ndarray:
    """Returns player `to_play`'s view of a state: [H, W, C] of the spec's dtype, a fresh array.

    Raises: UserError: frames are bool, but the tensor has other values than 0 and 1.
    """
    self._read(state, to_play)
    out = np.zeros(self._frame_shape, bool if self._is_bool else np.float32)
    out[..., : self._image.shape[2]] = self._image
    write_seat(out, to_play, self.num_seats)
    if self._is_bool and not self._is_binary():
      raise UserError(
        f"{self._name}: a frame has a value other than 0 and 1, unlike those of random play; set "
        "env.kwargs.frame_dtype=float32"
      )
    return out

  def legal_actions_mask(self, state: Any) -> np.ndarray:
    """Returns the mask of legal actions, [num_env_actions] bool, read-only."""
    legal = tuple(state.legal_actions())
    mask = self._masks.get(legal)
    if mask is None:
      mask = np.zeros(self.game.num_distinct_actions(), bool)
      mask[list(legal)] = True
      mask.flags.writeable = False
      if len(self._masks) < _MAX_CACHED_MASKS:
        self._masks[legal] = mask
    return mask

  def position(self, state: Any) -> np.ndarray:
    """Returns the position (`Environment.position`) of a state; the game has `max_moves`."""
    assert self.max_moves is not None, "checked when a search is built"
    return moves_array(state.history(), self.max_moves)

  def gain(self, before: list[float], after: list[float], mover: int) -> float:
    """Returns the mover's reward in self-play, from the package's `returns()` before and after a step."""
    gain = after[mover] - before[mover]
    return gain if self.num_seats == 1 else 0.5 * (gain - (after[1 - mover] - before[1 - mover]))

  def next_player(self, state: Any, mover: int) -> int:
    """Returns the player to move after `mover` and chance; at an end, the player who would be next.

    Raises: UserError: players move at the same time; in self-play, one of two players moves twice in a row.
    """
    player: int = state.current_player()
    if player == TERMINAL:
      return (mover + 1) % self.num_seats
    if player < 0:
      raise UserError(f"{self._name}: players move at the same time; only games with turns are supported")
    if self.num_seats == 2 and player == mover and not self._is_seated:
      raise UserError(f"{self._name}: player {mover} moves twice in a row; {SEATED}")
    return player

  def _tensor_shape(self) -> tuple[list[int], tuple[int, ...]]:
    """Returns the tensor's shape in three dimensions, and the permutation of its axes to [H, W, C]."""
    which = "information_state" if self._is_information_state else "observation"
    with self._package_errors():
      shape = list(getattr(self.game, f"{which}_tensor_shape")())
      layout = str(getattr(self.game, f"{which}_tensor_layout")())
    if min(shape, default=0) < 1:
      raise UserError(f"{self._name}: shows a tensor of shape {shape}, which is empty")
    if len(shape) != 3:
      return [1, 1, int(np.prod(shape))], (0, 1, 2)
    return shape, (1, 2, 0) if layout.endswith("CHW") else (0, 1, 2)

  def _use_observer(self, observer: Any | None) -> None:
    """Sets the observer that writes tensors; with None, they are read from the state."""
    self._observer = observer
    self._tensor = np.zeros_like(self._ones) if observer is None else observer.tensor
    self._image = np.transpose(self._tensor.reshape(self._shape), self._axes)
    height, width, channels = self._image.shape
    self._frame_shape = (height, width, channels + num_seat_planes(self.num_seats))

  def _make_observer(self) -> Any | None:
    """Returns the package's observer, which writes tensors into memory; None if none has this size."""
    pyspiel = package()
    kind = pyspiel.IIGObservationType(perfect_recall=True) if self._is_information_state else None
    with contextlib.suppress(pyspiel.SpielError), _quiet():
      observer = importlib.import_module("open_spiel.python.observation").make_observation(self.game, kind)
      if observer is not None and observer.tensor is not None and observer.tensor.size == self._ones.size:
        return observer
    return None

  def _read(self, state: Any, player: int) -> None:
    if self._observer is not None:
      self._observer.set_from(state, player)
    elif self._is_information_state:
      self._tensor[:] = state.information_state_tensor(player)
    else:
      self._tensor[:] = state.observation_tensor(player)

  def _is_binary(self) -> bool:
    # If n nonzero entries have sum n and sum of squares n, each entry is 1 (Cauchy-Schwarz).
    x, count = self._tensor, np.count_nonzero(self._tensor)
    return bool(self._ones.dot(x) == count and x.dot(x) == count)

  def _probe(self) -> tuple[bool, tuple[str, ...]]:
    """Plays at random; returns whether all tensors hold only 0 and 1, and the names of the actions.

    Raises: UserError: the game does something unsupported.
    """
    random = np.random.default_rng(0)
    names = _ActionNames(self.game.num_distinct_actions(), self.num_seats)
    is_binary, count = True, 0
    while count < _PROBE_STEPS:
      with self._package_errors():
        state = self.game.new_initial_state()
        sample_chance(state, random)
        player = state.current_player()
        if player == TERMINAL:
          raise UserError(f"{self._name}: is over before the first move")
        while True:
          is_binary &= self._probe_state(state, max(player, 0))
          legal = state.legal_actions()
          if state.current_player() == TERMINAL:
            break
          if not legal:
            raise UserError(f"{self._name}: has a non-terminal position without a legal move")
          for action in legal:
            names.add(player, action, state)
          state.apply_action(int(random.choice(legal)))
          sample_chance(state, random)
          player = self.next_player(state, player)
          count += 1
          if count >= _PROBE_STEPS:
            break
    known = getattr(self.game, "action_names", None)  # MooZi's own games list the names of all actions
    return is_binary, names.result() if known is None else tuple(known())

  def _probe_state(self, state: Any, player: int) -> bool:
    """Returns whether a state's tensor holds only 0 and 1; drops the observer if its tensor is wrong."""
    self._read(state, player)
    if self._observer is not None:
      which = "information_state" if self._is_information_state else "observation"
      if not np.array_equal(self._tensor, np.float32(getattr(state, f"{which}_tensor")(player))):
        self._use_observer(None)
        self._read(state, player)
    return self._is_binary()

  @contextlib.contextmanager
  def _package_errors(self) -> Iterator[None]:
    try:
      with _quiet():
        yield
    except package().SpielError as error:
      raise UserError(f"{self._name}: {_package_message(self._name, error)}") from None


class _ActionNames:
  """The package's action names, without the symbol of the player (`x3` and `o3` become `3`)."""

  def __init__(self, num_actions: int, num_players: int) -> None:
    self._num_actions, self._num_players = num_actions, num_players
    self._names: dict[tuple[int, int], str] = {}
    self._is_fixed = True

  def add(self, player: int, action: int, state: Any) -> None:
    name = state.action_to_string(player, action)
    self._is_fixed &= self._names.setdefault((player, action), name) == name

  def result(self) -> tuple[str, ...]:
    # In chess an action's name depends on the position, so it has no single name.
    names = [self._common(a) if self._is_fixed else "" for a in range(self._num_actions)]
    known = [name for name in names if name]
    is_unique = len(set(known)) == len(known)
    return tuple(n if n and is_unique else f"action {a}" for a, n in enumerate(names))

  def _common(self, action: int) -> str:
    names = [self._names[p, action] for p in range(self._num_players) if (p, action) in self._names]
    if len(set(names)) > 1:
      letters = zip(*(reversed(name) for name in names), strict=False)
      return "".join(a[0] for a in itertools.takewhile(lambda a: len(set(a)) == 1, letters))[::-1].strip()
    return names[0].strip() if names else ""


def sample_chance(state: Any, random: np.random.Generator) -> None:
  """Draws chance outcomes until a player is to move or the game is over."""
  while state.current_player() == CHANCE:
    outcomes = state.chance_outcomes()
    point, i = random.random() - outcomes[0][1], 0
    while point >= 0 and i + 1 < len(outcomes):  # a rounding remainder goes to the last outcome
      i += 1
      point -= outcomes[i][1]
    state.apply_action(outcomes[i][0])


def _load_game(name: str) -> Any:
  """Loads the game.

  Raises: UserError: the name is malformed (the package ignores what it cannot parse), the package rejects it,
    or the game is too large.
  """
  where = f"env.name=open_spiel:{name}"
  if not _FORM.fullmatch(name):
    raise UserError(f"{where}: must be GAME or GAME(parameter=value,parameter=value)")
  keys = _KEY.findall(name)
  for key in keys:
    if keys.count(key) > 1:
      raise UserError(f"{where}: the parameter {key} is given {keys.count(key)} times; must be given once")
  for key, digits in _SIZE.findall(name):
    # The package would load a larger game for minutes, or take all memory.
    if len(digits) > 9 or int(digits) > _MAX_SIZE:
      raise UserError(f"{where}: {key}={digits:.12} is too large; must be at most {_MAX_SIZE}")
  pyspiel = package()
  try:
    with _quiet():
      game = pyspiel.load_game(name)
      # Before the first state, which allocates a board.
      if (count := game.num_distinct_actions()) > _MAX_ACTIONS:
        raise UserError(
          f"{where}: {count:,} actions; must be at most {_MAX_ACTIONS:,}; choose a smaller game"
        )
      return game
  except pyspiel.SpielError as error:
    raise UserError(f"{where}: {_package_message(name, error)}") from None


def package() -> Any:
  """Returns the module `pyspiel`, with the games that MooZi adds.

  Raises: UserError: open_spiel is not installed.
  """
  try:
    pyspiel = importlib.import_module("pyspiel")
  except ImportError:
    raise missing_package("env.name=open_spiel:…", "open_spiel") from None
  importlib.import_module("moozi.envs.suites.open_spiel.games")
  return pyspiel


def _package_message(name: str, error: Exception) -> str:
  """Returns the package's message without its place in the C++ source."""
  line = (str(error).strip() or type(error).__name__).splitlines()[0]
  what = "rejects these parameters" if "(" in name else "reports"
  return f"open_spiel {what}: {_CPP_PLACE.sub('', line)}"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
  """Discards the package's output on standard error, where it prints each error."""
  sys.stderr.flush()
  saved, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
  os.dup2(null, 2)
  try:
    yield
  finally:
    os.dup2(saved, 2)
    os.close(saved)
    os.close(null)
