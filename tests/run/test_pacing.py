"""Tests of pacing: sample reuse stays within bounds, and there are no deadlocks."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moozi.agent.update import make_learning_rate
from moozi.core.config import CheckpointConfig, Config, LearnerConfig, ReplayConfig, WorkersConfig
from moozi.core.config.reanalyze import ReanalyzeConfig
from moozi.io.config import load_config
from moozi.run.pacing import Pacer, slack_steps, without_replay
from moozi.run.schedules import CheckpointSchedule, Every, reason_to_end


def make_pacer(
  ratio,
  num_envs=4,
  segment=8,
  batch=16,
  updates=2,
  min_steps=64,
  max_steps=100_000,
  slack=0,
  share=0.0,
  positions=16,
):
  config = Config(
    max_env_steps=max_steps,
    workers=WorkersConfig(num_envs=num_envs, segment_length=segment),
    learner=LearnerConfig(batch_size=batch, updates_per_call=updates, samples_per_step=ratio),
    replay=ReplayConfig(min_steps_to_learn=min_steps),
    reanalyze=ReanalyzeConfig(ratio=share, batch_size=positions),
  )
  return Pacer(config, slack_steps=slack), num_envs * segment


@given(
  ratio=st.floats(0.1, 16.0),
  segment=st.integers(1, 32),
  updates=st.integers(1, 8),
  seed=st.integers(0, 1000),
  slack=st.integers(0, 4000),
)
def test_sample_reuse_in_any_order(ratio, segment, updates, seed, slack):
  """A random order of completions: the ratio holds within 5% in the long run, and there is no deadlock."""
  pacer, round_steps = make_pacer(ratio, segment=segment, updates=updates, max_steps=10**9, slack=slack)
  order = random.Random(seed)
  acting = learning = 0
  for _ in range(4000):
    while acting < 2 and pacer.may_act(can_sample=True):
      pacer.request_act(round_steps)
      acting += 1
    while learning < 2 and pacer.may_learn(can_sample=True):
      pacer.learn.request()
      learning += 1
    assert acting or learning, "both sides wait for each other"
    if acting and (not learning or order.random() < 0.5):
      pacer.done_act(round_steps)
      acting -= 1
    else:
      pacer.learn.finish()
      learning -= 1
  slack_share = (slack + 4 * round_steps + 4 * updates * 16 / ratio) / max(
    pacer.env_steps - pacer.started_at, 1
  )
  assert pacer.sample_reuse == pytest.approx(ratio, rel=max(0.05, 2 * slack_share))
  assert pacer.sample_reuse <= ratio * 1.0001


@given(share=st.floats(0.0, 0.9), seed=st.integers(0, 1000))
def test_lost_steps_count_but_are_not_learned_from(share, seed):
  pacer, round_steps = make_pacer(4.0, max_steps=10**9)
  chance, stored_since = random.Random(seed), None
  for _ in range(2000):
    moved = False
    if pacer.may_act(can_sample=True):
      moved = True
      pacer.request_act(round_steps)
      num_lost = round_steps if chance.random() < share else 0
      pacer.done_act(round_steps, num_lost)
      stored_since = None if stored_since is None else stored_since + round_steps - num_lost
    while pacer.may_learn(can_sample=True):
      moved, stored_since = True, stored_since or 0
      pacer.learn.request()
      pacer.learn.finish()
    if pacer.started_at is not None and stored_since is None:
      stored_since = 0
    assert moved, "both sides wait for each other"
  assert pacer.env_steps == 2000 * round_steps
  assert pacer.learn.done <= 4.0 * stored_since
  assert pacer.learn.done > 4.0 * stored_since - 64
  assert pacer.sample_reuse == pytest.approx(4.0, rel=0.05)


def play(pacer, round_steps, num_rounds):
  """Acts, learns and searches in turn; returns the number of (steps, samples, positions) of these rounds."""
  before = pacer.env_steps, pacer.learn.done, pacer.reanalyze.done
  for _ in range(num_rounds):
    assert pacer.may_act(can_sample=True)
    pacer.request_act(round_steps)
    pacer.done_act(round_steps)
    while pacer.may_learn(can_sample=True):
      pacer.learn.request()
      pacer.learn.finish()
    while pacer.may_reanalyze():
      pacer.reanalyze.request()
      pacer.reanalyze.finish(16)
  after = pacer.env_steps, pacer.learn.done, pacer.reanalyze.done
  return tuple(b - a for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize(("old", "new"), [(16.0, 4.0), (4.0, 16.0), (2.0, 2.0)])
@pytest.mark.parametrize(("old_share", "new_share"), [(0.0, 0.5), (0.5, 0.2), (0.5, 0.0)])
def test_new_ratios_apply_to_the_steps_after_a_resume(old, new, old_share, new_share):
  """Steps before the resume neither stop learning nor require all their updates at once."""
  pacer, round_steps = make_pacer(old, share=old_share)
  play(pacer, round_steps, 500)
  for _ in range(2):  # the second resume changes nothing more
    state = pacer.get_state()
    pacer, _ = make_pacer(new, share=new_share)
    pacer.set_state(state)
    steps, samples, positions = play(pacer, round_steps, 100)
    assert samples == pytest.approx(new * steps, abs=32)
    assert positions == pytest.approx(new_share / (1 - new_share) * steps, abs=16)


def test_the_steps_that_fill_a_new_replay_are_not_due():
  old, round_steps = make_pacer(4.0, share=0.5)
  play(old, round_steps, 100)
  pacer, _ = make_pacer(4.0, share=0.5)
  pacer.set_state(without_replay(old.get_state()))
  assert pacer.env_steps == old.env_steps
  for _ in range(3):
    pacer.request_act(round_steps)
    pacer.done_act(round_steps)
    assert not pacer.may_learn(can_sample=False)
    assert not pacer.may_reanalyze()
  assert not pacer.may_learn(can_sample=True)  # training starts, and no step is produced since
  assert pacer.started_at == pacer.env_steps
  pacer.request_act(round_steps)
  pacer.done_act(round_steps)
  num_calls = 0
  while pacer.may_learn(can_sample=True):
    pacer.learn.request()
    pacer.learn.finish()
    num_calls += 1
  assert num_calls * 2 * 16 == 4.0 * round_steps


def test_a_resume_without_reanalyze_drops_the_missing_positions():
  pacer, round_steps = make_pacer(4.0, share=0.5)
  for _ in range(20):
    pacer.request_act(round_steps)
    pacer.done_act(round_steps)
    while pacer.may_learn(can_sample=True):
      pacer.learn.request()
      pacer.learn.finish()
  assert pacer.may_reanalyze()
  resumed, _ = make_pacer(4.0, share=0.0)
  resumed.set_state(pacer.get_state())
  assert not resumed.may_reanalyze()
  while not resumed.has_all_steps:
    play(resumed, round_steps, 1)
  assert resumed.is_complete


@settings(max_examples=6)
@given(
  share=st.sampled_from([0.01, 0.2, 0.5, 0.8, 0.95, 0.99]),
  positions=st.integers(1, 300),
  seed=st.integers(0, 1000),
)
def test_reanalyze_ratio_in_any_order(share, positions, seed):
  """With slow searches: acting waits for them, and there is no deadlock."""
  pacer, round_steps = make_pacer(4.0, max_steps=10**9, share=share, positions=positions)
  order = random.Random(seed)
  work = {"act": 0, "learn": 0, "search": 0}
  while pacer.started_at is None or pacer.env_steps - pacer.started_at < 60 * pacer._slack_steps:
    while work["act"] < 2 and pacer.may_act(can_sample=True):
      pacer.request_act(round_steps)
      work["act"] += 1
    while work["learn"] < 2 and pacer.may_learn(can_sample=True):
      pacer.learn.request()
      work["learn"] += 1
    while work["search"] < 2 and pacer.may_reanalyze():
      pacer.reanalyze.request()
      work["search"] += 1
    ready = [name for name, count in work.items() if count]
    assert ready, "all wait for each other"
    # The searches come last, unless there is nothing else.
    name = order.choice(ready if order.random() < 0.3 else ready[:1])
    work[name] -= 1
    if name == "act":
      pacer.done_act(round_steps)
    elif name == "learn":
      pacer.learn.finish()
    else:
      pacer.reanalyze.finish(positions)
  # Acting is never further ahead of the searches than the slack and the segments in flight.
  produced = pacer.env_steps - pacer.started_at
  assert produced - pacer.reanalyze.done * (1 - share) / share <= pacer._slack_steps + 2 * round_steps
  assert pacer.reanalyze_ratio == pytest.approx(share, rel=0.05)
  assert pacer.reanalyze_ratio <= share * 1.0001
  assert pacer.sample_reuse == pytest.approx(4.0, rel=0.05)


def test_no_reanalyze_before_training_or_without_a_ratio():
  pacer, _ = make_pacer(4.0, share=0.5, positions=8)
  pacer.request_act(96)
  pacer.done_act(96)
  assert not pacer.may_reanalyze()
  assert pacer.reanalyze_ratio == 0
  pacer.may_learn(can_sample=True)
  assert pacer.started_at == 96
  assert not pacer.may_reanalyze()
  pacer.request_act(8)
  pacer.done_act(8)
  assert pacer.may_reanalyze()
  pacer.reanalyze.request()
  assert not pacer.may_reanalyze()
  pacer.reanalyze.finish(8)
  assert pacer.reanalyze_ratio == 0.5
  pacer, _ = make_pacer(4.0)
  pacer.done_act(10_000)
  pacer.may_learn(can_sample=True)
  assert pacer.started_at == 10_000
  pacer.done_act(10_000)
  assert not pacer.may_reanalyze()


@pytest.mark.parametrize("share", [0.01, 0.5, 0.95])
@pytest.mark.parametrize("calls", [50.99, 61.5])
def test_reanalyze_ratio_at_the_end(share, calls):
  """At the end of a run, the reanalyze ratio is met to within one call, even after few calls."""
  steps = int(calls * 256 * (1 - share) / share)
  pacer, _ = make_pacer(1e-6, min_steps=64, max_steps=64 + steps, share=share, positions=256)
  for count in (64, steps):
    pacer.request_act(count)
    pacer.done_act(count)
    assert not pacer.may_learn(can_sample=True)
  while not pacer.is_complete:
    pacer.reanalyze.request()
    pacer.reanalyze.finish(256)
  asked = steps * share / (1 - share)
  assert 0 <= asked - pacer.reanalyze.done < 256
  assert pacer.reanalyze_ratio == pytest.approx(share, rel=0.02)


def test_run_waits_for_reanalyze():
  pacer, _ = make_pacer(0.1, max_steps=128, share=0.5, positions=32)
  pacer.request_act(64)
  pacer.done_act(64)
  assert not pacer.may_learn(can_sample=True)
  pacer.request_act(64)
  pacer.done_act(64)
  assert not pacer.is_complete
  for _ in range(2):
    pacer.reanalyze.request()
  assert not pacer.is_complete
  pacer.reanalyze.finish(32)
  # The second call found only 20 of 32 positions. The missing 12 are too few for another call.
  pacer.reanalyze.finish(20)
  assert pacer.is_complete
  assert pacer.reanalyze.requested == pacer.reanalyze.done == 52


def test_steps_pass_without_acting():
  pacer, round_steps = make_pacer(4.0, max_steps=640, share=0.5, positions=32)
  pacer.count_offline_steps(can_sample=True)
  assert pacer.started_at == 0
  assert 0 < pacer.env_steps <= pacer._slack_steps + round_steps
  learned = searched = 0
  while not pacer.is_complete:
    pacer.count_offline_steps(can_sample=True)
    ahead = pacer.env_steps
    while pacer.may_reanalyze():
      pacer.reanalyze.request()
      pacer.reanalyze.finish(32)
      searched += 32
    while pacer.may_learn(can_sample=True):
      pacer.learn.request()
      pacer.learn.finish()
      learned += 32
    assert ahead - learned / 4 <= pacer._slack_steps + round_steps
  assert pacer.env_steps == searched == 640
  assert learned == 4 * 640


def test_training_starts_at_min_steps():
  pacer, round_steps = make_pacer(4.0)
  assert not pacer.may_learn(can_sample=True)
  pacer.request_act(64)
  pacer.done_act(64)
  assert not pacer.may_learn(can_sample=False)
  assert pacer.started_at is None
  assert not pacer.may_learn(can_sample=True)
  assert pacer.started_at == 64
  pacer.request_act(round_steps)
  pacer.done_act(round_steps)
  assert pacer.may_learn(can_sample=True)


def test_acting_continues_until_replay_can_sample():
  """With `min_steps` steps, replay may have no eligible one: a lane's newest n + K are not eligible."""
  pacer, round_steps = make_pacer(4.0, min_steps=64)
  for _ in range(50):
    assert pacer.may_act(can_sample=False)
    pacer.request_act(round_steps)
    pacer.done_act(round_steps)
    assert not pacer.may_learn(can_sample=False)
  assert not pacer.may_act(can_sample=True)


