"""docs/metrics.md names every metric of a run, and no other."""

import fnmatch
import re
from pathlib import Path

import pytest

from moozi import cli
from moozi.core.work import ends, idle_share
from moozi.io.metrics import TICK_KEYS, read_metrics
from moozi.io.timeline import read_timeline
from tests.io.test_metrics import events_in
from tests.runtime.conftest import TINY

SCALARS, HISTOGRAMS = (
  (Path(__file__).parents[1] / "docs" / "metrics.md").read_text().split("\n## Histograms\n")
)


def named(page: str) -> tuple[set[str], set[str]]:
  """Patterns on a page: those that every run has, and those in italics."""
  always, some = set(), set()
  for line in page.splitlines():
    if not line.startswith("| ") or line.startswith("| name"):
      continue
    cell = line.split(" | ")[0]
    for star, name in re.findall(r"(\*?)`([a-z_0-9]+/[a-z_0-9*/]+)`", cell):
      (some if star else always).add(re.sub(r"_k$", "_[0-9]", name))
  return always, some


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
  folder = tmp_path_factory.mktemp("metrics")
  config = folder / "config.yaml"
  config.write_text("runtime: local\n")
  options = ["replay.sampling=rank", "logging.period_s=1e-9", "logging.progress=none", "evaluation.gif=false"]
  options += [
    "logging.histogram_period_updates=10",
    "logging.parameter_histograms=true",
    "timeline.seconds=1e6",
  ]
  with pytest.raises(SystemExit) as ended:
    cli.main(["train", str(config), *TINY, *options, f"run.dir={folder}", "run.name=one"])
  assert ended.value.code == 0
  return folder / "one"


@pytest.fixture(scope="module")
def names(run) -> set[str]:
  return set().union(*read_metrics(run / "metrics.jsonl")) - set(TICK_KEYS)


@pytest.fixture(scope="module")
def histograms(run) -> dict[str, int]:
  """How often each came."""
  values = [v for e in events_in(run / "tensorboard") for v in e.summary.value if v.HasField("histo")]
  return {tag: sum(v.tag == tag for v in values) for tag in {v.tag for v in values}}


def test_every_metric_is_on_the_page(names, histograms):
  for found, page in ((names, SCALARS), (histograms, HISTOGRAMS)):
    always, some = named(page)
    assert {n for n in found if not any(fnmatch.fnmatchcase(n, p) for p in always | some)} == set()
  assert len(names) >= 50, "the thesis asks for fifty"


def test_every_metric_on_the_page_is_written(names, histograms):
  for found, page in ((names, SCALARS), (histograms, HISTOGRAMS)):
    always, _ = named(page)
    assert always
    assert {p for p in always if not fnmatch.filter(found, p)} == set()


def test_what_is_asked_for_by_name_is_there(names):
  """Search depth, busy share and memory, of a run in one process; `actors/test_driver.py` has the others."""
  actors = {"parameter_server", "replay_buffer", "training_worker_0", "testing_worker"}
  assert {f"system/busy_share/{name}" for name in actors} <= names
  assert {"search/depth_mean", "search/depth_max", "system/memory_mib", "system/memory_mib/driver"} <= names


def test_depths_and_shares_are_in_their_bounds(run):
  ticks = read_metrics(run / "metrics.jsonl")
  # Four simulations; a step whose every frame is an end, one in eight at most, counts as none.
  for name, high in (("search/depth_mean", 2.5), ("search/depth_max", 4)):
    assert all(7 / 8 <= tick[name] <= high for tick in ticks if name in tick)
  assert all(
    tick["search/depth_mean"] <= tick["search/depth_max"] for tick in ticks if "search/depth_max" in tick
  )
  busy = [{n: x for n, x in tick.items() if n.startswith("system/busy_share/")} for tick in ticks]
  # One process: whatever it did, it did one thing at a time.
  assert all(sum(shares.values()) <= 1 + 1e-9 for shares in busy)
  assert any(sum(shares.values()) > 0 for shares in busy)


def test_histograms_come_by_updates_and_in_tensorboard_alone(run, histograms, names):
  last = read_metrics(run / "metrics.jsonl")[-1]["learner_steps"]
  assert set(histograms.values()) == {last // 10}
  assert {name for name in histograms if name.startswith("params/")}
  assert not histograms.keys() & names


def test_the_run_keeps_its_timeline(run):
  timeline = read_timeline(run / "timeline")
  assert list(timeline) == ["parameter_server", "replay_buffer", "training_worker_0", "testing_worker"]
  kinds = {name: {span.name for s in track for span in s.spans} for name, track in timeline.items()}
  assert kinds == {
    "parameter_server": {"update", "publish", "checkpoint"},
    "replay_buffer": {"add", "sample", "priorities", "checkpoint"},
    "training_worker_0": {"segment"},
    "testing_worker": {"evaluation"},
  }
  # In one process the others are idle while one is at work.
  begin_s, end_s = ends(timeline)
  assert end_s > begin_s
  assert sum(1 - idle_share(track) for track in timeline.values()) <= 1 + 1e-6
