"""Tests of users' games of several seats (`moozi.Table`), of which the agent plays one."""

import dataclasses

import numpy as np
import pytest

import moozi
from moozi.core.config import uses
from moozi.core.errors import UserError
from moozi.envs import registry, seats
from moozi.io.config import load_config
from tests.envs.contract import EnvironmentContract

HERE = "tests.envs.test_own_tables"
COUNT, FAULTY = f"{HERE}:Count", f"{HERE}:make_faulty"


SPEC = moozi.EnvSpec(
  name="own:count",
  frame_shape=(1, 1, 2),
  frame_dtype="float32",
  num_env_actions=2,
  action_names=("1", "2"),
  frame_names=("count", "2s"),
)


class Count(moozi.Table):
  """Players count to `last` in turn, by 1 or 2; who says `last` loses 1, which the others share.

  A frame has the count, and how often the seat that sees it has added 2.
  """

  def __init__(self, num_seats=3, last=7):
    self.num_seats, self._last, self.is_over = num_seats, last, True
    self.spec = SPEC

  def reset(self, seed):
    self._count, self._player, self._twos, self.is_over = 0, 0, [0] * self.num_seats, False

  @property
  def to_play(self):
    return self._player

  def frame_of(self, seat):
    return np.array([[[self._count, self._twos[seat]]]], np.float32)

  def step(self, action):
    assert not self.is_over
    self._twos[self._player] += action
    self._count = min(self._count + 1 + action, self._last)
    self.is_over = self._count == self._last
    if not self.is_over:
      self._player = (self._player + 1) % self.num_seats

  def returns(self):
    if not self.is_over:
      return [0.0] * self.num_seats
    return [-1.0 if seat == self._player else 1 / (self.num_seats - 1) for seat in range(self.num_seats)]


class Dice(Count):
  """The count starts at a random number."""

  def reset(self, seed):
    super().reset(seed)
    self._count = int(np.random.default_rng(seed).integers(3))


FAULTS = {
  "no_spec": {"spec": None},
  "one_seat": {"num_seats": 1},
  "two_players": {"spec": dataclasses.replace(SPEC, num_players=2)},
  "frame": {"frame_of": lambda seat: np.zeros((1, 1, 3), np.float32)},
  "nan": {"frame_of": lambda seat: np.full((1, 1, 2), np.nan, np.float32)},
  "mask": {"legal_actions_mask": lambda: np.ones(3, bool)},
  "returns": {"returns": lambda: [0.0, 0.0]},
  "step": {"step": lambda action: 1 / 0},
  "no_returns": {"returns": lambda: moozi.Table().returns()},
  # Player 1 moves always.
  "no_turn": {"reset": lambda seed: None, "_player": 1, "_count": 0, "_twos": [0] * 3, "is_over": False}
  | {"step": lambda action: None},
}


def make_faulty(fault):
  table = Count()
  vars(table).update(FAULTS[fault])
  return table


def always_one(env_spec, seed):
  return AlwaysOne()


class AlwaysOne:
  def action(self, observation, legal):
    return 0


def make_env(**kwargs):
  return registry.make(COUNT, seed=0, **kwargs)


# --- the seat


def test_frames_have_planes_for_the_seat():
  env = make_env(seat=2, others=f"{HERE}:always_one")
  assert env.env_spec.num_seats == 3
  assert env.env_spec.num_players == 1
  assert env.env_spec.frame_shape == (1, 1, 5)
  assert env.env_spec.frame_names == ("count", "2s", "", "", "")
  assert env.reset().observation.frame.tolist() == [[[2, 0, 0, 0, 1]]], "the others have counted to 2"


def test_a_reward_is_what_the_seat_gains_until_its_next_decision():
  env = make_env(seat=0, others=f"{HERE}:always_one", last=7)
  env.reset()
  step = env.step(1)  # 2; the others: 3, 4
  assert (step.reward, step.last()) == (0, False)
  assert step.observation.frame.tolist() == [[[4, 1, 1, 0, 0]]]
  step = env.step(0)  # 5; then 6, and the last player says 7
  assert (step.reward, step.discount) == (0.5, 0)
  env.reset()
  env.step(1)
  step = env.step(1)  # 6; the next player says 7
  assert (step.reward, step.discount) == (0.5, 0)
  env = make_env(seat=0, others=f"{HERE}:always_one", last=4)
  env.reset()
  env.step(0)
  assert env.step(0).reward == -1


def test_a_random_seat_is_drawn_for_each_episode():
  env = make_env()
  env.seed(3)
  drawn = [int(env.reset().observation.frame[0, 0, 2:].argmax()) for _ in range(30)]
  assert set(drawn) == {0, 1, 2}
  env.seed(3)
  assert drawn == [int(env.reset().observation.frame[0, 0, 2:].argmax()) for _ in range(30)]


