"""Tests that docs/metrics.md lists the metrics of MooZi's and the baselines' runs, and no others."""

import fnmatch
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from moozi import cli
from moozi.core.actor_report import ends, idle_share
from moozi.io.metrics import TICK_KEYS, read_metrics
from moozi.io.timeline import read_timeline
from tests.baselines.ppo.conftest import TINY as PPO_TINY
from tests.baselines.q_learning.conftest import TABLE
from tests.baselines.q_learning.conftest import TINY as Q_TINY
from tests.io.test_metrics import events_in
from tests.tiny_run import TINY

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
REST, HISTOGRAMS = PAGE.split("\n## Histograms\n")
SCALARS, BASELINES = REST.split("\n## PPO\n")
PPO, Q_LEARNING = BASELINES.split("\n## Q-learning\n")
LOCAL = ("logging.period_s=1e-9", "logging.progress=none", "evaluation.gif=false")


def patterns_of(page: str) -> tuple[set[str], set[str]]:
  """Returns two sets of name patterns: metrics of every run, and optional ones, which are in italics."""
  always, optional = set(), set()
  for line in page.splitlines():
    if not line.startswith("| ") or line.startswith("| name"):
      continue
    cell = line.split(" | ")[0]
    for star, name in re.findall(r"(\*?)`([a-z_0-9]+/[a-z_0-9*/]+)`", cell):
      (optional if star else always).add(re.sub(r"_[kd]$", "_[0-9]", name))
  return always, optional


def undocumented(found: Iterable[str], *pages: str) -> set[str]:
  """Returns the names that match no pattern of the pages."""
  patterns = set().union(*(p for page in pages for p in patterns_of(page)))
  return {name for name in found if not any(fnmatch.fnmatchcase(name, p) for p in patterns)}


def unused(patterns: Iterable[str], found: Iterable[str]) -> set[str]:
  """Returns the patterns that match no name."""
  return {pattern for pattern in patterns if not fnmatch.filter(found, pattern)}


def train(folder: Path, *options: str) -> Path:
  """Trains a short run in one process; returns its directory."""
  config = folder / "config.yaml"
  config.write_text("runtime: local\n")
  with pytest.raises(SystemExit) as ended:
    cli.main(["train", str(config), *options, *LOCAL, f"run.dir={folder}", "run.name=one"])
  assert ended.value.code == 0
  return folder / "one"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
  options = ["replay.sampling=rank", "reanalyze.ratio=0.5", "reanalyze.batch_size=16"]
  options += [
    "logging.histogram_period_updates=10",
    "logging.parameter_histograms=true",
    "timeline.seconds=1e6",
  ]
  return train(tmp_path_factory.mktemp("metrics"), *TINY, *options)


@pytest.fixture(scope="module")
def names(run) -> set[str]:
  return set().union(*read_metrics(run / "metrics.jsonl")) - set(TICK_KEYS)


@pytest.fixture(scope="module")
def histograms(run) -> dict[str, int]:
  """Returns the number of histograms for each name."""
  values = [v for e in events_in(run) for v in e.summary.value if v.HasField("histo")]
  return {tag: sum(v.tag == tag for v in values) for tag in {v.tag for v in values}}


def test_every_metric_is_on_the_page(names, histograms):
  assert undocumented(names, SCALARS) == undocumented(histograms, HISTOGRAMS) == set()
  assert len(names) >= 50, "a run must have at least 50 metrics"


def test_every_metric_on_the_page_is_written(names, histograms):
  for found, page in ((names, SCALARS), (histograms, HISTOGRAMS)):
    always, _ = patterns_of(page)
    assert always
    assert unused(always, found) == set()


def test_required_metrics_are_written(names):
  """The run is in one process; `actors/test_driver.py` tests the metrics of calls in flight."""
  actors = {"parameter_server", "replay_buffer", "training_worker_0", "reanalyze_worker_0", "testing_worker"}
  assert {f"system/busy_share/{name}" for name in actors} <= names
  assert {"search/depth_mean", "search/depth_max", "system/memory_mib", "system/memory_mib/driver"} <= names


def test_each_term_has_each_unroll_step(names):
  steps = {"policy": {0, 1, 2}, "value": {0, 1, 2}, "reward": {1, 2}}
  for term, expected in steps.items():
    found = {int(n.rpartition("_")[2]) for n in names if re.fullmatch(rf"loss/{term}_\d+", n)}
    assert found == expected
  assert {"loss/policy", "loss/value", "loss/reward", "loss/consistency", "loss/l2", "loss/total"} <= names


def test_reanalyze_metrics(run, names):
  _, optional = patterns_of(SCALARS)
  figures = {p for p in optional if p.startswith("reanalyze/")} | {"system/reanalyzed_per_s"}
  assert len(figures) >= 6
  assert unused(figures, names) == set()
  ticks = read_metrics(run / "metrics.jsonl")
  ratios = [tick["reanalyze/ratio"] for tick in ticks if "reanalyze/ratio" in tick]
  assert ratios[-1] == pytest.approx(0.5, abs=0.1)
  assert max(tick.get("replay/searched_again_share", 0.0) for tick in ticks) > 0
  assert max(tick.get("system/reanalyzed_per_s", 0.0) for tick in ticks) > 0


