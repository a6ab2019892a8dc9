"""Tests of `SyncVectorEnvironment`: equality with single environments, and restored states."""

import time

import numpy as np
import pytest

from moozi.core.errors import UserError
from moozi.core.pytree import fields_of
from moozi.envs import registry
from moozi.envs.game import GameEnvironment
from moozi.envs.guard import EnvGuard
from moozi.envs.vector import IDLE, SyncVectorEnvironment, make_vector
from moozi.envs.wrappers import EnvironmentWrapper
from tests.envs.contract import check_vector, random_agent_actions
from tests.envs.environments import Lives, make_lives, make_nim


@pytest.mark.parametrize(
  ("name", "kwargs"),
  [
    ("minatar:breakout", {"max_episode_steps": 30}),
    ("minatar:asterix", {}),
    ("tiny:corridor", {"max_episode_steps": 7}),
    ("tiny:catch", {}),
  ],
)
def test_rows_equal_single_envs(name, kwargs):
  vector = SyncVectorEnvironment([registry.make(name, seed, **kwargs) for seed in range(4)])
  single = [registry.make(name, seed, **kwargs) for seed in range(4)]
  random = np.random.default_rng(0)
  step = vector.reset()
  rows = [env.reset() for env in single]
  num_ends = 0
  for _ in range(120):
    for i, row in enumerate(rows):
      np.testing.assert_array_equal(step.frame[i], row.observation.frame)
      assert step.last_reward[i] == np.float32(row.reward or 0.0)
      assert step.is_first[i] == row.first()
      assert step.is_last[i] == row.last()
      assert step.is_truncated[i] == (row.last() and row.discount == 1.0)
      if row.discount != 0.0:
        np.testing.assert_array_equal(step.legal_actions_mask[i, 1:], row.observation.legal_actions_mask)
      num_ends += row.last()
    actions = random_agent_actions(step, random)
    step = vector.step(actions)
    rows = [env.step(int(a) - 1) for env, a in zip(single, actions, strict=True)]
  assert num_ends > 4


def test_two_players_and_illegal_actions():
  steps = check_vector(lambda: SyncVectorEnvironment([make_nim() for _ in range(5)]), 200)
  assert {int(p) for s in steps for p in s.to_play} == {0, 1}
  assert any((~s.legal_actions_mask[~s.is_last, 1:]).any() for s in steps)
  # The last mover wins 1. The reward belongs to the mover, although `to_play` is then the other player.
  for step in steps:
    assert (step.last_reward[step.is_last] == 1.0).all()


def test_continued_game_is_not_first():
  vector, single = SyncVectorEnvironment([make_lives()]), make_lives()
  step, row = vector.reset(), single.reset()
  num_continued = 0
  for _ in range(100):
    np.testing.assert_array_equal(step.frame[0], row.observation.frame)
    assert step.is_first.item() == (row.first() and not row.observation.is_continued)
    assert (step.is_last & ~step.is_truncated).item() == (row.discount == 0.0)
    assert step.last_reward.item() == (row.reward or 0.0)
    num_continued += row.observation.is_continued
    step, row = vector.step(np.array([2])), single.step(1)
  assert num_continued > 10


@pytest.mark.parametrize("wrap", [lambda x: [float(x)], np.float64, lambda x: np.array([[x]], np.int8)])
def test_numbers_of_other_types_are_read(wrap):
  """An environment may return its numbers and its flag as lists or arrays of one, and a bare tuple."""

  class Odd(EnvironmentWrapper):
    def reset(self):
      step = super().reset()
      return step._replace(observation=(*step.observation[:3], wrap(step.observation.is_continued)))

    def step(self, action):
      step = super().step(action)
      return step._replace(reward=wrap(step.reward), discount=wrap(step.discount))

  plain, odd = SyncVectorEnvironment([make_lives()]), SyncVectorEnvironment([Odd(make_lives())])
  assert_same(plain.reset(), odd.reset())
  for _ in range(40):
    assert_same(plain.step(np.array([2])), odd.step(np.array([2])))


