"""Setup of all tests: a deterministic hypothesis profile, JAX on the CPU, a cache of compilations."""

import atexit
import os
import shutil
import tempfile

# Selects the CPU before any import of JAX, so that values are the same on every machine.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# Modules and processes compile the same functions and share this cache. The cache is new in each session, so
# that no result depends on an earlier session.
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
  "moozi.vis.boards",
  "moozi.vis.frames",
  "moozi.vis.latent_space",
)
jaxtyping.install_import_hook(TYPECHECKED, f"{typechecker.__name__}.check")

settings.register_profile(
  "moozi", derandomize=True, deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("moozi")


@pytest.fixture
def cli(capfd):
  """Runs the command line in this process; returns (status, stdout, stderr)."""
  from moozi.cli import main

  def run(*arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
      main([str(a) for a in arguments])
    out, err = capfd.readouterr()
    return caught.value.code, out, err

  return run


@pytest.fixture
def refused(cli):
  """Runs the command line, which must fail with one line on stderr; returns the line."""

  def run(*arguments: object) -> str:
    status, out, err = cli(*arguments)
    assert status == 2
    assert out == ""
    assert err.startswith("moozi: error: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    return err

  return run


@pytest.fixture
def folder(tmp_path, monkeypatch):
  """An empty current folder; modules imported from it and registered plug-ins are removed afterwards."""
  import sys

  from moozi.core import plugins

  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
  modules = set(sys.modules)
  registered = [dict(registry.registered) for registry in plugins.REGISTRIES]
  yield tmp_path
  for registry, functions in zip(plugins.REGISTRIES, registered, strict=True):
    registry.registered.clear()
    registry.registered.update(functions)
  for name in set(sys.modules) - modules:
    if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
      del sys.modules[name]


@pytest.fixture(scope="session")
def tiny_config():
  """Catch with a network of a few hundred parameters."""
  from moozi.io.config import load_config
  from tests.tiny_run import TINY

  return load_config(None, list(TINY))
