"""Baselines to compare MooZi with. Registers with JAX the records that were defined before its import."""

from moozi.core.pytree import register_queued

register_queued()
