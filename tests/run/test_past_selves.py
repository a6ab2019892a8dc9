"""Tests of the pool of past selves: qualities by hand, draws, and a run that resumes exactly."""

import numpy as np
import pytest

from moozi.acting.lanes import PastResult
from moozi.core.errors import UserError
from moozi.envs import registry
from moozi.io.config import load_config
from moozi.run.events import Acted, StateReady
from moozi.run.past_selves import PastSelves
from moozi.training.checks import check_players
from tests.run.conftest import local_run
from tests.run_events import assert_equal_trees

OPTIONS = ("opponents.past_share=0.5", "workers.num_envs=4", "opponents.quality_rate=0.1")


def make(*overrides: str, num: int = 0) -> PastSelves:
  """Returns a pool with `num` past selves of versions 0, 10, 20 …"""
  pool = PastSelves(load_config(None, [*OPTIONS, "opponents.period_updates=10", *overrides]))
  for version in range(0, 10 * num, 10):
    pool.offer({"w": np.full(2, float(version))}, version)
  return pool


def result(version: int, wins: int = 0, draws: int = 0, losses: int = 0, *, is_complete: bool = False):
  return PastResult(version=version, is_complete=is_complete, wins=wins, draws=draws, losses=losses)


def qualities(pool: PastSelves) -> list[float]:
  return [past.quality for past in pool.pool]


class TestQuality:
  def test_falls_by_rate_over_pool_size_times_probability(self):
    pool = make(num=2)
    first = pool.opponent(0)
    # p = 1/2 and N = 2: each win costs 0.1 / (2 · 0.5) = 0.1.
    pool.record(0, result(first.version, wins=3), 20)
    assert first.quality == pytest.approx(-0.3)
    # The draw is over when its round is complete; until then its probability stays that of the draw.
    pool.record(0, result(first.version, wins=1, is_complete=True), 20)
    assert first.quality == pytest.approx(-0.4)
    other = next(past for past in pool.pool if past is not first)
    weights = {first.version: np.exp(-0.4), other.version: 1.0}
    p = [weights[past.version] / sum(weights.values()) for past in pool.pool]
    np.testing.assert_allclose(pool.probabilities(), p)
    second = pool.opponent(0)
    before = second.quality
    pool.record(0, result(second.version, wins=1), 20)
    share = weights[second.version] / sum(weights.values())
    assert second.quality == pytest.approx(before - 0.1 / (2 * share))

  def test_takes_pool_size_and_probability_of_the_draw(self):
    pool = make(num=1)
    first = pool.opponent(0)
    pool.offer({"w": np.zeros(2)}, 10)
    pool.record(0, result(first.version, wins=1), 20)
    assert first.quality == pytest.approx(-0.1)  # 0.1 / (1 · 1)

  @pytest.mark.parametrize("outcome", [{"losses": 5}, {"draws": 5}])
  def test_stays_where_the_past_self_is_not_beaten(self, outcome):
    pool = make(num=2)
    metrics = pool.record(0, result(pool.opponent(0).version, **outcome), 25)
    assert qualities(pool) == [0, 0]
    assert metrics["past/score"] == (0.5 if "draws" in outcome else 0)
    assert (metrics["past/games"], metrics["past/pool_size"]) == (5, 2)

  def test_games_against_an_earlier_opponent_do_not_count(self):
    pool = make(num=2)
    drawn = pool.opponent(0).version
    metrics = pool.record(0, result(10 - drawn, wins=4, is_complete=True), 20)
    assert qualities(pool) == [0, 0]
    assert metrics["past/games"] == 0
    assert "past/score" not in metrics
    assert pool.opponent(0).version == drawn

  def test_without_games_there_is_no_score(self):
    pool = make(num=1)
    metrics = pool.record(0, result(0), 7)
    assert "past/score" not in metrics
    assert metrics["past/opponent_age_updates"] == 7


