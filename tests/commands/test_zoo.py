"""Tests of zoo agents: run directories that commands read by name and never write to."""

import dataclasses
import json
import os
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import moozi
from moozi.core.errors import UserError
from moozi.envs.registry import env_spec
from moozi.io import zoo_files
from moozi.io.card import CARD, list_agents, make_card, read_card
from moozi.io.checkpoints import (
  expected_of,
  list_checkpoints,
  load_checkpoint,
  save_checkpoint,
)
from moozi.io.config import load_config, save_config
from moozi.io.metrics import read_metrics
from moozi.io.run_directory import SUMMARY_KEYS, RunDirectory
from moozi.io.zoo_files import FILES, agent_names, resolve_run, size_of, write_files_list
from moozi.run import build
from moozi.training.algorithms import algorithm_of
from moozi.training.start_from import load_start
from scripts.make_zoo import MAX_GIF_BYTES, is_reproduced, make_entry
from tests.commands.conftest import make_run
from tests.io.state_files import count_hashing

NAME = "tiny/catch"
EPISODES = 5


@pytest.fixture(scope="module")
def ended(tmp_path_factory) -> RunDirectory:
  """Returns a run with a final evaluation, like one of `moozi train`."""
  run = RunDirectory.open(make_run(tmp_path_factory.mktemp("ended"), "first"))
  config = run.load_config()
  spec = env_spec(config.env.name)
  (info,) = list_checkpoints(run.checkpoints_path)
  template = algorithm_of(config).training_state_template(config, spec)
  state = load_checkpoint(info.path, template, expected_of(config, spec))
  result = build.build_evaluator(config, spec).run(state.variables, num_episodes=EPISODES)
  figures = {f"test/{key}": value for key, value in result.summary().items()} | {"test/at_env_steps": 64}
  ticks = [{"env_steps": i, "learner_steps": 0, "wall_s": 1.0 * i, "loss/total": 1 / 3} for i in range(64)]
  run.metrics_path.write_text("".join(json.dumps(tick) + "\n" for tick in [*ticks, ticks[-1] | figures]))
  summary = dict.fromkeys(SUMMARY_KEYS, 1.0)
  summary |= {"env_steps": 64, "learner_steps": 3, "reason": "max_env_steps", "wall_s": 90.0}
  summary |= {f"test_{key}": figures[f"test/{key}"] for key in ("return_mean", "return_std", "episodes")}
  run.write_summary(summary | {"test_at_env_steps": 64})
  return run


@pytest.fixture(scope="module")
def made(ended, tmp_path_factory) -> Path:
  root = tmp_path_factory.mktemp("zoo")
  make_entry(ended, NAME, root=root, hardware="a processor, 2 cores")
  return root


@pytest.fixture
def root(made, tmp_path, monkeypatch) -> Path:
  """Returns a copy of the zoo that all commands use; the current folder is an empty one."""
  root = tmp_path / "zoo"
  shutil.copytree(made, root)
  monkeypatch.setattr(zoo_files, "zoo_root", lambda: root)
  (tmp_path / "here").mkdir()
  monkeypatch.chdir(tmp_path / "here")
  return root


def files_of(path: Path) -> dict[str, bytes]:
  return {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}


# --- the entry ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_entry_has_the_parameters_and_no_more(ended, root):
  (whole,), (small,) = (list_checkpoints(p / "checkpoints") for p in (ended.path, root / NAME))
  config, spec = ended.load_config(), env_spec("tiny:catch")
  template, expected = algorithm_of(config).training_state_template(config, spec), expected_of(config, spec)
  a, b = (load_checkpoint(info.path, template, expected) for info in (whole, small))
  jax.tree_util.tree_map(np.testing.assert_array_equal, (a.params, a.net_state), (b.params, b.net_state))
  assert (b.target_params, b.opt_state, b.learner_step) == (None, None, None)
  assert small.has_parameters_only
  assert not whole.has_parameters_only
  assert all(getattr(small, n) == getattr(whole, n) for n in ("name", "env_steps", "learner_steps"))
  assert small.num_bytes < whole.num_bytes / 3
  assert {leaf.dtype for leaf in jax.tree_util.tree_leaves(b.params)} == {np.dtype("float32")}
  assert (root / NAME / "play.gif").stat().st_size <= MAX_GIF_BYTES


def test_entry_has_no_path_of_its_machine(ended, root):
  for name, data in files_of(root / NAME).items():
    assert str(ended.path.parent).encode() not in data, name


