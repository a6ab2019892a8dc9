"""Tests of the warnings about learning."""

import pytest

from moozi.core.config import Config
from moozi.training.learning_notes import LearningNotes


@pytest.fixture
def notes():
  """Returns the notes of a run, and the list of the texts that they gave."""
  given = []
  return LearningNotes(Config.model_validate({"env": {"name": "tiny:catch"}}), given.append), given


@pytest.mark.parametrize(
  ("shares", "start"),
  [
    ({"targets/clipped_rewards": 0.75}, "75% of the rewards are"),
    ({"targets/clipped_values": 0.01, "targets/clipped_rewards": 0.0099}, "1% of the value targets are"),
    (
      {"targets/clipped_values": 1.0, "targets/clipped_rewards": 0.25},
      "25% of the rewards and 100% of the value targets are",
    ),
  ],
)
def test_clipped_targets_are_named_once(notes, shares, start):
  observer, given = notes
  observer.observe({"targets/clipped_values": 0.009}, 8)
  observer.observe({}, 8)
  assert not given
  for later in ({}, {"targets/clipped_rewards": 1.0}):
    observer.observe(shares | later, 8)
  (text,) = given
  assert text.startswith(f"{start} beyond the support, -904.7 … 904.7, ")
  for part in ("scalar_transform.support_max (30)", "scalar_transform.support_min (-30)", "docs/metrics.md"):
    assert part in text


def test_figures_that_are_no_numbers_give_no_note(notes):
  observer, given = notes
  nan = float("nan")
  observer.observe({"state/cosine": nan, "targets/clipped_values": nan, "targets/clipped_rewards": nan}, 1000)
  assert not given
