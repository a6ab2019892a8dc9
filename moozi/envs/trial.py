"""A trial episode, so that errors of a user's environment or wrapper appear before a run starts."""

import contextlib

import numpy as np

from moozi.core.errors import UserError
from moozi.core.plugins import Plugin
from moozi.core.spec import EnvSpec
from moozi.envs.environment import Environment

# Maximum number of steps of the trial episode.
_TRIAL_STEPS = 200


def spec_after_trial(environment: Environment, plugin: Plugin) -> EnvSpec:
  """Plays a trial episode, closes the environment, and returns its specification.

  Raises: UserError: the environment fails; the error starts with the plug-in's key and value.
  """
  try:
    with plugin.errors("its first steps failed"):
      environment.seed(0)
      random, step = np.random.default_rng(0), environment.reset()
      for _ in range(_TRIAL_STEPS):
        step = environment.step(int(random.choice(np.flatnonzero(step.observation.legal_actions_mask))))
        if step.last():
          break
  except UserError:
    with contextlib.suppress(Exception, SystemExit):
      environment.close()
    raise
  with plugin.errors("closing it failed"):
    environment.close()
  return environment.env_spec