def test_integers_beyond_floats_are_read_as_infinite():
  class Huge(EnvironmentWrapper):
    def step(self, action):
      return super().step(action)._replace(reward=-(10**400))

  vector = SyncVectorEnvironment([Huge(make_lives())])
  vector.reset()
  assert vector.step(np.array([2])).last_reward[0] == -np.inf


def test_reset_starts_new_games_after_lost_lives():
  vector = SyncVectorEnvironment([make_lives(), make_lives()])
  step = vector.reset()
  while not step.is_last.any():
    step = vector.step(np.array([1, 1]))
  step = vector.reset()
  assert step.is_first.all()
  assert step.frame.tolist() == [[[[0, 3]]]] * 2


def test_render():
  vector = SyncVectorEnvironment([make_lives(), make_lives()])
  vector.reset()
  assert vector.render(1).shape == (4, 6, 3)
  assert make_vector("tiny:catch", {}, 1, seed=0).render(0) is None


@pytest.mark.parametrize(
  ("drawn", "reason"),
  [
    (OSError("no\ndisplay"), "no display"),
    ("a text", "a str that is not an array of numbers; must be uint8[h, w, 3]"),
  ],
)
def test_picture_that_cannot_be_drawn(drawn, reason, monkeypatch, caplog):
  calls = []

  def fail():
    calls.append(1)
    if isinstance(drawn, Exception):
      raise drawn
    return drawn

  env = make_lives()
  monkeypatch.setattr(env, "render", fail)
  vector = SyncVectorEnvironment([env])
  assert vector.picture_fault == ""
  assert vector.render(0) is None
  assert vector.picture_fault == f"env.name=test:lives: its picture cannot be drawn: {reason}"
  assert vector.render(0) is None
  assert len(calls) == len(caplog.records) == 1


def test_picture_that_hangs(monkeypatch):
  env = make_lives()
  monkeypatch.setattr(env, "render", lambda: time.sleep(60))
  guard = EnvGuard("test:lives", [0], make=None, max_faults=1, timeout_s=0.05)
  vector = SyncVectorEnvironment([env], guard=guard)
  assert vector.render(0) is None
  assert vector.picture_fault.endswith("no answer for 0.05 s (workers.env_timeout_s)")


def test_terminal_frame_then_first_frame():
  vector = SyncVectorEnvironment([registry.make("tiny:corridor", 0), registry.make("tiny:corridor", 0)])
  vector.reset()
  step = vector.step(np.array([1, 2]))
  assert step.is_last.tolist() == [True, False]
  assert step.is_truncated.tolist() == [False, False]
  assert step.last_reward.tolist() == [np.float32(0.1), 0.0]
  assert step.legal_actions_mask.tolist() == [[True, False, False], [False, True, True]]
  step = vector.step(np.array([0, 2]))
  assert step.is_first.tolist() == [True, False]
  assert step.last_reward.tolist() == [0.0, 0.0]
  assert step.is_last.tolist() == [False, False]
  assert step.frame[:, 0, :4, 0].tolist() == [[False, True, False, False], [False, False, False, True]]


def test_truncated_frame_keeps_actions():
  vector = make_vector("tiny:corridor", {"max_episode_steps": 2}, 1, seed=0)
  vector.reset()
  vector.step(np.array([2]))
  step = vector.step(np.array([2]))
  assert step.is_last.item()
  assert step.is_truncated.item()
  assert step.legal_actions_mask.tolist() == [[False, True, True]]
  assert step.frame[0, 0, 3, 0]
  assert vector.step(np.array([0])).is_first.item()


def test_actions_of_wrong_shape_or_dtype():
  vector = make_vector("tiny:catch", {}, 2, seed=0)
  vector.reset()
  for bad in (np.array([1]), np.array([[1, 1]]), np.array([1.0, 1.0]), np.array([True, True])):
    with pytest.raises(ValueError, match="must be integers of shape"):
      vector.step(bad)


def test_reset_inside_episodes():
  vector = make_vector("tiny:catch", {}, 2, seed=0)
  vector.reset()
  vector.step(np.array([1, 1]))
  step = vector.reset()
  assert step.is_first.all()
  assert step.frame[:, 0, :, 0].any(axis=1).all()


