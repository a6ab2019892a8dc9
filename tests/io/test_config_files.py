"""Tests of the names and headers of the files in config/; headers must agree with committed results."""

import json
import math
import re
from pathlib import Path

import pytest

import moozi
from moozi.core.errors import UserError
from moozi.envs import registry
from moozi.io import config_files
from moozi.io.config import config_to_dict, load_config
from moozi.io.config_files import ConfigInfo, config_root, find_config, list_configs
from moozi.io.plain_data import read_yaml

ROOT = Path(__file__).resolve().parents[2]
INFOS = list_configs()
MEASURED = [info for info in INFOS if info.measured]
# tests/experiments/test_minatar_vs_ppo.py compares the headers of the sweep's configurations.
OF_ONE_RUN = [info for info in MEASURED if "experiments/minatar_vs_ppo/results/" not in info.measured[0]]


def error_of(text: str) -> str:
  with pytest.raises(UserError) as caught:
    find_config(text)
  assert "\n" not in str(caught.value)
  return str(caught.value)


# --- names --------------------------------------------------------------------------------------------


def test_a_name_finds_the_same_file_in_every_folder(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  expected = ROOT / "config/minatar/breakout.yaml"
  assert config_root() == ROOT / "config"
  assert find_config("minatar/breakout") == find_config("minatar/breakout.yaml") == expected
  assert load_config("minatar/breakout") == load_config(expected)


def test_an_existing_file_takes_precedence(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "tiny").mkdir()
  (tmp_path / "tiny/catch").mkdir()
  assert find_config("tiny/catch") == ROOT / "config/tiny/catch.yaml"  # a folder of this name is ignored
  (tmp_path / "tiny/catch.yaml").write_text("seed: 5\n")
  assert load_config("tiny/catch.yaml").seed == 5


@pytest.mark.parametrize(
  ("text", "near"),
  [
    ("minatar/brekout", "minatar/breakout, ppo/minatar/breakout or "),
    ("MinAtar/space-invaders", "minatar/space_invaders?"),
    ("config/minatar/breakout.yaml", "did you mean minatar/breakout?"),
    ("cartpole", "did you mean gymnasium/cartpole?"),
  ],
)
def test_an_unknown_name_gives_the_nearest(text, near, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  message = error_of(text)
  assert message.startswith(f"{text}: no such file or configuration; did you mean ")
  assert near in message
  assert "`moozi configs` lists" in message


@pytest.mark.parametrize("text", ["zzz", "../minatar/breakout", "minatar/../tiny/catch", ""])
def test_a_name_leads_nowhere_else(text, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  assert "no such file" in error_of(text)


def test_a_base_may_be_a_name(tmp_path):
  (tmp_path / "mine.yaml").write_text("base: tiny/catch\nseed: 7\n")
  assert load_config(tmp_path / "mine.yaml") == load_config("tiny/catch", ["seed=7"])
  (tmp_path / "tiny").mkdir()
  (tmp_path / "tiny/catch").write_text("seed: 1\nmax_env_steps: 5\n")
  assert load_config(tmp_path / "mine.yaml").max_env_steps == 5


def test_the_package_carries_the_files_of_a_wheel(tmp_path, monkeypatch):
  module = tmp_path / "moozi" / "io" / "config_files.py"
  monkeypatch.setattr(config_files, "__file__", str(module))
  assert config_root() == tmp_path / "config"
  (tmp_path / "moozi/data/config").mkdir(parents=True)
  assert config_root() == tmp_path / "moozi/data/config"


# --- headers ------------------------------------------------------------------------------------------


def test_the_list_has_every_file_that_names_an_environment():
  assert moozi.configs() == INFOS
  names = {info.name for info in INFOS}
  assert {"minatar/breakout", "ppo/minatar/freeway", "tiny/catch"} <= names
  assert not {"base", "minatar/base", "atari/base", "atari/100k/base", "ppo/minatar"} & names
  assert [info.name for info in INFOS] == sorted(names)
  assert config_files.PACKAGES.keys() | {"tiny"} == registry._MODULES.keys()


@pytest.mark.parametrize("info", INFOS, ids=lambda info: info.name)
def test_a_header_is_complete(info: ConfigInfo):
  assert re.fullmatch(r"[A-Z].{10,}\.", info.summary), info.summary
  assert info.env == load_config(info.path).env.name
  assert not info.measured or info.reached
  assert info.measured or info.reached is None


def figures_of(sources: tuple[str, ...]) -> tuple[list[float], list[tuple[float, int]]]:
  """Returns the seconds of each run, and pairs of (mean return or score, environment steps)."""
  seconds, returns = [], []
  for source in sources:
    folder = ROOT / source
    summary = json.loads((folder / "summary.json").read_text())
    seconds.append(summary["wall_s"])
    keys = ("test_return_mean", "test_score")
    returns += [(summary[key], summary["test_at_env_steps"]) for key in keys if key in summary]
    for path in folder.glob("evaluation*.json"):
      read = json.loads(path.read_text())
      evaluations = read if isinstance(read, list) else [read]
      returns += [
        (e[key], e["env_steps"]) for e in evaluations for key in ("return_mean", "score") if key in e
      ]
  return seconds, returns


@pytest.mark.parametrize("info", OF_ONE_RUN, ids=lambda info: info.name)
def test_figures_are_those_of_the_committed_results(info: ConfigInfo):
  if info.measured[0].endswith(".md"):
    text = (ROOT / info.measured[0]).read_text("utf-8")
    assert all(
      re.search(rf"\b{re.escape(n)}\b", text) for n in re.findall(r"[\d.]+", f"{info.time} {info.reached}")
    )
    return
  seconds, returns = figures_of(info.measured)
  where = r"(?: on one core(?: \(runtime=local(?:, \d+ steps/s)?\))?)?(?: for \d+M of \d+M steps)?"
  low, high = re.fullmatch(rf"(\d+)(?: to (\d+))? min{where}", info.time).groups()
  ends = [[min(seconds)], [max(seconds)]] if high else [[*seconds, sum(seconds)]] * 2
  for minutes, possible in zip((low, high or low), ends, strict=True):
    assert any(math.isclose(int(minutes), s / 60, abs_tol=0.55) for s in possible)
  (steps,) = re.findall(r"at (\d+)M steps", info.reached) or [None]
  figures = re.findall(r"-?\d+\.\d+", info.reached)
  assert figures
  for figure in figures:
    near = [at for value, at in returns if f"{value:.{len(figure.partition('.')[2])}f}" == figure]
    assert near, f"{figure} is none of {returns}"
    assert steps is None or any(math.isclose(at, int(steps) * 1e6, rel_tol=0.05) for at in near)


@pytest.mark.parametrize("info", MEASURED, ids=lambda info: info.name)
def test_results_are_of_the_same_environment_and_algorithm(info: ConfigInfo):
  config = config_to_dict(load_config(info.path))
  for source in info.measured:
    path = ROOT / source / "config.yaml"
    if path.is_file():
      ran = read_yaml(path)
      assert ran.get("env", ran.get("world"))["name"] == info.env
      assert ran.get("algorithm", "muzero") == config["algorithm"]


def test_durations_are_described():
  describe = config_files.describe_duration
  assert describe("tiny/catch") == "tiny/catch on two cores: 97 s; return: 1.0, 20 of 20 runs"
  assert describe("minatar/asterix").startswith("minatar/asterix: ")
  where = "57 to 125 min on one core (runtime=local)"
  reached = "19.2, 5.2, 17.4 and 19.4, 30 whole games, 3 seeds, 8 simulations in evaluation (that of 5.2: 32)"
  pong = f"atari/pong: {where}; return: {reached}"
  assert describe("atari/pong") == describe("atari/pong", "atari:Pong") == pong
  assert describe("atari/pong", "atari:Qbert") == (
    f"atari/pong: {where}; return in atari:Qbert: not yet measured"
  )
  freeway = "atari/machado/freeway on two cores: 3 h at most; return not yet measured"
  assert describe("atari/machado/freeway") == describe(ROOT / "config/atari/machado/freeway.yaml") == freeway
  assert describe("atari/base") is None  # names no environment
  assert describe("thesis/breakout") is None  # says no time


def test_a_file_of_the_user_has_no_duration(tmp_path):
  (tmp_path / "mine.yaml").write_text("base: tiny/catch\n")
  assert config_files.describe_duration(tmp_path / "mine.yaml") is None


def test_two_cores_suffice_where_no_hardware_is_named():
  for info in INFOS:
    config = load_config(info.path)
    gpus = sum(
      r.num_gpus for r in (config.workers.resources, config.evaluation.resources, config.ray.learner)
    )
    assert (info.hardware is not None) == (gpus > 0 or config.workers.num_workers > 2), info.name


def test_bases_stay_in_the_folder():
  """A base outside of config/ would be missing from the wheel."""
  for path in config_root().rglob("*.yaml"):
    base = read_yaml(path).get("base")
    assert base is None or (path.parent / base).resolve().is_relative_to(config_root())
