"""Setup of all tests: hypothesis profile, JAX on the CPU, compilation cache, type checks, fixtures."""

import atexit
import gc
import os
import shutil
import signal
import tempfile

# Some tests send signals to processes, which would ignore SIGHUP under nohup, and SIGINT if a shell started
# the tests in the background. A handler is not inherited.
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
  signal.signal(signal.SIGHUP, lambda *_: None)
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
  signal.signal(signal.SIGINT, signal.default_int_handler)

# The CPU gives the same values on every machine. The variable must be set before JAX is imported.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# Test modules and subprocesses share this compilation cache. Each session has a new one, so that no result
# depends on an earlier session.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
  _cache = tempfile.mkdtemp(prefix="moozi-tests-")
  atexit.register(shutil.rmtree, _cache, ignore_errors=True)
  os.environ["JAX_COMPILATION_CACHE_DIR"] = _cache
  os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"

import jaxtyping
import pytest
from hypothesis import HealthCheck, settings

from tests import typechecker

# In these packages, tests check the annotated shapes and dtypes of arguments.
TYPECHECKED = (
  "moozi.acting",
  "moozi.agent",
  "moozi.analysis.inspection",
  "moozi.baselines.ppo.actor_critic",
  "moozi.baselines.ppo.optimization",
  "moozi.baselines.q_learning.hash_table",
  "moozi.baselines.q_learning.update",
  "moozi.baselines.q_learning.values",
  "moozi.core.histogram",
  "moozi.envs.jax.adapters",
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


def pytest_ignore_collect(collection_path, config):
  """Leaves out modules of slow tests if the markers do; their imports take seconds in each worker."""
  if "not slow" in config.option.markexpr and collection_path.suffix == ".py":
    return True if "\npytestmark = pytest.mark.slow\n" in collection_path.read_text() else None
  return None


def pytest_collection_finish():
  """Keeps garbage collections from the imported modules, which took a twentieth of the quick tests' time."""
  gc.collect()
  gc.freeze()
  gc.set_threshold(10_000)


def pytest_runtest_setup():
  typechecker.begin_test()


def pytest_runtest_makereport(call):
  """Keeps a process of many tests below the limit of memory mappings; short tests make few."""
  if call.when == "call" and call.duration > 0.5:
    from tests.shared_programs import forget_if_many

    forget_if_many()


@pytest.fixture(scope="session", autouse=True)
def _shared_programs():
  """Compiles each network, search and update once; see `tests.shared_programs`."""
  from tests.shared_programs import share

  with pytest.MonkeyPatch.context() as patch:
    share(patch)
    yield


@pytest.fixture
def cli(capfd):
  """Returns a function that runs the command line in this process and returns (status, stdout, stderr)."""
  from moozi.cli import main

  def run(*arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
      main([str(a) for a in arguments])
    out, err = capfd.readouterr()
    return caught.value.code, out, err

  return run


@pytest.fixture
def refused(cli):
  """Returns a function that runs the command line, asserts that it fails, and returns the line on stderr."""

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
  """Changes to an empty folder and yields it; removes plug-ins and the folder's modules afterwards."""
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
  """Returns a configuration of Catch with a network of a few hundred parameters."""
  from moozi.io.config import load_config
  from tests.tiny_run import TINY

  return load_config(None, list(TINY))
