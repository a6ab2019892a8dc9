"""Learner steps across losses: no version twice, each lost update counted once."""

from moozi.actors.versions import Versions


def make(start=0):
  return Versions(start, updates_per_call=4, calls_in_flight=2)


def told(versions, calls):
  for _ in range(calls):
    versions.add_call()


def test_lost_are_the_updates_since_the_checkpoint():
  versions = make()
  told(versions, 25)
  assert versions.free == 112
  assert versions.go_back(found=80) == 20
  assert versions.now == 112


def test_what_was_skipped_and_what_was_lost_before_is_not_lost_again():
  versions = make()
  told(versions, 25)
  versions.go_back(found=80)
  told(versions, 3)
  assert versions.go_back(found=80) == 12
  assert versions.now == 136


def test_a_checkpoint_since_the_loss_counts():
  versions = make()
  told(versions, 25)
  versions.go_back(found=80)
  told(versions, 5)
  assert versions.go_back(found=120) == 12


def test_a_run_that_begins_with_a_training_state_has_lost_nothing_of_it():
  versions = make(start=1000)
  told(versions, 2)
  assert versions.go_back(found=1000) == 8
  assert versions.go_back(found=0) == 0
