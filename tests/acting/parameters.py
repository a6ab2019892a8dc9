"""Random network parameters for tests; they need no compiled initialization."""

import jax
import numpy as np

from moozi.training.algorithms import algorithm_of


def random_parameters(config, spec):
  """Returns random (params, net_state).

  They replace initial parameters, whose priors are uniform and whose values are 0.
  """
  template = algorithm_of(config).training_state_template(config, spec)
  random = np.random.default_rng(0)
  params = jax.tree.map(lambda x: (0.3 * random.standard_normal(x.shape)).astype(x.dtype), template.params)
  # net_state holds batch norm's running averages, including variances, which must be above 0.
  net_state = jax.tree.map(lambda x: (0.5 + random.random(x.shape)).astype(x.dtype), template.net_state)
  return params, net_state
