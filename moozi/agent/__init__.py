"""Pure functions that take parameters.

Records that were defined before JAX was imported are registered here.
"""

from moozi.core.pytree import register_queued

register_queued()
