"""Keys from a real pseudo-terminal."""

import io
import sys
import termios

from moozi.commands.keyboard import END, Keyboard


def test_keys_come_without_enter_and_by_name(terminal):
  before = termios.tcgetattr(terminal.slave)
  with Keyboard() as keyboard:
    # Typed now: before, the terminal would take the end of the input for itself.
    terminal.press("a \x1b[A\x1b[B\x1bOC\x1b[D\n\x1b[1;5C\x04")
    assert keyboard.is_there
    assert not termios.tcgetattr(terminal.slave)[3] & termios.ICANON
    keys = [keyboard.read(10.0) for _ in range(9)]
    assert keyboard.read(0.0) is None
  assert keys == ["a", " ", "up", "down", "right", "left", "enter", "right", END]
  assert termios.tcgetattr(terminal.slave) == before


def test_escape_alone_is_a_key(terminal):
  terminal.press("\x1b")
  with Keyboard() as keyboard:
    assert keyboard.read(10.0) == "escape"


def test_the_terminal_is_as_it_was_after_an_error(terminal):
  before = termios.tcgetattr(terminal.slave)
  try:
    with Keyboard():
      raise RuntimeError
  except RuntimeError:
    pass
  assert termios.tcgetattr(terminal.slave) == before


def test_without_a_terminal_nothing_is_pressed(monkeypatch):
  monkeypatch.setattr(sys, "stdin", io.StringIO("q"))
  with Keyboard() as keyboard:
    assert not keyboard.is_there
    assert keyboard.read(0.0) is None
    assert keyboard.read(None) is None