def test_acting_waits_for_a_slow_learner():
  pacer, round_steps = make_pacer(4.0, slack=200)
  asked = 0
  while pacer.may_act(can_sample=True):
    pacer.request_act(round_steps)
    pacer.done_act(round_steps)
    pacer.may_learn(can_sample=True)
    asked += round_steps
    assert asked < 2000
  assert asked - pacer.started_at < 200 + 2 * round_steps


def test_acting_ends_at_max_env_steps():
  pacer, round_steps = make_pacer(0.001, max_steps=320)
  while pacer.may_act(can_sample=True):
    pacer.request_act(round_steps)
    pacer.done_act(round_steps)
  assert pacer.env_steps == 320
  assert pacer.is_complete


def test_every():
  every = Every(10)
  assert [every.is_due(n) for n in (0, 9, 10, 11, 35, 39, 40)] == [
    False,
    False,
    True,
    False,
    True,
    False,
    True,
  ]
  assert not Every(None).is_due(10**9)
  assert not Every(10, start=10).is_due(19)
  with pytest.raises(ZeroDivisionError):
    Every(0)


def test_checkpoints_by_time_and_by_milestone():
  schedule = CheckpointSchedule(CheckpointConfig(period_s=60, first_s=None, milestones_env_steps=1000))
  moments = [(1, 10), (61, 500), (62, 1000), (63, 1001), (121, 2000), (122, 2001)]
  assert [schedule.is_due(*moment) for moment in moments] == [False, True, True, False, True, False]


