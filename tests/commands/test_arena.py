"""Tests of `moozi arena`, and of trained agents as players."""

import dataclasses
import errno
import json
import os
import re
import sys
from pathlib import Path
from unittest import mock

import jax
import numpy as np
import pytest

import moozi
from moozi.api import arena as arena_module
from moozi.api.players import TrainedPlayer, make_player, run_of_approach
from moozi.core.errors import RunError, UserError
from moozi.envs.registry import env_spec, make_table
from moozi.io.checkpoints import save_checkpoint
from tests.commands.conftest import PPO, make_run
from tests.envs.players import check_player

pytest.importorskip("pyspiel")
GAME = "open_spiel:tic_tac_toe"
PAIR = ("random", "mcts:3")


def lines(folder):
  return (folder / "games.jsonl").read_text().splitlines()


def test_results_are_kept_and_extended(cli, tmp_path):
  out = tmp_path / "out"
  arguments = ("arena", GAME, *PAIR, "--workers", "1", "--out", out)
  status, text, _ = cli(*arguments, "--games", "8")
  assert status == 0
  assert text.startswith(f"{GAME}: 8 games (")
  assert "mcts:3 against random: " in text
  assert {path.name for path in out.iterdir()} == {"games.jsonl", "arena.json", "arena.png", "lock"}
  first = lines(out)
  assert len(first) == 9
  status, text, _ = cli(*arguments, "random", "--games", "10", "--json")
  assert status == 0
  found = json.loads(text)
  assert found == json.loads((out / "arena.json").read_text())
  assert found["num_games"] == 30
  assert sorted(player["name"] for player in found["players"]) == ["mcts:3", "random", "random #2"]
  assert found["pinned"] == "random"
  assert lines(out)[:9] == first
  assert len(lines(out)) == 31


def test_games_with_other_chance_outcomes_are_distinct(tmp_path):
  """The actions of a game do not include its chance outcomes, here the deal."""
  found = moozi.arena("open_spiel:kuhn_poker", ("random", "random"), games=20, out=tmp_path).to_json()
  assert found["num_distinct"] >= found["num_openings"] == 10
  assert found["scores"][0][1]["distinct"] == 20


def test_one_opening_has_no_interval(cli, tmp_path):
  _, text, _ = cli("arena", GAME, *PAIR, "--workers", "1", "--out", tmp_path, "--games", "2")
  assert " against " in text
  assert "[–, –] (" in text
  found = json.loads((tmp_path / "arena.json").read_text())
  assert all(player["low"] is player["score_high"] is None for player in found["players"])


def test_integers_of_numpy(tmp_path):
  first, second = (
    moozi.arena(GAME, PAIR, games=2, seed=kind(3), opening_plies=kind(1), out=tmp_path / kind.__name__)
    for kind in (int, np.int64)
  )
  assert first == second
  assert len({(tmp_path / kind.__name__ / "games.jsonl").read_text() for kind in (int, np.int64)}) == 1


@pytest.mark.parametrize(
  ("number", "least"), [("games", 1), ("opening_plies", 0), ("simulations", 1), ("workers", 1)]
)
def test_numbers_are_checked(number, least):
  with pytest.raises(UserError, match=f"{number}={least - 1}: must be at least {least}"):
    moozi.arena(GAME, PAIR, **{number: least - 1})


@pytest.mark.parametrize(
  ("players", "seed", "message"),
  [(PAIR, -1, "seed=-1: must be from 0 to 2,147,483,647"), ("random", 0, "players='random': must be a list")],
)
def test_arguments_are_checked(players, seed, message):
  with pytest.raises(UserError, match=message):
    moozi.arena(GAME, players, seed=seed)


def test_a_stop_is_reported_on_standard_error(cli, tmp_path, monkeypatch):
  def stop(*args, on_game, **kwargs):
    on_game(32, 40)
    raise KeyboardInterrupt

  monkeypatch.setattr("moozi.api.arena.arena", stop)
  status, out, err = cli("arena", GAME, *PAIR, "--json", "--out", tmp_path)
  assert (status, out) == (130, "")
  assert f"stopped: {tmp_path} keeps 32 of 40 games; the same command continues\n" in err


