"""What all tests share: a deterministic hypothesis profile, JAX on the CPU, a store of compilations."""

import atexit
import os
import shutil
import tempfile

# Before any import of JAX: tests are about values, and the same everywhere.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# Most of the time would go into compiling the same small functions again, in every module and every process
# that a test starts. Fresh for each session, so that nothing depends on what an earlier one left.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
  _cache = tempfile.mkdtemp(prefix="moozi-tests-")
  atexit.register(shutil.rmtree, _cache, ignore_errors=True)
  os.environ["JAX_COMPILATION_CACHE_DIR"] = _cache
  os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"

import jaxtyping
import pytest
from hypothesis import HealthCheck, settings

from tests import typechecker

# Shapes and dtypes in annotations are checked in tests, at the entry of every function of these packages.
TYPECHECKED = (
  "moozi.acting",
  "moozi.agent",
  "moozi.analysis.inspection",
  "moozi.baselines.ppo.network",
  "moozi.baselines.ppo.update",
  "moozi.core.histogram",
  "moozi.envs.jax.environment",
  "moozi.envs.jax.rules",
  "moozi.envs.observations",
  "moozi.envs.replayed",
  "moozi.envs.suites.atari.frames",
  "moozi.evaluation",
  "moozi.learning",
  "moozi.nn",
  "moozi.ops",
  "moozi.replay",
)
jaxtyping.install_import_hook(TYPECHECKED, f"{typechecker.__name__}.check")

settings.register_profile(
  "moozi", derandomize=True, deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("moozi")


@pytest.fixture
def door(capfd):
  """Runs the command line here; returns (status, stdout, stderr)."""
  from moozi import cli

  def run(*arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
      cli.main([str(a) for a in arguments])
    out, err = capfd.readouterr()
    return caught.value.code, out, err

  return run


@pytest.fixture
def refused(door):
  """Runs the command line, which must refuse; returns the one line it says."""

  def run(*arguments: object) -> str:
    status, out, err = door(*arguments)
    assert status == 2
    assert out == ""
    assert err.startswith("moozi: error: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    return err

  return run


@pytest.fixture(scope="session")
def tiny_config():
  """Catch, with a network of a few hundred parameters."""
  from moozi.io.config import load_config
  from tests.tiny_run import TINY

  return load_config(None, list(TINY))
