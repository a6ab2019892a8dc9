"""Tests of batches of requests of several threads. Each test waits for events, not for a time."""

import concurrent.futures
import threading

import pytest

from moozi.acting.batching import Batcher, sizes

FOREVER_S = 1e6


class Doubling:
  """Answers with doubled requests, when `gate` is open, and keeps its batches."""

  def __init__(self):
    self.batches, self.waits, self.gate, self.begun = [], [], threading.Event(), threading.Event()
    self.gate.set()

  def __call__(self, requests, waits_s):
    self.batches.append(list(requests))
    self.waits += waits_s
    self.begun.set()
    assert self.gate.wait(60)
    if "error" in requests:
      raise ValueError("of this batch")
    return [2 * request for request in requests]


@pytest.fixture
def threads():
  with concurrent.futures.ThreadPoolExecutor(8) as pool:
    yield pool


def wait_until(condition):
  end = threading.Event()
  for _ in range(6000):
    if condition():
      return
    end.wait(0.01)
  pytest.fail("waited for a minute")


def test_a_full_batch_waits_no_longer(threads):
  answer = Doubling()
  batcher = Batcher(answer, 2, FOREVER_S)
  answers = [threads.submit(batcher.ask, request) for request in (1, 2)]
  assert [a.result(60) for a in answers] == [2, 4]
  assert [sorted(batch) for batch in answer.batches] == [[1, 2]]


def test_the_wait_of_a_request_is_bounded():
  answer = Doubling()
  assert Batcher(answer, 8, 0.05).ask(1) == 2
  assert answer.batches == [[1]]
  assert answer.waits[0] >= 0.05


def test_requests_of_a_busy_server_form_the_next_batches_in_order(threads):
  answer = Doubling()
  answer.gate.clear()
  batcher = Batcher(answer, 5, 0)
  answers = [threads.submit(batcher.ask, 0)]
  assert answer.begun.wait(60)
  for request in (1, 2, 3):
    answers.append(threads.submit(batcher.ask, request))
    wait_until(lambda n=request: len(batcher._waiting) == n)
  answer.gate.set()
  assert [a.result(60) for a in answers] == [0, 2, 4, 6]
  assert answer.batches == [[0], [1, 2], [3]]


def test_an_error_is_that_of_its_batch_only(threads):
  batcher = Batcher(Doubling(), 2, FOREVER_S)
  failed = [threads.submit(batcher.ask, request) for request in ("error", 1)]
  for found in failed:
    assert str(found.exception(60)) == "of this batch"
  assert sorted(a.result(60) for a in [threads.submit(batcher.ask, i) for i in (1, 2)]) == [2, 4]


@pytest.mark.parametrize(
  ("max_size", "expected"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])]
)
def test_sizes_of_batches(max_size, expected):
  assert sizes(max_size) == expected