def test_simulations_have_no_effect_on_an_algorithm_without_search(runs):
  found = moozi.arena(GAME, ["random", f"run:{runs['q_learning']}"], games=2, simulations=3)
  assert found.standings.players == ("random", f"run:{runs['q_learning']}@step_000000064")


def test_an_approach_imports_no_code(folder):
  """A run may come from an untrusted source, so the modules that it names are not imported."""
  pytest.importorskip("gymnasium")
  (folder / "own_wrappers.py").write_text("def wrap(env):\n  return env\n")
  path = make_run(Path("runs"), "own", "env.name=gymnasium:CartPole-v1", checkpoint=False)
  (path / "summary.json").write_text(json.dumps({"reason": "max_wall_s"}))
  text = (path / "config.yaml").read_text()
  assert "wrappers: []" in text
  (path / "config.yaml").write_text(text.replace("wrappers: []", "wrappers: ['own_wrappers:wrap']"))
  spec = env_spec("gymnasium:CartPole-v1")
  with pytest.raises(
    UserError, match=r"approach:muzero: no run .*; runs/own names Python modules: pass --allow-code"
  ):
    run_of_approach("approach:muzero", spec)
  assert "own_wrappers" not in sys.modules
  assert run_of_approach("approach:muzero", spec, allow_code=True) == "run:runs/own"


@pytest.mark.slow
def test_an_opponents_run_imports_code_with_allow_code(cli, refused, tmp_path):
  board = (*PPO, f"env.name={GAME}")
  own = make_run(tmp_path, "own", *board)
  old = make_run(tmp_path, "old", *board, "callbacks=['json:loads']")
  arguments = ("evaluate", own, "--episodes", "2", "--opponent", f"run:{old}")
  message = refused(*arguments)
  assert "callbacks[0]=json:loads imports a Python module" in message
  assert "pass --allow-code" in message
  status, out, err = cli(*arguments, "--allow-code")
  assert status == 0, err
  assert f"score against run:{old}: " in out


def test_approach_is_the_last_complete_run(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  of_table = ("algorithm=q_learning", "q_learning.kind=table")
  game = f"env.name={GAME}"
  folders = ("runs/a", game, *of_table), ("runs/testbed/b", game, *of_table), ("runs/c", game)
  others = ("runs/d", *of_table, "env.name=open_spiel:kuhn_poker"), ("runs/e", game, *of_table)
  for time, (folder, *overrides) in enumerate([*folders, *others]):
    path = make_run(Path(folder).parent, Path(folder).name, *overrides)
    reason = "stopped" if folder == "runs/e" else "max_wall_s"
    (path / "summary.json").write_text(json.dumps({"reason": reason}))
    os.utime(path / "summary.json", (time, time))
  found = moozi.arena(GAME, ["random", "approach:q_learning"], games=4, pinned="approach:q_learning")
  name = "run:runs/testbed/b@step_000000064"
  assert found.standings.players == ("random", name)
  assert found.standings.pinned == name
  spec = env_spec(GAME)
  assert run_of_approach("approach:q_learning", spec) == "run:runs/testbed/b"
  assert isinstance(make_player("approach:q_learning", spec), TrainedPlayer)
  assert run_of_approach("approach:muzero", spec) == "run:runs/c"
  with pytest.raises(UserError, match="approach:ppo: no run in runs/ completed"):
    run_of_approach("approach:ppo", spec)


def test_a_stopped_arena_continues(tmp_path):
  arguments = {"task": GAME, "players": PAIR, "games": 40, "opening_plies": 2}
  whole = moozi.arena(**arguments)

  def stop(done, total):
    if done:
      raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):
    moozi.arena(**arguments, out=tmp_path, on_game=stop)
  assert len(lines(tmp_path)) == 33
  counts = []
  continued = moozi.arena(**arguments, out=tmp_path, on_game=lambda *count: counts.append(count))
  assert counts == [(32, 40), (40, 40)]
  assert continued == whole
  with pytest.raises(UserError, match=r"games.jsonl: has records with seed=0, not 1; choose another folder"):
    moozi.arena(**arguments, out=tmp_path, seed=1)


