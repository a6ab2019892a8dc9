"""Tests of metrics that need a whole run: the rating against a fixed pool, and the horizon of a schedule."""

import math

import pytest

import moozi
from moozi.actors import driver
from moozi.evaluation.ratings import ELO, VIRTUAL_DRAWS
from moozi.io.config import load_config
from moozi.io.metrics import read_metrics
from moozi.run import build
from moozi.run.events import Evaluated
from moozi.run.session import RunInputs
from tests.actors import in_process_ray
from tests.tiny_run import RESUMABLE, keywords

pytestmark = pytest.mark.slow
pytest.importorskip("pyspiel")

# The pool has the opponent of evaluations, so the games that rate the agent are the evaluation's.
RATED = (
  *(*RESUMABLE, "env.name=open_spiel:tic_tac_toe", "evaluation.final_episodes=4"),
  *("evaluation.opponent=random", "evaluation.pool=[{player: random, rating: 1000}]"),
  "evaluation.pool_episodes=4",
)
SCHEDULE = ("targets.discount=0.9", "targets.discount_schedule=[{env_steps: 160, discount: 0.95}]")


def rating_of(score: float) -> float:
  """Returns the rating of a mean score in four games against a player of rating 1000."""
  share = (4 * score + 0.5 * VIRTUAL_DRAWS) / (4 + VIRTUAL_DRAWS)
  return 1000 + ELO * math.log(share / (1 - share))


@pytest.fixture(scope="module")
def ticks(tmp_path_factory):
  """Returns the metrics of a run in one process."""
  folder = str(tmp_path_factory.mktemp("rated"))
  run = moozi.train({}, **keywords((*RATED, *SCHEDULE)), run={"dir": folder, "name": "one"})
  return read_metrics(run.path / "metrics.jsonl")


def test_each_evaluation_reports_the_rating(ticks):
  evaluated = [tick for tick in ticks if "test/score" in tick]
  assert len(evaluated) == 4
  assert [tick for tick in ticks if "test/rating" in tick] == evaluated
  for tick in evaluated:
    assert tick["test/rating"] == pytest.approx(rating_of(tick["test/score"]), abs=1e-6)
    assert tick["test/rating_low"] <= tick["test/rating"] <= tick["test/rating_high"]


def test_horizon_follows_the_schedule(ticks):
  before = [tick["update/horizon"] for tick in ticks if tick["env_steps"] < 160]
  after = [tick["update/horizon"] for tick in ticks if tick["env_steps"] >= 160]
  assert before == pytest.approx([10] * len(before))
  assert after == pytest.approx([20] * len(after))
  assert before
  assert after


def test_the_testing_worker_rates():
  config = load_config(None, [*RATED, "runtime=ray"])
  with in_process_ray.connected():
    events = list(driver.run(RunInputs(config, build.env_spec(config))))
  found = [event.result.summary() for event in events if isinstance(event, Evaluated)]
  assert len(found) > 1
  for figures in found:
    assert figures["rating"] == pytest.approx(rating_of(figures["score"]), abs=1e-6)
    assert {"rating_low", "rating_high"} <= {*figures}
