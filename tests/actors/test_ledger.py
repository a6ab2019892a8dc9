"""Tests of the ledger: version numbers never repeat; each lost update or step is counted once."""

import types

import pytest

from moozi.actors.ledger import Ledger
from moozi.io.config import load_config
from moozi.run.state import RunState

CONFIG = load_config(None, ["learner.updates_per_call=4", "learner.batch_size=10", "ray.batches_in_flight=2"])


def make(learner_steps=0):
  training = types.SimpleNamespace(learner_step=learner_steps)
  return Ledger(CONFIG, RunState(training=training) if learner_steps else None)


def update(ledger, num_calls):
  for _ in range(num_calls):
    ledger.begin_updates()
    ledger.finish_updates()


def test_updates_since_the_checkpoint_are_lost():
  ledger = make()
  update(ledger, 25)
  assert ledger.next_free_version == 112
  assert ledger.rewind(found=80) == 20
  assert ledger.learner_steps == 112


def test_updates_are_lost_once():
  ledger = make()
  update(ledger, 25)
  ledger.rewind(found=80)
  update(ledger, 3)
  assert ledger.rewind(found=80) == 12
  assert ledger.learner_steps == 136


def test_checkpoint_after_a_loss_counts():
  ledger = make()
  update(ledger, 25)
  ledger.rewind(found=80)
  update(ledger, 5)
  assert ledger.rewind(found=120) == 12


def test_updates_before_the_start_are_not_lost():
  ledger = make(1000)
  update(ledger, 2)
  assert ledger.rewind(found=1000) == 8
  assert ledger.rewind(found=0) == 0


def test_skipped_versions_consume_no_samples():
  ledger = make(1000)
  update(ledger, 2)
  assert ledger.samples_at(ledger.learner_steps) == 80
  ledger.rewind(found=1000)
  assert ledger.samples_at(ledger.learner_steps) == 80
  update(ledger, 1)
  assert ledger.samples_at(ledger.learner_steps) == 120 == ledger.pacer.learn.done


def store(ledger, num_segments, num_lost=0):
  for _ in range(num_segments):
    ledger.begin_segment(0)
    ledger.store_segment(num_lost)


def test_steps_lost_with_replay_are_counted_once():
  ledger = make()
  steps = ledger.segment_steps
  store(ledger, 5)
  assert ledger.restart_replay(num_added=3 * steps) == 2 * steps
  assert ledger.shards.steps_ahead(0) == -2 * steps
  store(ledger, 1)
  # Only the newest segment is counted now; the other two were counted at the first restart.
  assert ledger.restart_replay(num_added=3 * steps) == steps


def test_steps_that_replay_refused_are_not_lost_again():
  ledger = make()
  steps = ledger.segment_steps
  store(ledger, 2)
  store(ledger, 1, num_lost=steps)
  assert ledger.shards.steps_ahead(0) == -steps
  assert ledger.restart_replay(num_added=steps) == steps


@pytest.mark.parametrize("lose", [lambda ledger: ledger.rewind(0), lambda ledger: ledger.restart_replay(0)])
def test_failures_drop_the_pending_state(lose):
  ledger = make()
  number = ledger.begin_state()
  lose(ledger)
  assert not ledger.is_state_pending
  assert ledger.state_request != number


def test_restarted_replay_ends_the_epoch_of_its_segments():
  ledger = make()
  ledger.shards.can_sample = True
  ledger.restart_replay(0)
  assert ledger.shards.epochs == [1]
  assert not ledger.shards.can_sample


def test_run_without_a_replay_to_sample_is_complete_when_all_steps_are_made():
  ledger = Ledger(load_config(None, ["max_env_steps=100"]))
  assert not ledger.is_complete(has_calls=False)
  ledger.pacer.request_act(100)
  ledger.pacer.done_act(100)
  ledger.pacer.learn.request()
  assert not ledger.is_complete(has_calls=True)
  assert ledger.is_complete(has_calls=False)
  ledger.shards.can_sample = True
  assert not ledger.is_complete(has_calls=False)
