"""Games of the package `open_spiel`, and those that MooZi adds to it (`games`).

`open_spiel:tic_tac_toe`, `open_spiel:go(board_size=9)`: names and parameters are the package's.

With `seat=all` the agent plays every seat (self-play); the game must have one player, or two who alternate
strictly, with gains of a constant sum and no hidden moves. With `seat=random`, or a seat's number, the agent
plays one seat of a game with two or more players, and the players in `others` play the other seats
(`envs.seats.SeatGame`). The environment then has one player.

Conventions of self-play, the same for every game:
  - A reward belongs to the player who moved. It sums all rewards up to the next decision, including those of
    chance. With two players it is half the difference between the mover's gain and the other's gain. In a
    zero-sum game this is the mover's gain.
  - A frame is what the player to move may see: the observation tensor. With imperfect information, or without
    an observation tensor, it is the information-state tensor, if the game has one.
  - A tensor of planes is [H, W, C], any other [1, 1, D]. With two players an additional last plane (or entry)
    holds the player to move, 0 or 1. With more players (never in self-play), one plane per player holds this
    number, one-hot.
  - A game may hide cards, but not actions: the history shows each player the other's last action. With
    hidden information the history must show nothing else (`training.checks.check_history`).
  - A terminal frame shows the view of the player whose turn would be next.
  - Chance outcomes are drawn from the environment's seed.
With one seat, frames have the same form and are always from the agent's view, so an agent that was trained in
self-play can play any seat of the same game. Rewards are the gains of the agent's seat.

Source: Lanctot et al. 2019, OpenSpiel. Departures: actions are checked (the package plays illegal
actions silently). A game of an unsupported kind raises an error with the reason.
"""

import copy
import functools
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field

from moozi.core.config import NonNegativeInt, PositiveInt, Section
from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.envs.environment import Environment, EpisodePlayer
from moozi.envs.game import Game, GameEnvironment
from moozi.envs.seats import OTHERS, TEST_OTHERS, SeatGame, SeatPlayers
from moozi.envs.suite import Suite
from moozi.envs.suites.open_spiel.bots import bot_by_rules
from moozi.envs.suites.open_spiel.rules import SEATED, Rules, package, sample_chance
from moozi.envs.suites.open_spiel.table import OpenSpielTable
from moozi.envs.table import Table

# `_NOT_ALTERNATING`: games of two players whose default parameters let a player move twice in a row.
# `_WITHOUT_TENSOR`: games that report a tensor but have none.
# Random play in open_spiel 2.0.2 found both; tests/envs/suites/test_open_spiel.py repeats this search.
# fmt: off
_NOT_ALTERNATING = frozenset({
  "amazons", "backgammon", "checkers", "chinese_checkers", "cursor_go", "dark_hex", "dark_hex_ir",
  "dots_and_boxes", "gin_rummy", "go_fish", "kriegspiel", "leduc_poker", "maedn", "mancala",
  "nine_mens_morris", "phantom_go", "phantom_ttt", "pig", "rbc", "repeated_leduc_poker",
  "ultimate_tic_tac_toe", "universal_poker", "yacht",
})
# fmt: on
_WITHOUT_TENSOR = frozenset({"crossword"})
# Two-player games with hidden information whose frames do not show the last action.
_HIDDEN_MOVES = frozenset({"dark_chess", "latent_ttt", "stratego"})


class OpenSpielOptions(Section):
  """Options of `open_spiel:*`; the game's own parameters are part of its name."""

  max_episode_steps: PositiveInt | None = Field(
    None, description="truncate an episode after this number of steps"
  )
  frame_dtype: Literal["auto", "bool", "float32"] = Field(
    "auto", description="dtype of frames; auto is bool where random play shows only 0 and 1"
  )
  seat: Literal["all", "random"] | NonNegativeInt = Field(
    "all",
    description="all: the agent plays every seat (self-play); random, or a number: it plays one seat, "
    "drawn for each episode or fixed",
  )
  others: SeatPlayers = Field(("random",), description=f"unless seat=all: {OTHERS}")
  test_others: SeatPlayers | None = Field(None, description=TEST_OTHERS)


class _OpenSpielGame(Game):
  def __init__(self, rules: Rules) -> None:
    self._rules = rules
    self.max_moves = rules.max_moves
    self.seed(0)
    self.reset()

  def seed(self, seed: int) -> None:
    self._random = np.random.default_rng(seed)

  def reset(self) -> None:
    self._state = self._rules.game.new_initial_state()
    sample_chance(self._state, self._random)
    self._player: int = self._state.current_player()
    self._returns = self._state.returns()

  def step(self, action: int) -> tuple[float, bool, bool]:
    state, mover, before = self._state, self._player, self._returns
    state.apply_action(action)
    sample_chance(state, self._random)
    self._player = self._rules.next_player(state, mover)
    self._returns = state.returns()
    return self._rules.gain(before, self._returns, mover), state.is_terminal(), False

  def frame(self) -> np.ndarray:
    return self._rules.frame(self._state, self._player)

  def legal_actions_mask(self) -> np.ndarray:
    return self._rules.legal_actions_mask(self._state)

  def to_play(self) -> int:
    return self._player

  def clone(self) -> "_OpenSpielGame":
    out = copy.copy(self)
    out._state = self._state.clone()
    return out

  def make_bot(self, kind: str, budget: int, seed: int) -> EpisodePlayer | None:
    return bot_by_rules(kind, self._rules, budget, seed, lambda: self._state)