def test_first_checkpoint_is_early():
  config = CheckpointConfig(period_s=120, milestones_env_steps=None)
  schedule = CheckpointSchedule(config)
  moments = [(30, 0), (40, 8), (54, 90), (56, 99), (70, 110), (119, 200), (121, 201)]
  assert [schedule.is_due(*moment) for moment in moments] == [False, False, False, True, False, False, True]
  resumed = CheckpointSchedule(config, wall_s=300, env_steps=1000)
  assert [resumed.is_due(wall_s, 2000) for wall_s in (301, 330, 361)] == [False, False, True]


def test_slack_fills_every_queue():
  options = [
    "workers.num_workers=2",
    "workers.num_envs=4",
    "workers.segment_length=8",
    "ray.segments_in_flight=3",
  ]
  options += ["learner.batch_size=16", "learner.updates_per_call=5", "learner.samples_per_step=4"]
  # In flight are 2 workers × 3 segments × 32 = 192 steps, and 2 calls × 80 targets, which are 40 steps at
  # 4 samples per step.
  assert slack_steps(load_config(None, options)) == 192 + 40
  # The reanalyze calls, 2 workers × 2 calls × 30 positions, are 40 steps at a third of a step per position.
  options += ["reanalyze.num_workers=2", "reanalyze.batch_size=30", "reanalyze.ratio=0.75"]
  assert slack_steps(load_config(None, options)) == 192 + 40
  options += ["reanalyze.ratio=0.25"]
  assert slack_steps(load_config(None, options)) == 192 + 360


