"""The table of a game of the package, with any number of seats."""

import numpy as np

from moozi.envs.environment import EpisodePlayer, check_action
from moozi.envs.suites.open_spiel.bots import bot_by_rules
from moozi.envs.suites.open_spiel.rules import Rules, sample_chance
from moozi.envs.table import Table


class OpenSpielTable(Table):
  """A game of the package as a `Table`.

  Args:
    max_steps: ends a game after this number of actions, with the returns at that point; None: no limit.
  """

  def __init__(self, rules: Rules, max_steps: int | None) -> None:
    self._rules, self._max_steps = rules, max_steps
    self.spec, self.num_seats, self.is_over = rules.spec, rules.num_seats, True
    self.hides_moves, self.is_deterministic = rules.hides_moves, rules.is_deterministic
    self._legal: np.ndarray | None = None  # of the current state, if it is known

  def reset(self, seed: int) -> None:
    self.start(np.random.default_rng(seed))

  def start(self, random: np.random.Generator) -> None:
    self._random, self._num_steps, self._legal = random, 0, None
    self._state = self._rules.game.new_initial_state()
    sample_chance(self._state, self._random)
    self.is_over = self._state.is_terminal()
    self._seat = max(0, self._state.current_player())

  @property
  def to_play(self) -> int:
    return self._seat

  def frame_of(self, seat: int) -> np.ndarray:
    return self._rules.frame(self._state, seat)

  def legal_actions_mask(self) -> np.ndarray:
    if self._legal is None:
      self._legal = self._rules.legal_actions_mask(self._state)
    return self._legal

  def step(self, action: int) -> None:
    self._state.apply_action(check_action(action, self.spec, self.legal_actions_mask()))
    self._legal = None
    sample_chance(self._state, self._random)
    self._seat = self._rules.next_player(self._state, self._seat)
    self._num_steps += 1
    self.is_over = self._state.is_terminal() or self._num_steps == self._max_steps

  def returns(self) -> list[float]:
    return [float(x) for x in self._state.returns()]

  def position(self) -> np.ndarray:
    return self._rules.position(self._state)

  def make_bot(self, kind: str, budget: int, seed: int) -> EpisodePlayer | None:
    return bot_by_rules(kind, self._rules, budget, seed, lambda: self._state)
