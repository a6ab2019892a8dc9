"""Tests of PPO's rounds in one process: several workers, refused segments, and past selves."""

import numpy as np
import pytest

from moozi.acting.lanes import ActingResult
from moozi.acting.on_policy import IS_PAST, Rollout, join_rollouts
from moozi.acting.past_selves import past_seats
from moozi.baselines.ppo import algorithm as ppo_algorithm
from moozi.baselines.ppo.optimization import make_batch
from moozi.core.errors import SegmentError, UserError
from moozi.core.pytree import fields_of, replace
from moozi.io.config import load_config
from moozi.replay.validation import Refusals
from moozi.run import build, on_policy
from moozi.run.events import Acted, Collected, Evaluated, StateReady, Updated
from moozi.run.session import RunInputs
from tests.baselines.ppo.conftest import TINY
from tests.run_events import assert_equal_trees, final_state

NIM = "env.name=tests.envs.environments:make_nim"
PAST = (NIM, "opponents.past_share=0.5", "opponents.period_updates=8", "evaluation.period_env_steps=10000")
TWO = ("workers.num_workers=2", "trajectories.save=true")


def configure(*overrides):
  return load_config(None, [*TINY, *overrides])


def run(*overrides, **kwargs):
  config = configure(*overrides)
  return list(ppo_algorithm.run(RunInputs(config, build.env_spec(config), **kwargs)))


def rollout(first: int, num_envs: int, num_steps: int = 2) -> Rollout:
  """Returns a segment whose arrays have the numbers of their environments, `first` and up."""
  lanes = np.arange(first, first + num_envs)

  def rows(*tail: int, num: int = num_steps) -> np.ndarray:
    return np.broadcast_to(lanes.reshape(-1, *(1 for _ in tail)), (num, num_envs, *tail)).astype(np.float32)

  return Rollout(
    frames=rows(1, 2, 2, 1),
    legal_actions_mask=rows(3),
    action=rows(),
    value=rows(num=num_steps + 1),
    is_first=rows(),
    is_live=rows(),
    reward=rows(),
    is_last=rows(),
    is_truncated=rows(),
    sign=rows(),
    extras={"log_probs": rows(3)},
  )


def test_segments_are_joined_by_environment():
  one = rollout(0, 3)
  assert join_rollouts([one]) is one
  joined, whole = join_rollouts([one, rollout(3, 2), rollout(5, 1)]), rollout(0, 6)
  assert_equal_trees(fields_of(joined), fields_of(whole))


def test_a_refused_segment_refuses_its_round():
  def part(num_steps, reason=None):
    return on_policy.Part(ActingResult(num_steps, 0, np.zeros(0), np.zeros(0, int), {}), reason)

  refusals = Refusals(2)
  assert on_policy.refusal([part(8), part(8)], refusals) is None
  refusals.add(1, "frame is not finite")
  counts, message = on_policy.refusal([part(8), part(8, "frame is not finite")], refusals)
  assert counts == {"refused_segments": 1, "lost_steps": 16}
  expected = (
    "training_worker_1: a segment of 8 steps is refused: frame is not finite; the round has no update"
  )
  assert message == expected
  # A good round resets the count of both workers; a refused one does not reset any.
  with pytest.raises(SegmentError, match="training_worker_1: 2 segments in a row"):
    refusals.add(1, "frame is not finite")
  assert on_policy.refusal([part(8), part(8)], refusals) is None
  refusals.add(1, "frame is not finite")


@pytest.fixture(scope="module")
def two_workers():
  return run(*TWO)


@pytest.mark.slow
def test_workers_share_the_environments_of_a_round(two_workers):
  acted = [e for e in two_workers if isinstance(e, Acted)]
  updated = [e for e in two_workers if isinstance(e, Updated)]
  kept = [e for e in two_workers if isinstance(e, Collected)]
  assert [e.env_steps for e in acted] == list(range(32, 321, 32))
  assert [(e.env_steps, e.learner_steps, e.num_samples) for e in updated] == [
    (64 * n, 4 * n, 128) for n in range(1, 6)
  ]
  assert [e.first_lane for e in kept] == [0, 2] * 5
  assert {e.segment.action.shape for e in kept} == {(16, 2)}
  # The workers have different environments, and random keys of their own.
  assert np.any(kept[0].segment.frame != kept[1].segment.frame)
  np.testing.assert_allclose(
    [e.metrics["update/learning_rate"] for e in updated],
    2.5e-4 * np.array([1, 0.8, 0.6, 0.4, 0.2]),
    rtol=1e-5,
  )


