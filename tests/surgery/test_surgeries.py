"""Each kind of surgery: equal outputs, ten finite updates, a reload. And what is lost or refused."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.core.errors import UserError
from moozi.core.flat_state import tree_state
from moozi.io.checkpoints import expected_of, load_checkpoint, save_checkpoint
from moozi.learning.learner import to_jax, zero_targets
from moozi.run import build
from moozi.surgery.check import TOLERANCE, compare
from moozi.surgery.pairing import Correspondence, correspond
from moozi.surgery.plan import make_plan
from moozi.surgery.transform import transform
from tests.surgery.kinds import config_of, operate, random_state, training_state
from tests.surgery.test_networks import BOARD, CATCH, LARGE, PARTS, VECTOR

EXTENDED = dataclasses.replace(CATCH, frame_shape=(10, 5, 3), num_env_actions=5)
NAMED = dataclasses.replace(CATCH, action_names=("left", "stay", "right"))
MOVED = dataclasses.replace(
  CATCH, num_env_actions=4, action_names=("right", "jump", "left", "stay"), frame_shape=(10, 5, 3)
)
OTHER = dataclasses.replace(CATCH, name="tiny:other", frame_shape=(10, 5, 3), num_env_actions=4)

WIDER = ("network.latent_size=16", "network.head_size=12", "network.channels=8")
MORE_BLOCKS = (
  "network.num_prediction_blocks=3",
  "network.num_dynamics_blocks=2",
  "network.num_representation_blocks=3",
)
SUPPORT = ("scalar_transform.support_min=-5", "scalar_transform.support_max=9")
# Name of the kind: settings before, those changed, and the environments.
KINDS = {
  "identity": ((), (), CATCH, CATCH),
  "blocks": ((), MORE_BLOCKS, CATCH, CATCH),
  "history": ((), ("targets.history_length=4",), CATCH, CATCH),
  "planes": ((), (), CATCH, dataclasses.replace(CATCH, frame_shape=(10, 5, 4))),
  "actions": ((), (), CATCH, dataclasses.replace(CATCH, num_env_actions=5)),
  "actions_by_name": ((), (), NAMED, MOVED),
  "support": ((), SUPPORT, CATCH, CATCH),
  "unroll": ((), ("targets.unroll_steps=4",), CATCH, CATCH),
  "optimizer": (("learner.optimizer=adam",), ("learner.optimizer=adamw",), CATCH, CATCH),
  "clipping": ((), ("learner.max_grad_rms=5",), CATCH, CATCH),
  "environment": ((), (), CATCH, OTHER),
  "chance": ((), ("chance.codes=4",), CATCH, CATCH),
  "chance_with_rewards": ((), ("chance.codes=4", "chance.reward_from=afterstate"), CATCH, CATCH),
  "wider": ((), WIDER, CATCH, CATCH),
  "all": ((), (*WIDER, *MORE_BLOCKS, *SUPPORT, "targets.history_length=3"), CATCH, EXTENDED),
}
PAIRS = Correspondence(planes=(1, None, 0), actions=(2, 0, None, 1), is_same_game=False)
# Kind of the network, environments, settings before, and those changed.
OTHER_NETWORKS = {
  "centered": ("conv_latent", CATCH, EXTENDED, ("network.center_frames=true",), WIDER),
  "large": ("conv_latent", LARGE, LARGE, (), (*WIDER, "targets.history_length=3")),
  "chance": ("conv_latent", CATCH, EXTENDED, ("chance.codes=3", "network.center_frames=true"), WIDER),
  "large_resnet": (
    "resnet",
    LARGE,
    LARGE,
    ("network.num_representation_blocks=3",),
    (*WIDER, *MORE_BLOCKS[:2]),
  ),
  "deep_resnet": ("resnet", LARGE, LARGE, (), ("network.num_representation_blocks=7",)),
  "batch_norm": (
    "resnet",
    CATCH,
    EXTENDED,
    ("network.norm=batch",),
    ("network.channels=7", "network.head_size=8"),
  ),
  "no_norm": ("resnet", CATCH, EXTENDED, ("network.norm=none",), (*MORE_BLOCKS, "network.channels=5")),
  "places": ("resnet", BOARD, BOARD, (), (*WIDER, "network.conv_policy=true", "network.action_offsets=true")),
  "alphazero": ("mlp", BOARD, BOARD, ("algorithm=alphazero", "targets.unroll_steps=0"), (*WIDER, *SUPPORT)),
  "statistics": (
    "mlp",
    VECTOR,
    dataclasses.replace(VECTOR, frame_shape=(1, 1, 7)),
    ("network.normalize_observations=true",),
    (*WIDER, "targets.history_length=3"),
  ),
  "multi_input": ("multi_input", PARTS, PARTS, (), (*WIDER, "targets.history_length=3")),
}
LEARNING = ("alphazero", "batch_norm", "statistics")


def made(kind, name):
  before, changed, old, new = KINDS[name]
  settings_of = f"network.kind={kind}", *before
  pairs = PAIRS if name == "environment" else None
  return operate(config_of(*settings_of), config_of(*settings_of, *changed), old, new, pairs)


@pytest.mark.parametrize("name", ["all", "environment"])
def test_an_mlp_computes_the_same(name):
  plan, _, after, differences = made("mlp", name)
  assert not plan.lost
  assert differences.largest <= TOLERANCE
  assert all(np.isfinite(x).all() for x in after.values())


def check_learning(plan, after, folder):
  """Asserts that ten updates are finite and change the parameters, and that a checkpoint is loaded again."""
  config, spec = plan.new.config, plan.new.spec
  state = training_state(plan, after)
  update = build.make_update_many(build.build_model(config, spec), config, spec)
  rng = np.random.default_rng(3)
  targets = zero_targets(config, spec, (1, config.learner.batch_size))
  probs = rng.random(targets.action_probs.shape).astype(np.float32)
  targets = dataclasses.replace(
    targets,
    frames=(rng.random(targets.frames.shape) < 0.3).astype(targets.frames.dtype),
    actions=rng.integers(1, spec.num_actions, targets.actions.shape).astype(np.int32),
    action_probs=probs / probs.sum(-1, keepdims=True),
    rewards=rng.normal(size=targets.rewards.shape).astype(np.float32),
    n_step_returns=rng.normal(size=targets.n_step_returns.shape).astype(np.float32),
    unroll_mask=np.ones_like(targets.unroll_mask),
    consistency_mask=np.ones_like(targets.consistency_mask),
    importance_ratio=np.ones_like(targets.importance_ratio),
  )
  learned = to_jax(state)
  for _ in range(10):
    learned, output = update(learned, targets)
    assert int(output.bad_term[0]) < 0
  learned = jax.device_get(learned)
  leaves = tree_state(learned)
  assert all(np.isfinite(x).all() for x in leaves.values())
  moved = [name for name in leaves if name.startswith("params/") and (leaves[name] != after[name]).any()]
  assert len(moved) > 0.8 * sum(name.startswith("params/") for name in leaves)
  assert int(learned.learner_step) == int(after["learner_step"]) + 10
  about = expected_of(config, spec)
  path = save_checkpoint(folder, "step_000000001", learned, about | {"env_steps": 1, "learner_steps": 710})
  again = tree_state(load_checkpoint(path, learned, about))
  assert all(np.array_equal(again[name], leaves[name]) for name in leaves)


EACH = [
  (kind, name)
  for kind in ("mlp", "conv_latent", "resnet")
  for name in KINDS
  if kind != "resnet" or not name.startswith("chance")
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), EACH)
def test_each_kind(kind, name, tmp_path):
  plan, _, after, differences = made(kind, name)
  assert not plan.lost
  # The hidden state after a new outcome is normalized twice.
  assert differences.largest <= (5e-5 if name.startswith("chance") else TOLERANCE)
  assert plan.is_identity == (name in ("identity", "unroll", "optimizer", "clipping"))
  check_learning(plan, after, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHER_NETWORKS)
def test_other_networks_compute_the_same(name, tmp_path):
  kind, old, new, before, changed = OTHER_NETWORKS[name]
  options = f"network.kind={kind}", *before
  plan, _, after, differences = operate(config_of(*options), config_of(*options, *changed), old, new)
  assert not plan.lost
  assert differences.largest <= TOLERANCE
  assert all(np.isfinite(x).all() for x in after.values())
  if name in LEARNING:
    check_learning(plan, after, tmp_path)


LOST = [
  (("network.latent_size=12",), "the normalization of the hidden state changes"),
  (("network.head_size=8",), "a layer norm changes"),
  (("targets.history_length=1",), "entries are dropped (plane age 1, action age 1)"),
  (("scalar_transform.support_max=2",), "1 entries are dropped (category)"),
  (("scalar_transform.epsilon=0.01",), "every category stands for another value"),
  (("network.num_prediction_blocks=0",), "is dropped"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("changed", "text"), LOST)
def test_what_is_lost_is_listed(changed, text):
  plan, _, after, _ = operate(config_of(), config_of(*changed), CATCH, CATCH)
  assert any(text in line for line in plan.lost), plan.lost
  training_state(plan, after)  # raises ValueError if it is not a state of the new network


REFUSED = [
  ((), ("network.latent_size=4",), CATCH, "4 units of 8: surgery cannot make a layer narrower"),
  ((), ("network.norm=batch",), CATCH, "network.norm=batch: the state has layer"),
  ((), ("network.kind=conv_latent",), CATCH, "network.kind=conv_latent: the state has mlp"),
  ((), ("network.center_frames=true",), CATCH, "network.center_frames=true: the state has false"),
  ((), ("algorithm=ppo",), CATCH, "algorithm=ppo: the state is of muzero"),
  (("chance.codes=2",), ("chance.codes=3",), CATCH, "chance.codes=3: the state has 2"),
  ((), (), dataclasses.replace(CATCH, frame_shape=(9, 5, 2)), "the size of a frame is (9, 5)"),
  ((), (), dataclasses.replace(CATCH, frame_dtype="uint8"), "the dtype of a frame is uint8"),
  ((), (), dataclasses.replace(CATCH, num_players=2), "the number of players is 2"),
  ((), (), OTHER, "the state is of tiny:catch, and both differ"),
  ((), (), dataclasses.replace(CATCH, action_names=("x", "y", "z")), "none of its actions is one of"),
]


@pytest.mark.parametrize(("before", "changed", "spec", "text"), REFUSED)
def test_refusals(before, changed, spec, text):
  with pytest.raises(UserError) as caught:
    operate(config_of(*before), config_of(*before, *changed), NAMED, spec)
  assert text in str(caught.value)


def test_actions_with_a_place_keep_it():
  new = dataclasses.replace(BOARD, action_names=tuple("bacdefghi"))
  old = dataclasses.replace(BOARD, action_names=tuple("abcdefghi"))
  with pytest.raises(UserError, match="actions with a place must keep their numbers"):
    operate(config_of("network.kind=resnet"), config_of("network.kind=resnet"), old, new)


def test_moments_of_new_entries():
  plan, state, after, _ = made("mlp", "actions")
  kept, new = slice(0, 4), slice(4, None)
  for moment in ("mu", "nu"):
    name = f"opt_state/1/{moment}/prediction/heads/policy/w"
    np.testing.assert_array_equal(after[name][:, kept], state[name])
    expected = 0 if moment == "mu" else state[name].mean()
    np.testing.assert_allclose(after[name][:, new], expected, rtol=1e-6)
  # The inputs of old action planes are 1/6 and not 1/4, so gradients are 4/6 of before.
  name = "representation/dense/w"
  axis = plan.arrays[name].maps[0]
  scaled = np.flatnonzero((axis.factors != 1) & ~axis.is_new)
  mu, nu, w = (f"opt_state/1/mu/{name}", f"opt_state/1/nu/{name}", f"params/{name}")
  source = axis.source[scaled]
  np.testing.assert_allclose(after[w][scaled], state[w][source] * 1.5, rtol=1e-6)
  np.testing.assert_allclose(after[mu][scaled], state[mu][source] / 1.5, rtol=1e-6)
  np.testing.assert_allclose(after[nu][scaled], state[nu][source] / 1.5**2, rtol=1e-6)
  assert int(after["learner_step"]) == int(state["learner_step"])
  np.testing.assert_array_equal(after["rng_key"], state["rng_key"])


def test_moments_of_clipping_are_carried():
  clipped = "learner.max_grad_rms=5"
  name = "opt_state/0/0/nu/prediction/heads/policy/w"
  _, state, after, _ = operate(config_of(clipped), config_of(clipped), CATCH, EXTENDED)
  np.testing.assert_array_equal(after[name][:, :4], state[name])
  np.testing.assert_allclose(after[name][:, 4:], state[name].mean(), rtol=1e-6)
  _, state, after, _ = operate(config_of(), config_of(clipped), CATCH, EXTENDED)
  assert not after[name].any()
  assert int(after["opt_state/0/0/count"]) == 0
  assert int(after["opt_state/1/count"]) == int(state["opt_state/1/count"])
  adam = "opt_state/1/nu/prediction/heads/policy/w"
  np.testing.assert_array_equal(after[adam][:, :4], state[adam])


def test_a_scheduled_discount_is_carried():
  scheduled = "targets.discount_schedule=[{env_steps: 9, discount: 0.9}]"
  name = "net_state/discount"
  _, state, after, _ = operate(config_of(scheduled), config_of(scheduled, *WIDER))
  assert after[name] == state[name] != np.float32(0.997)
  _, state, after, differences = operate(config_of(), config_of(scheduled))
  assert name not in state
  assert after[name] == np.float32(0.997)
  assert differences.largest == 0


def transformed(options, old, new):
  """Returns the plan, and the states before and after, of a surgery with one configuration."""
  config = config_of(*options)
  plan = make_plan(config, old, config, new)
  state = random_state(config, old)
  return plan, state, transform(state, plan)


def test_statistics_of_new_planes_are_those_of_a_new_network():
  new = dataclasses.replace(VECTOR, frame_shape=(1, 1, VECTOR.frame_shape[2] + 2))
  plan, state, after = transformed(("network.normalize_observations=true",), VECTOR, new)
  for name, value in (("mean", 0), ("variance", 1)):
    path = f"net_state/observation_norm/stats/{name}"
    np.testing.assert_array_equal(after[path][..., :-2], state[path])
    np.testing.assert_array_equal(after[path][..., -2:], value)
  assert plan.arrays["observation_norm/stats/variance"].how == "2 new entries: as in a new network"


def test_the_comparison_has_inputs_of_the_size_of_observations():
  options, path = ("network.normalize_observations=true",), "net_state/observation_norm/stats"
  plan, state, _ = transformed(options, VECTOR, VECTOR)
  state[f"{path}/mean"][:], state[f"{path}/variance"][:] = 1000, 1
  after = transform(state, plan)
  after[f"{path}/variance"] = 4 * after[f"{path}/variance"]
  assert compare(plan, state, after).largest > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(
  ("array", "output"),
  [
    ("afterstate/heads/value/b", "afterstate value"),
    ("afterstate/heads/chance/b", "chance"),
    ("encoder/head/code/b", "encoder"),
  ],
)
def test_outputs_of_chance_nodes_are_compared(array, output):
  plan, state, after = transformed(("chance.codes=3",), CATCH, CATCH)
  changed = np.array(after[f"params/{array}"])
  changed[0] += 1
  found = compare(plan, state, after | {f"params/{array}": changed}).values
  assert found[output] > 1e-3
  assert max(found["policy"], found["reward"]) == 0 or output == "chance"


def gradients(network, state):
  """Returns the gradient of a sum of outputs at the root and after an action, by path."""
  from moozi.core.flat_state import part, tree_of_state
  from moozi.ops.history import network_input

  config, spec = network.config, network.spec
  model = build.build_model(config, spec)
  template = build.variables_template(config, spec)
  params = tree_of_state(template[0], part(state, "params"))
  net_state = tree_of_state(template[1], part(state, "net_state"))
  rng = np.random.default_rng(0)
  frames = rng.random((4, 4, 10, 5, 2)) < 0.3
  actions = rng.integers(0, 4, (4, 5)).astype(np.int32)
  planes = np.zeros((*frames.shape[:-1], spec.frame_shape[2]), bool)
  planes[..., :2] = frames
  stacked = jnp.asarray(network_input(planes[:, -network.length :], actions[:, 4 - network.length : 4], spec))

  def total(params):
    output, _ = model.root_inference(params, net_state, stacked, False)
    after, _ = model.recurrent_inference(
      params, net_state, output.hidden_state, jnp.asarray(actions[:, 4]), False
    )
    values = [model.transform.to_scalar(x) for x in (output.value_logits, after.value_logits)]
    chosen = jax.nn.log_softmax(after.policy_logits)[:, 1]
    return sum(x.sum() for x in (*values, chosen, model.transform.to_scalar(after.reward_logits)))

  return tree_state(jax.jit(jax.grad(total))(params))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mlp", "conv_latent", "resnet"])
def test_moments_have_the_units_of_the_new_gradients(kind):
  """A first moment equal to the old gradient becomes the new gradient, wherever the entry is kept."""
  options = (f"network.kind={kind}",)
  changed = (*options, "targets.history_length=3", *SUPPORT)
  plan, state, _, _ = operate(config_of(*options), config_of(*changed), CATCH, EXTENDED)
  state |= {f"opt_state/1/mu/{name}": x for name, x in gradients(plan.old, state).items()}
  after = transform(state, plan)
  for name, gradient in gradients(plan.new, after).items():
    mu = after[f"opt_state/1/mu/{name}"]
    kept = np.ones(mu.shape, bool)
    for i, axis in enumerate(plan.arrays[name].maps):
      kept &= ~axis.is_new.reshape([-1 if i == j else 1 for j in range(mu.ndim)])
    np.testing.assert_allclose(mu[kept], gradient[kept], rtol=2e-3, atol=2e-4 * np.abs(gradient).max())
    assert not mu[~kept].any()


def test_correspondence_by_name_and_number():
  assert correspond(NAMED, MOVED).actions == (2, None, 0, 1)
  assert correspond(CATCH, EXTENDED).actions == (0, 1, 2, None, None)
  assert correspond(CATCH, EXTENDED).planes == (0, 1, None)


def test_mapping_file(tmp_path):
  path = tmp_path / "map.yaml"
  path.write_text('actions: {right: 1, jump: null, left: left}\nplanes: {"0": 1, "2": 0}\n')
  found = correspond(NAMED, MOVED, path)
  assert found.actions == (1, None, 0, None)
  assert found.planes == (1, None, 0)


MALFORMED = [
  ("", "must have the sections planes or actions"),
  ("- 1", "must have the sections planes or actions"),
  ("action: {left: left}", "action: unknown section; must be planes or actions"),
  ("actions: [left]", "actions: must have lines NEW: OLD"),
  ("actions: {fly: left}", "actions.fly: the new environment has no such action; it has right, jump"),
  ("actions: {left: fly}", "actions.left=fly: the old environment has no such action; it has left, stay"),
  ("actions: {left: left, right: left}", "actions.right=left: is also actions.left"),
  ('actions: {left: left, "2": right}', "actions.2: is given twice, by name and by number"),
  ('planes: {"0": 2}', "planes.0=2: the old environment has no such plane; they have the numbers 0 … 1"),
  ('planes: {"3": 0}', "planes.3: the new environment has no such plane"),
  ('planes: {"0": true}', "planes.0=True: the old environment has no such plane"),
  ("planes: {0: 1", "not valid YAML"),
  ("actions: {}", "map.yaml: actions: must name one of the old environment, or be left out"),
  ('planes: {"0": null}', "map.yaml: planes: must name one of the old environment"),
]


@pytest.mark.parametrize(("text", "message"), MALFORMED)
def test_malformed_mapping_files(text, message, tmp_path):
  path = tmp_path / "map.yaml"
  path.write_text(text)
  with pytest.raises(UserError) as caught:
    correspond(NAMED, MOVED, path)
  assert message in str(caught.value)
