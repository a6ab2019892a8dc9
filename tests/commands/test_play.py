"""Tests of `moozi play`, with keys in a terminal and with lines on standard input."""

import io
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import moozi
from moozi.api.match import Match
from moozi.commands.steering import CHANGED, IDLE_KEY, KeysOfDimensions, keys_of
from moozi.core.spec import EnvSpec
from moozi.envs import registry
from moozi.evaluation.agent_player import AgentPlayer
from tests.commands.conftest import in_terminal, make_run


@pytest.fixture
def typed(cli, monkeypatch):
  """Returns a function that runs the command line with lines on stdin and returns (status, stdout)."""

  def run(lines: str, *arguments: object) -> tuple[int, str]:
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    status, out, err = cli(*arguments)
    assert err == ""
    return status, out

  return run


def test_both_seats(typed):
  status, out = typed("0\n(1,1)\n1\n4\n5\n2\n", "play", "open_spiel:tic_tac_toe")
  assert status == 0
  assert "X plays (0,0)" in out
  assert "O plays (1,1)" in out
  assert "'4': not a legal move" in out
  assert "X X X\n. O O\n. . ." in out
  assert out.splitlines()[-1] == "X won (return 1)"


def test_numbers_that_are_names_are_chosen_by_name(typed):
  status, out = typed("0\n3\n4\n", "play", "open_spiel:simplest")
  assert status == 0
  assert "player 0 [1, 2, 3, 4; ?; q]: " in out
  assert "'0': not a legal move" in out
  assert "player 0 plays 3" in out
  assert "player 1 plays 4" in out


@pytest.mark.slow
def test_against_the_agent(typed, runs):
  lines = "\n".join(str(a) for a in range(9)) + "\n"
  # The input tries all cells in turn; the command ignores moves to occupied cells.
  status, out = typed(lines * 2, "play", runs["board"])
  assert status == 0
  assert out.startswith("you are X; agent is O\n. . .\n. . .\n. . .\n")
  assert "O plays (" in out
  assert "X plays" not in out
  assert out.splitlines()[-1].split()[0] == "you"
  _, second = typed(lines * 2, "play", runs["board"], "--seat", "1")
  assert second.startswith("you are O; agent is X\nX plays (")


@pytest.mark.slow
def test_against_a_run_by_its_name(typed, runs):
  lines = "\n".join(str(a) for a in range(9)) + "\n"
  _, own = typed(lines * 2, "play", runs["board"])
  name = f"run:{runs['board']}"
  status, out = typed(lines * 2, "play", "open_spiel:tic_tac_toe", "--opponent", name)
  assert status == 0
  assert out == own.replace("agent is O", f"{name} is O")


@pytest.mark.parametrize("opponent", ["random", "mcts", "mcts:20"])
def test_against_bots(typed, opponent):
  lines = "\n".join(str(a) for a in range(9)) + "\n"
  arguments = ["play", "open_spiel:tic_tac_toe", "--opponent", opponent, "--seed", "3"]
  arguments += ["--simulations", "20"] if opponent == "mcts" else []
  status, out = typed(lines * 2, *arguments)
  assert status == 0
  assert f"{opponent} is O" in out
  assert typed(lines * 2, *arguments)[1] == out


def test_hidden_information_is_not_printed(typed):
  """The command never prints the opponent's card in Kuhn poker."""
  _, out = typed("1\n1\n", "play", "open_spiel:kuhn_poker", "--opponent", "random")
  assert "player 0, card " in out
  assert "player 1, card " not in out


def test_opinion_on_request(typed):
  # x x . / o o . / . . .: the search takes the win, and so does the user.
  lines = "0\n3\n1\n4\n?\n2\n"
  status, out = typed(lines, "play", "open_spiel:tic_tac_toe", "--advisor", "mcts:200")
  assert status == 0
  opinion = out[out.index("mcts:200: value") :].splitlines()
  assert opinion[1].split() == ["(0,2)", opinion[1].split()[1], "value", "+1.000"]
  assert out.splitlines()[-1] == "X won (return 1)"
  assert "?" not in typed("q\n", "play", "open_spiel:tic_tac_toe", "--advisor", "none")[1]


def test_the_number_of_simulations_of_an_advisor(typed):
  _, out = typed("?\nq\n", "play", "open_spiel:tic_tac_toe", "--advisor", "mcts", "--simulations", "30")
  assert "mcts:30: value" in out