def test_card(root):
  card = read_card(root / NAME / CARD)
  assert [card] == list_agents()
  assert (card.name, card.env, card.seeds, card.env_steps) == (NAME, "tiny:catch", (0,), 64)
  assert card.actions == "3 actions: left, stay, right"
  assert card.command == f"moozi evaluate zoo:{NAME} --episodes {EPISODES}"
  assert (card.hardware, card.hardware_source) == ("a processor, 2 cores", "stated")
  assert card.config_name == "tiny/catch"
  assert card.differences["evaluation.final_episodes"] == (100, 5)
  text = (root / NAME / "card.md").read_text("utf-8")
  assert "stated by the author" in text
  assert "| actions | 3 actions: left, stay, right |" in text
  assert "95% interval" in text
  assert "one trained agent" in text
  assert f"    {card.command}\n" in text


@pytest.mark.slow
def test_entry_of_a_stopped_run_is_evaluated(ended, tmp_path):
  copy = RunDirectory(tmp_path / "copy")
  shutil.copytree(ended.path, copy.path)
  copy.write_summary(copy.read_summary() | {"reason": "stopped", "test_return_mean": 9.0})
  for run in (copy, RunDirectory.open(make_run(tmp_path, "bare"))):
    card = read_card(make_entry(run, NAME, root=tmp_path / "zoo") / CARD)
    assert (card.evaluation.episodes, card.evaluation.at_env_steps) == (EPISODES, 64)
    assert card.evaluation.return_mean == make_card(ended).evaluation.return_mean
    assert "when the agent was made" in card.conditions["evaluated"]


@pytest.mark.slow
def test_entry_is_evaluated_with_another_number_of_episodes(ended, tmp_path):
  """Also if the last checkpoint is the best one, whose name has a suffix that a zoo agent's has not."""
  copy = RunDirectory(tmp_path / "copy")
  shutil.copytree(ended.path, copy.path)
  (last,) = copy.checkpoints_path.glob("step_*")
  last.rename(last.with_stem(f"{last.stem}_best"))
  entry = make_entry(copy, NAME, root=tmp_path / "zoo", episodes=EPISODES + 2)
  card = read_card(entry / CARD)
  assert (card.evaluation.episodes, card.evaluation.at_env_steps) == (EPISODES + 2, 64)
  assert card.command == f"moozi evaluate zoo:{NAME} --episodes {EPISODES + 2}"
  assert card.conditions["evaluated"].endswith(f"the run's final evaluation had {EPISODES} episodes")
  assert [path.name for path in (entry / "checkpoints").iterdir()] == [last.name]


@pytest.mark.slow
def test_entry_must_reproduce_its_figure(ended, tmp_path):
  copy = RunDirectory(tmp_path / "copy")
  shutil.copytree(ended.path, copy.path)
  copy.write_summary(copy.read_summary() | {"test_return_mean": 9.0})
  with pytest.raises(UserError, match=r"the run recorded 9\.00 \["):
    make_entry(copy, NAME, root=tmp_path / "zoo")
  assert files_of(tmp_path / "zoo") == {}


def test_fewer_episodes_widen_the_interval(root):
  evaluation = read_card(root / NAME / CARD).evaluation
  wide = evaluation.model_copy(update={"return_mean": 1.0, "low": 0.0, "high": 2.0, "episodes": 100})
  assert is_reproduced(1.9, wide)
  assert not is_reproduced(2.5, wide)
  assert is_reproduced(2.5, wide, episodes=25)
  assert not is_reproduced(3.5, wide, episodes=25)


def test_entry_has_the_evaluation_but_no_faults(root):
  ticks = read_metrics(root / NAME / "metrics.jsonl")
  assert ticks[-1]["test/episodes"] == EPISODES
  assert not any(name.startswith("faults/") for tick in ticks for name in tick)


# --- names --------------------------------------------------------------------------------------------


def test_names(root, refused):
  shutil.copytree(root / NAME, root / "other/pong")
  assert agent_names() == ["other/pong", NAME]
  assert resolve_run("zoo:tiny/catch") == resolve_run("zoo:catch") == root / NAME
  assert resolve_run("runs/first") == Path("runs/first")
  assert "zoo:tiny/cach: no such agent; did you mean zoo:tiny/catch" in refused("evaluate", "zoo:tiny/cach")
  assert "agents are other/pong, tiny/catch" in refused("watch", "zoo:zzz")
  assert "zoo:../tiny/catch: no such agent" in refused("watch", "zoo:../tiny/catch")
  shutil.copytree(root / NAME, root / "more/catch")
  assert "did you mean zoo:more/catch or zoo:tiny/catch?" in refused("watch", "zoo:catch")