def test_a_full_disk_loses_nothing(tmp_path):
  arguments = {"task": GAME, "players": PAIR, "games": 40, "out": tmp_path}
  full, synced = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), []

  def fill(descriptor):
    synced.append(descriptor)
    if len(synced) == 3:  # the header, the first block, the second
      raise full

  with (
    mock.patch.object(os, "fsync", fill),
    pytest.raises(RunError, match="No space left on device; it keeps 32"),
  ):
    moozi.arena(**arguments)
  assert len(lines(tmp_path)) == 33
  assert len(moozi.arena(**arguments).games) == 40


@pytest.mark.parametrize(("returns", "opening"), [("[]", "0"), ("[0]", "1e999")])
def test_a_game_that_is_not_one_is_refused(tmp_path, returns, opening):
  moozi.arena(GAME, PAIR, games=2, out=tmp_path)
  rest = '"players": ["random"], "actions": [], "num_random": 0'
  with (tmp_path / "games.jsonl").open("a") as file:
    file.write(f'{{"opening": {opening}, "returns": {returns}, {rest}}}\n')
  with pytest.raises(UserError, match=r"games.jsonl: line 4 is not a game; move the file away"):
    moozi.arena(GAME, PAIR, games=2, out=tmp_path)


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    ((), "arena: needs a task and players, such as open_spiel:tic_tac_toe random mcts:100"),
    ((GAME, "random"), "random: an arena needs at least two players"),
    (
      (GAME, "random", "mct:3"),
      "mct:3: no such player; must be random, mcts, alpha_beta, mcts:SIMULATIONS, alpha_beta:DEPTH, run:PATH",
    ),
    ((GAME, "random", "mcts:0"), "mcts:0: no such player; must be"),
    ((GAME, "random", "human"), "human: cannot play in an arena; `moozi play` is for people"),
    (
      (GAME, "random", "approach:x"),
      "approach:x: no such algorithm; must be approach:muzero, approach:alphazero, approach:ppo, ",
    ),
    (
      (GAME, "random", "approach:ppo"),
      f"approach:ppo: no run in runs/ completed its training on {GAME} (frames",
    ),
    ((GAME, "random", "run:nowhere"), "nowhere: "),
    ((GAME, "random", "zoo:tic"), "zoo:tic: no such agent"),
    ((GAME, "random", "nowhere:make"), "player=nowhere:make: there is no module nowhere"),
    (
      (GAME, "random", "zoo:connect_four"),
      "plays open_spiel:connect_four (frames bool[6, 7, 4], 7 actions), not",
    ),
    (
      ("open_spiel:go(board_size=7)", "random", "zoo:boards/go_5x5"),
      "plays open_spiel:go(board_size=5) (frames bool[5, 5, 5], 26 actions), not open_spiel:go(board_size=7)",
    ),
    (
      ("tiny:catch", "random", "mcts"),
      "tiny:catch: has one player; players meet only in games of two or more",
    ),
    (("open_spiel:tic_tac", "random", "mcts"), "unknown game 'tic_tac' of open_spiel"),
    (("boards/nothing", "random", "mcts"), "boards/nothing"),
    (("open_spiel:kuhn_poker", "random", "mcts"), "mcts: would see what is hidden in open_spiel:kuhn_poker"),
    ((GAME, *PAIR, "--opening-plies", "9"), "--opening-plies=9: every game of open_spiel:tic_tac_toe ends"),
    (("x" * 300 + ":y", *PAIR), "there is no module xxx"),
    ((GAME, *PAIR, "--pin", "other"), "pinned=other: does not play; must be one of random, mcts:3"),
    (("--milestones", "nowhere"), "nowhere: "),
    (
      ("zoo:tic_tac_toe", "random", "random"),
      "arena: zoo:tic_tac_toe is a player; the first argument",
    ),
    (
      ("mcts:100", "random"),
      "arena: mcts:100 is a player; the first argument is the task, such as",
    ),
    (("random", "mcts"), "arena: random is a player; the first argument is the task"),
    (
      ("--milestones", "nowhere", GAME, "random"),
      f"{GAME}: is an environment; with milestones, the task is the run's environment",
    ),
  ],
)
def test_errors_are_one_line(refused, tmp_path, arguments, message):
  line = refused("arena", *arguments, "--workers", "1", "--out", tmp_path / "out")
  assert message in line


