"""Random network parameters, which need no compiled initialization, and collectors for tests."""

import functools

import jax
import numpy as np

from moozi.acting.collector import TrajectoryCollector
from moozi.core.pytree import replace
from moozi.ops.schedules import temperature_at
from moozi.run import build
from moozi.training.algorithms import algorithm_of


def random_params(shapes, random=None):
  """Returns random parameters of these shapes and dtypes."""
  random = random or np.random.default_rng(0)
  return jax.tree.map(lambda x: (0.3 * random.standard_normal(x.shape)).astype(x.dtype), shapes)


def random_state(config, spec):
  """Returns a training state with random variables; its optimizer, counter and random key are zeros."""
  template = algorithm_of(config).training_state_template(config, spec)
  random = np.random.default_rng(0)
  params = random_params(template.params, random)
  # net_state holds batch norm's running averages, including variances, which must be above 0.
  net_state = jax.tree.map(lambda x: (0.5 + random.random(x.shape)).astype(x.dtype), template.net_state)
  zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), template)
  target = None if template.target_params is None else params
  return replace(zeros, params=params, target_params=target, net_state=net_state)


def random_parameters(config, spec):
  """Returns random variables (params, net_state) of the agent.

  They replace initial parameters, whose priors are uniform and whose values are 0.
  """
  return random_state(config, spec).variables


def collector_in(env, config, seed=1, kind=TrajectoryCollector, agent=None):
  """Returns a collector of a configuration in these environments; `agent` replaces the configuration's."""
  planner = config.planners.train
  agent = agent or build.build_agent(config, env.spec, planner)
  temperature = functools.partial(temperature_at, planner.temperature)
  return kind(agent, env, config.workers.segment_length, temperature, seed)