def test_seeds_follow_from_one_and_differ():
  def frames(seed):
    vector = make_vector("minatar:freeway", {}, 16, seed)
    vector.reset()
    return [vector.step(np.ones(16, np.int32)).frame for _ in range(5)][-1]

  np.testing.assert_array_equal(frames(3), frames(3))
  assert (frames(3) != frames(4)).any()
  assert len({frame.tobytes() for frame in frames(3)}) == 16


def test_next_seed_is_called_before_each_reset():
  calls = []

  def next_seed(i):
    calls.append(i)
    return 100 + len(calls) if i == 0 else None

  vector = SyncVectorEnvironment([registry.make("tiny:catch", s) for s in (0, 1)], next_seed)
  unseeded = registry.make("tiny:catch", 1)
  step = vector.reset()
  assert calls == [0, 1]
  for episode in range(5):
    seeded = registry.make("tiny:catch", 101 + 2 * episode).reset()
    np.testing.assert_array_equal(step.frame[0], seeded.observation.frame)
    np.testing.assert_array_equal(step.frame[1], unseeded.reset().observation.frame)
    for _ in range(10):
      step = vector.step(np.array([2, 2]))
  assert calls == [0, 1] * 6


def test_idle_env_shows_a_blank_end_and_is_not_reset(monkeypatch):
  envs = [registry.make("tiny:catch", seed) for seed in (0, 1)]
  vector = SyncVectorEnvironment(envs, next_seed=lambda i: IDLE if i == 1 else 7)
  for name in ("seed", "reset", "step"):
    monkeypatch.setattr(envs[1], name, lambda *_, name=name: pytest.fail(name))
  steps = [vector.reset(), *(vector.step(np.array([2, 0])) for _ in range(12))]
  assert any(step.is_first[0] for step in steps[1:])
  for step in steps:
    assert (step.is_first[1], step.is_last[1], step.is_truncated[1]) == (False, True, False)
    assert step.last_reward[1] == 0.0
    assert not step.frame[1].any()
    assert step.legal_actions_mask[1].tolist() == [True, False, False, False]


def test_envs_must_have_one_spec():
  with pytest.raises(ValueError, match="envs is empty"):
    SyncVectorEnvironment([])
  with pytest.raises(ValueError, match=r"envs\[1\]"):
    SyncVectorEnvironment([registry.make("tiny:catch", 0), registry.make("tiny:corridor", 0)])


def test_make_vector_raises_user_errors():
  with pytest.raises(UserError, match=r"env\.kwargs\.lenght=3"):
    make_vector("tiny:corridor", {"lenght": 3}, 2, seed=0)


def test_random_starts():
  env = make_vector("open_spiel:connect_four", {}, 24, seed=0, max_random_starts=5)
  first = env.reset()
  assert first.is_first.all()
  # Plane 2 has the empty squares. The number of pieces is that of the actions played, and its parity gives
  # the player to move.
  played = 42 - first.frame[..., 2].sum(axis=(1, 2), dtype=int)
  assert set(played.tolist()) == set(range(6))
  assert (first.to_play == played % 2).all()
  step = first
  while not step.is_last.all():
    step = env.step(np.where(step.is_last, 0, step.legal_actions_mask.argmax(axis=1)))
    if step.is_first.any():
      break
  assert step.is_first.any()


def test_random_starts_use_the_loop():
  assert not isinstance(make_vector("pgx:tic_tac_toe", {}, 2, seed=0), SyncVectorEnvironment)
  looped = make_vector("pgx:tic_tac_toe", {}, 2, seed=0, max_random_starts=2)
  assert isinstance(looped, SyncVectorEnvironment)


# --- restoring by replaying actions ---------------------------------------------------------------------