@pytest.fixture(scope="module")
def milestones(tmp_path_factory):
  """Returns the path of a tic-tac-toe run with two milestones and a last checkpoint."""
  path = make_run(tmp_path_factory.mktemp("milestones"), "board", f"env.name={GAME}")
  agent = moozi.load(path)
  for steps in (16, 32):
    meta = agent.checkpoint.meta | {"env_steps": steps, "is_milestone": True}
    save_checkpoint(path / "checkpoints", f"step_{steps:09d}", agent.state, meta)
  return path


@pytest.mark.slow
def test_milestones_and_other_players(milestones, tmp_path):
  players = ["random", f"prior:{milestones}"]
  found = moozi.arena(None, players, milestones=milestones, games=4, out=tmp_path)
  run = f"run:{milestones}@step_0000000"
  assert found.steps == {f"{run}16": 16, f"{run}32": 32}
  assert set(found.standings.players) == {*found.steps, "random", f"prior:{milestones}@step_000000064"}
  # The milestones have equal parameters and play without noise, so the two games of an opening are equal.
  pairs = found.pairs().set_index(["first", "second"])
  own = pairs.loc[next(pair for pair in pairs.index if set(pair) == set(found.steps))]
  assert own["score"] == 0.5
  assert {path.name for path in found.save(tmp_path).values()} == {
    "arena.json",
    "arena.png",
    "milestones.png",
  }
  assert len(found.ratings()) == 4


@pytest.mark.slow
def test_games_of_a_checkpoint_that_loses_its_resume_state_are_kept(tmp_path):
  """A run that continues removes the resume state of its milestone, whose file then has another name."""
  path = make_run(tmp_path, "board", f"env.name={GAME}")
  agent, out = moozi.load(path), tmp_path / "out"
  file = path / "checkpoints" / "step_000000016.safetensors"
  meta = agent.checkpoint.meta | {"env_steps": 16, "is_milestone": True}
  save_checkpoint(file.parent, file.stem, agent.state, meta)
  before = moozi.arena(None, ["random"], milestones=path, games=2, out=out)
  games = (out / "games.jsonl").read_text()
  file.rename(file.with_stem(file.stem + "_params"))
  after = moozi.arena(None, ["random"], milestones=path, games=2, out=out)
  assert after.standings.players == before.standings.players
  assert after.steps == before.steps
  assert (out / "games.jsonl").read_text() == games
  named = moozi.arena(GAME, ["random", f"run:{path}@{file.stem}"], games=2, out=out)
  assert set(named.standings.players) == {"random", *before.steps}
  assert (out / "games.jsonl").read_text() == games