@pytest.mark.slow
def test_advice_of_an_agent_without_a_search(typed, tmp_path):
  """MCTS advises in its place, also where a person plays every seat."""
  run = make_run(tmp_path, "own", "env.name=open_spiel:tic_tac_toe", "algorithm=ppo")
  _, out = typed("?\nq\n", "play", str(run), "--opponent", "human")
  assert "mcts:500: value" in out


def test_checkpoint_of_an_agent_that_only_advises(typed, refused, tmp_path):
  run = make_run(tmp_path, "own", "env.name=open_spiel:tic_tac_toe", checkpoint=False)
  assert typed("q\n", "play", str(run), "--opponent", "random")[0] == 0, "a run without checkpoints"
  assert "holds no checkpoint" in refused("play", str(run), "--opponent", "random", "--checkpoint", "best")


@pytest.mark.slow
def test_an_agent_of_one_seat_advises_every_seat(typed, tmp_path):
  """It follows each seat that a person plays by a history of its own."""
  run = make_run(tmp_path, "own", "env.name=open_spiel:kuhn_poker", "env.kwargs.seat=random")
  assert "value" in typed("?\nq\n", "play", str(run), "--opponent", "random")[1]
  for options in ((), ("--advisor", f"run:{run}")):
    assert typed("?\nPass\n?\nq\n", "play", str(run), "--opponent", "human", *options)[1].count("value") > 1


