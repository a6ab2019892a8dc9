"""Tests of `EnvGuard`, which replaces environments that raise or hang."""

import itertools
import logging
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from moozi.core.errors import EnvError
from moozi.envs import guard as guard_module
from moozi.envs.game import GameEnvironment
from moozi.envs.guard import EnvGuard, EnvHung, allow_exit
from moozi.envs.vector import SyncVectorEnvironment, cut_lanes
from tests.envs.faulty import SPEC, Faulty, make_env

ACT = np.ones(2, np.int32)


def make_vector(*, how="raise", fails, max_faults=3, timeout_s=None, seeds=(10, 20), lane_seeds=None):
  """Returns a vectorized environment of two faulty games, and the list of the seeds of all games created."""
  made = []

  def make(seed):
    made.append(seed)
    env = GameEnvironment(Faulty(how, fails), SPEC)
    env.seed(seed)
    return env

  guard = EnvGuard(SPEC.name, seeds, make, max_faults, timeout_s)
  return SyncVectorEnvironment([make(seed) for seed in seeds], guard=guard, lane_seeds=lane_seeds), made


def steps_of(vector, number):
  steps = [vector.reset()]
  for _ in range(number):
    steps.append(vector.step(ACT[: vector.num_envs]))
  return steps


def test_replacement_leaves_other_envs_alone():
  vector, made = make_vector(fails=lambda seed, episode, step: seed == 20 and step == 4)
  sound, _ = make_vector(fails=lambda *_: False)
  steps, expected = steps_of(vector, 40), steps_of(sound, 40)
  for a, b in zip(steps, expected, strict=True):
    assert a.frame[0].tolist() == b.frame[0].tolist()
    assert (a.is_first[0], a.is_last[0]) == (b.is_first[0], b.is_last[0])
  cut = [t for t in range(40) if cut_lanes(steps[t], steps[t + 1])[1]]
  assert cut == [3]
  assert vector.num_faults == 1
  first = steps[4]
  assert (first.is_first[1], first.last_reward[1], first.is_last[1]) == (True, 0.0, False)
  assert first.frame[1].tolist() == [[[0.0, made[2] % 1000]]]
  assert made[:2] == [10, 20]
  assert made[2] not in (10, 20)
  # The replacement starts at step 4; its first episode ends nine steps later.
  assert [t for t in range(4, 14) if steps[t].is_last[1]] == [13]


@pytest.mark.parametrize(("how", "timeout_s"), [("raise", None), ("hang", 0.2)])
def test_env_that_fails_while_it_is_restored_is_replaced(how, timeout_s):
  """The replay of its game fails, then the reset in its place."""
  sound, _ = make_vector(fails=lambda *_: False, lane_seeds=(1, 2))
  shown = steps_of(sound, 5)[-1]
  fails = lambda seed, episode, step: step == 3 or episode == 1  # noqa: E731
  vector, made = make_vector(how=how, fails=fails, timeout_s=timeout_s, lane_seeds=(1, 2))
  step, is_new = vector.set_state(sound.get_state(), shown)
  assert is_new.all()
  assert step.is_first.all()
  assert vector.num_faults == 2
  assert len(made) == 4
  assert vector.step(ACT).last_reward.tolist() == [1.0, 1.0]


def test_seeding_that_hangs_while_an_env_is_restored_is_interrupted(monkeypatch):
  sound, _ = make_vector(fails=lambda *_: False, lane_seeds=(1, 2))
  shown = steps_of(sound, 5)[-1]
  vector, made = make_vector(fails=lambda *_: False, timeout_s=0.2, lane_seeds=(1, 2))
  seed, hangs = Faulty.seed, iter([True])
  monkeypatch.setattr(Faulty, "seed", lambda *args: time.sleep(3600) if next(hangs, False) else seed(*args))
  _, is_new = vector.set_state(sound.get_state(), shown)
  assert is_new.tolist() == [True, False]
  assert len(made) == 2


def test_seeds_of_replacements():
  fails = lambda seed, episode, step: seed in (10, 20) and step == 4  # noqa: E731
  made = [make_vector(fails=fails, seeds=seeds) for seeds in ((10, 20), (10, 20), (10, 21))]
  for vector, _ in made:
    steps_of(vector, 6)
  assert made[0][1] == made[1][1]
  assert len(set(made[0][1])) == 4
  assert made[2][1][2] == made[0][1][2]


