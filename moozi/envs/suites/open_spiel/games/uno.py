"""Uno for two to ten players, with number cards only.

The deck has 76 cards: for each of four colors one 0 and two of each number from 1 to 9. Every player is dealt
seven cards (parameter `hand`), one at a time, and one card is turned over to start the discard pile. In turn,
a player plays a card of the color or the number of the discard pile's top card, or draws one card, which ends
the turn. A player may draw even with a playable card. The first player without cards wins. If a player draws
from an empty draw pile, the discard pile without its top card is first shuffled to form a new one. If no card
is left to draw, drawing is a pass.

Source: Mattel, Uno, 2001; Duvall, RLAIT, section 2.4.2, for the first two departures. Departures:
  - There are no action cards and no wild cards.
  - A drawn card cannot be played in the same turn.
  - One round is played: the winner gets 1, and the others share -1 equally. Cards left in hands do not count.
  - Nobody calls "Uno"; all players see the number of cards in every hand.
  - Player 0 begins. After `max_turns` turns the game is a draw, and every player gets 0.
"""

from typing import Any

import numpy as np
import pyspiel

from moozi.envs.suites.open_spiel.games import base

COLORS, RANKS = "RYGB", 10
CARDS = tuple(f"{color}{rank}" for color in COLORS for rank in range(RANKS))
"""The kinds of cards: `R0` to `B9`."""
COPIES = tuple(1 if card.endswith("0") else 2 for card in CARDS)
"""For each kind of card, the number of cards in the deck."""
NUM_CARDS = len(CARDS)
DRAW = NUM_CARDS
"""The action that draws a card; action c below it plays a card of kind c."""
MAX_PLAYERS = 10
MIN_SHOWN = 4
"""The tensor has entries for at least this number of players, so its size is the same for two to four."""
MAX_SHOWN = 20
"""Hands of this size and larger have the same entry in the tensor."""
_DEFAULTS = {"players": 2, "hand": 7, "max_turns": 400}
_TYPE = base.game_type(
  "uno", "Uno", num_players=(2, MAX_PLAYERS), has_chance=True, has_hidden=True, parameters=_DEFAULTS
)


def tensor_parts(players: int) -> tuple[int, ...]:
  """Returns the sizes of the parts of the tensor.

  The parts are, in order: the top card; the observer's hand; for each player, the size of the hand; for each
  player, whether its last action was `draw`; the player to move; the discards below the top card. Players are
  in the order of turns, the observer first. The hand and the discards have two entries per kind of card: at
  least one card, and two cards.
  """
  shown = max(players, MIN_SHOWN)
  return NUM_CARDS, 2 * NUM_CARDS, shown * (MAX_SHOWN + 1), shown, shown, 2 * NUM_CARDS


class UnoGame(pyspiel.Game):
  """The game.

  Its parameters are `players` (2 to 10), `hand` (cards dealt to each player, 1 to 10) and `max_turns` (at
  least 1). The deck must have the dealt cards and the first card of the discard pile.
  """

  def __init__(self, params: dict[str, Any] | None = None) -> None:
    given = _DEFAULTS | (params or {})
    players = base.check_parameter("players", given["players"], tuple(range(2, MAX_PLAYERS + 1)))
    hand = base.check_parameter("hand", given["hand"], tuple(range(1, 11)))
    if players * hand >= sum(COPIES):
      raise pyspiel.SpielError(
        f"players={players}, hand={hand}: {players * hand} cards are dealt; must be fewer than {sum(COPIES)}"
      )
    max_turns: int = given["max_turns"]
    if max_turns < 1:
      raise pyspiel.SpielError(f"max_turns={max_turns}: must be at least 1")
    info = base.game_info(NUM_CARDS + 1, max_turns, num_players=players, max_chance_outcomes=NUM_CARDS)
    super().__init__(_TYPE, info, params or {})

  def new_initial_state(self) -> "UnoState":
    return UnoState(self)

  def action_names(self) -> list[str]:
    """Returns the names of all actions."""
    return [*CARDS, "draw"]

  def max_chance_nodes_in_history(self) -> int:
    parameters = self.get_parameters()
    return int(parameters["players"] * parameters["hand"] + 1 + parameters["max_turns"])

  def make_py_observer(self, iig_obs_type: Any = None, params: Any = None) -> base.Observer:
    players = self.get_parameters()["players"]
    return base.Observer((sum(tensor_parts(players)),), _write, _describe)