@pytest.mark.slow
def test_an_approach_searches_its_own_position_only(typed, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  path, widths, group = make_run(Path("runs"), "own", "env.name=open_spiel:tic_tac_toe"), [], AgentPlayer
  (path / "summary.json").write_text(json.dumps({"reason": "max_wall_s"}))

  def watched(*arguments, **kwargs):
    widths.append(arguments[5])
    return group(*arguments, **kwargs)

  monkeypatch.setattr("moozi.evaluation.evaluator.AgentPlayer", watched)
  arguments = ("open_spiel:tic_tac_toe", "--opponent", "approach:muzero", "--simulations", "2", "--seat", "1")
  status, out = typed("?\nq\n", "play", *arguments)
  assert (status, set(widths)) == (0, {1})
  assert "run:runs/own@step_000000064 (2 simulations): value" in out


def test_four_players_with_hidden_cards(typed):
  lines = "\n".join(str(a) for a in range(41)) + "\n"
  arguments = ["play", "open_spiel:uno(players=4,hand=2)", "--opponent", "random", "--seat", "2"]
  status, out = typed(lines * 30, *arguments)
  assert status == 0
  assert out.startswith("you are player 2; random is player 0, player 1, player 3\nplayer 0 plays ")
  assert out.splitlines()[-1].startswith("you ")
  assert out.count("to move self") == out.count("top ") > 0  # no other hand is shown


def test_hidden_moves_are_not_printed(typed):
  _, out = typed("", "play", "open_spiel:stratego", "--opponent", "random", "--seat", "1")
  assert "red moves\n" in out
  assert "red plays" not in out


def test_quit_and_end_of_input(typed):
  assert typed("q\n", "play", "open_spiel:tic_tac_toe")[1].endswith("quit before the end of the game\n")
  assert typed("", "play", "open_spiel:tic_tac_toe")[1].endswith("quit before the end of the game\n")
  assert typed("", "play", "tiny:catch")[1].endswith("return 0 in 0 steps\n")


def test_one_player_by_lines(typed):
  status, out = typed("right\n" * 20, "play", "tiny:corridor", "length=5")
  assert status == 0
  assert "step 1, return 0\n. . w . ." in out
  assert out.splitlines()[-1] == "return 1 in 3 steps"


def test_one_player_by_keys(terminal):
  terminal.press("\x1b[C" * 6 + "q")
  assert in_terminal("play", "tiny:corridor", "length=8") == 0
  text = terminal.text()
  assert "▀" in text
  for words in ("left: left a 0", "right: right d 1", "the episode is over", "return 1 in 6 steps"):
    assert words in text


def test_dumb_terminal_plays_by_lines(terminal, monkeypatch):
  monkeypatch.setenv("TERM", "dumb")
  terminal.press("right\n" * 6 + "q\n")
  assert in_terminal("play", "tiny:corridor", "length=8") == 0
  text = terminal.text()
  assert "\x1b" not in text
  assert "▀" not in text
  assert "return 1" in text


def test_without_colors_frames_are_text(terminal, monkeypatch):
  monkeypatch.setenv("NO_COLOR", "1")
  terminal.press("\x1b[C" * 6 + "q")
  assert in_terminal("play", "tiny:corridor", "length=8") == 0
  text = terminal.text()
  assert "▀" not in text
  assert not re.search(r"\x1b\[[0-9;]*[34]8;", text)
  assert "return 1 in 6 steps" in text


def test_play_again(terminal):
  terminal.press("a" + "\n" + "ddq")
  assert in_terminal("play", "tiny:corridor", "length=8") == 0
  assert "return 0 in 2 steps" in terminal.text()


def test_idle_action_at_timeout(terminal, monkeypatch):
  waits = []

  def read(self, timeout_s):
    waits.append(timeout_s)

  monkeypatch.setattr("moozi.commands.keyboard.Keyboard.read", read)
  monkeypatch.setattr("moozi.commands.play._wants_another", lambda keyboard: False)
  assert in_terminal("play", "tiny:catch", "--speed", "50") == 0
  assert "in 9 steps" in terminal.text()
  assert waits == [None] + [0.02] * 9, "the command must wait without a timeout for the first key only"


def test_start_and_pause(terminal):
  # Any key starts the game or ends a pause (p); that key is not played as an action.
  terminal.press("a" + "d" + "p" + "a" + "dq")
  assert in_terminal("play", "tiny:catch", "--speed", "0.1") == 0
  text = terminal.text()
  for words in ("any key: start", "p: pause", "paused; any key: continue", "return 0 in 2 steps"):
    assert words in text


def test_quit_before_the_start(terminal):
  terminal.press("q")
  assert in_terminal("play", "tiny:catch", "--speed", "5") == 0
  assert "return 0 in 0 steps" in terminal.text()


def test_board_in_terminal(terminal):
  terminal.press("4\nq\n")
  assert in_terminal("play", "open_spiel:tic_tac_toe") == 0
  text = terminal.text()
  assert "▀" in text
  assert "X plays (1,1)" in text


def test_env_of_run(runs, typed):
  assert typed("", "play", runs["catch"])[1].endswith("return 0 in 0 steps\n")


def test_keys_of():
  breakout = keys_of(registry.env_spec("minatar:breakout"))
  assert (breakout["left"], breakout["a"], breakout["d"], breakout["."]) == (1, 1, 2, 0)
  assert [breakout[sign] for sign in "012"] == [0, 1, 2]
  many = EnvSpec(name="test:many", frame_shape=(1, 1, 2), frame_dtype="bool", num_env_actions=18)
  keys = keys_of(many)
  assert sorted(set(keys.values())) == list(range(18))
  assert not {"q", "p"} & set(keys)


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (["nowhere"], "nowhere: "),
    (["tiny:cach"], "the nearest is tiny:catch"),
    (["tiny:corridor", "lenght=5"], "env.kwargs.lenght"),
    (["tiny:catch", "--opponent", "random"], "--opponent=random: tiny:catch"),
    (["tiny:corridor", "--speed", "5"], "no action that does nothing"),
    (["tiny:catch", "--speed", "-1"], "--speed=-1: must be a number"),
    (["tiny:catch", "--speed", "5"], "--speed=5: needs a terminal"),
    (["open_spiel:tic_tac_toe", "--opponent", "agent"], "--opponent=agent: open_spiel:tic_tac_toe"),
    (
      ["open_spiel:tic_tac_toe", "--opponent", "other"],
      "must be agent, human, random, mcts, alpha_beta, self, mcts:SIMULATIONS, alpha_beta:DEPTH, run:PATH",
    ),
    (["open_spiel:kuhn_poker", "--opponent", "mcts"], "would see what is hidden"),
    (["open_spiel:tic_tac_toe", "--seat", "2"], "--seat=2: must be from 0 to 1 in open_spiel:tic_tac_toe"),
    (["open_spiel:tic_tac_toe", "--seat", "10"], "--seat=10: must be from 0 to 1 in open_spiel:tic_tac_toe"),
    (["open_spiel:tic_tac_toe", "--advisor", "random"], "--advisor=random: must be mcts:N, run:PATH"),
    (["open_spiel:kuhn_poker", "--advisor", "mcts:5"], "would see what is hidden"),
    (["open_spiel:tic_tac_toe", "--seat", "1"], "--seat=1: needs a player as --opponent; here you play all"),
    (["open_spiel:tic_tac_toe", "--simulations", "9"], "--simulations=9: needs a trained agent or mcts as"),
    (
      ["open_spiel:tic_tac_toe", "--opponent", "mcts:20", "--simulations", "9"],
      "--simulations=9: needs a trained agent or mcts as --opponent or --advisor",
    ),
    (["tiny:catch", "--web"], "--web: tiny:catch has one player"),
    (["tiny:catch", "--seat", "0"], "--seat=0: needs a game of several seats; tiny:catch has one player"),
    (["tiny:catch", "--advisor", "none"], "--advisor=none: needs a game of several seats"),
    (["tiny:catch", "--checkpoint", "best"], "--checkpoint=best: needs a game of several seats"),
    (["tiny:catch", "--simulations", "3"], "--simulations=3: needs a game of several seats"),
    (["tiny:catch", "--port", "0"], "--port=0: needs --web"),
    (["open_spiel:tic_tac_toe", "--port", "8000"], "--port=8000: needs --web"),
    (["open_spiel:tic_tac_toe", "--speed", "0"], "--speed=0: needs an environment with one player"),
    (["open_spiel:tic_tac_toe", "--checkpoint", "best"], "--checkpoint=best: needs a run; open_spiel:tic"),
    (["x" * 300], "is neither a run nor an environment; `moozi envs` lists environments"),
    (["x" * 300 + ":y"], "there is no module xxx"),
    (["tiny:catch", "--seed", "x"], "'--seed': x: must be an integer from"),
  ],
)
def test_bad_arguments(refused, arguments, message):
  assert message in refused("play", *arguments)


