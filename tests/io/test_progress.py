"""Tests of the progress display: plain lines, and a table on a terminal."""

import io
import re

import pytest

from moozi.io.progress import format_seconds, make_progress, seconds_left

TICK = {
  "system/env_steps_per_s": 1000.0,
  "system/updates_per_s": 4.0,
  "train/return_mean": 3.5,
  "loss/total": 1.25,
  "train/staleness": 40.0,
  "train/sample_reuse": 3.98,
}


class Terminal(io.StringIO):
  def isatty(self) -> bool:
    return True


@pytest.mark.parametrize("columns", [20, 30, 60, 100])
def test_no_number_is_cut_on_a_narrow_terminal(monkeypatch, columns):
  monkeypatch.setenv("TERM", "xterm")
  monkeypatch.setenv("COLUMNS", str(columns))
  out = Terminal()
  progress = make_progress("live", "first", max_env_steps=10**9, stream=out)
  numbers = TICK | {"train/sample_reuse": 1234.56}
  progress.update(env_steps=123_456_789, learner_steps=1_234_567, wall_s=61.0, scalars=numbers)
  progress.close()
  text = out.getvalue()
  assert all(
    number in text for number in ("123,456,789", "1,234,567", "1,000", "1.250", "40.0", "1234.56", "1:01")
  )
  lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text).splitlines()
  assert max(map(len, lines)) <= columns


@pytest.mark.parametrize("mode", ["auto", "live", "plain"])
def test_titles_and_notes_are_plain_text(monkeypatch, mode):
  """A name such as [/] is markup for rich, which would raise an error."""
  monkeypatch.setenv("TERM", "xterm")
  out = Terminal() if mode != "plain" else io.StringIO()
  progress = make_progress(mode, "[/]a\x1b[2Jb", max_env_steps=100, stream=out)
  progress.note("[red]\x1b]0;x\x07")
  progress.update(env_steps=40, learner_steps=9, wall_s=61.0, scalars=TICK)
  progress.close()
  assert "\x1b[2Jb" not in out.getvalue()
  assert "[red]?]0;x?" in out.getvalue()
  assert ("[/]a?[2Jb" in out.getvalue()) == (mode != "plain")


def test_dumb_terminal_gets_lines(monkeypatch):
  monkeypatch.setenv("TERM", "dumb")
  out = Terminal()
  progress = make_progress("auto", "first", max_env_steps=100, stream=out)
  progress.update(env_steps=40, learner_steps=9, wall_s=61.0, scalars=TICK)
  progress.close()
  assert out.getvalue().startswith("env steps 40 | ")
  assert "\x1b" not in out.getvalue()


def test_plain_line():
  out = io.StringIO()
  progress = make_progress("auto", "first", max_env_steps=100_000, stream=out)
  progress.note("evaluation: 3")
  progress.update(env_steps=40_000, learner_steps=90, wall_s=61.0, scalars=TICK)
  progress.close()
  note, line = out.getvalue().splitlines()
  assert note == "evaluation: 3"
  assert line == (
    "env steps 40,000 | updates 90 | steps/s 1,000 | updates/s 4.0 | return 3.50 | loss 1.250"
    " | staleness 40.0 | sample reuse 3.98 | elapsed 1:01 | left 1:00"
  )


def test_plain_lines_are_throttled():
  out = io.StringIO()
  progress = make_progress("plain", "first", max_env_steps=100, stream=out)
  for wall_s in range(0, 60, 5):
    progress.update(
      env_steps=1, learner_steps=0, wall_s=wall_s, scalars=TICK if wall_s == 0 else {"loss/total": None}
    )
  lines = out.getvalue().splitlines()
  assert len(lines) == 6
  assert "loss 1.250" in lines[-1]


def test_live_table_on_a_terminal():
  out = Terminal()
  progress = make_progress("auto", "first", max_env_steps=100_000, max_wall_s=100, stream=out)
  progress.update(env_steps=40_000, learner_steps=90, wall_s=61.0, scalars=TICK)
  progress.note("evaluation [1]: 3")
  progress.close()
  progress.close()
  text = out.getvalue()
  for expected in ("first", "61%", "40,000", "3.50", "evaluation [1]: 3", "sample reuse"):
    assert expected in text


def test_live_and_none_modes():
  out = io.StringIO()
  progress = make_progress("none", "first", max_env_steps=10, stream=out)
  progress.update(env_steps=1, learner_steps=0, wall_s=1.0, scalars=TICK)
  progress.note("x")
  progress.close()
  assert out.getvalue() == ""
  live = make_progress("live", "first", max_env_steps=10, stream=out)
  live.update(env_steps=1, learner_steps=0, wall_s=1.0, scalars={})
  live.close()
  assert "\x1b[" in out.getvalue()


@pytest.mark.parametrize(
  ("rate", "max_wall_s", "left"),
  [
    (10.0, None, 9.0),
    (10.0, 25.0, 5.0),
    (10.0, 100.0, 9.0),
    (None, 25.0, 5.0),
    (None, None, None),
    (0.0, None, None),
  ],
)
def test_time_left(rate, max_wall_s, left):
  assert seconds_left(10, 20.0, rate, 100, max_wall_s) == left
  assert seconds_left(200, 200.0, 10.0, 100, 100) == 0.0


def test_format_seconds():
  assert [format_seconds(s) for s in (0, 62.9, 3723)] == ["0:00", "1:02", "1:02:03"]
