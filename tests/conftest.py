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

from hypothesis import HealthCheck, settings

settings.register_profile(
  "moozi", derandomize=True, deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("moozi")