def test_run_without_checkpoint(tmp_path, refused):
  run = make_run(tmp_path, "board", "env.name=open_spiel:tic_tac_toe", checkpoint=False)
  assert "holds no checkpoint; `moozi train` saves one" in refused("play", run)


def test_options_of_run_are_fixed(runs, refused):
  assert "max_episode_steps=3: " in refused("play", runs["catch"], "max_episode_steps=3")


@pytest.mark.parametrize(
  ("users", "returns", "text"),
  [
    ({0}, [1.0, -1.0], "you won (return 1)"),
    ({0}, [0.0, 0.0], "you drew (return 0)"),
    ({1}, [3.0, 2.0, 0.0], "you lost (return 2)"),
    ({1}, [-3.0, -1.0, -2.0], "you won (return -1)"),
    ({2}, [1.0, -2.0, 1.0], "you drew (return 1)"),
    ({0, 1, 2}, [-3.0, -1.0, -2.0], "player 1 won (return -1)"),
    ({0, 1, 2}, [1.0, -2.0, 1.0], "player 0 and player 2 won (return 1)"),
    ({0, 1, 2}, [2.0, 2.0, 2.0], "a draw"),
  ],
)
def test_outcome_compares_the_seats(users, returns, text):
  spec = EnvSpec(name="test:game", frame_shape=(1, 1, 2), frame_dtype="bool", num_env_actions=2)
  table = SimpleNamespace(returns=lambda: returns, spec=spec)
  assert Match.outcome_text(SimpleNamespace(table=table, users=frozenset(users))) == text


@pytest.mark.parametrize(
  ("maker", "arguments"),
  [
    ("make", ("tiny:catch",)),
    ("make", ("tiny:catch", "--opponent", "random")),
    ("make_table", ("open_spiel:tic_tac_toe",)),
    ("make_table", ("open_spiel:tic_tac_toe", "--seat", "2")),
  ],
)
def test_the_game_is_closed(cli, monkeypatch, maker, arguments):
  make, closed = getattr(registry, maker), []

  def watched(*args, **kwargs):
    game = make(*args, **kwargs)
    close = game.close
    game.close = lambda: closed.append(close())
    return game

  monkeypatch.setattr(registry, maker, watched)
  monkeypatch.setattr(sys, "stdin", io.StringIO(""))
  assert cli("play", *arguments)[0] == (2 if len(arguments) > 1 else 0)
  assert len(closed) == 1