@pytest.mark.slow
def test_chance_metrics_are_on_the_page(tmp_path):
  stochastic = [f"planners.{who}.algorithm=stochastic" for who in ("train", "test")]
  run = train(tmp_path, *TINY, "chance.codes=3", *stochastic)
  found = set().union(*read_metrics(run / "metrics.jsonl")) - set(TICK_KEYS)
  assert undocumented(found, SCALARS) == set()
  _, optional = patterns_of(SCALARS)
  chance = {p for p in optional if p.startswith(("chance/", "loss/afterstate", "loss/c"))}
  assert len(chance) >= 8
  assert unused(chance, found) == set()


def test_metrics_of_sampled_actions_are_on_the_page(tmp_path, names):
  run = train(tmp_path, *TINY, "env.name=tiny:point", "max_env_steps=96", "evaluation.final_episodes=1")
  found = set().union(*read_metrics(run / "metrics.jsonl")) - set(TICK_KEYS)
  own = {"search/sampled_actions", "search/prior_entropy_0", "search/prior_entropy_1"}
  assert {name for name in found - names if name.startswith("search/")} == own
  assert undocumented(found, SCALARS) == set()
  _, optional = patterns_of(SCALARS)
  assert unused({p for p in optional if p.startswith("search/")}, found) == set()


def parts_of(*titles: str) -> list[str]:
  """Returns what the page says that the baselines have too: these sections, and one row of another."""
  sections = dict(part.split("\n", 1) for part in SCALARS.split("\n## ")[1:])
  (temperature,) = [line for line in SCALARS.splitlines() if line.startswith("| `train/temperature` |")]
  return [temperature, *(sections[title] for title in titles)]


def test_ppo_metrics_are_on_the_page(tmp_path):
  found = set().union(*read_metrics(train(tmp_path, *PPO_TINY) / "metrics.jsonl")) - set(TICK_KEYS)
  assert undocumented(found, SCALARS, PPO) == set()
  assert unused(patterns_of(PPO)[0], found) == set()
  assert undocumented(found, PPO, *parts_of("Results", "Updates", "Machine")) == set()


@pytest.mark.parametrize("kind", [(), (TABLE,)])
def test_q_learning_metrics_are_on_the_page(tmp_path, kind):
  found = set().union(*read_metrics(train(tmp_path, *Q_TINY, *kind) / "metrics.jsonl")) - set(TICK_KEYS)
  assert undocumented(found, Q_LEARNING, *parts_of("Results", "Updates", "Replay", "Machine")) == set()
  always, optional = patterns_of(Q_LEARNING)
  assert unused(always, found) == set()
  assert unused(optional, found) == (set() if kind else optional)


def test_depths_and_shares_are_in_bounds(run):
  ticks = read_metrics(run / "metrics.jsonl")
  # The search has four simulations. Depth is 0 if all lanes are at an end: at most one step in eight.
  for name, high in (("search/depth_mean", 2.5), ("search/depth_max", 4)):
    assert all(7 / 8 <= tick[name] <= high for tick in ticks if name in tick)
  assert all(
    tick["search/depth_mean"] <= tick["search/depth_max"] for tick in ticks if "search/depth_max" in tick
  )
  busy = [{n: x for n, x in tick.items() if n.startswith("system/busy_share/")} for tick in ticks]
  # In one process only one actor is busy at a time, so the shares add up to at most 1.
  assert all(sum(shares.values()) <= 1 + 1e-9 for shares in busy)
  assert any(sum(shares.values()) > 0 for shares in busy)


def test_histograms_are_in_tensorboard_only(run, histograms, names):
  last = read_metrics(run / "metrics.jsonl")[-1]["learner_steps"]
  assert set(histograms.values()) == {last // 10}
  assert {name for name in histograms if name.startswith("params/")}
  assert not histograms.keys() & names


def test_run_writes_its_timeline(run):
  timeline = read_timeline(run / "timeline")
  assert list(timeline) == [
    "parameter_server",
    "replay_buffer",
    "training_worker_0",
    "reanalyze_worker_0",
    "testing_worker",
  ]
  kinds = {name: {span.name for s in track for span in s.spans} for name, track in timeline.items()}
  assert kinds == {
    "parameter_server": {"update", "publish", "checkpoint"},
    "replay_buffer": {"add", "sample", "priorities", "positions", "write back", "checkpoint"},
    "training_worker_0": {"segment"},
    "reanalyze_worker_0": {"reanalyze"},
    "testing_worker": {"evaluation"},
  }
  # The busy shares of all actors add up to at most 1, here over the whole timeline.
  begin_s, end_s = ends(timeline)
  assert end_s > begin_s
  assert sum(1 - idle_share(track) for track in timeline.values()) <= 1 + 1e-6