def test_reset_that_raises():
  vector, _ = make_vector(fails=lambda seed, episode, step: seed == 20 and (episode, step) == (1, 0))
  steps = steps_of(vector, 30)
  assert vector.num_faults == 1
  assert not any(cut_lanes(a, b).any() for a, b in itertools.pairwise(steps))
  assert [t for t, s in enumerate(steps) if s.is_first[1]] == [0, 10, 20, 30]


def test_too_many_faults(caplog):
  vector, made = make_vector(fails=lambda seed, episode, step: seed != 10 and step == 4)
  message = (
    r"^env\.name=test:faulty: ArithmeticError: .* in step 4 \(3 faults in a row; workers\.max_env_faults"
  )
  with caplog.at_level(logging.ERROR, "moozi.envs"), pytest.raises(EnvError, match=message) as caught:
    steps_of(vector, 40)
  assert "\n" not in str(caught.value)
  assert len(made) == 2 + 2
  assert vector.num_faults == 3
  assert caplog.text.count("Traceback") == 3
  assert "in _fail" in caplog.text


def test_without_replacement_only_the_error_is_shown(caplog):
  """No warning may be logged: a command without a log file would print it beside the error."""
  guard = EnvGuard("w", [1], make=None, max_faults=1, timeout_s=None)
  vector = SyncVectorEnvironment(
    [GameEnvironment(Faulty("raise", lambda s, e, c: c == 2), SPEC)], guard=guard
  )
  vector.reset()
  vector.step(ACT[:1])
  with caplog.at_level(logging.INFO, "moozi.envs"), pytest.raises(EnvError, match=r"^env\.name=w: "):
    vector.step(ACT[:1])
  assert [record.levelno for record in caplog.records] == [logging.INFO]
  assert "Traceback" in caplog.text


def test_finished_episode_resets_the_count():
  vector, _ = make_vector(fails=lambda seed, episode, step: seed != 10 and (episode, step) == (1, 4))
  steps_of(vector, 200)
  assert vector.num_faults > 10


def test_failed_replacements_count():
  def make(seed):
    raise OSError("no more environments")

  guard = EnvGuard("w", [1], make, 4, None)
  env = GameEnvironment(Faulty("raise", lambda s, e, c: c == 2), SPEC)
  vector = SyncVectorEnvironment([env], guard=guard)
  vector.reset()
  vector.step(ACT[:1])
  with pytest.raises(EnvError, match=r"OSError: no more environments \(4 faults"):
    vector.step(ACT[:1])
  assert guard.num_faults == 4


@pytest.fixture(params=["raise", "hang"])
def stubborn(request):
  """Returns a function that makes environments that cannot be closed, and the list of those closed."""
  closed = []

  class Stubborn(Faulty):
    def close(self):
      closed.append(self)
      if request.param == "hang":
        time.sleep(3600)
      raise OSError("closed already")

  return lambda fails=lambda *_: False: GameEnvironment(Stubborn("raise", fails), SPEC), closed


def test_env_that_cannot_be_closed(stubborn, caplog):
  make, closed = stubborn
  env = make(lambda seed, episode, step: step == 2)
  guard = EnvGuard("w", [1], lambda seed: make(), 2, timeout_s=0.5)
  vector = SyncVectorEnvironment([env], guard=guard)
  for _ in range(12):
    vector.step(ACT[:1])
  assert vector.num_faults == 1
  assert "environment 0 of w cannot be closed" in caplog.text
  assert closed == [env._game]
  vector.close()  # closes the replacement
  assert len(closed) == 2


def test_failed_env_without_replacement_is_closed_once(stubborn):
  make, closed = stubborn
  envs = [make(lambda seed, episode, step: step == 2), make()]
  guard = EnvGuard("w", [1, 2], None, 1, timeout_s=0.5)
  vector = SyncVectorEnvironment(envs, guard=guard)
  with pytest.raises(EnvError, match=r"own error in step 2$"):
    steps_of(vector, 4)
  vector.close()
  assert closed == [env._game for env in envs]


def test_wrong_frame_is_a_fault():
  class Odd(Faulty):
    def frame(self):
      return np.zeros((1, 1, 2 if self._count < 3 else 5), np.float32)

  guard = EnvGuard("w", [1], lambda seed: make_env(episode=-1), 2, None)
  vector = SyncVectorEnvironment([GameEnvironment(Odd("raise", lambda *_: False), SPEC)], guard=guard)
  for _ in range(12):
    vector.step(ACT[:1])
  assert vector.num_faults == 1


def test_without_a_guard_errors_propagate():
  vector = SyncVectorEnvironment([GameEnvironment(Faulty("raise", lambda s, e, c: c == 2), SPEC)])
  vector.reset()
  vector.step(ACT[:1])
  with pytest.raises(ArithmeticError):
    vector.step(ACT[:1])


