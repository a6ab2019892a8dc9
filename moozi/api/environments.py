"""Makes environments by name."""

from typing import Any

from moozi.api.run_access import check_seed
from moozi.envs import registry
from moozi.envs.environment import Environment


def make_env(name: str, *, seed: int = 0, **kwargs: Any) -> Environment:
  """Makes an environment, as training does.

  Args:
    name: `library:game`, such as "minatar:breakout". For your own environment: `module:function`, or the name
      under which it is registered.
    seed: seed of the episodes, from 0 to 2³¹ − 1.
    **kwargs: the environment's options (`env.kwargs`), which `moozi envs LIBRARY` lists, and `wrappers`, the
      names of functions that wrap the library's environment (`env.wrappers`).

  Returns: a `dm_env.Environment` whose observations are `moozi.Observation`. `as_gymnasium` converts it.
  Raises: UserError: the name or an option is unknown, the seed is out of range, or the library is not
    installed.
  """
  check_seed(seed)
  return registry.make(name, seed, **kwargs)
