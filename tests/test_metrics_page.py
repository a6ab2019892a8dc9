"""docs/metrics.md names every metric of a run, and no other."""

import fnmatch
import re
from pathlib import Path

import pytest

from moozi import cli
from moozi.io.metrics import TICK_KEYS, read_metrics
from tests.runtime.conftest import TINY

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"


def named() -> tuple[set[str], set[str]]:
  """Patterns on the page: those that every run has, and those in italics."""
  always, some = set(), set()
  for line in PAGE.read_text().splitlines():
    if not line.startswith("| ") or line.startswith("| name"):
      continue
    cell = line.split(" | ")[0]
    for star, name in re.findall(r"(\*?)`([a-z_0-9]+/[a-z_0-9*]+)`", cell):
      (some if star else always).add(re.sub(r"_k$", "_[0-9]", name))
  return always, some


@pytest.fixture(scope="module")
def names(tmp_path_factory) -> set[str]:
  folder = tmp_path_factory.mktemp("metrics")
  config = folder / "config.yaml"
  config.write_text("runtime: local\n")
  options = ["replay.sampling=rank", "logging.period_s=1e-9", "logging.progress=none", "evaluation.gif=false"]
  with pytest.raises(SystemExit) as ended:
    cli.main(["train", str(config), *TINY, *options, f"run.dir={folder}", "run.name=one"])
  assert ended.value.code == 0
  return set().union(*read_metrics(folder / "one" / "metrics.jsonl")) - set(TICK_KEYS)


def test_every_metric_is_on_the_page(names):
  always, some = named()
  patterns = always | some
  assert len(names) >= 50, "the thesis asks for fifty"
  unnamed = {name for name in names if not any(fnmatch.fnmatchcase(name, p) for p in patterns)}
  assert not unnamed


def test_every_metric_on_the_page_is_written(names):
  always, _ = named()
  missing = {p for p in always if not fnmatch.filter(names, p)}
  assert not missing
