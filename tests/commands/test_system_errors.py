"""Tests that errors of JAX and of the system are one line, and that defects keep their traceback."""

import errno

import jax
import numpy as np
import pytest

from moozi.commands.system_errors import describe
from moozi.core.errors import EnvError

CALLBACK = (
  "INTERNAL: CpuCallback error calling callback: Traceback (most recent call last):\n"
  '  File "a.py", line 7, in <module>\n  File "a.py", line 5, in f\n'
)


class WrappedError(Exception):
  """An error of another process, as Ray raises it."""

  def __init__(self, cause):
    super().__init__("a long text with a traceback")
    self.cause = cause


@pytest.mark.parametrize(
  ("error", "start", "end"),
  [
    (MemoryError(), "out of memory (MemoryError)", "replay.capacity"),
    (OSError(errno.EMFILE, "Too many open files", "/x"), "[Errno 24] Too many open files", "(ulimit -n)"),
    (OSError(errno.ENOMEM, "Cannot allocate memory"), "[Errno 12] Cannot", "smaller settings"),
    (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "[Errno 11]", "(ulimit -u)"),
    (RuntimeError("can't start new thread"), "can't start new thread", "(ulimit -u)"),
    (
      jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate\n99 bytes."),
      "JAX: out of memory (RESOURCE_EXHAUSTED: Out of memory while trying to allocate 99 bytes.); lower",
      "JAX_PLATFORMS=cpu",
    ),
    (jax.errors.JaxRuntimeError("INTERNAL: no"), "JAX: INTERNAL: no", "no"),
    (
      jax.errors.JaxRuntimeError(f"{CALLBACK}ValueError: a\nb"),
      "ValueError: a",
      "ValueError: a b",
    ),
    (
      jax.errors.JaxRuntimeError(f"{CALLBACK}moozi.core.errors.EnvError: env.name=own: no"),
      "env.name=own: ",
      "no",
    ),
    # As a compiled function raises it that was called before.
    (ValueError(f"{CALLBACK}RuntimeError: Incorrect output shape"), "RuntimeError: Incorrect", "shape"),
    (ValueError("RESOURCE_EXHAUSTED: Out of memory"), "JAX: out of memory (RESOURCE_EXHAUSTED: ", "=cpu"),
    (WrappedError(jax.errors.JaxRuntimeError("INTERNAL: no")), "JAX: INTERNAL: no", "no"),
  ],
)
def test_error_is_one_line_with_a_way_out(error, start, end):
  text = describe(error)
  assert text.startswith(start)
  assert text.endswith(end)
  assert "\n" not in text


@pytest.mark.parametrize(
  "error",
  [
    ValueError("a defect"),
    ValueError("a defect INTERNAL: no"),
    RuntimeError("a defect"),
    FileNotFoundError(2, "a defect"),
    KeyError("x"),
  ],
)
def test_defects_are_not_described(error):
  assert describe(error) is None


@pytest.mark.parametrize("num_good", [0, 1, 2])
@pytest.mark.parametrize(
  ("error", "text"),
  [(ValueError("a\nb"), "ValueError: a b"), (EnvError("env.name=own: no"), "env.name=own: no")],
)
def test_error_of_python_that_a_compiled_function_calls(num_good, error, text):
  """JAX raises another type of error once the function has returned a result."""
  num_calls = 0

  def host(x):
    nonlocal num_calls
    num_calls += 1
    if num_calls > num_good:
      raise error
    return x

  called = jax.jit(lambda x: jax.pure_callback(host, x, x))
  for _ in range(num_good):
    called(np.float32(1)).block_until_ready()
  with pytest.raises((ValueError, jax.errors.JaxRuntimeError)) as caught:
    called(np.float32(1)).block_until_ready()
  assert describe(caught.value) == text


def test_invalid_variable_of_jax_is_named(monkeypatch):
  from jax._src import config

  monkeypatch.setenv("JAX_ENABLE_X64", "maybe")
  with pytest.raises(ValueError, match="maybe") as caught:
    config.bool_env("JAX_ENABLE_X64", False)
  text = describe(caught.value)
  assert text.startswith("JAX refuses its environment variables: invalid truth value 'maybe'")
  assert "JAX_ENABLE_X64" in text


def test_command_prints_the_line(refused, monkeypatch):
  def fail(*_, **__):
    raise MemoryError("array of 99 TiB")

  monkeypatch.setattr("moozi.commands.train._start", fail)
  assert "out of memory (array of 99 TiB); lower learner.batch_size" in refused("train", "tiny/catch")
