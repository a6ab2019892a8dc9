"""Bridge to the games of the package `open_spiel`: one player, or two who alternate strictly.

`open_spiel:tic_tac_toe`, `open_spiel:go(board_size=9)`: a game's name and parameters are the package's own.

Conventions, the same for every game:
  - A reward belongs to the player who moved, and holds all that came in until the next decision, chance
    included. With two players it is half the difference between the mover's gain and the other's: in a game
    of zero sum that is the mover's gain, also where it came in by the other's loss.
  - A frame is what the player to move may see: the observation tensor; in a game of imperfect information
    the information-state tensor, where it has one. A tensor of planes is [H, W, C], any other [1, 1, D].
    With two players a last plane (entry) holds the player to move, 0 or 1.
  - Players may hide what they hold, not how they move: the history shows each the other's last action, and
    with something hidden no more than that (`evaluation.opponents.check_players`).
  - At an end nobody is to move: the frame is that of the player whose turn it would have been.
  - Chance is drawn here, from the environment's seed.

Source: Lanctot et al. 2019, OpenSpiel. Departures: actions are checked (the package plays illegal ones in
silence); games of other kinds are refused by name.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field

from moozi.core.config import PositiveInt, Section
from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.envs.environment import Bot, Environment, GameEnvironment
from moozi.envs.suite import Suite
from moozi.envs.suites.open_spiel.rules import Rules, package, sample_chance

# Games whose default parameters let a player move twice in a row, or that show no tensor though they say
# so; in open_spiel 2.0.2, found by random play (tests/envs/suites/test_open_spiel.py looks again).
# fmt: off
_NOT_ALTERNATING = frozenset({
  "amazons", "backgammon", "checkers", "chinese_checkers", "cursor_go", "dark_hex", "dark_hex_ir",
  "dots_and_boxes", "gin_rummy", "go_fish", "kriegspiel", "leduc_poker", "maedn", "mancala",
  "nine_mens_morris", "phantom_go", "phantom_ttt", "pig", "rbc", "repeated_leduc_poker",
  "ultimate_tic_tac_toe", "universal_poker", "yacht",
})
# fmt: on
_WITHOUT_TENSOR = frozenset({"crossword"})
# Of the games of two players with something hidden, those whose frames do not tell the last action.
_HIDDEN_MOVES = frozenset({"dark_chess", "latent_ttt"})


class Options(Section):
  """Options of `open_spiel:*`; the game's own parameters stand in its name."""

  max_episode_steps: PositiveInt | None = Field(None, description="truncate an episode after so many steps")
  frame_dtype: Literal["auto", "bool", "float32"] = Field(
    "auto", description="how frames are kept; auto is bool where random play shows nothing but 0 and 1"
  )


class _OpenSpielGame:
  """A game of the package as bare rules."""

  def __init__(self, rules: Rules) -> None:
    self._rules = rules
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

  def make_bot(self, kind: str, simulations: int, seed: int) -> Bot | None:
    """The package's MCTS with random rollouts, as its own example sets it: UCT with c = 2, one rollout a
    simulation, solved positions backed up."""
    if kind != "mcts":
      return None
    if not self._rules.is_perfect_information:
      raise UserError(
        f"evaluation.opponent=mcts: would see what is hidden in {self._rules.spec.name}; "
        "allowed are random, self"
      )
    pyspiel, seed = package(), seed % 2**31
    evaluator = pyspiel.RandomRolloutEvaluator(1, seed)
    bot = pyspiel.MCTSBot(self._rules.game, evaluator, 2.0, simulations, 1000, True, seed, False)
    return _StateBot(lambda: bot.step(self._state))


class _StateBot:
  """A bot that reads the state of the environment it plays in."""

  def __init__(self, choose: Callable[[], int]) -> None:
    self._choose = choose

  def action(self, legal_actions_mask: np.ndarray) -> int:
    return self._choose()


def rules_of(game: str, options: Options) -> Rules:
  """The game, looked over once in a process. Raises UserError as `Rules` does."""
  return _rules_of(game, options.frame_dtype)


@functools.lru_cache(maxsize=32)
def _rules_of(game: str, frame_dtype: str) -> Rules:
  return Rules(game, frame_dtype)


def make_spec(game: str, options: Options) -> EnvSpec:
  """The facts of one game under these options."""
  return rules_of(game, options).spec


def make_environment(game: str, options: Options) -> Environment:
  """One game as an environment."""
  rules = rules_of(game, options)
  bare = _OpenSpielGame(rules)
  return GameEnvironment(bare, rules.spec, options.max_episode_steps, make_bot=bare.make_bot)


def list_games() -> dict[str, str]:
  """The supported games and what the package calls them, without their parameters."""
  return {name: kind.long_name for name, kind in _game_types().items() if _refusal(kind) is None}


def listed_name(game: str) -> str:
  """`go(board_size=9)` is `go`. Raises UserError for a game of a kind that is not supported, and says why."""
  name = game.partition("(")[0]
  kind = _game_types().get(name)
  refusal = None if kind is None else _refusal(kind)
  if refusal is not None:
    raise UserError(f"env.name=open_spiel:{game}: {refusal}")
  return name


def _refusal(kind: Any) -> str | None:
  """Why a kind of game is not supported; None where it may be."""
  kinds = package().GameType
  if kind.dynamics == kinds.Dynamics.MEAN_FIELD:
    return "a mean-field game, which is played by a crowd; games of one or two players are supported"
  if kind.dynamics != kinds.Dynamics.SEQUENTIAL:
    return "players move at the same time; only games of turns are supported"
  if kind.min_num_players > 2:
    return f"{kind.min_num_players} players and more; games of one or two are supported"
  if not kind.default_loadable:
    return "is made from another game or a file, which is not supported"
  if kind.chance_mode == kinds.ChanceMode.SAMPLED_STOCHASTIC:
    return "keeps its chance to itself, so that episodes do not follow from a seed; it is not supported"
  if kind.short_name in _WITHOUT_TENSOR or not (
    kind.provides_observation_tensor or kind.provides_information_state_tensor
  ):
    return "shows no tensor, which is what an agent would see; it is not supported"
  is_zero_sum = kind.utility in (kinds.Utility.ZERO_SUM, kinds.Utility.CONSTANT_SUM)
  if kind.max_num_players > 1 and not is_zero_sum:
    return "one player's gain is not the other's loss; two players must play for a sum of zero"
  if kind.short_name in _NOT_ALTERNATING:
    return "a player may move twice in a row; only games of two players who alternate strictly are supported"
  if kind.short_name in _HIDDEN_MOVES:
    return "hides a player's move from the other, and the history shows the last one; it is not supported"
  return None


@functools.cache
def _game_types() -> Mapping[str, Any]:
  return {kind.short_name: kind for kind in package().registered_games()}


SUITE = Suite(
  list_games=list_games,
  options=lambda game: Options,
  make_spec=make_spec,
  make_environment=make_environment,
  listed_name=listed_name,
)
