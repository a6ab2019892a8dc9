import dataclasses

import numpy as np

from moozi.core.search_record import PlayedStep
from moozi.envs.suite import ReferenceScores
from moozi.evaluation.episodes import EpisodeKeeper, EvaluationResult


def test_summary_has_the_human_normalized_score():
  references = ReferenceScores(random=-20.0, human=10.0)
  result = EvaluationResult(
    np.array([-8.0, 4.0]), np.ones(2, np.int64), 2, version=0, env_steps=0, episode=None
  )
  assert "human_normalized" not in result.summary()
  assert dataclasses.replace(result, references=references).summary()["human_normalized"] == 0.6


def step_of(frame, picture=None, total=0.0, to_play=0):
  return PlayedStep(
    frame=frame,
    picture=picture,
    to_play=to_play,
    seat=None,
    reward=0.0,
    total=total,
    legal_actions_mask=np.ones(3, bool),
    is_first=False,
    is_last=False,
    is_truncated=False,
    is_agents=True,
    action=1,
    root_value=0.0,
    action_probs=np.zeros(3, np.float32),
  )


def test_pictures_are_shrunk_and_bounded():
  picture = np.random.default_rng(0).integers(0, 256, (210, 160, 3)).astype(np.uint8)
  keeper, asked = EpisodeKeeper(2, 50, 100_000, max_picture=128), 0
  for t in range(20):
    for episode in (0, 1):
      if keeper.wants(episode):
        keeper.keep(episode, step_of(np.full((2, 2, 1), t, np.uint8), picture))
        asked += 1
  first, second = keeper.result(np.array([20, 20]))
  # A picture at half size takes 105 · 80 · 3 = 25,200 bytes, a frame 4. One step of each episode fits.
  assert first.pictures.shape == (1, 105, 80, 3)
  np.testing.assert_array_equal(first.pictures[0], picture[::2, ::2])
  assert (first.num_frames, first.length, second.index, second.num_frames) == (1, 20, 1, 1)
  assert asked == 2


def test_frames_are_copies():
  keeper, frame = EpisodeKeeper(1, 5, 1000), np.zeros((2, 2, 1), bool)
  keeper.keep(0, step_of(frame))
  frame[...] = True
  keeper.keep(0, step_of(frame, total=1.0, to_play=1))
  (episode,) = keeper.result(np.array([1]))
  assert not episode.frames[0].any()
  assert episode.frames[1].all()
  assert episode.totals.tolist() == [0.0, 1.0]
  assert episode.to_play.tolist() == [0, 1]
  assert episode.pictures is None
  assert episode.chance_probs is None


def test_no_episodes_keep_nothing():
  keeper = EpisodeKeeper(0, 5, 1000)
  assert not keeper.wants(0)
  assert keeper.result(np.zeros(0, int)) == ()
