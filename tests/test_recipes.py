"""Tests the glossary and the recipes of docs/architecture.md: the files and names in them exist.

Recipes are also followed, from outside of the package where the API allows it.
"""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest

from moozi.run import build, local
from moozi.run.events import Finished, Started, Updated
from moozi.run.session import RunInputs
from moozi.training import algorithms

ROOT = Path(__file__).parents[1]


def events_of(config):
  return list(local.run(RunInputs(config, build.env_spec(config))))


@pytest.mark.slow
def test_a_metric_from_events(tiny_config):
  """Users can compute their own metrics from the events."""
  updates = [event for event in events_of(tiny_config) if isinstance(event, Updated)]
  mean_loss = np.mean([event.metrics["loss/total"] for event in updates])
  assert np.isfinite(mean_loss)


def test_a_baseline(monkeypatch, tiny_config):
  def run(inputs):
    yield Started(env_steps=0, learner_steps=0, message="nothing to learn")
    yield Finished(env_steps=0, learner_steps=0, reason="max_env_steps", sample_reuse=0.0)

  idle = algorithms.Algorithm(
    run=run,
    initial_training_state=lambda *_: {},
    build_evaluator=lambda *_: None,
  )
  monkeypatch.setitem(algorithms.ALGORITHMS, "idle", lambda: idle)
  config = tiny_config.model_copy(update={"algorithm": "idle"})
  events = list(algorithms.algorithm_of(config).run(RunInputs(config, build.env_spec(config))))
  assert [type(event) for event in events] == [Started, Finished]


def table(title, start="| "):
  """Returns the rows of a section's tables by their first cells, of the lines with this start."""
  text = (ROOT / "docs" / "architecture.md").read_text()
  section = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
  rows = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith(start)]
  return {row[0].strip(): row[1:] for row in rows}


def recipes():
  return table("Where to add what", "| a")


def glossary():
  """Returns the last cell of each word's row: what the word is in the code."""
  return {word: cells[-1] for word, cells in table("Words").items() if word != "word"}


@pytest.mark.parametrize("word", glossary())
def test_a_word_of_the_glossary_is_in_the_code(word):
  names = re.findall(r"`([^`]+)`", glossary()[word])
  assert names
  sources = {path: path.read_text() for path in (ROOT / "moozi").rglob("*.py")}
  for name in names:
    if "/" in name:
      assert (ROOT / "moozi" / name).exists()
      continue
    first, *attributes = name.split(".")
    homes = [path for path, text in sources.items() if re.search(rf"^(class|def) {first}\b", text, re.M)]
    assert homes, f"{first} is neither a class nor a function"
    found = importlib.import_module(".".join(homes[0].relative_to(ROOT).with_suffix("").parts))
    for attribute in (first, *attributes):
      found = getattr(found, attribute)


@pytest.mark.parametrize("name", recipes())
def test_a_recipe_names_what_exists(name):
  text = " ".join(recipes()[name])
  files = re.findall(r"`([\w/]+\.(?:py|md|yaml))`", text)
  found = [next((p for p in (ROOT / "moozi" / f, ROOT / f) if p.exists()), None) for f in files]
  assert None not in found, f"{files[found.index(None)]} does not exist"
  sources = "\n".join(path.read_text() for path in found)
  names = re.findall(r"`(_?[A-Za-z]\w+)`", text)
  assert [n for n in names if n not in sources] == []


def test_every_kind_of_part_has_a_recipe():
  parts = ("environment", "network", "search", "loss term", "metric", "actor", "baseline")
  assert [part for part in parts if not any(part in name for name in recipes())] == []