def test_zoo_lists_agents(root, cli):
  status, out, _ = cli("zoo")
  assert status == 0
  assert "zoo:tiny/catch  tiny:catch" in out
  (row,) = json.loads(cli("zoo", "--json")[1])["agents"]
  assert row["bytes"] == size_of(root / NAME) < 300_000
  assert row["evaluation"]["low"] <= row["evaluation"]["return_mean"] <= row["evaluation"]["high"]
  (root / NAME / "play.gif").write_bytes(b"GIF89a")
  status, out, err = cli("zoo")
  assert (status, "tiny/catch" in out) == (0, False)
  assert "moozi: skipped " in err


# --- commands -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_cards_command_reproduces_its_figure(root, cli):
  card = read_card(root / NAME / CARD)
  status, out, _ = cli(*card.command.split()[1:], "--json")
  assert status == 0
  assert json.loads(out)["return_mean"] == pytest.approx(card.evaluation.return_mean)


@pytest.mark.parametrize(
  ("command", "written"),
  [
    pytest.param("inspect", {"inspect"}, marks=pytest.mark.slow),
    ("card", {"card.md", "card.json", "play.gif"}),
    pytest.param("report --max-steps 3", {"report.html"}, marks=pytest.mark.slow),
    pytest.param("latent --steps 4", {"latent"}, marks=pytest.mark.slow),
  ],
)
def test_commands_write_into_the_current_folder(root, cli, command, written):
  before = files_of(root)
  name, *options = command.split()
  status, _, err = cli(name, "zoo:catch", *options)
  assert status == 0, err
  assert files_of(root) == before
  assert {path.name for path in Path().iterdir()} == written
  if name == "card":
    assert read_card(Path("card.json")) == read_card(root / NAME / CARD)


def test_python(root):
  (card,) = moozi.zoo()
  agent = moozi.load(f"zoo:{card.name}")
  assert agent.card == card
  env = agent.make_env()
  assert 0 <= agent.act(env.reset()) < 3
  assert moozi.Run("zoo:catch").evaluations()["episodes"].tolist() == [EPISODES]


@pytest.mark.slow
def test_watch(root, cli):
  status, out, err = cli("watch", "zoo:catch")
  assert status == 0, err
  assert "episode 0: return " in out


def test_zoo_agent_cannot_be_resumed(root, refused):
  before = files_of(root)
  for path in ("zoo:catch", root / NAME):
    message = refused("train", "--resume", path, "max_env_steps=1000")
    assert "zoo:tiny/catch: a zoo agent has parameters only and cannot be resumed" in message
    assert "checkpoint.start_from=zoo:tiny/catch" in message
  assert files_of(root) == before


@pytest.mark.parametrize(
  "command", ["trajectories", "reanalyze --out x", "reanalyze --out x --trajectories zoo:catch"]
)
def test_zoo_agent_has_no_trajectories(root, refused, command):
  name, *options = command.split()
  assert f"{root / NAME}: a run without trajectories" in refused(name, "zoo:catch", *options)


def test_start_from(root, ended, tmp_path):
  config = ended.load_config()
  checkpoint = config.checkpoint.model_copy(update={"start_from": "zoo:catch"})
  config, spec = config.model_copy(update={"checkpoint": checkpoint}), env_spec("tiny:catch")
  state = load_start(config, spec, ended).state.training
  fresh = build.initial_training_state(config, spec)
  (info,) = list_checkpoints(ended.checkpoints_path)
  template = algorithm_of(config).training_state_template(config, spec)
  whole = load_checkpoint(info.path, template, expected_of(config, spec))
  expected = dataclasses.replace(fresh, params=whole.params, target_params=whole.params)
  equal = jax.tree_util.tree_map(np.array_equal, state, expected)
  assert jax.tree_util.tree_all(equal)
  assert int(state.learner_step) == 0


def test_parameters_are_hashed_once(root, monkeypatch):
  """The list of files has the digest of their header, which is verified first."""
  times = count_hashing(monkeypatch)
  moozi.load("zoo:catch")
  (path,) = (root / NAME / "checkpoints").iterdir()
  assert times(path) == 1