class UnoState(pyspiel.State):
  """A state of the game.

  Attributes:
    hands: for each player and each kind of card, the number of cards.
    pile: the draw pile; for each kind of card, the number of cards. Each drawn card is a chance outcome.
    discards: the discard pile without its top card.
    top: the discard pile's top card; -1 until it is dealt.
    drew: for each player, whether its last action was `draw`.
    turns: number of actions that players have chosen.
  """

  def __init__(self, game: UnoGame) -> None:
    super().__init__(game)
    parameters = game.get_parameters()
    players, self._max_turns = parameters["players"], parameters["max_turns"]
    self.hands = [[0] * NUM_CARDS for _ in range(players)]
    self.pile, self.discards = list(COPIES), [0] * NUM_CARDS
    self.top, self.turns = -1, 0
    self.drew = [False] * players
    self._deals_left = players * parameters["hand"]
    self._player, self._is_drawing, self._winner = 0, False, -1

  def current_player(self) -> int:
    if self.is_terminal():
      return pyspiel.PlayerId.TERMINAL
    return pyspiel.PlayerId.CHANCE if self._is_drawing or self.top < 0 else self._player

  def _legal_actions(self, player: int) -> list[int]:
    color, rank = divmod(self.top, RANKS)
    hand = self.hands[player]
    return [c for c in range(NUM_CARDS) if hand[c] and (c // RANKS == color or c % RANKS == rank)] + [DRAW]

  def chance_outcomes(self) -> list[tuple[int, float]]:
    total = sum(self.pile)
    return [(card, count / total) for card, count in enumerate(self.pile) if count]

  def _apply_action(self, action: int) -> None:
    if self.top < 0:
      self._deal(action)
    elif self._is_drawing:
      self._take(action, self._player)
      self._is_drawing = False
      self._next_turn()
    else:
      self._play(action)

  def _deal(self, card: int) -> None:
    if self._deals_left:
      self._take(card, -self._deals_left % len(self.hands))
      self._deals_left -= 1
    else:
      self.pile[card] -= 1
      self.top = card

  def _take(self, card: int, player: int) -> None:
    self.pile[card] -= 1
    self.hands[player][card] += 1

  def _play(self, action: int) -> None:
    hand = self.hands[self._player]
    self.turns += 1
    self.drew[self._player] = action == DRAW
    if action != DRAW:
      hand[action] -= 1
      self.discards[self.top] += 1
      self.top = action
      if not any(hand):
        self._winner = self._player
    else:
      if not any(self.pile):
        self.pile, self.discards = self.discards, [0] * NUM_CARDS
      self._is_drawing = any(self.pile)
    if not self._is_drawing:
      self._next_turn()

  def _next_turn(self) -> None:
    self._player = (self._player + 1) % len(self.hands)

  def _action_to_string(self, player: int, action: int) -> str:
    name = "draw" if action == DRAW else CARDS[action]
    return f"deal {name}" if player == pyspiel.PlayerId.CHANCE else name

  def is_terminal(self) -> bool:
    return self._winner >= 0 or (self.turns == self._max_turns and not self._is_drawing)

  def returns(self) -> list[float]:
    if self._winner < 0:
      return [0.0] * len(self.hands)
    others = -1.0 / (len(self.hands) - 1)
    return [1.0 if player == self._winner else others for player in range(len(self.hands))]

  def __str__(self) -> str:
    hands = [f"p{player}: {_names(hand)}" for player, hand in enumerate(self.hands)]
    return "; ".join([*hands, _table(self)])

  @property
  def next_to_move(self) -> int:
    """The player whose turn it is, also at chance nodes; after the end, the player who would be next."""
    return self._player


def _write(tensor: np.ndarray, state: UnoState, player: int) -> None:
  num_players = len(state.hands)
  top, hand, sizes, drew, mover, discards = np.split(tensor, np.cumsum(tensor_parts(num_players))[:-1])
  if state.top >= 0:
    top[state.top] = 1
  for part, cards in ((hand, state.hands[player]), (discards, state.discards)):
    counts = np.array(cards)
    part[0::2], part[1::2] = counts > 0, counts > 1
  for i in range(num_players):
    other = (player + i) % num_players
    sizes[i * (MAX_SHOWN + 1) + min(sum(state.hands[other]), MAX_SHOWN)] = 1
    drew[i] = state.drew[other]
  mover[(state.next_to_move - player) % num_players] = 1


def _describe(state: UnoState, player: int) -> str:
  return f"p{player} holds {_names(state.hands[player])}; {_table(state)}"


def _table(state: UnoState) -> str:
  """Returns what all players see."""
  sizes = " ".join(str(sum(hand)) for hand in state.hands)
  drew = " ".join(str(player) for player, value in enumerate(state.drew) if value)
  top = CARDS[state.top] if state.top >= 0 else "-"
  return (
    f"top {top}; discards {_names(state.discards)}; hands {sizes}; drew {drew}; turn {state.turns}; "
    f"p{state.next_to_move} to move"
  )


def _names(cards: list[int]) -> str:
  return " ".join(CARDS[card] for card, count in enumerate(cards) for _ in range(count))


pyspiel.register_game(_TYPE, UnoGame)
