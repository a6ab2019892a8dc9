"""Random pairs of MuZero's networks: a growth is preserved; another pair is preserved, lossy or refused."""

import dataclasses

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from moozi.core.errors import UserError
from moozi.surgery.check import TOLERANCE, compare
from moozi.surgery.plan import make_plan
from moozi.surgery.transform import transform
from tests.surgery.kinds import config_of, operate, random_state, training_state
from tests.surgery.test_networks import BOARD, CATCH, SPECS

pytestmark = pytest.mark.slow

NORMS = ("layer", "batch", "none")
WIDTHS = {
  "mlp": ("latent_size", "head_size"),
  "conv_latent": ("latent_size", "head_size", "channels"),
  "resnet": ("head_size", "channels"),
}
"""The widths of layers that each kind of network has."""


def _config(kind, norm, sizes):
  return config_of(f"network.kind={kind}", f"network.norm={norm}", *(f"{k}={x}" for k, x in sizes.items()))


_SMALL = dataclasses.replace(CATCH, frame_shape=(4, 3, 1), num_env_actions=2, action_names=("a", "b"))


@st.composite
def _growths(draw, kind, norm):
  """Draws sizes of a network before and after, and two environments, of which nothing becomes smaller.

  The first network is always the same, so it compiles once. The first value of each choice is the larger one:
  in the first example, everything grows.
  """
  before, after = {}, {}
  # Elsewhere, a layer norm or the normalization of a hidden vector has statistics of all units.
  free = {"conv_latent": {"channels"}, "resnet": {"channels"} if norm != "layer" else set()}.get(kind, set())
  for name in WIDTHS[kind]:
    more = [1, 0, 3] if name in free or (name == "head_size" and norm != "layer") else [0]
    before[f"network.{name}"] = 2
    after[f"network.{name}"] = 2 * draw(st.sampled_from([2, 1])) + draw(st.sampled_from(more))
  for name in ("representation", "prediction", "dynamics"):
    before[f"network.num_{name}_blocks"] = 1
    after[f"network.num_{name}_blocks"] = draw(st.sampled_from([2, 1, 3]))
  for name in ("targets.history_length", "scalar_transform.support_max"):
    before[name] = 2
    after[name] = draw(st.sampled_from([3, 2]))
  names = tuple(draw(st.permutations(("new", "a", "b"))))
  larger = 4, 3, draw(st.sampled_from([2, 1]))
  new = dataclasses.replace(_SMALL, frame_shape=larger, num_env_actions=3, action_names=names)
  return before, after, draw(st.sampled_from([new, _SMALL]))


@pytest.mark.parametrize("kind", WIDTHS)
@settings(max_examples=4)
@given(norm=st.sampled_from(NORMS), data=st.data())
def test_every_growth_of_muzero_is_preserved(kind, norm, data):
  before, after, spec = data.draw(_growths(kind, norm))
  configs = [_config(kind, norm, sizes) for sizes in (before, after)]
  plan, _, state, differences = operate(*configs, _SMALL, spec)
  training_state(plan, state)
  assert not plan.lost
  assert differences.largest <= TOLERANCE, differences


_SIZES = st.fixed_dictionaries(
  {
    "network.latent_size": st.sampled_from([4, 6, 8, 12]),
    "network.head_size": st.sampled_from([4, 6, 8]),
    "network.channels": st.sampled_from([2, 3, 4]),
    "network.num_prediction_blocks": st.integers(0, 2),
    "network.num_dynamics_blocks": st.integers(0, 2),
    "network.num_representation_blocks": st.integers(0, 2),
    "targets.history_length": st.integers(1, 3),
    "scalar_transform.support_max": st.integers(1, 4),
    "chance.codes": st.sampled_from([0, 0, 3]),
  }
)


@pytest.mark.parametrize("kind", WIDTHS)
@settings(max_examples=6)
@given(norm=st.sampled_from(NORMS), before=_SIZES, after=_SIZES, old=SPECS, new=SPECS)
def test_any_pair_of_muzero_is_preserved_or_refused(kind, norm, before, after, old, new):
  """Random pairs: refused exactly if something has no conversion; else equal outputs, or a line of a loss."""
  if kind == "resnet":
    before, after = before | {"chance.codes": 0}, after | {"chance.codes": 0}
  configs = [_config(kind, norm, sizes) for sizes in (before, after)]
  is_narrower = any(after[f"network.{name}"] < before[f"network.{name}"] for name in WIDTHS[kind])
  codes = before["chance.codes"], after["chance.codes"]
  has_other_codes = codes[0] > 0 and codes[0] != codes[1]
  if is_narrower or has_other_codes or not set(old.action_names) & set(new.action_names):
    event("refused")
    with pytest.raises(UserError):
      make_plan(configs[0], old, configs[1], new)
    return
  plan = make_plan(configs[0], old, configs[1], new)
  state = random_state(configs[0], old)
  changed = transform(state, plan)
  training_state(plan, changed)
  event("lost" if plan.lost else "preserved")
  if not plan.lost:
    twice = codes[0] == 0 < codes[1]
    differences = compare(plan, state, changed)
    assert differences.largest <= (1e-3 if twice else TOLERANCE), differences


LAYERS = {
  "mlp": (CATCH, ("chance.codes=3", "network.num_dynamics_blocks=2")),
  "conv_latent": (CATCH, ("network.norm=none",)),
  "resnet": (BOARD, ("network.norm=batch", "network.conv_policy=true", "network.action_offsets=true")),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_the_comparison_sees_every_layer_of_muzero(kind):
  """A change of any array of the new network changes an output."""
  spec, options = LAYERS[kind]
  options = (f"network.kind={kind}", *options)
  changed = ("network.latent_size=16", "network.head_size=12", "network.channels=8")
  plan, state, after, _ = operate(config_of(*options), config_of(*options, *changed), spec, spec)
  rng, num_seen = np.random.default_rng(5), 0
  for path in (f"{part}/{path}" for path in plan.arrays for part in ("params", "net_state")):
    if path not in after:
      continue
    # A variance must stay positive.
    noise = np.abs(rng.normal(size=after[path].shape)).astype(np.float32)
    assert compare(plan, state, after | {path: after[path] + noise}).largest > TOLERANCE, path
    num_seen += 1
  assert num_seen == len(plan.arrays)