class Failing(moozi.Game):
  """A game of three moves whose second one fails."""

  def __init__(self, fault, num_players):
    self._fault, self._num_players = fault, num_players

  def seed(self, seed):
    if self._fault == "seed":
      raise_error()

  def reset(self):
    self._time = 0

  def step(self, action):
    self._time += 1
    return FAULTS[self._fault][0]() if self._time == 2 else (0.0, self._time == 3, False)

  def frame(self):
    return np.zeros((1, 1, 2), np.float32)

  def legal_actions_mask(self):
    return np.array([True, True])

  def to_play(self):
    return self._time % self._num_players


def make_failing(fault, num_players):
  frame = {"frame_shape": (1, 1, 2), "frame_dtype": "float32"}
  spec = EnvSpec(name="own", num_env_actions=2, num_players=num_players, **frame)
  return moozi.GameEnvironment(Failing(fault, num_players), spec)


def raise_error():
  raise ZeroDivisionError("a\nb")


FAULTS = {
  "raises": (raise_error, "step failed: ZeroDivisionError: a b"),
  "seed": (raise_error, "seed failed: ZeroDivisionError: a b"),
  "none": (lambda: None, "step failed: TypeError: cannot unpack non-iterable NoneType object"),
  "exits": (lambda: sys.exit(3), "step failed: CodeExitError: SystemExit: 3"),
  "nan": (lambda: (float("nan"), False, False), "reward=nan is not finite"),
}


class FailingPlayer:
  def __init__(self, spec, seed):
    pass

  def action(self, observation, legal):
    raise ZeroDivisionError("a\nb")


@pytest.mark.parametrize("num_players", [1, 2])
@pytest.mark.parametrize("fault", FAULTS)
def test_an_environment_that_fails_is_reported_in_one_line(cli, monkeypatch, num_players, fault):
  monkeypatch.setattr(sys, "stdin", io.StringIO("0\n" * 4))
  name = f"{__name__}:make_failing"
  where = name if (fault, num_players) == ("seed", 1) else "own"
  status, out, err = cli("play", name, f"fault={fault}", f"num_players={num_players}", "--allow-code")
  assert (status, err) == (2, f"moozi: error: env.name={where}: {FAULTS[fault][1]}\n")
  assert "Traceback" not in out


def test_a_player_that_fails_is_reported_in_one_line(cli):
  player, name = f"{__name__}:FailingPlayer", f"{__name__}:make_failing"
  options = ("fault=none", "num_players=2", "--allow-code", "--seat", 1)
  status, out, err = cli("play", name, *options, "--opponent", player)
  assert status == 2
  assert err.startswith(f"moozi: error: player={player}: the player failed: {__file__}:")
  assert err.endswith(": ZeroDivisionError: a b\n")
  assert err.count("\n") == 1
  assert "Traceback" not in out


def test_joint_actions_are_typed_as_values(typed):
  status, out = typed("1 2 3\n9 0 0\n0 4\n", "play", "tiny:dials", "--seed", "1")
  assert status == 0
  assert "action [dial 0: 0 … 4, dial 1: 0 … 4, dial 2: 0 … 4; q]: " in out
  assert re.fullmatch(r"return [0-9.]+ in 1 steps", out.splitlines()[-1])
  _, out = typed("9 0 0\n0 4\nq\n", "play", "tiny:dials")
  assert "action=9: must be from 0 to 4 in dial 0\n" in out
  assert "'0 4': must be a value for each of dial 0, dial 1, dial 2\n" in out
  _, out = typed("x=+0.25 y=0\nq\n", "play", "tiny:point")
  assert "x 0.274, y -0.46, time 0\n" in out
  assert "in 1 steps" in out


def test_continuous_actions_are_typed_as_numbers(typed):
  status, out = typed("0.1 -0.2\ny=0.25, x=0\nq\n", "play", "tiny:point", "action_bins=0")
  assert status == 0
  assert "action [x: -0.25 … +0.25, y: -0.25 … +0.25; q]: " in out
  places = re.findall(r"x (\S+), y (\S+), time", out)
  moved = np.diff(np.array(places, float), axis=0)
  np.testing.assert_allclose(moved, [[0.1, -0.2], [0, 0.25]], atol=2e-3)
  assert re.fullmatch(r"return \S+ in 2 steps", out.splitlines()[-1])


