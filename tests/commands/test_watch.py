"""Tests of `moozi watch`, with and without a terminal."""

import os
import pty
import re
import subprocess
import sys

import pytest

import moozi
from tests.commands.conftest import PPO, in_terminal, make_run


@pytest.mark.parametrize("kind", ["catch", pytest.param("ppo", marks=pytest.mark.slow)])
def test_lines_without_terminal(runs, cli, kind):
  status, out, _ = cli("watch", runs[kind], "--episodes", "2")
  assert status == 0
  lines = out.splitlines()
  assert "\x1b" not in out
  ends = [i for i, line in enumerate(lines) if ": return " in line]
  assert len(ends) == 2
  assert lines[0].startswith("episode 0 step 0: ")
  assert "value " in lines[0]
  assert "; policy " in lines[0]
  assert lines[ends[0] - 1].endswith("end")
  assert lines[ends[0] + 1].startswith("episode 1 step 0: ")
  assert lines[-1].startswith("episode 1: return ")


@pytest.mark.slow
def test_truncated_episode_has_no_last_value(runs, cli):
  _, out, _ = cli("watch", runs["clock"])
  lines = out.splitlines()
  assert "value not searched" in lines[4]
  assert lines[4].endswith("end")
  assert out.count("not searched") == 1


@pytest.mark.slow
def test_return_is_the_agents(runs, cli):
  """The printed return is the agent's, which has seat 0 in episode 0 and seat 1 in episode 1."""
  _, out, _ = cli("watch", runs["board"], "--episodes", "2")
  lines = out.splitlines()
  for episode in (0, 1):
    last = [line for line in lines if line.startswith(f"episode {episode} step")][-1]
    shown = next(line for line in lines if line.startswith(f"episode {episode}: return"))
    reward, value = float(last.split("reward ")[1].split(",")[0]), float(shown.split("return ")[1].split()[0])
    # The last reward belongs to the player who moved last, which is the agent if the opponent is to move.
    is_agents = "(opponent)" in last
    assert value == (reward if is_agents else -reward)


@pytest.mark.slow
def test_return_in_self_play_is_that_of_an_evaluation(cli, tmp_path):
  """The seat alternates. Hex has no draws, so the sign of each return shows the seat."""
  run = make_run(tmp_path, "own", *PPO, "env.name=open_spiel:hex(board_size=3)", "evaluation.opponent=self")
  returns = moozi.load(run).evaluate(2).returns.tolist()
  _, out, _ = cli("watch", run, "--episodes", "2")
  ends = [line for line in out.splitlines() if ": return " in line]
  assert [float(line.split("return ")[1].split()[0]) for line in ends] == returns


@pytest.mark.slow
def test_picture_in_terminal(runs, terminal):
  status = in_terminal("watch", runs["catch"], "--episodes", "1", "--speed", "60")
  text = terminal.text()
  assert status == 0
  assert "▀" in text
  assert "\x1b[38;2;255;255;255" in text or "48;2;255;255;255" in text
  for words in ("tiny:catch, step_000000064", "step 8", "value ", "action ", "ball", "paddle", "60 steps/s"):
    assert words in text
  assert "episode 0: return " in text


@pytest.mark.slow
def test_dumb_terminal_gets_lines(runs, terminal, monkeypatch):
  monkeypatch.setenv("TERM", "dumb")
  assert in_terminal("watch", runs["catch"], "--episodes", "1") == 0
  text = terminal.text()
  assert "\x1b" not in text
  assert text.startswith("episode 0 step 0: ")
  assert "episode 0: return " in text


@pytest.mark.slow
def test_without_colors_frames_are_text(runs, terminal, monkeypatch):
  monkeypatch.setenv("NO_COLOR", "1")
  assert in_terminal("watch", runs["catch"], "--episodes", "1", "--speed", "60") == 0
  text = terminal.text()
  assert not re.search(r"\x1b\[[0-9;]*[34]8;", text)
  assert "▀" not in text
  for words in ("tiny:catch, step_000000064", "value ", "episode 0: return "):
    assert words in text


@pytest.mark.slow
@pytest.mark.parametrize("columns", [20, 40, 59])
def test_narrow_terminal_wraps_no_line(runs, terminal, monkeypatch, columns):
  monkeypatch.setenv("COLUMNS", str(columns))
  assert in_terminal("watch", runs["catch"], "--episodes", "1", "--speed", "60") == 0
  text = terminal.text()
  assert "▀" in text
  assert "step 8" in text
  shown, _, _ = text.rpartition("episode 0: return ")
  plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
  lines = re.split(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]", plain)
  assert max(map(len, lines)) <= columns


def test_keys_step_and_quit(runs, terminal):
  terminal.press(" nnq")
  assert in_terminal("watch", runs["catch"]) == 0
  text = terminal.text()
  assert "paused" in text
  assert "episode 0: return 0 in 2 steps so far" in text


@pytest.mark.slow
def test_keys_change_speed_and_episode(runs, terminal):
  terminal.press("++eq")
  assert in_terminal("watch", runs["catch"], "--speed", "0.25") == 0
  text = terminal.text()
  assert "episode 0: return 0 in 0 steps so far" in text
  assert "episode 1: return 0 in 0 steps so far" in text
  assert "1 steps/s" in text


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (["--speed", "x"], "--speed=x: must be a number of steps per second from 0.25 to 60"),
    (["--speed", "nan"], "--speed=nan"),
    (["--episodes", "0"], "'--episodes': 0: must be an integer from 1"),
    (["--checkpoint", "other"], "no such checkpoint"),
  ],
)
def test_bad_arguments(runs, refused, arguments, message):
  assert message in refused("watch", runs["catch"], *arguments)


def test_run_without_checkpoint(runs, refused):
  assert "holds no checkpoint; `moozi train` saves one" in refused("watch", runs["empty"])
  assert "no such folder" in refused("watch", runs["empty"] / "other")


@pytest.mark.slow
def test_program_in_terminal(runs):
  master, slave = pty.openpty()
  environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
  with subprocess.Popen(
    [sys.executable, "-m", "moozi.cli", "watch", str(runs["catch"]), "--episodes", "1", "--speed", "60"],
    stdin=slave,
    stdout=slave,
    stderr=subprocess.PIPE,
    env=environment,
  ) as process:
    os.close(slave)
    written = b""
    while True:
      try:
        written += os.read(master, 4096)
      except OSError:
        break
    status = process.wait()
  os.close(master)
  assert status == 0
  assert "▀" in written.decode()
  assert "episode 0: return " in written.decode()
