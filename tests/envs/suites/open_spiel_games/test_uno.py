"""Tests of Uno's rules in given games, and of what the players see."""

import collections

import numpy as np
import pytest

from moozi.envs.suites.open_spiel.games.uno import CARDS, COPIES, DRAW, NUM_CARDS, tensor_parts
from moozi.envs.suites.open_spiel.rules import sample_chance
from tests.envs.suites.open_spiel_games.playing import load, names_of, play, views


def deal(*hands, top, max_turns=400):
  """Returns the state after a deal of these hands and this top card."""
  hands = [hand.split() for hand in hands]
  name = f"uno(players={len(hands)},hand={len(hands[0])},max_turns={max_turns})"
  state = load(name).new_initial_state()
  for cards in zip(*hands, strict=True):
    for card in cards:
      state.apply_action(CARDS.index(card))
  state.apply_action(CARDS.index(top))
  return state


def draw(state, card):
  """Plays `draw` with this card as the chance outcome."""
  play(state, "draw")
  assert state.is_chance_node()
  state.apply_action(CARDS.index(card))


def num_cards(state):
  return sum(map(sum, state.hands)) + sum(state.pile) + sum(state.discards) + (state.top >= 0)


def test_deck():
  assert len(CARDS) == 40
  assert sum(COPIES) == 76
  assert {card: n for card, n in zip(CARDS, COPIES, strict=True) if n == 1}.keys() == {"R0", "Y0", "G0", "B0"}


