"""Parameters for tests of acting, without compiling a network's initialisation."""

import jax
import numpy as np

from moozi.run import build


def random_parameters(config, spec):
  """Returns random (params, net_state); the initial ones give uniform priors and values of 0."""
  template = build.training_state_template(config, spec)
  random = np.random.default_rng(0)
  params = jax.tree.map(lambda x: (0.3 * random.standard_normal(x.shape)).astype(x.dtype), template.params)
  # Averages of batch norm: variances are above 0.
  net_state = jax.tree.map(lambda x: (0.5 + random.random(x.shape)).astype(x.dtype), template.net_state)
  return params, net_state
