"""Tests of acting with heads that are not finite, mostly by a search that samples joint actions."""

import jax
import numpy as np
import pytest

from moozi.envs.vector import make_vector
from moozi.io.config import load_config
from moozi.replay.validation import check_segment
from tests.acting.parameters import collector_in, random_parameters
from tests.tiny_run import TINY


@pytest.fixture(
  name="collector",
  scope="module",
  params=[
    ("tiny:point", "gumbel"),
    ("tiny:point", "puct"),
    pytest.param(("tiny:catch", "puct"), marks=pytest.mark.slow),
  ],
  ids="-".join,
)
def _collector(request):
  name, search = request.param
  config = load_config(None, [*TINY, f"env.name={name}", f"planners.train.algorithm={search}"])
  env = make_vector(name, {}, config.workers.num_envs, 0)
  collector = collector_in(env, config)
  collector.parameters = random_parameters(config, env.spec)
  return collector


@pytest.mark.parametrize("head", ["policy", "value"])
def test_a_head_that_is_not_finite(collector, head):
  """The environment gets valid actions, and replay refuses the segment, which is one line in the log."""
  (params, net_state), spec = collector.parameters, collector._env.spec

  def broken(path, x):
    return np.full_like(x, np.nan) if head in jax.tree_util.keystr(path) else x

  for is_broken in (True, False):
    given = jax.tree_util.tree_map_with_path(broken, params) if is_broken else params
    collector.set_parameters((given, net_state), 0)
    segment, _ = collector.run(0)
    live = segment.action[~segment.is_last]
    assert ((live >= 1) & (live <= spec.num_env_actions)).all()
    if is_broken:
      with pytest.raises(ValueError, match=r"^root_value is not finite$"):
        check_segment(segment, spec)
  check_segment(segment, spec)
