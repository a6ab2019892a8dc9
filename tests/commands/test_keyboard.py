import io
import sys
import termios

from moozi.commands.keyboard import END, Keyboard


def test_keys(terminal):
  before = termios.tcgetattr(terminal.slave)
  with Keyboard() as keyboard:
    # The keys must follow the switch to cbreak mode; before it, the terminal would interpret Ctrl-D (\x04).
    terminal.press("a \x1b[A\x1b[B\x1bOC\x1b[D\n\x1b[1;5C\x04")
    assert keyboard.has_terminal
    assert not termios.tcgetattr(terminal.slave)[3] & termios.ICANON
    keys = [keyboard.read(10.0) for _ in range(9)]
    assert keyboard.read(0.0) is None
  assert keys == ["a", " ", "up", "down", "right", "left", "enter", "right", END]
  assert termios.tcgetattr(terminal.slave) == before


def test_special_keys_are_not_escape(terminal):
  with Keyboard() as keyboard:
    terminal.press("\x1b[H\x1b[3~\x1bOP\x1b[15~a")
    assert [keyboard.read(10.0) for _ in range(5)] == [*["other"] * 4, "a"]


def test_escape(terminal):
  terminal.press("\x1b")
  with Keyboard() as keyboard:
    assert keyboard.read(10.0) == "escape"


def test_terminal_is_restored_after_error(terminal):
  before = termios.tcgetattr(terminal.slave)
  try:
    with Keyboard():
      raise RuntimeError
  except RuntimeError:
    pass
  assert termios.tcgetattr(terminal.slave) == before


def test_no_terminal(monkeypatch):
  monkeypatch.setattr(sys, "stdin", io.StringIO("q"))
  with Keyboard() as keyboard:
    assert not keyboard.has_terminal
    assert keyboard.read(0.0) is None
    assert keyboard.read(None) is None
