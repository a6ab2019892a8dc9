"""Tests of the command line: bad input gives status 2 and one line on stderr."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import moozi
from moozi.commands import evaluate, train
from moozi.core.config import Config, EnvConfig, NetworkConfig, RunConfig
from moozi.core.errors import UserError
from moozi.envs import registry
from moozi.envs.registry import env_spec
from moozi.envs.suites import minatar
from moozi.io.checkpoints import expected_of, path_of, save_checkpoint
from moozi.io.run_directory import RunDirectory
from moozi.io.trajectory_folder import TrajectoryWriter
from tests.replay.replay_lanes import make_spec, random_lanes, segment_of

FIGURES = {
  "episodes": 3,
  "distinct_episodes": 2,
  "return_mean": 0.5,
  "return_std": float("nan"),
  "return_min": 0.0,
  "return_max": 1.0,
  "length_mean": 9.0,
}


@pytest.fixture
def config_file(tmp_path) -> Path:
  path = tmp_path / "catch.yaml"
  path.write_text(f"env: {{name: 'tiny:catch'}}\nrun: {{dir: {tmp_path / 'runs'}}}\n")
  return path


def make_run(tmp_path: Path, **changes) -> RunDirectory:
  config = Config(run=RunConfig(dir=str(tmp_path / "runs"), name="first"), env=EnvConfig(name="tiny:catch"))
  run = RunDirectory.create(config)
  for step in (10, 200):
    meta = {"env_steps": step, "learner_steps": 3} | expected_of(config, env_spec("tiny:catch")) | changes
    save_checkpoint(run.checkpoints_path, f"step_{step}", {"x": np.zeros(2)}, meta)
  return run


def test_version_help_and_envs(cli):
  assert cli("--version") == (0, f"moozi {moozi.__version__}\n", "")
  status, out, _ = cli("--help")
  assert status == 0
  assert all(command in out for command in ("train", "evaluate", "envs"))


def test_envs(cli, refused, monkeypatch):
  status, out, _ = cli("envs")
  assert status == 0
  lines = {line.split()[0]: line for line in out.splitlines()}
  assert len(out.splitlines()) == len(registry._MODULES) + 3
  assert lines["minatar"].split()[1] == "5"
  assert lines["tiny"].endswith("installed")
  status, out, _ = cli("envs", "minatar")
  assert status == 0
  assert "minatar:seaquest" in out
  assert "env.kwargs.sticky_action_prob" in out
  assert "tiny:catch" not in out
  assert "the nearest is minatar" in refused("envs", "minitar")
  monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
  hint = "not installed; run pip install 'moozi[minatar]'"
  assert hint in cli("envs")[1]
  assert f"minatar: {hint}" in cli("envs", "minatar")[1]


def test_envs_of_one_game(cli, refused):
  status, out, _ = cli("envs", "tiny:catch")
  assert status == 0
  assert "frames: 10 × 5 × 2, bool" in out
  assert "3 actions: left, stay, right" in out
  assert "env.kwargs.max_episode_steps" in out
  found = json.loads(cli("envs", "tiny:point", "--json")[1])
  assert found["name"] == "tiny:point"
  assert found["actions"].startswith("49 joint actions of 2 dimensions: ")
  assert found["spec"]["num_env_actions"] == 49
  assert "unknown game" in refused("envs", "tiny:cat")
  assert "unknown library" in refused("envs", "my_module:make")


def test_envs_json(cli):
  status, out, _ = cli("envs", "--json")
  assert status == 0
  found = {info["name"]: info for info in json.loads(out)["libraries"]}
  assert sorted(found) == sorted(registry._MODULES)
  tiny = found["tiny"]
  assert (tiny["num_games"], tiny["missing"]) == (7, None)
  assert [game["name"] for game in tiny["games"]] == [
    "tiny:catch",
    "tiny:coin",
    "tiny:corridor",
    "tiny:dials",
    "tiny:gates",
    "tiny:point",
    "tiny:tmaze",
  ]
  assert "max_episode_steps" in tiny["games"][0]["options"]
  assert [info["name"] for info in json.loads(cli("envs", "tiny", "--json")[1])["libraries"]] == ["tiny"]


def test_help_imports_nothing_heavy():
  code = (
    "import sys, moozi.commands.app; "
    "sys.exit(str({'jax', 'ray', 'tensorboardX'} & set(sys.modules) or '') or 0)"
  )
  done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
  assert done.returncode == 0, done.stderr


# --- train --------------------------------------------------------------------------------------------


def test_train_resolves_config(cli, config_file, tmp_path, monkeypatch):
  seen = {}

  def run_training(training):
    seen.update(config=training.config, run=training.run.directory)
    return 0

  monkeypatch.setattr(train, "_run_training", run_training)
  status, _, err = cli("train", config_file, "seed=3", "run.name=first")
  assert (status, err) == (0, "")
  assert seen["run"].path == tmp_path / "runs" / "first"
  assert seen["config"].seed == 3
  assert seen["config"] == seen["run"].load_config()


def test_train_status(cli, config_file, monkeypatch):
  monkeypatch.setattr(train, "_run_training", lambda *_: 7)
  assert cli("train", config_file)[0] == 7


@pytest.mark.parametrize(
  ("left", "is_kept"),
  [
    ((), False),
    (("metrics.jsonl", ""), False),
    (("metrics.jsonl", "{}"), True),
    (("checkpoints/x", ""), True),
  ],
)
def test_failed_start_frees_name(refused, config_file, tmp_path, monkeypatch, left, is_kept):
  def run_training(config, spec, run, resumed, stop):
    if left:
      (run.path / left[0]).write_text(left[1])
    raise UserError("env.name=tiny:catch: violates its spec")
    yield

  monkeypatch.setattr("moozi.api.training.recorded_events", run_training)
  assert "violates its spec" in refused("train", config_file, "run.name=first")
  assert (tmp_path / "runs" / "first").exists() == is_kept


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError("a defect")])
def test_start_that_fails_otherwise_frees_name(config_file, tmp_path, monkeypatch, error):
  def run_training(config, spec, run, resumed, stop):
    raise error
    yield

  monkeypatch.setattr("moozi.api.training.recorded_events", run_training)
  with pytest.raises(type(error)):
    moozi.train(config_file, **{"run.name": "first"})
  assert not (tmp_path / "runs" / "first").exists()


@pytest.mark.parametrize(
  ("override", "message"),
  [
    ("learner.bach_size=3", "learner.bach_size: unknown key; did you mean learner.batch_size?"),
    ("seed=x", 'seed="x": must be a valid integer'),
    ("targets.discount=2", "targets.discount=2: must be less than or equal to 1"),
    ("env.name=nowhere:catch", "nowhere"),
    ("env.name=tiny:cach", "tiny:catch"),
    ("env.kwargs.sticky=1", "env.kwargs.sticky"),
    ("env.kwargs.a=!!python/object/apply:os.system ['true']", "is not allowed"),
    ("run.name=../x", "run.name="),
    ("run.name=/tmp/x", "run.name="),
    ("run.name=..", "run.name="),
    ("run.name=", "run.name="),
    ("seed", "key=value"),
    ("--seed", "No such option"),
  ],
)
def test_bad_settings(refused, config_file, tmp_path, override, message, monkeypatch):
  monkeypatch.setattr(train, "_run_training", lambda *_: pytest.fail("started"))
  if override == "run.name=":
    override = "run.name=''"
  assert message in refused("train", config_file, override)
  assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
  ("game", "message"),
  [
    ("goofspiel", "env.name=open_spiel:goofspiel: players move at the same time"),
    ("go(bord=9)", "go(bord=9): open_spiel rejects these parameters: Unknown parameter 'bord'"),
    ("go(board_size=20)", "open_spiel rejects these parameters: The current Go"),
    ("breakthrough(rows=1,columns=1)", "open_spiel rejects these parameters: rows_ > 1\n"),
    ("go()x", "env.name=open_spiel:go()x: must be GAME or GAME(parameter=value"),
    ("go(=)", "must be GAME or"),
    ("go(board_size=9))", "must be GAME or"),
    ("go(board_size=9,)", "must be GAME or"),
    ("go(board_size=9", "must be GAME or"),
    ("go(board_size=9,komi=7.5,board_size=5)", "the parameter board_size is given 2 times"),
    ("mfg_garnet", "a mean-field game"),
    ("bridge", "4 players or more"),
    ("leduc_poker", "two players who alternate strictly"),
    ("tic_tac_to", "the nearest is open_spiel:tic_tac_toe"),
  ],
)
def test_unsupported_games(refused, config_file, tmp_path, monkeypatch, game, message):
  pytest.importorskip("pyspiel")
  monkeypatch.setattr(train, "_run_training", lambda *_: pytest.fail("started"))
  assert message in refused("train", config_file, f"env.name=open_spiel:{game}")
  assert not (tmp_path / "runs").exists()


def test_unsupported_opponent(refused, config_file, tmp_path):
  pytest.importorskip("pyspiel")
  game = "env.name=open_spiel:kuhn_poker"
  assert "evaluation.opponent=mcts:100: would see" in refused(
    "train", config_file, game, "evaluation.opponent=mcts"
  )
  assert "evaluation.opponent" in refused("train", config_file, game, "evaluation.opponent=human")
  assert "targets.history_length=3: must be 1" in refused(
    "train", config_file, game, "targets.history_length=3"
  )
  assert not (tmp_path / "runs").exists()


def test_parameters_in_env_name(cli, config_file, tmp_path, monkeypatch):
  pytest.importorskip("pyspiel")
  seen = {}
  monkeypatch.setattr(train, "_run_training", lambda training: seen.update(run=training.run) or 0)
  assert cli("train", config_file, "env.name=open_spiel:go(board_size=5,komi=6.5)")[0] == 0
  assert env_spec(seen["run"].config.env.name).frame_shape == (5, 5, 5)
  assert seen["run"].path.name.startswith("open_spiel-go-board_size-5-komi-6-5-")
  assert seen["run"].config.env.name == "open_spiel:go(board_size=5,komi=6.5)"


@pytest.mark.parametrize(
  ("name", "message"),
  [
    ("gymnasium:CartPol-v1", "the nearest is gymnasium:CartPole-v1"),
    ("none_such:make_env", "there is no module none_such"),
    ("tests.envs.suites.user_fakes:make_cuonter", "the nearest is make_counter"),
  ],
)
def test_unsupported_envs(refused, config_file, tmp_path, name, message):
  pytest.importorskip("gymnasium")
  assert message in refused("train", config_file, f"env.name={name}")
  assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
  ("env_name", "package", "message"),
  [
    (
      "atari:Pong",
      "ale_py",
      "the package ale-py is not installed; run pip install 'moozi[atari]'",
    ),
    (
      "open_spiel:tic_tac_toe",
      "pyspiel",
      "the package open_spiel is not installed; run pip install 'moozi[open-spiel]'",
    ),
    (
      "gymnasium:CartPole-v1",
      "gymnasium",
      "the package gymnasium is not installed; run pip install 'moozi[gymnasium]'",
    ),
    ("minatar:breakout", "minatar", "the package minatar is not installed; run pip install 'moozi[minatar]'"),
  ],
)
def test_missing_package(refused, config_file, tmp_path, monkeypatch, env_name, package, message):
  monkeypatch.setattr(train, "_run_training", lambda *_: pytest.fail("started"))
  monkeypatch.setitem(sys.modules, package, None)
  minatar.load_game.cache_clear()
  assert message in refused("train", config_file, f"env.name={env_name}")
  assert not (tmp_path / "runs").exists()


def test_bad_files_and_names(refused, config_file, tmp_path, monkeypatch):
  monkeypatch.setattr(train, "_run_training", lambda *_: pytest.fail("started"))
  empty = tmp_path / "empty.yaml"
  empty.write_text("")
  assert "empty" in refused("train", empty)
  assert "no such file" in refused("train", tmp_path / "missing.yaml")
  assert "not a file" in refused("train", tmp_path)
  make_run(tmp_path)
  assert "never overwritten" in refused("train", config_file, "run.name=first")
  assert "CONFIG" in refused("train")
  assert "trian" in refused("trian")


# --- evaluate -----------------------------------------------------------------------------------------


@pytest.fixture
def evaluation(monkeypatch):
  """Replaces playing by fixed results; returns a dict of the arguments that it was called with."""
  seen = {}

  def play(agent, episodes, gif, options):
    seen.update(checkpoint=agent.checkpoint, episodes=episodes, simulations=agent.simulations, gif=gif)
    print("a library that prints")
    os.write(1, b"and one in C\n")
    return FIGURES

  monkeypatch.setattr(evaluate, "_play", play)
  return seen


def test_evaluate_json(cli, tmp_path, evaluation):
  run = make_run(tmp_path)
  status, out, err = cli("evaluate", run.path, "--json")
  assert status == 0
  assert out.count("\n") == 1
  assert json.loads(out) == FIGURES | {
    "env": "tiny:catch",
    "checkpoint": "step_200",
    "env_steps": 200,
    "return_std": None,
  }
  assert list(json.loads(out)) == list(evaluate.EVALUATION_KEYS)
  assert "a library that prints" in err
  assert "and one in C" in err
  assert evaluation["episodes"] == Config().evaluation.final_episodes
  assert evaluation["simulations"] is None
  assert evaluation["gif"] is None


def test_evaluate_returns(cli, refused, tmp_path, monkeypatch):
  run = make_run(tmp_path)
  played = FIGURES | {"returns": np.array([0.0, 1.0]), "lengths": np.array([9, 11])}
  monkeypatch.setattr(evaluate, "_play", lambda *_: played)
  assert "--returns" in refused("evaluate", run.path, "--returns")
  result = json.loads(cli("evaluate", run.path, "--json", "--returns")[1])
  assert list(result) == [*evaluate.EVALUATION_KEYS, "returns", "lengths"]
  assert (result["returns"], result["lengths"]) == ([0.0, 1.0], [9, 11])
  assert "returns" not in json.loads(cli("evaluate", run.path, "--json")[1])


def test_evaluate_options(cli, tmp_path, evaluation):
  run = make_run(tmp_path)
  status, out, _ = cli(
    "evaluate", run.path, "--checkpoint", "step_10", "--episodes", "5", "--simulations", "7"
  )
  assert status == 0
  assert "step_10" in out
  assert "return 0.50" in out
  assert (evaluation["checkpoint"].env_steps, evaluation["episodes"], evaluation["simulations"]) == (10, 5, 7)
  assert cli("evaluate", run.path, "--checkpoint", "40")[0] == 0
  assert evaluation["checkpoint"].env_steps == 10


TWO_PLAYERS = FIGURES | {
  "score": 0.75,
  "wins": 2,
  "draws": 1,
  "losses": 0,
  "return_margin": 0.1,
  "score_seat_0": 0.75,
  "return_mean_seat_0": 0.5,
  "return_margin_seat_0": 0.2,
}


@pytest.fixture
def board_run(tmp_path, monkeypatch):
  """Returns a run of a two-player game, and the arguments of its evaluation."""
  pytest.importorskip("pyspiel")
  config = Config(
    run=RunConfig(dir=str(tmp_path / "runs"), name="board"), env=EnvConfig(name="open_spiel:tic_tac_toe")
  )
  run = RunDirectory.create(config)
  meta = {"env_steps": 10, "learner_steps": 3} | expected_of(config, env_spec("open_spiel:tic_tac_toe"))
  save_checkpoint(run.checkpoints_path, "step_10", {"x": np.zeros(2)}, meta)
  seen = {}
  monkeypatch.setattr(
    evaluate, "_play", lambda agent, episodes, gif, options: seen.update(options) or TWO_PLAYERS
  )
  return run, seen


def test_evaluate_two_players(cli, board_run, monkeypatch):
  run, seen = board_run
  status, out, _ = cli("evaluate", run.path, "--json")
  result = json.loads(out)
  assert status == 0
  assert list(result) == list(evaluate.EVALUATION_KEYS + evaluate.TWO_PLAYER_KEYS)
  assert (result["opponent"], result["opponent_simulations"], result["score"]) == ("random", None, 0.75)
  assert result["score_seat_1"] is None
  assert seen["opponent"] is None
  status, out, _ = cli("evaluate", run.path, "--opponent", "mcts", "--opponent-simulations", "30")
  assert status == 0
  assert "score against mcts with 30 simulations: 0.750 (2 won, 1 drawn, 0 lost)" in out
  assert "0.750 from seat 0 (return 0.500 ± 0.200, 95%)" in out
  assert "seat 1" not in out
  assert (seen["opponent"], seen["opponent_simulations"]) == ("mcts", 30)
  monkeypatch.delitem(TWO_PLAYERS, "return_margin_seat_0")
  assert "0.750 from seat 0 (return 0.500)\n" in cli("evaluate", run.path)[1]


def test_evaluate_bad_opponents(refused, board_run):
  run, seen = board_run
  assert "--opponent=human" in refused("evaluate", run.path, "--opponent", "human")
  assert "'--opponent-simulations': 0: must be an integer from 1" in refused(
    "evaluate", run.path, "--opponent-simulations", "0"
  )
  for kind in ("random", "self"):
    message = refused("evaluate", run.path, "--opponent", kind, "--opponent-simulations", "9")
    assert "--opponent-simulations=9" in message
    assert f"not {kind}; use --opponent mcts" in message
  assert "not random; use --opponent mcts" in refused("evaluate", run.path, "--opponent-simulations", "9")
  assert seen == {}


def test_evaluate_one_player_has_no_opponent(refused, tmp_path, evaluation):
  run = make_run(tmp_path)
  assert "--opponent=mcts: tiny:catch has one player" in refused("evaluate", run.path, "--opponent", "mcts")
  assert "--opponent=self: tiny:catch has one player" in refused("evaluate", run.path, "--opponent", "self")
  assert "--opponent-simulations=9: tiny:catch has one" in refused(
    "evaluate", run.path, "--opponent-simulations", "9"
  )
  assert evaluation == {}


def test_evaluate_bad_run_and_checkpoint(refused, tmp_path, evaluation):
  assert "no such folder" in refused("evaluate", tmp_path / "missing")
  assert "not a run directory" in refused("evaluate", tmp_path)
  run = make_run(tmp_path)
  for text in ("step_11", "x" * 250, "1" * 5000):
    assert "no such checkpoint" in refused("evaluate", run.path, "--checkpoint", text)
  for text in ("0", "-1", "x", "1.5", "²"):
    assert f"'--episodes': {text}: must be an integer from 1" in refused(
      "evaluate", run.path, "--episodes", text
    )
    assert "--simulations" in refused("evaluate", run.path, "--simulations", text)
  (run.path / "config.yaml").write_text("sede: 3\n")
  assert "sede: unknown key" in refused("evaluate", run.path)
  assert evaluation == {}


def test_evaluate_mismatched_checkpoint(refused, tmp_path, evaluation):
  other = NetworkConfig(latent_size=99).model_dump(mode="json")
  run = make_run(tmp_path, network=other)
  assert "another network: network.latent_size is 99" in refused("evaluate", run.path)
  (run.path / "config.yaml").write_text("env: {name: 'tiny:corridor'}\nnetwork: {latent_size: 99}\n")
  assert "another environment: spec.name is tiny:catch, expected tiny:corridor" in refused(
    "evaluate", run.path
  )
  assert evaluation == {}


def test_evaluate_damaged_checkpoint(refused, tmp_path, evaluation):
  run = make_run(tmp_path)
  path_of(run.checkpoints_path, "step_10").write_bytes(b"\x80\x04.")
  assert "altered or cut" in refused("evaluate", run.path, "--checkpoint", "step_10")


# --- a run in a user's own environment


@pytest.fixture
def malicious_run(tmp_path, monkeypatch):
  """Returns a function that makes a run whose environment's module writes a file when imported."""
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, "path", [*sys.path])
  (tmp_path / "evil_envs.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
  run = make_run(tmp_path)

  def name(env_name: str, **kwargs) -> Path:
    text = json.dumps({"env": {"name": env_name, "kwargs": kwargs}})
    (run.path / "config.yaml").write_text(text)
    return run.path

  yield name
  sys.modules.pop("evil_envs", None)


@pytest.mark.parametrize("env_name", ["evil_envs:make_env", "gymnasium:evil_envs:Walk-v0", "evil_envs:x:y"])
def test_reading_a_run_imports_no_code(refused, malicious_run, tmp_path, evaluation, env_name):
  for command in ("evaluate", "inspect", "latent", "report", "watch"):
    assert "--allow-code" in refused(command, malicious_run(env_name))
  assert not (tmp_path / "ran").exists()
  assert "evil_envs" not in sys.modules
  assert evaluation == {}


@pytest.mark.parametrize(
  ("key", "section"),
  [
    ("env.wrappers[0]", {"env": {"name": "gymnasium:CartPole-v1", "wrappers": ["evil_envs:make"]}}),
    ("network.kind", {"network": {"kind": "evil_envs:make"}}),
    ("planners.reanalyze.algorithm", {"planners": {"reanalyze": {"algorithm": "evil_envs:make"}}}),
    ("learner.extra_losses[0]", {"learner": {"extra_losses": ["evil_envs:make"]}}),
    ("evaluation.opponent", {"evaluation": {"opponent": "evil_envs:make"}}),
    ("callbacks[0]", {"callbacks": ["evil_envs:make"]}),
  ],
)
def test_every_key_that_names_code_needs_allow_code(refused, malicious_run, tmp_path, key, section):
  path = malicious_run("tiny:catch")
  (path / "config.yaml").write_text(json.dumps(section))
  for command in (["evaluate", path], ["train", "--resume", path]):
    message = refused(*command)
    assert f"{key}=evil_envs:make imports a Python module" in message
    assert "--allow-code" in message
  assert not (tmp_path / "ran").exists()


def test_ray_cluster_needs_confirmation(refused, tmp_path):
  """A Ray cluster can run code in processes that join it, so a run's own address needs `--allow-code`."""
  path = make_run(tmp_path).path
  (path / "config.yaml").write_text(json.dumps({"ray": {"address": "203.0.113.1:6379"}}))
  assert "ray.address=203.0.113.1:6379: " in refused("train", "--resume", path)
  for given in ("ray.address=local", "--allow-code"):
    assert "has no state to resume" in refused("train", "--resume", path, given)
  for settings in ({"ray.address": "local"}, {"ray": {"address": "local"}}):
    with pytest.raises(UserError, match="has no state to resume"):
      moozi.resume(path, **settings)
  with pytest.raises(UserError, match=r"pass ray\.address=203\.0\.113\.1:6379"):
    moozi.resume(path, **{"ray.num_cpus": 1})


def test_allow_code_imports(refused, malicious_run, tmp_path, evaluation):
  message = refused("evaluate", malicious_run("evil_envs:make_env"), "--allow-code")
  assert "the module evil_envs has no make_env" in message
  assert (tmp_path / "ran").exists()


def test_start_from_imports_no_code(cli, malicious_run, config_file, tmp_path, monkeypatch):
  """Only the arrays of the checkpoint are read, not the configuration of its run."""
  monkeypatch.setattr(train, "_run_training", lambda *_: 0)
  path = malicious_run("evil_envs:make_env")
  assert cli("train", config_file, f"checkpoint.start_from={path}", "run.name=second")[0] == 0
  assert not (tmp_path / "ran").exists()


def test_env_output_goes_to_stderr(cli, malicious_run, tmp_path, evaluation):
  (tmp_path / "evil_envs.py").write_text(
    "print('hello')\nfrom tests.envs.suites.user_fakes import make_catch\n"
  )
  status, out, err = cli("evaluate", malicious_run("evil_envs:make_catch"), "--allow-code", "--json")
  assert status == 0, err
  assert json.loads(out)["env"] == "tiny:catch"
  assert "hello" in err


@pytest.fixture
def stored(tmp_path) -> Path:
  spec = make_spec()
  folder = tmp_path / "run" / "trajectories"
  writer = TrajectoryWriter(folder, spec)
  writer.append(segment_of(random_lanes(0, 3, 40, spec), 0, 40, spec), 0)
  writer.close()
  return folder


def test_trajectories(cli, stored):
  status, out, err = cli("trajectories", stored.parent)
  assert (status, err) == (0, "")
  *rows, last = out.splitlines()
  status, out, _ = cli("trajectories", stored, "--json")
  about = json.loads(out)
  assert status == 0
  assert (about["env"], about["steps"], about["lanes"], about["files"]) == ("test:lanes", 120, 3, 1)
  assert len(rows) - 1 == len(about["games"]) > 3
  game = about["games"][0]
  assert rows[1].split() == ["0", "0", str(game["length"]), f"{game['return']:.2f}", game["end"]]
  ended = [g for g in about["games"] if g["end"] != "unfinished"]
  assert f"{len(ended)} games ended" in last
  assert f"return {np.mean([g['return'] for g in ended]):.2f}" in last


def test_trajectories_errors(refused, stored, tmp_path):
  (path,) = stored.iterdir()
  path.write_bytes(path.read_bytes()[:-1])
  assert "altered or cut" in refused("trajectories", stored.parent)
  assert "no such folder" in refused("trajectories", tmp_path / "nowhere")
  assert "trajectories.save=true" in refused("trajectories", make_run(tmp_path).path)