class TestPool:
  def test_takes_copies_at_each_period_with_the_largest_quality(self):
    pool = make()
    weights = np.zeros(2)
    for version, size in ((0, 1), (9, 1), (10, 2), (19, 2), (25, 3)):
      pool.offer({"w": weights}, version)
      assert len(pool.pool) == size
      if version == 0:
        pool.pool[0].quality = 1.5
      weights += 1
    assert [float(past.variables["w"][0]) for past in pool.pool] == [0, 2, 4]
    assert qualities(pool) == [1.5, 1.5, 1.5]

  def test_weakest_leaves_unless_it_plays(self):
    pool = make("opponents.pool_size=3", num=3)
    for past, quality in zip(pool.pool, (-2.0, -1.0, 3.0), strict=True):
      past.quality = quality
    pool._drawn[0] = 0
    pool.offer({"w": np.zeros(2)}, 30)
    assert [past.version for past in pool.pool] == [0, 20, 30]
    assert qualities(pool) == [-2, 3, 3]

  def test_pool_shrinks_to_its_size_when_workers_are_done(self):
    pool = make("opponents.pool_size=2", "workers.num_workers=2", num=2)
    pool._drawn[:] = 0, 10
    pool.offer({"w": np.zeros(2)}, 20)
    assert len(pool.pool) == 3
    pool._drawn[:] = 20, -1
    pool.offer({"w": np.zeros(2)}, 30)
    assert [past.version for past in pool.pool] == [20, 30]

  def test_draws_follow_the_softmax(self):
    pool = make(num=3)
    for past, quality in zip(pool.pool, (0.0, 1.0, 2.0), strict=True):
      past.quality = quality
    count = {0: 0, 10: 0, 20: 0}
    for _ in range(3000):
      version = pool.opponent(0).version
      count[version] += 1
      pool.record(0, result(version, is_complete=True), 0)
    np.testing.assert_allclose([count[v] / 3000 for v in (0, 10, 20)], [0.090, 0.245, 0.665], atol=0.03)

  def test_state_restores_pool_and_later_draws(self):
    pool, again = make("workers.num_workers=2", num=3), make("workers.num_workers=2")
    pool.record(0, result(pool.opponent(0).version, wins=2, is_complete=True), 30)
    pool.opponent(1)
    again.set_state(pool.get_state(), {"w": np.zeros(2)})
    for _ in range(20):
      for worker in (0, 1):
        mine, other = pool.opponent(worker), again.opponent(worker)
        assert (mine.version, mine.quality) == (other.version, other.quality)
        np.testing.assert_array_equal(mine.variables["w"], other.variables["w"])
        for x in (pool, again):
          x.record(worker, result(mine.version, wins=1, is_complete=True), 30)
    assert qualities(pool) == qualities(again)


class TestConfig:
  @pytest.mark.parametrize(
    ("share", "num_envs", "lanes"),
    [(0, 64, 0), (0.2, 64, 12), (0.2, 50, 10), (0.01, 64, 2), (0.5, 5, 2), (1, 5, 4), (1, 64, 64)],
  )
  def test_lanes_are_even(self, share, num_envs, lanes):
    config = load_config(None, [f"opponents.past_share={share}", f"workers.num_envs={num_envs}"])
    assert config.num_past_lanes == lanes
    text = (
      f"; past selves play in {lanes} of each worker's {num_envs} environments ({lanes / num_envs:.3g} with "
    )
    assert config.past_selves_text == (f"{text}opponents.past_share={share:g})" if lanes else "")

  def test_needs_two_environments(self):
    with pytest.raises(UserError, match=r"workers.num_envs=1: must be at least 2 with opponents.past_share"):
      load_config(None, ["opponents.past_share=0.2", "workers.num_envs=1"])

  def test_needs_two_players(self):
    config = load_config("tiny/catch", ["opponents.past_share=0.2"])
    with pytest.raises(
      UserError, match=r"opponents.past_share=0.2: must be 0 with env.name=tiny:catch; past"
    ):
      check_players(config, registry.env_spec(config.env.name))


RUN = (
  *("env.name=open_spiel:tic_tac_toe", "targets.discount=1", "opponents.past_share=0.5"),
  *("opponents.period_updates=10", "opponents.pool_size=3", "opponents.quality_rate=0.3"),
  *("learner.symmetries=true", "max_env_steps=640"),
)


@pytest.mark.slow
class TestRun:
  def test_resumes_to_the_bit(self):
    pytest.importorskip("pyspiel")
    events = local_run(*RUN)
    states = [e.state for e in events if isinstance(e, StateReady) and not e.is_best]
    acted = [e for e in events if isinstance(e, Acted)]
    assert len(states) > 2
    assert max(e.metrics["past/pool_size"] for e in acted) == 3
    assert min(e.metrics["past/quality_min"] for e in acted) < 0
    assert sum(e.metrics["past/games"] for e in acted) > 10
    saved = states[0]
    again = local_run(*RUN, state=saved)
    resumed = [e.state for e in again if isinstance(e, StateReady) and not e.is_best][-1]
    pairs = ((states[-1].training, resumed.training), (states[-1].collectors, resumed.collectors))
    for old, new in pairs:
      assert_equal_trees(old, new)
    for name, value in states[-1].progress.items():
      if name.startswith("past_selves/"):
        np.testing.assert_array_equal(value, resumed.progress[name], name)
    later = [e.metrics for e in acted if e.env_steps > saved.env_steps]
    figures = [
      [{k: x for k, x in m.items() if k.startswith("past/")} for m in metrics]
      for metrics in (later, [e.metrics for e in again if isinstance(e, Acted)])
    ]
    assert figures[0] == figures[1]

  def test_continues_a_run_without_past_selves(self):
    pytest.importorskip("pyspiel")
    off = (*RUN, "opponents.past_share=0")
    saved = next(e.state for e in local_run(*off) if isinstance(e, StateReady) and not e.is_best)
    again = local_run(*RUN, state=saved)
    assert [e for e in again if isinstance(e, Acted)][-1].metrics["past/pool_size"] >= 1