@pytest.mark.parametrize(
  ("is_complete", "is_stopped", "wall_s", "reason"),
  [
    (False, False, 9.9, None),
    (False, False, 10.0, "max_wall_s"),
    (False, True, 10.0, "stopped"),
    (True, False, 10.0, "max_env_steps"),
    (True, True, 10.0, "stopped"),
  ],
)
def test_reason_to_end(is_complete, is_stopped, wall_s, reason):
  assert reason_to_end(is_complete, is_stopped, wall_s, max_wall_s=10.0) == reason
  assert reason_to_end(False, False, 1e9, max_wall_s=None) is None
  reached = reason_to_end(is_complete, is_stopped, wall_s, 10.0, is_reached=True)
  assert reached == (reason if is_complete or is_stopped else "stop_value")


def test_waived_calls_are_neither_searched_nor_due():
  """Where every position is newer than the target network, reanalyze must not stop acting."""
  (pacer, round_steps), num_found = make_pacer(1.0, share=0.5), 0
  for number in range(400):
    assert pacer.may_act(can_sample=True), "acting waits for reanalyze"
    pacer.request_act(round_steps)
    pacer.done_act(round_steps)
    while pacer.may_learn(can_sample=True):
      pacer.learn.request()
      pacer.learn.finish()
    while pacer.may_reanalyze():
      pacer.reanalyze.request()
      if number % 4:
        pacer.reanalyze.waive()
      else:
        pacer.reanalyze.finish()
        num_found += 16
    if number == 200:
      state, pacer = pacer.get_state(), make_pacer(1.0, share=0.5)[0]
      pacer.set_state(state)
  assert pacer.reanalyze.done == num_found
  assert 0 < pacer.reanalyze_ratio < 0.25
  assert pacer.reanalyze.requested == pacer.reanalyze.done


