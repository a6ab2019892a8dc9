"""Each network's declaration is that of its own arrays, without computing any."""

import dataclasses

import jax
import pytest
from hypothesis import strategies as st

from moozi.core.flat_state import leaves_of
from moozi.core.frame_parts import make_parts
from moozi.core.spec import EnvSpec
from moozi.run import build
from moozi.surgery.networks import NamedNetwork, declare
from moozi.surgery.plan import shapes_of
from tests.surgery.kinds import config_of

CATCH = EnvSpec(name="tiny:catch", frame_shape=(10, 5, 2), frame_dtype="bool", num_env_actions=3)
SMALL = dataclasses.replace(CATCH, frame_shape=(2, 2, 3))
LARGE = dataclasses.replace(CATCH, frame_shape=(41, 84, 3), frame_dtype="uint8")
BOARD = dataclasses.replace(
  CATCH, frame_shape=(3, 3, 4), num_env_actions=9, num_players=2, action_places="cells"
)
VECTOR = dataclasses.replace(CATCH, frame_shape=(1, 1, 5), frame_dtype="float32")
SPECS = st.builds(
  lambda planes, actions, names: dataclasses.replace(
    CATCH, frame_shape=(4, 3, planes), num_env_actions=actions, action_names=names[:actions]
  ),
  st.integers(1, 3),
  st.integers(2, 4),
  st.permutations(["a", "b", "c", "d"]).map(tuple),
)
"""Specifications whose planes and actions differ in number and in the order of names."""
_PARTS = make_parts(
  [
    ("camera", (45, 50, 3), False, True),
    ("arm", (4,), False, False),
    ("front", (2, 16, 9), True, True),
    ("dot", (2, 2, 1), False, False),
  ]
)
PARTS = dataclasses.replace(VECTOR, frame_shape=(1, 1, _PARTS[-1].stop), frame_parts=_PARTS)

CASES = [
  ("mlp", CATCH, ()),
  ("mlp", VECTOR, ("network.normalize_observations=true", "network.norm=none")),
  ("mlp", CATCH, ("network.center_frames=true", "chance.codes=3", "chance.encoder_size=5")),
  ("mlp", CATCH, ("chance.codes=3", "chance.reward_from=afterstate", "network.norm=batch")),
  ("conv_latent", CATCH, ("network.num_dynamics_blocks=2",)),
  ("conv_latent", SMALL, ("chance.codes=2",)),
  ("conv_latent", LARGE, ("network.center_frames=true",)),
  ("resnet", CATCH, ("network.norm=batch", "network.num_dynamics_blocks=0")),
  ("resnet", CATCH, ("network.num_representation_blocks=0", "network.norm=none")),
  ("resnet", LARGE, ("network.num_representation_blocks=5",)),
  ("resnet", BOARD, ("network.conv_policy=true", "network.action_offsets=true")),
  ("resnet", BOARD, ("algorithm=alphazero", "targets.unroll_steps=0")),
  ("mlp", BOARD, ("algorithm=alphazero", "targets.unroll_steps=0")),
  ("multi_input", PARTS, ("chance.codes=2", "network.center_frames=true")),
]


@pytest.mark.parametrize(("kind", "spec", "overrides"), CASES)
def test_declared_arrays_are_the_networks(kind, spec, overrides):
  config = config_of(f"network.kind={kind}", *overrides)
  planes, entries = tuple(range(spec.frame_shape[2])), tuple(range(spec.policy_size))
  network = NamedNetwork(config=config, spec=spec, planes=planes, entries=entries)
  template = jax.eval_shape(lambda: build.initial_training_state(config, spec))
  shapes = shapes_of(leaves_of(template))
  declared = declare(network, shapes)  # raises ValueError for another array or shape
  assert {array.path for array in declared.arrays.values()} == shapes.keys()
  for array in declared.arrays.values():
    for axis in array.axes:
      assert len(set(axis.labels)) == len(axis.labels), array.path


def test_a_network_with_another_array_is_not_declared():
  network = NamedNetwork(config=config_of(), spec=CATCH, planes=(0, 1), entries=(0, 1, 2, 3))
  template = jax.eval_shape(lambda: build.initial_training_state(network.config, CATCH))
  shapes = shapes_of(leaves_of(template)) | {"dynamics/new/w": (3, 4)}
  with pytest.raises(ValueError, match="dynamics/new/w is "):
    declare(network, shapes)
