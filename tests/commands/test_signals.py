"""Tests of the signals that stop a run."""

import os
import signal

import pytest

from moozi.commands.signals import stop_at_signals
from moozi.training.start import Stop


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_first_signal_requests_a_stop(number):
  # The tests themselves may run under nohup.
  before, stop = signal.signal(number, signal.SIG_DFL), Stop()
  try:
    with stop_at_signals(stop):
      assert not stop.is_set()
      signal.raise_signal(number)
      assert stop.is_set()
      assert stop.is_new()
      assert not stop.is_new()
    assert signal.getsignal(number) == signal.SIG_DFL
  finally:
    signal.signal(number, before)


def test_nohup_is_respected():
  before, stop = signal.signal(signal.SIGHUP, signal.SIG_IGN), Stop()
  try:
    with stop_at_signals(stop):
      signal.raise_signal(signal.SIGHUP)
      assert not stop.is_set()
  finally:
    signal.signal(signal.SIGHUP, before)


def test_first_signal_after_another_request_ends_nothing(monkeypatch):
  """A run that ends with a checkpoint after an error has set `stop` itself."""
  monkeypatch.setattr(os, "_exit", lambda status: pytest.fail(f"ended with {status}"))
  before, stop = signal.signal(signal.SIGINT, signal.SIG_DFL), Stop()
  try:
    with stop_at_signals(stop):
      stop.set()
      signal.raise_signal(signal.SIGINT)
      assert stop.is_set()
  finally:
    signal.signal(signal.SIGINT, before)