# --- damage -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  "name", ["config.yaml", "metrics.jsonl", "summary.json", CARD, "card.md", "play.gif", "step_*"]
)
def test_altered_byte_is_refused(root, refused, name):
  (path,) = (root / NAME).rglob(name)
  data = bytearray(path.read_bytes())
  data[len(data) // 2] ^= 1
  path.write_bytes(data)
  assert f"{path}: altered or cut since it was written" in refused("evaluate", "zoo:catch")
  path.unlink()
  assert f"{path}: missing" in refused("evaluate", "zoo:catch")


@pytest.mark.parametrize("data", [b"", b"[]", b'{"format": 1, "files": 3}', b"\xff", b'{"format": 9}'])
def test_damaged_list_is_refused(root, refused, data):
  (root / NAME / FILES).write_bytes(data)
  assert str(root / NAME / FILES) in refused("evaluate", "zoo:catch")


def test_extra_files_and_links_are_refused(root, refused):
  path = root / NAME / "model.pkl"
  path.write_bytes(b"x")
  assert "model.pkl: is not part of a zoo agent" in refused("evaluate", "zoo:catch")
  with pytest.raises(UserError, match="is not part of a zoo agent"):
    write_files_list(root / NAME)  # even a file list with valid checksums cannot add a file
  assert "model.pkl: is not part of a zoo agent" in refused("evaluate", "zoo:catch")
  path.unlink()
  (root / NAME / "inspect").symlink_to(root)
  assert "inspect: is a link" in refused("evaluate", "zoo:catch")
  (root / NAME / "inspect").unlink()
  os.mkfifo(root / NAME / "pipe")
  assert "pipe: is too large or not a file" in refused("evaluate", "zoo:catch")


def test_checkpoint_of_another_environment_is_refused(root, refused, tmp_path):
  """The check also applies if all checksums are valid."""
  config = load_config(root / NAME / "config.yaml", ["env.name=tiny:corridor"])
  save_config(config, root / NAME / "config.yaml")
  assert "config.yaml: altered" in refused("evaluate", "zoo:catch")
  write_files_list(root / NAME)
  assert "a checkpoint of another environment: spec.name is tiny:catch" in refused("evaluate", "zoo:catch")


def test_code_is_refused(root, refused):
  config = load_config(root / NAME / "config.yaml", ["env.name=my_envs:make_env"])
  save_config(config, root / NAME / "config.yaml")
  write_files_list(root / NAME)
  assert "env.name=my_envs:make_env" in refused("evaluate", "zoo:catch")


# --- the card of a run --------------------------------------------------------------------------------


def test_card_of_a_run_without_records(runs, cli, tmp_path):
  status, out, err = cli("card", runs["catch"], "--out", tmp_path / "card")
  assert status == 0, err
  assert out.split() == [str(tmp_path / "card" / name) for name in ("card.md", CARD)]
  text = (tmp_path / "card" / "card.md").read_text("utf-8")
  for line in ("**Return: not recorded.**", "| minutes | not recorded |", "GIF: not recorded."):
    assert line in text
  card = read_card(tmp_path / "card" / CARD)
  assert (card.evaluation, card.command, card.hardware) == (None, None, None)


def test_card_of_a_run_is_written_into_it(ended, cli):
  (ended.gifs_path / "step_000000064.gif").write_bytes(b"GIF89a")
  (ended.gifs_path / "step_000000064_tiles.gif").write_bytes(b"tiles")
  summary = ended.read_summary()
  machine = {"cpu": "a | b\x1b", "cores": 4, "system": "Linux"}
  ended.write_summary(summary | {"machine": machine})
  status, out, err = cli("card", ended.path)
  ended.write_summary(summary)
  assert status == 0, err
  assert str(ended.path / "card.md") in out
  assert (ended.path / "play.gif").read_bytes() == b"GIF89a"
  assert r"a \| b?, 4 cores |" in (ended.path / "card.md").read_text("utf-8")
  card = read_card(ended.path / CARD)
  assert (card.hardware_source, card.minutes) == ("recorded", 1.5)
  assert card.command == f"moozi evaluate {ended.path} --episodes {EPISODES}"
  assert make_card(ended, name="other").name == "other"


@pytest.mark.parametrize(
  ("opponent", "text"),
  [
    ("random", "random play"),
    ("mcts", "mcts with 7 simulations"),
    ("mcts:50", "mcts with 50 simulations"),
    ("zoo:boards/connect_four", "zoo:boards/connect_four"),
  ],
)
def test_card_names_the_opponent(tmp_path, opponent, text):
  overrides = [f"evaluation.opponent={opponent}", "evaluation.opponent_simulations=7"]
  run = RunDirectory.create(load_config(None, [f"run.dir={tmp_path}", *overrides]))
  meta = {"env_steps": 1, "learner_steps": 1, "spec": {"num_players": 2}}
  save_checkpoint(run.checkpoints_path, "step_000000001", {"x": np.zeros(1)}, meta)
  assert make_card(run).conditions["opponent"] == f"{text}; seats alternate"


@pytest.mark.parametrize("is_other", [False, True])
def test_card_names_the_network_and_whether_the_model_is_deterministic(tmp_path, is_other):
  overrides = ["chance.codes=2", "network.kind=mlp", "evaluation.network=target"] if is_other else []
  card = make_card(RunDirectory.create(load_config(None, [f"run.dir={tmp_path}", *overrides])))
  assert ("the target network of the last checkpoint" in card.conditions["protocol"]) == is_other
  assert any("deterministic" in limit for limit in card.limits) != is_other