def test_two_seats_have_one_plane_and_may_move_twice_in_a_row():
  env = make_env(num_seats=2, seat=1)
  assert env.reset().observation.frame.shape == (1, 1, 3)
  assert env.reset().observation.frame[0, 0, 2] == 1


def test_other_players_in_evaluations():
  kwargs = {"seat": 1, "others": "random", "test_others": f"{HERE}:always_one"}
  for is_testing, counts in ((True, {1.0}), (False, {1.0, 2.0})):
    envs = [registry.make(COUNT, seed=seed, is_testing=is_testing, **kwargs) for seed in range(8)]
    assert {env.reset().observation.frame[0, 0, 0] for env in envs} == counts


class TestContract(EnvironmentContract):
  def make(self):
    return make_env()


def make_with_any_arguments(**kwargs):
  return Count()


def test_a_function_with_any_arguments_makes_a_table_with_a_seat():
  frame = registry.make(f"{HERE}:make_with_any_arguments", seed=0, seat=1).reset().observation.frame
  assert frame[0, 0, 2:].tolist() == [0, 1, 0]


# --- errors


def test_the_rules_of_a_table_are_not_searched():
  with pytest.raises(UserError, match="the moves of the other seats are not part of them; use muzero"):
    registry.true_rules(COUNT)


@pytest.mark.parametrize(
  ("fault", "message"),
  [
    ("no_spec", "its table has no spec; must have a moozi.EnvSpec"),
    ("one_seat", "number of seats"),
    ("two_players", "the spec of a table must have num_players=1"),
    ("frame", r"frame is float32\[1, 1, 3\]; must be float32\[1, 1, 2\]"),
    ("nan", "an observation that is not finite"),
    ("mask", "legal_actions_mask"),
    ("returns", "returns has 2 entries; must have 3"),
    ("step", "step failed: .*ZeroDivisionError"),
    ("no_returns", "returns failed: .*Table has no `returns`"),
  ],
)
def test_faults_of_a_table(fault, message):
  with pytest.raises(UserError, match=message) as error:
    registry.env_spec(FAULTY, fault=fault)
  assert str(error.value).startswith(f"env.name={FAULTY}: ")
  assert "\n" not in str(error.value)


def test_a_game_in_which_the_seat_never_moves_is_refused(monkeypatch):
  monkeypatch.setattr(seats, "_MAX_OTHER_MOVES", 100)
  with pytest.raises(UserError, match="seat 0 has no decision in 100 moves of the other seats"):
    registry.make(FAULTY, seed=0, fault="no_turn", seat=0)


@pytest.mark.parametrize(
  ("kwargs", "message"),
  [
    ({"seat": 3}, "env.kwargs.seat=3: own:count has 3 seats; must be random, or from 0 to 2"),
    ({"seat": "all"}, "env.kwargs.seat='all'"),
    ({"others": "nobody"}, "env.kwargs.others='nobody': .* must be random, mcts"),
    ({"others": "mcts:5"}, "env.kwargs.others.0.=mcts:5: .*has no such player; .*cannot copy a moozi.Table"),
    ({"sea": 1}, "sea"),
    ({"wrappers": (f"{HERE}:always_one",)}, "env.wrappers=.* makes a table, which is not wrapped"),
  ],
)
def test_wrong_options_of_a_seat(kwargs, message):
  with pytest.raises(UserError, match=message):
    registry.make(COUNT, seed=0, **kwargs)


def test_an_environment_of_one_player_takes_no_seat():
  with pytest.raises(UserError, match=r"env.kwargs=.*unexpected keyword argument 'seat'"):
    registry.make("tests.envs.environments:make_nim", seed=0, seat=1)


# --- players of the other seats are part of what a run names


def test_a_run_names_the_players_of_a_table():
  config = load_config(None, [f"env.name={COUNT}", f"env.kwargs={{others: [random, '{HERE}:always_one']}}"])
  assert list(uses.seat_players(config)) == [
    ("env.kwargs.others[0]", "random"),
    ("env.kwargs.others[1]", f"{HERE}:always_one"),
  ]
  assert f"env.kwargs.others[1]={HERE}:always_one" in uses.code_keys(config)
  own = load_config(None, ["env.name=my_env:make", "env.kwargs={others: [3, a b]}"])
  assert list(uses.seat_players(own)) == []


# --- the arena and training


def test_the_arena_rates_players_at_a_table():
  found = moozi.arena(COUNT, ["random", f"{HERE}:always_one"], games=6, opening_plies=0)
  assert {len(game.returns) for game in found.games} == {3}
  assert {sum(game.returns) for game in found.games} == {0}
  assert found.is_deterministic
  assert set(found.ratings()["player"]) == {"random", f"{HERE}:always_one"}


def test_chance_is_found():
  assert registry.make_table(COUNT).is_deterministic
  assert not registry.make_table(f"{HERE}:Dice").is_deterministic