ENVS = {
  "catch": lambda: make_vector("tiny:catch", {}, 3, seed=5),
  "breakout": lambda: make_vector(
    "minatar:breakout", {"sticky_action_prob": 0.2, "max_episode_steps": 30}, 3, 5
  ),
  "catch, random starts": lambda: make_vector("tiny:catch", {}, 3, seed=5, max_random_starts=4),
  "cartpole": lambda: make_vector("gymnasium:CartPole-v1", {}, 3, seed=5),
  "nim": lambda: SyncVectorEnvironment([make_nim() for _ in range(3)], lane_seeds=[1, 2, 3]),
  "lives": lambda: SyncVectorEnvironment([make_lives() for _ in range(3)], lane_seeds=[1, 2, 3]),
  "atari": lambda: make_vector("atari:Breakout", {"sticky_action_prob": 0.25}, 3, seed=5),
}


def play(env, step, rng, num_steps):
  steps = []
  for _ in range(num_steps):
    step = env.step(random_agent_actions(step, rng))
    steps.append(step)
  return steps


def assert_same(a, b):
  for name, value in fields_of(a).items():
    np.testing.assert_array_equal(value, getattr(b, name), err_msg=name)


@pytest.mark.parametrize(
  ("name", "num_steps"),
  [
    pytest.param(name, n, marks=pytest.mark.slow if name == "atari" else ())
    for name in ENVS
    for n in (0, 1, 17, 40)
  ],
)
def test_restored_envs_continue_equally(name, num_steps):
  if name == "atari":
    pytest.importorskip("ale_py")
  env, rng = ENVS[name](), np.random.default_rng(0)
  step = env.reset()
  step = [step, *play(env, step, rng, num_steps)][-1]
  state = env.get_state()
  after = play(env, step, np.random.default_rng(1), 60)

  other = ENVS[name]()
  shown, is_new = other.set_state(state, step)
  assert not is_new.any()
  assert_same(shown, step)
  for a, b in zip(after, play(other, shown, np.random.default_rng(1), 60), strict=True):
    assert_same(a, b)


def test_games_differ_between_lanes_and_resets():
  env = make_vector("tiny:catch", {}, 16, seed=0)
  columns = [int(np.argmax(frame[0, :, 0])) for frame in env.reset().frame]
  columns += [int(np.argmax(frame[0, :, 0])) for frame in env.reset().frame]
  assert len(set(columns)) > 3


def test_env_that_replays_differently_starts_a_new_game():
  env = SyncVectorEnvironment([make_lives() for _ in range(2)], lane_seeds=[1, 2])
  step = play(env, env.reset(), np.random.default_rng(0), 4)[-1]
  state = env.get_state()
  step.frame[1] += 1  # environment 1 does not reproduce this frame
  other = SyncVectorEnvironment([make_lives() for _ in range(2)], lane_seeds=[1, 2])
  shown, is_new = other.set_state(state, step)
  assert is_new.tolist() == [False, True]
  assert shown.is_first.tolist() == [False, True]
  assert other.get_state()["games"].tolist() == [state["games"][0], state["games"][1] + 1]


def test_env_that_replays_a_malformed_step_starts_a_new_game():
  class Malformed(Lives):
    """Its frames are malformed after the first seed that it receives."""

    num_seeds = -1  # the constructor seeds the game too

    def seed(self, seed):
      super().seed(seed)
      self.num_seeds += 1

    def frame(self):
      return np.zeros((1, 1, 5)) if self.num_seeds == 1 else super().frame()

  env = SyncVectorEnvironment([make_lives()], lane_seeds=[1])
  step = play(env, env.reset(), np.random.default_rng(0), 3)[-1]
  other = SyncVectorEnvironment([GameEnvironment(Malformed(), env.spec)], lane_seeds=[1])
  shown, is_new = other.set_state(env.get_state(), step)
  assert is_new.all()
  assert shown.is_first.all()


def test_state_of_another_number_of_envs():
  env = make_vector("tiny:catch", {}, 3, seed=0)
  step = env.reset()
  with pytest.raises(ValueError, match="must be of 2 environments"):
    make_vector("tiny:catch", {}, 2, seed=0).set_state(env.get_state(), step)
  with pytest.raises(ValueError, match="that step one by one"):
    env.set_state({"state": np.zeros(3)}, step)  # that of environments in JAX
