"""Tests of MooZi's zoo agents: their files, their size, and the results on their cards."""

import importlib.util
import json
from pathlib import Path

import pytest
from PIL import Image

from moozi.io.card import CARD, list_agents, read_card, with_current_configuration
from moozi.io.config_files import PACKAGES, list_configs
from moozi.io.run_directory import RunDirectory
from moozi.io.zoo_files import ZOO_PREFIX, agent_names, resolve_run, size_of
from moozi.vis.card_page import opponent_text, result_text
from scripts.make_zoo import MAX_GIF_BYTES, is_reproduced

ROOT = Path(__file__).resolve().parents[1]
NAMES = agent_names()
# More episodes would take minutes in long games and against a search.
MAX_EPISODES = 20


def needs_package(name: str) -> None:
  package = PACKAGES.get(read_card(resolve_run(ZOO_PREFIX + name) / CARD).env.partition(":")[0])
  if package is not None and importlib.util.find_spec(package) is None:
    pytest.skip(f"{package} is not installed")


def test_agents_are_those_of_the_page():
  text = (ROOT / "docs" / "zoo.md").read_text("utf-8")
  assert NAMES
  for card in list_agents():
    (row,) = [line for line in text.splitlines() if line.startswith(f"| [`zoo:{card.name}`]")]
    assert f" | {result_text(card.evaluation)} | {opponent_text(card.evaluation)} | " in row
    assert ("random play" in row or "mcts with" in row) == (card.num_players == 2)


@pytest.mark.parametrize("name", NAMES)
def test_agent_is_small_and_its_card_is_complete(name):
  path = resolve_run(ZOO_PREFIX + name)
  card = read_card(path / CARD)
  assert RunDirectory.open(path).load_config().env.name == card.env
  assert size_of(path) < 4 << 20
  assert (path / "play.gif").stat().st_size <= MAX_GIF_BYTES
  with Image.open(path / "play.gif") as gif:
    assert gif.n_frames > 5
  assert card.name == name
  assert card.evaluation.low <= card.evaluation.return_mean <= card.evaluation.high
  assert card.command == f"moozi evaluate zoo:{name} --episodes {card.evaluation.episodes}"
  assert None not in (card.hardware, card.minutes, card.env_steps, card.license, card.train_command)
  assert card.minutes == round(json.loads((path / "summary.json").read_text())["training_s"] / 60, 1)
  assert name in {info.name for info in list_configs()}
  assert card.config_name == name


@pytest.mark.parametrize("name", NAMES)
def test_card_compares_with_the_current_configuration(name):
  path = resolve_run(ZOO_PREFIX + name)
  card = read_card(path / CARD)
  current = with_current_configuration(card, RunDirectory.open(path).load_config())
  assert current.model_dump(mode="json") == card.model_dump(mode="json"), "run `scripts/make_zoo.py --cards`"


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_agent_plays(name, cli, tmp_path, monkeypatch):
  needs_package(name)
  monkeypatch.chdir(tmp_path)
  status, out, err = cli("watch", f"zoo:{name}")
  assert status == 0, err
  assert "episode 0: return " in out


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_card_is_reproduced(name, cli):
  """This test plays only some of a card's episodes; `make zoo-check` plays all."""
  needs_package(name)
  evaluation = read_card(resolve_run(ZOO_PREFIX + name) / CARD).evaluation
  episodes = min(MAX_EPISODES, evaluation.episodes)
  status, out, err = cli("evaluate", f"zoo:{name}", "--episodes", episodes, "--json")
  assert status == 0, err
  mean = json.loads(out)["return_mean"]
  assert is_reproduced(mean, evaluation, episodes), (mean, evaluation)
