"""What all tests share: one deterministic hypothesis profile, and JAX on the CPU."""

import os

# Before any import of JAX: tests are about values, and the same everywhere.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from hypothesis import HealthCheck, settings

settings.register_profile(
  "moozi", derandomize=True, deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("moozi")
