"""Tests of acting, mostly by a search that samples joint actions: heads that are not finite, and metrics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.acting.collector import acting_metrics
from moozi.agent.agent import Decision
from moozi.core.records import StepSample
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


@pytest.mark.parametrize("to", [np.asarray, jnp.asarray])
def test_entropy_of_each_dimension(to):
  """Of two dimensions with 7 and 2 values: uniform and certain policies, and one on a terminal frame."""
  uniform, first, dummy = [0.0] + [1 / 7] * 7 + [1 / 2] * 2, [0.0, 1, *[0.0] * 6, 1, 0], [1.0, *[0.0] * 9]
  lead, zeros = (2, 3), np.zeros((2, 3), np.float32)
  version, probs = zeros.astype(np.int32), np.float32([[first, first, dummy], [uniform, first, dummy]])
  step = StepSample(
    frame=np.zeros((*lead, 1, 1, 4), np.float32),
    last_reward=zeros,
    is_first=zeros > 0,
    is_last=np.tile([False, False, True], (2, 1)),
    is_truncated=zeros > 0,
    to_play=version,
    legal_actions_mask=np.ones((*lead, 10), bool),
    root_value=zeros,
    action_probs=probs,
    action=version,
    acted_version=version,
    searched_version=version,
  )
  extras = {
    "prior_probs": np.float32([[uniform, first, uniform], [first] * 3]),
    "effective_samples": np.float32([[9, 1, 4], [2, 3, 4]]),
    **dict.fromkeys(("prior_value", "depth_mean", "depth_max"), zeros),
  }
  decision = Decision(action=version, action_probs=probs, root_value=zeros, extras=extras)
  found = acting_metrics(*jax.tree.map(to, (step, decision)), (1, 7, 2))
  for name, want in (
    ("sampled_actions", [5, 2.5]),
    ("prior_entropy_0", [np.log(7) / 2, 0]),
    ("prior_entropy_1", [np.log(2) / 2, 0]),
    ("prior_entropy", [np.log(14) / 2, 0]),
    ("policy_entropy", [0, np.log(14) / 2]),
    ("policy_kl_prior", [np.log(14) / 2, (-np.log(14) + np.log(1e12) * (6 / 7 + 1 / 2)) / 2]),
    ("policy_max", [1, (1 / 2 + 1) / 2]),
  ):
    np.testing.assert_allclose(found[f"search/{name}"], want, rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_segment_has_the_metrics_of_its_samples(collector):
  """Without samples it has none of them."""
  collector.set_parameters(collector.parameters, 0)
  _, result = collector.run(0)
  metrics, spec = result.metrics, collector._env.spec
  by_dimension = [x for name, x in metrics.items() if name.startswith("search/prior_entropy_")]
  assert len(by_dimension) == len(set(by_dimension)) == len(spec.policy_groups) - 1
  assert ("search/sampled_actions" in metrics) == spec.is_factored
  if spec.is_factored:
    assert all(0 < entropy < np.log(7) for entropy in by_dimension)
    assert sum(by_dimension) == pytest.approx(metrics["search/prior_entropy"], rel=1e-5)
    assert 1 < metrics["search/sampled_actions"] <= 16
