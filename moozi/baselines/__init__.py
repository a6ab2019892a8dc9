"""Rivals to hold MooZi against. Records that were defined before JAX was imported are registered here."""

from moozi.core.pytree import register_queued

register_queued()
