"""Environments by name."""

from typing import Any

from moozi.envs import registry
from moozi.envs.environment import Environment


def make_env(name: str, *, seed: int = 0, **kwargs: Any) -> Environment:
  """Makes an environment, as training does.

  Args:
    name: `library:game`, such as "minatar:breakout", or your own, `module:function` or registered.
    seed: non-negative; the environment's episodes are a function of it and of the actions.
    **kwargs: the environment's options (`env.kwargs`); `moozi envs` lists them. `wrappers` names
      functions that wrap the library's environment (`env.wrappers`).

  Returns: a `dm_env.Environment` whose observations are `moozi.Observation`. `as_gymnasium` converts it.
  Raises: UserError: the name or an option is unknown, or the library is not installed.
  """
  return registry.make(name, seed, **kwargs)
