"""The contract of players: `check_player` holds for every `envs.players.Player`."""

import numpy as np

from moozi.envs.players import Player, Seats


def play(make_table, players, seeds, num_games=3):
  """Plays games side by side from their own seeds; returns the actions of each game.

  Args:
    players: one for each seat; the same object may play several.
    seeds: the seeds of the games; the player in seat s of a game has the seed + s.
  """
  tables, actions = {i: make_table() for i in range(num_games)}, [[] for _ in range(num_games)]
  seats = Seats(tables[0].hides_moves)
  for i, table in tables.items():
    table.reset(seeds[i])
  seats.start({i: (t, {s: (p, seeds[i] + s) for s, p in enumerate(players)}) for i, t in tables.items()})
  while live := {i: table for i, table in tables.items() if not table.is_over}:
    for i, table in live.items():
      legal = np.flatnonzero(table.legal_actions_mask())
      actions[i].append((table.to_play, legal))
    for i, action in seats.play(live).items():
      seat, legal = actions[i][-1]
      assert type(action) is int
      assert action in legal
      actions[i][-1] = (seat, action)
  return actions


def check_player(make, make_table):
  """Checks that a player plays legal actions, and each game as if it were played alone.

  Args:
    make: makes the player.
  """
  player, num_seats = make(), make_table().num_seats
  assert isinstance(player, Player)
  player.check(make_table())
  together = play(make_table, [player] * num_seats, [5, 6, 5])
  assert together[0] == together[2], "games with the same seeds are the same"
  for seed, expected in zip((5, 6), together, strict=False):
    assert play(make_table, [make()] * num_seats, [seed], num_games=1) == [expected]
  # A reset starts again, also in the middle of a game.
  assert play(make_table, [player] * num_seats, [5, 6, 5]) == together