@pytest.mark.slow
def test_two_workers_resume_to_the_bit(two_workers):
  saved = next(e.state for e in two_workers if isinstance(e, StateReady) and not e.is_best)
  assert len(saved.collectors) == 2
  again = run(*TWO, state=saved)
  assert_equal_trees(final_state(two_workers).training, final_state(again).training)


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    (["workers.num_workers=3"], r"workers\.num_workers=3: must divide ppo\.num_envs=4"),
    ([*PAST, "workers.num_workers=4"], r"ppo\.num_envs=4: must be at least 2 for each of 4 workers"),
    ([*PAST, "ppo.network.lstm_size=4"], r"ppo\.network\.lstm_size=4: must be 0 with opponents\.past_share"),
  ],
)
def test_settings_that_do_not_fit(settings, message):
  with pytest.raises(UserError, match=message):
    configure(*settings)


# --- past selves --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def against_past():
  """Returns PPO's configuration, and the segment of a collector whose last two lanes have a past self."""
  config = configure(*PAST)
  spec = build.env_spec(config)
  collector = ppo_algorithm.build_collector(config, spec, 0, 0)
  state = ppo_algorithm.initial_training_state(config, spec)
  rollout, part = on_policy.collect(config, collector, (state.variables, 3), 0, (state.variables, 1))
  return config, rollout, part


def test_moves_of_a_past_self_are_marked(against_past):
  config, rollout, part = against_past
  assert config.num_past_lanes == 2
  assert part.acted.past.version == 1
  is_past = rollout.extras[IS_PAST]
  assert is_past.dtype == bool
  assert not is_past[:, :2].any()
  assert is_past[:, 2:].any(axis=0).all()
  # In Nim the players alternate, and player 0 begins; the past self has seats 0 and 1.
  assert past_seats(2).tolist() == [0, 1]
  assert is_past[0].tolist() == [False, False, True, False]
  live = rollout.is_live
  assert ((rollout.sign == -1) | ~live)[:-1].all()
  both = live[1:] & live[:-1]
  assert np.array_equal((is_past[1:] != is_past[:-1])[:, 2:][both[:, 2:]], np.ones(both[:, 2:].sum(), bool))


def test_moves_of_a_past_self_are_not_learned_from(against_past):
  config, rollout, _ = against_past
  is_past = rollout.extras[IS_PAST]
  batch, metrics = make_batch(rollout, config.ppo)
  live = np.asarray(batch.is_live).reshape(is_past.shape)
  np.testing.assert_array_equal(live, rollout.is_live & ~is_past)
  assert not np.asarray(batch.log_prob)[~live.reshape(-1)].any()
  assert metrics["ppo/live_share"] == pytest.approx(live.mean())
  # Advantages of the other steps are those of a segment without a past self: values cross its moves.
  plain = replace(rollout, extras={k: x for k, x in rollout.extras.items() if k != IS_PAST})
  other, _ = make_batch(plain, config.ppo)
  np.testing.assert_array_equal(batch.advantage, other.advantage)


@pytest.mark.slow
def test_run_with_past_selves_resumes_to_the_bit():
  whole = run(*PAST, "workers.num_workers=2", "max_env_steps=640")
  acted = [e.metrics for e in whole if isinstance(e, Acted)]
  assert sum(m["past/games"] for m in acted) > 10
  assert max(m["past/pool_size"] for m in acted) > 2
  at = [i for i, e in enumerate(whole) if isinstance(e, StateReady) and not e.is_best]
  saved = whole[at[2]].state
  assert len(saved.progress["past_selves/versions"]) > 1
  again = run(*PAST, "workers.num_workers=2", "max_env_steps=640", state=saved)
  assert_equal_trees(final_state(whole).training, final_state(again).training)
  rest = [
    [m for e in es if isinstance(e, Acted) for m in [e.metrics["past/games"]]]
    for es in (whole[at[2] :], again)
  ]
  assert rest[0] == rest[1]


@pytest.mark.learning
def test_tic_tac_toe_is_learned_with_past_selves():
  """Against random play, two random players have a mean return near 0."""
  pytest.importorskip("pyspiel")
  options = ("opponents.past_share=0.2", "opponents.period_updates=400", "max_env_steps=150000")
  quiet = ("evaluation.period_env_steps=1000000", "evaluation.final_episodes=200")
  config = load_config("ppo/boards/tic_tac_toe", [*options, *quiet])
  events = list(ppo_algorithm.run(RunInputs(config, build.env_spec(config))))
  acted = [e.metrics for e in events if isinstance(e, Acted)]
  assert acted[-1]["past/pool_size"] > 2
  # A segment of 64 steps has a whole game in each of the 12 environments with a past self.
  assert sum(m["past/games"] for m in acted) > 10 * len(acted)
  (final,) = (e.result for e in events if isinstance(e, Evaluated))
  # Seed 0 returned 0.84.
  assert final.returns.mean() > 0.6