def test_deal():
  state = load("uno(players=3)").new_initial_state()
  for i in range(22):
    assert state.is_chance_node()
    assert sum(p for _, p in state.chance_outcomes()) == pytest.approx(1)
    assert [sum(hand) for hand in state.hands] == [min(7, -(-(i - p) // 3)) if i > p else 0 for p in range(3)]
    sample_chance_once(state)
  assert not state.is_chance_node()
  assert state.current_player() == 0
  assert [sum(hand) for hand in state.hands] == [7, 7, 7]
  assert sum(state.pile) == 76 - 22


def sample_chance_once(state, seed=0):
  outcomes, probs = zip(*state.chance_outcomes(), strict=True)
  state.apply_action(int(np.random.default_rng([seed, len(state.history())]).choice(outcomes, p=probs)))


def test_cards_of_the_color_or_the_number_can_be_played():
  state = deal("R1 R2 Y5 G5 B9", "R9 R9 Y9 Y8 Y7", top="R5")
  assert list(names_of(state)) == ["R1", "R2", "Y5", "G5", "draw"]
  play(state, "G5")
  assert state.current_player() == 1
  assert list(names_of(state)) == ["draw"]  # neither green nor a five


def test_a_hand_played_game():
  state = deal("R1 Y1 Y2", "B1 G9 G8", top="R7")
  play(state, "R1")
  assert list(names_of(state)) == ["B1", "draw"]
  play(state, "B1 Y1")
  draw(state, "Y9")  # player 1 has neither a yellow card nor a one
  assert state.current_player() == 0
  assert sum(state.hands[1]) == 3
  assert state.returns() == [0, 0]
  play(state, "Y2")
  assert state.is_terminal()
  assert state.returns() == [1, -1]
  assert num_cards(state) == 76


def test_a_drawn_card_ends_the_turn():
  state = deal("R1 R2", "B1 B2", top="Y1")
  draw(state, "Y2")
  assert state.current_player() == 1


def test_a_player_may_draw_although_a_card_fits():
  state = deal("R1 R2", "B1 B2", top="R3")
  draw(state, "G0")
  assert names_of(state).keys() == {"draw"}


def test_returns_of_several_players():
  state = deal("R1", "R2", "R3", "R4", top="R9")
  play(state, "R1")
  assert state.is_terminal()
  np.testing.assert_allclose(state.returns(), [1, -1 / 3, -1 / 3, -1 / 3])


def test_ten_players():
  """Ten players are dealt seven cards each, so five are left: the last five players cannot draw one."""
  state, random = load("uno(players=10)").new_initial_state(), np.random.default_rng(0)
  sample_chance(state, random)
  for player in range(10):
    assert state.current_player() == player
    play(state, "draw")
    sample_chance(state, random)
  assert state.current_player() == 0
  assert [sum(hand) for hand in state.hands] == [8] * 5 + [7] * 5
  # In the order of turns from player 9.
  sizes, drew, mover = np.split(np.array(views(state)[9][0]), np.cumsum(tensor_parts(10))[:-1])[2:5]
  assert sizes.reshape(10, -1).argmax(axis=1).tolist() == [7] + [8] * 5 + [7] * 4
  assert sizes.sum() == drew.sum() == 10
  assert mover.tolist() == [0, 1] + [0] * 8


def test_turns_go_round():
  state = deal("R1 B1", "R2 B2", "R3 B3", top="R9")
  for player, card in enumerate(("R1", "R2", "R3")):
    assert state.current_player() == player
    play(state, card)
  assert state.current_player() == 0


def test_drawn_game_after_the_last_turn():
  state = deal("R1 R2", "B1 B2", top="G9", max_turns=3)
  draw(state, "Y1")
  draw(state, "Y2")
  assert not state.is_terminal()
  draw(state, "Y3")
  assert state.is_terminal()
  assert state.returns() == [0, 0]


def test_discards_form_a_new_pile():
  """When the draw pile is empty, the discards without the top card become the new pile."""
  state = deal("R1 R2 R3", "R4 R5 R6", top="R7")
  play(state, "R1 R4")
  while any(state.pile):
    play(state, "draw")
    sample_chance_once(state)
  assert num_cards(state) == 76
  play(state, "draw")
  left = collections.Counter({"R7": 1, "R1": 1})
  assert {CARDS[card]: p for card, p in state.chance_outcomes()} == {c: n / 2 for c, n in left.items()}
  state.apply_action(CARDS.index("R7"))
  draw(state, "R1")
  play(state, "draw")  # no card is left, so this is a pass
  assert not state.is_chance_node()
  assert num_cards(state) == 76


# --- views


def random_state(seed, players=3, num_turns=12):
  random = np.random.default_rng(seed)
  state = load(f"uno(players={players})").new_initial_state()
  sample_chance(state, random)
  for _ in range(num_turns):
    state.apply_action(int(random.choice(state.legal_actions())))
    sample_chance(state, random)
    if state.is_terminal():
      return random_state(seed + 1000, players, num_turns)
  return state


def shuffle_hidden(state, player, random):
  """Redistributes at random the cards that `player` does not see: the other hands and the draw pile."""
  others = [hand for p, hand in enumerate(state.hands) if p != player]
  sizes = [sum(cards) for cards in (*others, state.pile)]
  cards = [c for part in (*others, state.pile) for c, count in enumerate(part) for _ in range(count)]
  random.shuffle(cards)
  for part, start, size in zip((*others, state.pile), np.cumsum([0, *sizes]), sizes, strict=False):
    part[:] = np.bincount(cards[start : start + size], minlength=NUM_CARDS).tolist()


@pytest.mark.parametrize("players", [2, 4])
def test_views_show_nothing_hidden(players):
  random = np.random.default_rng(0)
  for seed in range(4):
    state = random_state(seed, players)
    for player in range(players):
      other = state.clone()
      shuffle_hidden(other, player, random)
      assert num_cards(other) == 76
      assert other.hands[player] == state.hands[player]
      assert other.hands != state.hands
      before, after = views(state), views(other)
      assert after[player] == before[player]
      changed = [p for p in range(players) if p != player and other.hands[p] != state.hands[p]]
      assert all(after[p][0] != before[p][0] and after[p][1] != before[p][1] for p in changed)


def test_views_show_what_is_open():
  """Every player sees the top card, the discards, the sizes of all hands, who drew, and who is to move."""
  state = deal("R1 R2", "R4 R5", "B1 B2", top="R7")
  start = views(state)
  play(state, "R1")
  played = views(state)
  play(state, "draw")
  sample_chance_once(state)
  drawn = views(state)
  for player in range(3):
    assert len({start[player], played[player], drawn[player]}) == 3
  top, hand, sizes, drew, mover, discards = np.split(np.array(drawn[2][0]), np.cumsum(tensor_parts(3))[:-1])
  assert np.flatnonzero(top).tolist() == [CARDS.index("R1")]
  assert np.flatnonzero(hand).tolist() == [2 * CARDS.index("B1"), 2 * CARDS.index("B2")]
  assert np.flatnonzero(discards).tolist() == [2 * CARDS.index("R7")]
  # In the order of turns from player 2: hands of 2 cards, 1 card (player 0) and 3 cards (player 1).
  assert [np.flatnonzero(s).tolist() for s in sizes.reshape(4, -1)] == [[2], [1], [3], []]
  assert drew.tolist() == [0, 0, 1, 0]
  assert mover.tolist() == [1, 0, 0, 0]


def test_two_equal_cards_are_shown():
  state = deal("R1 R1", "B1 B2", top="R7")
  hand = np.split(np.array(views(state)[0][0]), np.cumsum(tensor_parts(3))[:-1])[1]
  assert np.flatnonzero(hand).tolist() == [2 * CARDS.index("R1"), 2 * CARDS.index("R1") + 1]


def test_draw_is_always_legal():
  for seed in range(3):
    state = random_state(seed)
    assert state.legal_actions()[-1] == DRAW
