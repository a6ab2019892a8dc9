"""A network of the user: its arrays stay, or surgery is refused, because the axes have no known meaning."""

import haiku as hk
import numpy as np
import pytest

from moozi.core import plugins
from moozi.core.errors import UserError
from moozi.surgery.plan import make_plan
from moozi.surgery.transform import transform
from tests.surgery.kinds import config_of, random_state
from tests.surgery.test_networks import CATCH

pytestmark = pytest.mark.usefixtures("folder")


def own_network(config, num_actions, support_size, num_frame_planes):
  encode, step, project = (hk.Linear(config.latent_size) for _ in range(3))
  value, reward, policy = hk.Linear(support_size), hk.Linear(support_size), hk.Linear(num_actions)
  return (
    lambda history, is_training: encode(hk.Flatten()(history)),
    lambda x, is_training: (value(x), policy(x)),
    lambda x, action, is_training: (step(x), reward(x)),
    lambda x, is_training: project(x),
  )


def test_own_arrays_stay_or_are_refused():
  plugins.register_network("own")(own_network)
  config = config_of("network.kind=own")
  plan = make_plan(config, CATCH, config_of("network.kind=own", "targets.unroll_steps=4"), CATCH)
  assert plan.is_identity
  state = random_state(config, CATCH)
  after = transform(state, plan)
  assert after.keys() == state.keys()
  assert all(np.array_equal(after[name], state[name]) for name in state)
  for changed in ("network.latent_size=16", "scalar_transform.support_max=4", "targets.history_length=3"):
    with pytest.raises(UserError, match="has no surgery: the axes of its arrays are not"):
      make_plan(config, CATCH, config_of("network.kind=own", changed), CATCH)