def make_table(game: str, options: OpenSpielOptions) -> Table:
  # is_seated=True allows any number of players. Frames and actions are the same as in self-play.
  if _game_types()[game.partition("(")[0]].max_num_players == 1:
    raise UserError(f"open_spiel:{game}: has one player; players meet only in games of two or more")
  return OpenSpielTable(_rules_of(game, options.frame_dtype, True), options.max_episode_steps)


def rules_of(game: str, options: OpenSpielOptions) -> Rules:
  """Returns the game's `Rules`, cached.

  Raises: UserError: as `Rules` does, or self-play of the game is not supported.
  """
  reason = _needs_seat(_game_types()[game.partition("(")[0]]) if options.seat == "all" else None
  if reason is not None:
    raise UserError(f"env.name=open_spiel:{game}: {reason}")
  return _rules_of(game, options.frame_dtype, options.seat != "all")


_rules_of = functools.lru_cache(maxsize=32)(Rules)


def make_spec(game: str, options: OpenSpielOptions) -> EnvSpec:
  return rules_of(game, options).spec


def make_environment(game: str, options: OpenSpielOptions) -> Environment:
  rules = rules_of(game, options)
  seat = options.seat
  # `for_testing` copies `test_others` to `others`.
  key = "test_others" if options.others == options.test_others else "others"
  bare: Game = _OpenSpielGame(rules)
  if seat != "all":
    bare = SeatGame(OpenSpielTable(rules, None), seat, options.others, key, options.allows_code)
  return GameEnvironment(bare, rules.spec, options.max_episode_steps)


def for_testing(options: OpenSpielOptions) -> OpenSpielOptions:
  return options.model_copy(update={"others": options.test_others or options.others})


def list_games() -> dict[str, str]:
  """Returns the supported games, without parameters, each with the package's long name."""
  return {
    name: kind.long_name + " (needs env.kwargs.seat)" * (_needs_seat(kind) is not None)
    for name, kind in _game_types().items()
    if _unsupported(kind) is None
  }


def listed_name(game: str) -> str:
  """Returns `go` for `go(board_size=9)`. Raises UserError with the reason for an unsupported game."""
  name = game.partition("(")[0]
  kind = _game_types().get(name)
  reason = None if kind is None else _unsupported(kind)
  if reason is not None:
    raise UserError(f"env.name=open_spiel:{game}: {reason}")
  return name


def _unsupported(kind: Any) -> str | None:
  """Returns why a kind of game is not supported; None if its games may be supported."""
  kinds = package().GameType
  if kind.dynamics == kinds.Dynamics.MEAN_FIELD:
    return "a mean-field game; only games with turns are supported"
  if kind.dynamics != kinds.Dynamics.SEQUENTIAL:
    return "players move at the same time; only games with turns are supported"
  if not kind.default_loadable:
    return "is made from another game or a file, which is not supported"
  if kind.chance_mode == kinds.ChanceMode.SAMPLED_STOCHASTIC:
    return "draws its own chance outcomes, so episodes do not follow from a seed; it is not supported"
  if kind.short_name in _WITHOUT_TENSOR or not (
    kind.provides_observation_tensor or kind.provides_information_state_tensor
  ):
    return "shows no tensor, which the agent needs; it is not supported"
  return None


def _needs_seat(kind: Any) -> str | None:
  """Returns why self-play of a kind of game is not supported; None if it may be supported."""
  utilities = package().GameType.Utility
  if kind.min_num_players > 2:
    return f"{kind.min_num_players} players or more; {SEATED}"
  if kind.max_num_players > 1 and kind.utility not in (utilities.ZERO_SUM, utilities.CONSTANT_SUM):
    return f"one player's gain is not the other's loss; {SEATED}"
  if kind.short_name in _NOT_ALTERNATING:
    return f"a player may move twice in a row; {SEATED}"
  if kind.short_name in _HIDDEN_MOVES:
    return f"hides a player's move from the other, but the history shows the last move; {SEATED}"
  return None


@functools.cache
def _game_types() -> Mapping[str, Any]:
  return {kind.short_name: kind for kind in package().registered_games()}


SUITE = Suite(
  summary="board and card games",
  package="pyspiel",
  list_games=list_games,
  options=lambda game: OpenSpielOptions,
  make_spec=make_spec,
  make_environment=make_environment,
  make_table=make_table,
  listed_name=listed_name,
  for_testing=for_testing,
)
