"""Environments side by side: the same as one by one, in the agent's terms."""

import numpy as np
import pytest

from moozi.core.errors import UserError
from moozi.envs import registry
from moozi.envs.vector import SyncVectorEnvironment, make_vector
from tests.envs.contract import check_vector, random_agent_actions
from tests.envs.environments import make_lives, make_nim


@pytest.mark.parametrize(
  ("name", "kwargs"),
  [
    ("minatar:breakout", {"max_episode_steps": 30}),
    ("minatar:asterix", {}),
    ("tiny:corridor", {"max_episode_steps": 7}),
    ("tiny:catch", {}),
  ],
)
def test_rows_are_the_envs_one_by_one(name, kwargs):
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
  steps = check_vector(SyncVectorEnvironment([make_nim() for _ in range(5)]), 200)
  assert {int(p) for s in steps for p in s.to_play} == {0, 1}
  assert any((~s.legal_actions_mask[~s.is_last, 1:]).any() for s in steps)
  # Who has just moved wins: the reward is the mover's, and the frame's player is the other one.
  for step in steps:
    assert (step.last_reward[step.is_last] == 1.0).all()


def test_after_a_life_lost_no_frame_is_first():
  vector, single = SyncVectorEnvironment([make_lives()]), make_lives()
  step, row = vector.reset(), single.reset()
  num_gone_on = 0
  for _ in range(100):
    np.testing.assert_array_equal(step.frame[0], row.observation.frame)
    assert step.is_first.item() == (row.first() and not row.observation.is_continued)
    assert step.last_discount.item() == (0.0 if row.discount == 0.0 else 1.0)
    assert step.last_reward.item() == (row.reward or 0.0)
    num_gone_on += row.observation.is_continued
    step, row = vector.step(np.array([2])), single.step(1)
  assert num_gone_on > 10


def test_a_reset_of_all_envs_begins_new_games_after_a_life_lost_too():
  vector = SyncVectorEnvironment([make_lives(), make_lives()])
  step = vector.reset()
  while not step.is_last.any():
    step = vector.step(np.array([1, 1]))
  step = vector.reset()
  assert step.is_first.all()
  assert step.frame.tolist() == [[[[0, 3]]]] * 2


def test_render_is_the_envs_own():
  vector = SyncVectorEnvironment([make_lives(), make_lives()])
  vector.reset()
  assert vector.render(1).shape == (4, 6, 3)
  assert make_vector("tiny:catch", {}, 1, seed=0).render(0) is None


def test_terminal_frame_then_first_frame():
  vector = SyncVectorEnvironment([registry.make("tiny:corridor", 0), registry.make("tiny:corridor", 0)])
  vector.reset()
  step = vector.step(np.array([1, 2]))
  assert step.is_last.tolist() == [True, False]
  assert step.last_discount.tolist() == [0.0, 1.0]
  assert step.last_reward.tolist() == [np.float32(0.1), 0.0]
  assert step.legal_actions_mask.tolist() == [[True, False, False], [False, True, True]]
  step = vector.step(np.array([0, 2]))
  assert step.is_first.tolist() == [True, False]
  assert step.last_reward.tolist() == [0.0, 0.0]
  assert step.last_discount.tolist() == [1.0, 1.0]
  assert step.frame[:, 0, :4, 0].tolist() == [[False, True, False, False], [False, False, False, True]]


def test_truncated_frame_keeps_its_actions_and_its_discount():
  vector = make_vector("tiny:corridor", {"max_episode_steps": 2}, 1, seed=0)
  vector.reset()
  vector.step(np.array([2]))
  step = vector.step(np.array([2]))
  assert step.is_last.item()
  assert step.is_truncated.item()
  assert step.last_discount.item() == 1.0
  assert step.legal_actions_mask.tolist() == [[False, True, True]]
  assert step.frame[0, 0, 3, 0]
  assert vector.step(np.array([0])).is_first.item()


@pytest.mark.parametrize("bad", [0, -1, 4, 100])
def test_a_wrong_action_is_refused_before_any_env_moves(bad):
  vector, other = (make_vector("tiny:catch", {}, 3, seed=0) for _ in range(2))
  vector.reset()
  other.reset()
  with pytest.raises(ValueError, match=rf"actions\[2\]={bad}: .*legal are \[1, 2, 3\]"):
    vector.step(np.array([1, 1, bad]))
  np.testing.assert_array_equal(vector.step(np.array([1, 2, 3])).frame, other.step(np.array([1, 2, 3])).frame)