def test_guard_without_replacement_allows_no_fault():
  guard = EnvGuard("w", [1], None, 9, None)
  vector = SyncVectorEnvironment(
    [GameEnvironment(Faulty("raise", lambda s, e, c: c == 2), SPEC)], guard=guard
  )
  vector.reset()
  vector.step(ACT[:1])
  with pytest.raises(EnvError, match=r"own error in step 2$"):
    vector.step(ACT[:1])


@pytest.mark.parametrize("how", ["hang", "swallow"])
def test_env_that_hangs_is_replaced(how):
  before = signal.getsignal(signal.SIGALRM)
  vector, made = make_vector(how=how, fails=lambda seed, _, step: seed == 20 and step == 4, timeout_s=0.5)
  steps = steps_of(vector, 20)
  assert vector.num_faults == 1
  assert len(made) == 3
  assert steps[4].is_first.tolist() == [False, True]
  assert signal.getsignal(signal.SIGALRM) is before
  assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_too_many_hangs():
  vector, _ = make_vector(how="hang", fails=lambda seed, _, step: step == 2, timeout_s=0.3, max_faults=2)
  with pytest.raises(EnvError, match=r"no answer for 0\.3 s \(workers\.env_timeout_s\) \(2 faults"):
    steps_of(vector, 10)


def test_timeout_is_per_call(monkeypatch):
  now = [0.0]
  monkeypatch.setattr("moozi.envs.guard.time.monotonic", lambda: now[0])
  guard = EnvGuard("w", [1], None, 1, timeout_s=10.0)

  def alarm_at(seconds):
    now[0] = seconds
    guard._on_alarm(signal.SIGALRM, None)

  alarm_at(100.0)  # ignored, because no call is watched
  with guard.watched():
    alarm_at(109.0)
  alarm_at(111.0)
  with guard.watched():
    alarm_at(120.0)
    with pytest.raises(EnvHung, match="no answer for 10 s"):
      alarm_at(121.5)
    # If the environment catches the error, it gets another full timeout.
    alarm_at(122.0)
    with pytest.raises(EnvHung):
      alarm_at(131.5)


def test_outside_the_main_thread_no_alarm():
  vector, _ = make_vector(fails=lambda seed, _, step: seed == 20 and step == 4, timeout_s=0.2)
  done = []
  thread = threading.Thread(target=lambda: done.append(steps_of(vector, 10)))
  thread.start()
  thread.join()
  assert len(done[0]) == 11
  assert vector.num_faults == 1


STUCK = """
import sys
from moozi.envs.game import GameEnvironment
from moozi.envs.guard import EnvGuard, allow_exit
from moozi.envs.vector import SyncVectorEnvironment
from tests.envs.faulty import SPEC, Faulty

allow_exit(sys.stderr)
guard = EnvGuard("w", [1], None, 1, timeout_s=0.5)
env = GameEnvironment(Faulty("stuck", lambda seed, game, step: step == 4), SPEC)
vector = SyncVectorEnvironment([env], guard=guard)
vector.reset()
while True:
  print("step", vector.step([1]).frame[0, 0, 0, 0], flush=True)
"""


def test_env_stuck_in_c_ends_the_process():
  done = subprocess.run(
    [sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=300, check=False
  )
  assert done.returncode == 1
  assert done.stdout.splitlines()[-1] == "step 3.0"
  assert "Timeout" in done.stderr
  assert "in step" in done.stderr


def test_calls_renew_the_exit_deadline(monkeypatch):
  now, deadlines = [0.0], []
  monkeypatch.setattr("moozi.envs.guard.time.monotonic", lambda: now[0])
  fake = SimpleNamespace(
    dump_traceback_later=lambda seconds, exit, file: deadlines.append((now[0], seconds)),
    cancel_dump_traceback_later=lambda: deadlines.append("off"),
  )
  monkeypatch.setattr(guard_module, "faulthandler", fake)
  allow_exit(sys.stderr)
  try:
    guard = EnvGuard("w", [1], None, 1, timeout_s=100.0)
    with guard.armed():
      for seconds in (50.0, 99.0, 120.0, 190.0, 230.0):
        now[0] = seconds
        with guard.watched():
          pass
  finally:
    allow_exit(None)
  assert deadlines == [(0.0, 300.0), (120.0, 300.0), (230.0, 300.0), "off"]
  with guard.armed(), guard.watched():
    pass
  assert len(deadlines) == 4