@pytest.mark.parametrize(
  ("line", "message"),
  [
    ("0.3 0", "action=0.3: must be from -0.25 to 0.25 in x"),
    ("0 nan", "action=nan: must be from -0.25 to 0.25 in y"),
    ("0 1e300", "action=1e+300: must be from -0.25 to 0.25 in y"),
    ("0.1", "'0.1': must be a value for each of x, y"),
    ("0.1 left", "'0.1 left': must be a value for each of x, y"),
    ("x=0.1 z=0", "'x=0.1 z=0': must be a value for each of x, y"),
  ],
)
def test_wrong_continuous_actions_are_asked_for_again(typed, line, message):
  status, out = typed(f"{line}\n0 0\nq\n", "play", "tiny:point", "action_bins=0")
  assert status == 0
  assert f"\n{message}\n" in out
  assert out.splitlines()[-1].endswith(" in 1 steps")


def test_continuous_actions_by_keys(terminal):
  # Right raises the first dimension by a sixth of its interval; down and 0 take the second one's lower bound.
  terminal.press("\x1b[C" + "\x1b[B" + "0" + "\n" + "q")
  assert in_terminal("play", "tiny:point", "action_bins=0") == 0
  text = terminal.text()
  for words in ("> x", "> y", "+0.083", "-0.25 … +0.25", "up down: dimension", "in 1 steps"):
    assert words in text


def test_joint_actions_by_keys(terminal):
  # Down and right choose the last value but one of the second dimension; enter plays it.
  terminal.press("\x1b[B" + "\x1b[C" + "7" + "\n" + "q")
  assert in_terminal("play", "tiny:gates", "num_keys=8") == 0
  text = terminal.text()
  for words in ("> forward", "> key", "0 … 7", "up down: dimension", "in 1 steps"):
    assert words in text


@pytest.mark.parametrize("num_bins", [7, 0])
def test_actions_of_dimensions_repeat_with_speed(terminal, monkeypatch, num_bins):
  monkeypatch.setattr("moozi.commands.keyboard.Keyboard.read", lambda self, timeout_s: None)
  monkeypatch.setattr("moozi.commands.play._wants_another", lambda keyboard: False)
  assert in_terminal("play", "tiny:point", f"action_bins={num_bins}", "--speed", "50") == 0
  assert "in 10 steps" in terminal.text()


def test_keys_of_dimensions():
  spec = registry.env_spec("tiny:point")
  controls, legal = KeysOfDimensions(spec), np.ones(spec.mask_size, bool)
  assert controls.press("enter", legal) == 3 * 7 + 3, "zero in both dimensions"
  assert [controls.press(key, legal) for key in ("left", "down", "6", "x")] == [CHANGED] * 3 + [None]
  assert controls.press(" ", legal) == controls.press(IDLE_KEY, legal) == 2 * 7 + 6
  assert "> y" in "\n".join(controls.lines())
  controls.press("up", legal)
  for _ in range(9):
    controls.press("right", legal)
  assert controls.idle == 6 * 7 + 6
  few = registry.env_spec("tiny:dials", num_dials=2)
  controls, legal = KeysOfDimensions(few), np.arange(25) != 12
  assert controls.press("enter", legal) is None, "an illegal joint action is not played"


def test_keys_of_continuous_dimensions():
  """They have the values of the same environment with seven bins, and steps take their actions."""
  env = registry.make("tiny:point", 0, action_bins=0)
  spec, binned = env.env_spec, registry.env_spec("tiny:point", action_bins=7)
  controls, twin = KeysOfDimensions(spec), KeysOfDimensions(binned)
  legal = np.ones(binned.mask_size, bool)
  assert controls.press("enter", legal).tolist() == [0.0, 0.0]
  assert controls.press("7", legal) is None, "there are values 0 to 6"
  for key in ("left", "down", "6", *["left"] * 7, "up", "right", "right", "right", "right", "right"):
    assert controls.press(key, legal) == twin.press(key, legal) == CHANGED
    assert controls.lines() == twin.lines()
    action = controls.press(IDLE_KEY, legal)
    np.testing.assert_array_equal(action, binned.factors.own_action(twin.press(IDLE_KEY, legal)))
    env.reset()
    env.step(action)