@pytest.mark.parametrize(
  "bad", [np.array([1]), np.array([[1, 1]]), np.array([1.0, 1.0]), np.array([True, True])]
)
def test_actions_of_another_form_are_refused(bad):
  vector = make_vector("tiny:catch", {}, 2, seed=0)
  vector.reset()
  with pytest.raises(ValueError, match="must be integers of shape"):
    vector.step(bad)


def test_step_before_reset_resets():
  vector = make_vector("tiny:catch", {}, 2, seed=0)
  assert vector.step(np.zeros(2, np.int32)).is_first.all()


def test_reset_inside_episodes_starts_new_ones():
  vector = make_vector("tiny:catch", {}, 2, seed=0)
  vector.reset()
  vector.step(np.array([1, 1]))
  step = vector.reset()
  assert step.is_first.all()
  assert step.frame[:, 0, :, 0].any(axis=1).all()


def test_frames_given_out_do_not_change():
  vector = make_vector("minatar:breakout", {}, 3, seed=0)
  step = vector.reset()
  frame, mask = step.frame.copy(), step.legal_actions_mask.copy()
  for _ in range(30):
    vector.step(np.full(3, 2, np.int32))
  np.testing.assert_array_equal(step.frame, frame)
  np.testing.assert_array_equal(step.legal_actions_mask, mask)


def test_each_env_has_its_own_seed_that_follows_from_one():
  def frames(seed):
    vector = make_vector("minatar:freeway", {}, 16, seed)
    vector.reset()
    return [vector.step(np.ones(16, np.int32)).frame for _ in range(5)][-1]

  np.testing.assert_array_equal(frames(3), frames(3))
  assert (frames(3) != frames(4)).any()
  assert len({frame.tobytes() for frame in frames(3)}) == 16


def test_next_seed_is_asked_before_each_reset():
  asked = []

  def next_seed(i):
    asked.append(i)
    return 100 + len(asked) if i == 0 else None

  vector = SyncVectorEnvironment([registry.make("tiny:catch", s) for s in (0, 1)], next_seed)
  running_on = registry.make("tiny:catch", 1)
  step = vector.reset()
  assert asked == [0, 1]
  for episode in range(5):
    seeded = registry.make("tiny:catch", 101 + 2 * episode).reset()
    np.testing.assert_array_equal(step.frame[0], seeded.observation.frame)
    np.testing.assert_array_equal(step.frame[1], running_on.reset().observation.frame)
    for _ in range(10):
      step = vector.step(np.array([2, 2]))
  assert asked == [0, 1] * 6


def test_envs_must_be_alike_and_there_must_be_one():
  with pytest.raises(ValueError, match="envs is empty"):
    SyncVectorEnvironment([])
  with pytest.raises(ValueError, match=r"envs\[1\]"):
    SyncVectorEnvironment([registry.make("tiny:catch", 0), registry.make("tiny:corridor", 0)])


def test_make_vector_passes_the_users_errors_on():
  with pytest.raises(UserError, match=r"env\.kwargs\.lenght=3"):
    make_vector("tiny:corridor", {"lenght": 3}, 2, seed=0)


def test_random_starts_of_the_envs_side_by_side():
  env = make_vector("open_spiel:connect_four", {}, 24, seed=0, max_random_starts=5)
  first = env.reset()
  assert first.is_first.all()
  # Plane 2 has the empty squares: so many pieces lie on each board already, and who moves follows from that.
  played = 42 - first.frame[..., 2].sum(axis=(1, 2), dtype=int)
  assert set(played.tolist()) == set(range(6))
  assert (first.to_play == played % 2).all()
  # The games after these begin so, too.
  step = first
  while not step.is_last.all():
    step = env.step(np.where(step.is_last, 0, step.legal_actions_mask.argmax(axis=1)))
    if step.is_first.any():
      break
  assert step.is_first.any()


def test_random_starts_leave_a_fast_vector_aside():
  fast = make_vector("pgx:tic_tac_toe", {}, 2, seed=0)
  slow = make_vector("pgx:tic_tac_toe", {}, 2, seed=0, max_random_starts=2)
  assert not isinstance(fast, SyncVectorEnvironment)
  assert isinstance(slow, SyncVectorEnvironment)