def test_a_run_without_milestones(runs):
  with pytest.raises(
    UserError, match=r"board: has no milestones; training keeps one every checkpoint.milest"
  ):
    moozi.arena(None, ["random"], milestones=runs["board"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["zoo:boards/tic_tac_toe", "prior:zoo/boards/tic_tac_toe"])
def test_a_trained_player_keeps_the_contract(name):
  """With any number of games in one search."""
  spec = env_spec(GAME)
  for width in (1, 4):
    check_player(lambda: TrainedPlayer(name, spec, 4).for_games(width), lambda: make_table(GAME))  # noqa: B023


@pytest.mark.slow
def test_an_agent_against_itself_by_name_plays_as_in_self_play(runs):
  agent = moozi.load(runs["board"])
  own = agent.evaluate(4, opponent="self")
  named = agent.evaluate(4, opponent=f"run:{runs['board']}")
  assert named.returns.tolist() == own.returns.tolist()
  assert named.lengths.tolist() == own.lengths.tolist()
  with pytest.raises(UserError, match="zoo:connect_four: plays open_spiel:connect_four"):
    moozi.load(runs["board"]).evaluate(1, opponent="zoo:connect_four")


@pytest.mark.slow
def test_games_of_an_agent_with_other_settings_are_not_continued(tmp_path):
  """A run that is resumed can have other settings."""
  path, out = make_run(tmp_path, "board", f"env.name={GAME}"), tmp_path / "out"
  players, config = ["random", f"run:{path}"], path / "config.yaml"
  before, games = moozi.arena(GAME, players, games=2, out=out), out / "games.jsonl"
  stored = config.read_text()

  def refuses(key: str, value: str, differing: str) -> None:
    config.write_text(re.sub(f"{key}: .*", f"{key}: {value}", stored))
    with pytest.raises(UserError, match=f"had other {differing} in the stored games"):
      moozi.arena(GAME, players, games=2, out=out)
    config.write_text(stored)

  refuses("num_simulations", "5", "search")
  refuses("discount", "0.5", "discount")
  refuses("noise_free", "false", "noise_free")
  assert TrainedPlayer(f"prior:{path}").facts["average_symmetries"] is False
  assert moozi.arena(GAME, players, games=2, out=out) == before
  # Without one of its facts, a stored agent may be another one.
  lines = [json.loads(line) for line in games.read_text().splitlines()]
  lines = [{key: x for key, x in line.items() if key != "discount"} for line in lines]
  games.write_text("".join(json.dumps(line) + "\n" for line in lines))
  with pytest.raises(UserError, match="had other discount in the stored games"):
    moozi.arena(GAME, players, games=2, out=out)


@pytest.mark.slow
def test_workers_play_with_the_checkpoint_that_was_found_first(tmp_path, monkeypatch):
  """The run may save another checkpoint before the workers have started."""
  path = make_run(tmp_path, "board", f"env.name={GAME}")
  agent = moozi.load(path)

  def play_all(blocks, own, make, workers):
    save_checkpoint(path / "checkpoints", "step_999999999", agent.state, agent.checkpoint.meta)
    yield from map(make(), blocks)

  monkeypatch.setattr(arena_module, "_play_all", play_all)
  found = moozi.arena(GAME, ["random", f"run:{path}", "random"], games=2)
  assert found.standings.players == ("random", f"run:{path}@{agent.checkpoint.name}", "random #2")


@pytest.mark.slow
def test_games_of_an_agent_with_other_parameters_are_not_continued(tmp_path):
  """A run that is trained again can have checkpoints of the same name."""
  path, out = make_run(tmp_path, "board", f"env.name={GAME}"), tmp_path / "out"
  players = ["random", f"run:{path}"]
  before = moozi.arena(GAME, players, games=2, out=out)
  assert moozi.arena(GAME, players, games=2, out=out) == before
  agent = moozi.load(path)
  params = jax.tree_util.tree_map(lambda x: x + 1, agent.state.params)
  agent.checkpoint.path.unlink()
  state = dataclasses.replace(agent.state, params=params)
  save_checkpoint(path / "checkpoints", agent.checkpoint.name, state, agent.checkpoint.meta)
  with pytest.raises(
    UserError, match=r"games\.jsonl: run:.* had other parameters in the stored games; choose"
  ):
    moozi.arena(GAME, players, games=2, out=out)


@pytest.mark.slow
def test_more_workers_play_the_same_games(runs):
  pytest.importorskip("ray")
  arguments = {"players": ["random", f"run:{runs['board']}", f"prior:{runs['board']}"], "games": 40}
  seen = []
  together = moozi.arena(GAME, **arguments, workers=2, on_game=lambda done, total: seen.append(done))
  assert seen[-1] == 120
  assert together == moozi.arena(GAME, **arguments)


@pytest.mark.slow
def test_an_error_in_a_worker_is_one_line(tmp_path):
  pytest.importorskip("ray")
  with pytest.raises(UserError, match="--opening-plies=9"):
    moozi.arena(GAME, PAIR, games=80, opening_plies=9, workers=2)


@pytest.mark.slow
def test_the_zoo_agent_against_itself_scores_one_half():
  found = moozi.arena(GAME, ["zoo:tic_tac_toe", "zoo:tic_tac_toe"], games=200, opening_plies=3)
  score = found.standings.scores[0][1]
  assert score.low <= 0.5 <= score.high


def test_games_stop_as_soon_as_an_error_occurs(tmp_path, monkeypatch):
  """The processes of the games end even if the caller keeps the error's traceback."""
  ended, play_all = [], arena_module._play_all

  def watched(*args):
    try:
      yield from play_all(*args)
    finally:
      ended.append(True)

  def fail(done, total):
    if done:
      raise ValueError("stop")

  monkeypatch.setattr(arena_module, "_play_all", watched)
  with pytest.raises(ValueError, match="stop") as kept:
    moozi.arena(GAME, PAIR, games=40, on_game=fail)
  assert kept.traceback
  assert ended == [True]
