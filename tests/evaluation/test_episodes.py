import dataclasses

import numpy as np

from moozi.envs.suite import ReferenceScores
from moozi.evaluation import episodes as episode_frames
from moozi.evaluation.episodes import EvaluationResult, FramesKeeper


def test_summary_has_the_human_normalized_score():
  references = ReferenceScores(random=-20.0, human=10.0)
  result = EvaluationResult(
    np.array([-8.0, 4.0]), np.ones(2, np.int64), 2, version=0, env_steps=0, episode=None
  )
  assert "human_normalized" not in result.summary()
  assert dataclasses.replace(result, references=references).summary()["human_normalized"] == 0.6


def test_pictures_are_shrunk_and_bounded(monkeypatch):
  monkeypatch.setattr(episode_frames, "_MAX_BYTES", 100_000)
  picture = np.random.default_rng(0).integers(0, 256, (210, 160, 3)).astype(np.uint8)
  keeper, asked = FramesKeeper(2, 50), []

  def render():
    asked.append(1)
    return picture

  for t in range(20):
    for episode in (0, 1):
      keeper.keep(episode, np.full((2, 2, 1), t, np.uint8), float(t), t % 2, render)
  first, second = keeper.result()
  # A picture at half size takes 105 · 80 · 3 = 25,200 bytes, a frame 4. One step of each episode fits.
  assert first.pictures.shape == (1, 105, 80, 3)
  np.testing.assert_array_equal(first.pictures[0], picture[::2, ::2])
  assert len(second.frames) == 1
  assert len(asked) == 2


def test_frames_are_copies():
  keeper, frame = FramesKeeper(1, 5), np.zeros((2, 2, 1), bool)
  keeper.keep(0, frame, 0.0, 0, lambda: None)
  frame[...] = True
  keeper.keep(0, frame, 1.0, 1, lambda: None)
  (episode,) = keeper.result()
  assert not episode.frames[0].any()
  assert episode.frames[1].all()
  assert episode.returns.tolist() == [0.0, 1.0]
  assert episode.to_play.tolist() == [0, 1]
  assert episode.pictures is None


def test_no_episodes_keep_nothing():
  assert FramesKeeper(0, 5).result() == ()
