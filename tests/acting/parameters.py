"""Random parameters for tests of acting, created without compiling a network's initialization."""

import jax
import numpy as np

from moozi.run import build


def random_parameters(config, spec):
  """Returns random (params, net_state); initial parameters would give uniform priors and values of 0."""
  template = build.training_state_template(config, spec)
  random = np.random.default_rng(0)
  params = jax.tree.map(lambda x: (0.3 * random.standard_normal(x.shape)).astype(x.dtype), template.params)
  # The averages of batch norm include variances, which must be above 0.
  net_state = jax.tree.map(lambda x: (0.5 + random.random(x.shape)).astype(x.dtype), template.net_state)
  return params, net_state