def counted_updates(config):
  """Plays a run's rounds with the pacer and the lengths of replay's lanes; returns the learner steps."""
  pacer, workers, targets = Pacer(config, slack_steps=0), config.workers, config.targets
  num_lanes, lane_steps = workers.num_workers * workers.num_envs, 0
  while not pacer.is_complete:
    if not pacer.has_all_steps:
      pacer.request_act(num_lanes * workers.segment_length)
      pacer.done_act(num_lanes * workers.segment_length)
      lane_steps += workers.segment_length
    num_eligible = num_lanes * max(0, lane_steps - targets.unroll_steps - targets.n_step)
    is_filled = num_lanes * lane_steps >= config.replay.min_steps_to_learn
    while pacer.may_learn(is_filled and num_eligible >= config.learner.batch_size):
      pacer.learn.request()
      pacer.learn.finish()
  return pacer.learn.done // config.learner.batch_size


@given(
  max_steps=st.integers(1, 3000),
  min_steps=st.integers(1, 3500),
  ratio=st.sampled_from([0.25, 1.0, 4.0, 16.0]),
  sizes=st.tuples(st.integers(1, 3), st.integers(1, 8), st.integers(1, 20)),
  updates=st.sampled_from([1, 2, 7]),
  batch=st.sampled_from([1, 16, 100]),
)
@settings(max_examples=60, deadline=None)
def test_the_budget_is_the_number_of_updates_that_are_made(
  max_steps, min_steps, ratio, sizes, updates, batch
):
  num_workers, num_envs, segment = sizes
  config = Config(
    max_env_steps=max_steps,
    runtime="local",
    workers=WorkersConfig(num_workers=num_workers, num_envs=num_envs, segment_length=segment),
    learner=LearnerConfig(batch_size=batch, updates_per_call=updates, samples_per_step=ratio),
    replay=ReplayConfig(capacity=8192, min_steps_to_learn=min_steps),
  )
  assert config.num_updates == counted_updates(config)


def test_a_rate_that_decays_over_the_budget_reaches_its_end():
  learner = {"batch_size": 64, "samples_per_step": 4, "updates_per_call": 1}
  rate = {"kind": "cosine", "peak": 1.0, "decay_steps": "budget"}
  settings = {"max_env_steps": 20_000, "replay": {"min_steps_to_learn": 8000}, "runtime": "local"}
  config = load_config(None, [settings | {"learner": learner | {"learning_rate": rate}}])
  last = make_learning_rate(config.learner.learning_rate, config.decay_steps)(counted_updates(config) - 1)
  assert float(last) < 1e-5
