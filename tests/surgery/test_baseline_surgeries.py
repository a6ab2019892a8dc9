"""Surgery on PPO and Q-learning: equal outputs, ten finite updates, a reload. And what is lost or refused."""

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from moozi.acting.on_policy import Rollout
from moozi.baselines.ppo import algorithm as ppo
from moozi.baselines.ppo.lstm import IS_FIRST, LSTM_STATE
from moozi.baselines.ppo.optimization import make_round
from moozi.baselines.q_learning.update import QBatch, make_update_many
from moozi.baselines.q_learning.values import make_q_function
from moozi.core.errors import UserError
from moozi.core.factors import ActionPart, Factors, Intervals
from moozi.core.flat_state import leaves_of, tree_state
from moozi.io.checkpoints import expected_of, load_checkpoint, save_checkpoint
from moozi.surgery.check import TOLERANCE, compare
from moozi.surgery.fresh_state import initial_training_state
from moozi.surgery.networks import NamedNetwork, declare
from moozi.surgery.plan import make_plan, shapes_of
from moozi.surgery.transform import transform, transform_variables
from tests.surgery.kinds import config_of, operate, random_state, training_state
from tests.surgery.test_networks import CATCH, LARGE, PARTS, SPECS, VECTOR

EXTENDED = dataclasses.replace(CATCH, frame_shape=(10, 5, 3), num_env_actions=5)
_TURNS = ActionPart(path=(), shape=(2,), dtype="float32", values=((-1.0, 1.0), (-2.0, 2.0)))
_DIALS = ActionPart(path=(), shape=(2,), dtype="int64", values=(tuple(range(6)), tuple(range(7))))
CONTINUOUS = dataclasses.replace(
  VECTOR, num_env_actions=1, factors=Intervals(parts=(_TURNS,), names=("x", "y"))
)
FACTORED = dataclasses.replace(VECTOR, num_env_actions=42, factors=Factors(parts=(_DIALS,), names=("x", "y")))

PPO = (
  "algorithm=ppo",
  "ppo.num_envs=2",
  "ppo.segment_length=8",
  "ppo.num_epochs=1",
  "ppo.num_minibatches=2",
  "ppo.history_length=2",
  "ppo.network.hidden_sizes=[6,4]",
  "ppo.network.channels=3",
)
Q = ("algorithm=q_learning", "q_learning.network.hidden_sizes=[6,4]", "q_learning.network.channels=3")
RELU, SHARED = "ppo.network.activation=relu", "ppo.network.sharing=shared"
WIDER, LONGER = "ppo.network.hidden_sizes=[12,8]", "ppo.history_length=3"
DEEPER = "ppo.network.hidden_sizes=[7,9,8,11]"
NORMALIZED = ("ppo.normalize_observations=true", "ppo.normalize_rewards=true")
CATEGORICAL = ("ppo.value_loss=categorical", "ppo.clip_value=false")
# Settings before, those changed, and the environments.
KINDS = {
  "deeper": ((*PPO, RELU), (DEEPER, LONGER), CATCH, EXTENDED),
  "conv": ((*PPO, "ppo.network.kind=conv", "ppo.layer_norm=true"), (WIDER, LONGER), CATCH, EXTENDED),
  "convolutions": (
    (*PPO, RELU, SHARED, "ppo.network.kind=conv", "ppo.network.channels=[3,2]", "ppo.conv_stride=2"),
    (DEEPER, "ppo.network.channels=[5,4]"),
    CATCH,
    EXTENDED,
  ),
  "nature_conv": ((*PPO, RELU, SHARED, "ppo.network.kind=nature_conv"), (DEEPER, LONGER), LARGE, LARGE),
  "lstm": (
    (*PPO, "ppo.network.lstm_size=4"),
    ("ppo.network.lstm_size=10", "ppo.network.hidden_sizes=[6,7]", LONGER),
    CATCH,
    EXTENDED,
  ),
  "statistics": (
    (*PPO, *NORMALIZED),
    (WIDER, "ppo.num_envs=4"),
    VECTOR,
    dataclasses.replace(VECTOR, frame_shape=(1, 1, 7)),
  ),
  "support": ((*PPO, *CATEGORICAL), ("scalar_transform.support_max=9",), CATCH, CATCH),
  "continuous": ((*PPO, RELU), (DEEPER, LONGER), CONTINUOUS, CONTINUOUS),
  "joint_actions": (PPO, (WIDER, LONGER), FACTORED, FACTORED),
  "multi_input": ((*PPO, "ppo.network.kind=multi_input"), (WIDER, LONGER), PARTS, PARTS),
  "q": (Q, ("q_learning.network.hidden_sizes=[12,9,8]", "targets.history_length=3"), CATCH, EXTENDED),
  "dueling": (
    (*Q, "q_learning.dueling=true", "q_learning.network.kind=conv", "q_learning.conv_stride=2"),
    ("q_learning.network.hidden_sizes=[7,9]", "q_learning.network.channels=5"),
    CATCH,
    EXTENDED,
  ),
}


def made(name):
  before, changed, old, new = KINDS[name]
  return operate(config_of(*before), config_of(*before, *changed), old, new)


@pytest.mark.parametrize("name", KINDS)
def test_declared_arrays_are_the_networks(name):
  before, changed, old, new = KINDS[name]
  for options, spec in ((before, old), ((*before, *changed), new)):
    config = config_of(*options)
    planes, entries = tuple(range(spec.frame_shape[2])), tuple(range(spec.policy_size))
    network = NamedNetwork(config=config, spec=spec, planes=planes, entries=entries)
    shapes = shapes_of(leaves_of(jax.eval_shape(lambda c=config, s=spec: initial_training_state(c, s))))
    declared = declare(network, shapes)  # raises ValueError for another array or shape
    assert {array.path for array in declared.arrays.values()} == shapes.keys()
    for array in declared.arrays.values():
      for axis in array.axes:
        assert len(set(axis.labels)) == len(axis.labels), array.path


def rollout_of(config, spec, rng):
  """Returns a random segment."""
  options = config.ppo
  lead = options.segment_length, options.num_envs
  mask = np.ones((*lead, spec.policy_size), bool)
  mask[..., 0] = False
  frames = rng.random((*lead, options.history_length, *spec.frame_shape)) < 0.3
  extras = {"log_probs": np.where(mask, np.log(1 / (spec.policy_size - 1)), -np.inf).astype(np.float32)}
  action = rng.integers(1, spec.num_actions, lead).astype(np.int32)
  if spec.is_continuous:
    action = rng.normal(size=(*lead, 2)).astype(np.float32)
    extras = {"drawn": action, "gaussian": np.zeros((*lead, 4), np.float32)}
  if options.network.lstm_size:
    shape = ppo.network_of(config, spec).state_shape
    extras |= {LSTM_STATE: np.zeros((*lead, *shape), np.float32), IS_FIRST: np.zeros(lead, bool)}
  return Rollout(
    frames=frames.astype(spec.frame_dtype),
    legal_actions_mask=mask,
    action=action,
    value=rng.normal(size=(lead[0] + 1, lead[1])).astype(np.float32),
    is_first=np.zeros(lead, bool),
    is_live=np.ones(lead, bool),
    reward=rng.normal(size=lead).astype(np.float32),
    is_last=np.zeros(lead, bool),
    is_truncated=np.zeros(lead, bool),
    sign=np.ones(lead, np.float32),
    extras=extras,
  )


def batch_of(config, spec, rng):
  """Returns one random batch of Q-learning."""
  lead = 1, config.learner.batch_size
  frames = rng.random((2, *lead, config.targets.history_length, *spec.frame_shape)) < 0.3
  zeros, legal = np.zeros(lead, np.int32), np.ones((*lead, spec.num_actions), bool)
  return QBatch(
    frames=frames[0],
    legal_actions_mask=legal,
    action=rng.integers(1, spec.num_actions, lead).astype(np.int32),
    reward=rng.normal(size=lead).astype(np.float32),
    bootstrap=np.full(lead, 0.9, np.float32),
    next_frames=frames[1],
    next_legal_actions_mask=legal,
    is_live=np.ones(lead, bool),
    importance_ratio=np.ones(lead, np.float32),
    slot=zeros.astype(np.int64),
    sequence=zeros.astype(np.int64),
    acted_version=zeros,
    searched_version=zeros,
  )


def check_learning(plan, after, folder):
  """Asserts that ten updates are finite and change the parameters, and that a checkpoint is loaded again."""
  config, spec, rng = plan.new.config, plan.new.spec, np.random.default_rng(3)
  if config.algorithm == "ppo":
    batch = rollout_of(config, spec, rng), np.float32(1e-3)
    update, num_calls = make_round(ppo.network_of(config, spec), config.ppo), 5  # of two updates
  else:
    batch, num_calls = batch_of(config, spec, rng), 10
    update = make_update_many(make_q_function(config, spec), config)
  learned = training_state(plan, after)
  for _ in range(num_calls):
    learned, output = update(learned, batch)
    assert (np.asarray(output.bad_term) < 0).all()
  learned = jax.device_get(learned)
  leaves = tree_state(learned)
  assert all(np.isfinite(x).all() for x in leaves.values())
  moved = [name for name in leaves if name.startswith("params/") and (leaves[name] != after[name]).any()]
  assert len(moved) > 0.7 * sum(name.startswith("params/") for name in leaves)
  assert int(learned.learner_step) == int(after["learner_step"]) + 10
  about = expected_of(config, spec)
  path = save_checkpoint(folder, "step_000000001", learned, about | {"env_steps": 1, "learner_steps": 710})
  again = tree_state(load_checkpoint(path, learned, about))
  assert all(np.array_equal(again[name], leaves[name]) for name in leaves)


def test_a_q_network_computes_the_same(tmp_path):
  plan, _, _, differences = made("q")
  assert not plan.lost
  assert differences.largest <= TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_each_kind(name, tmp_path):
  plan, _, after, differences = made(name)
  assert not plan.lost
  assert differences.largest <= TOLERANCE
  check_learning(plan, after, tmp_path)


@pytest.mark.slow
def test_the_comparison_sees_every_layer():
  """A change of any array of the new network changes an output."""
  rng = np.random.default_rng(5)
  for name in ("lstm", "dueling"):
    plan, state, after, _ = made(name)
    for path in (path for path in after if path.startswith("params/")):
      noise = rng.normal(size=after[path].shape).astype(np.float32)
      assert compare(plan, state, after | {path: after[path] + noise}).largest > TOLERANCE, path


def test_a_new_dense_layer_passes_on_its_input():
  plan, _, after, _ = operate(
    config_of(*Q), config_of(*Q, "q_learning.network.hidden_sizes=[6,4,8]"), CATCH, CATCH
  )
  new = after["params/trunk_dense_2/w"]
  assert new.shape == (4, 8)
  np.testing.assert_array_equal(new, np.eye(4, dtype=np.float32)[:, np.arange(8) % 4])
  assert not after["params/trunk_dense_2/b"].any()
  assert not after["opt_state/1/mu/trunk_dense_2/w"].any()
  assert plan.arrays["trunk_dense_2/w"].how.startswith("new, the identity")
  assert plan.arrays["trunk_dense_2/b"].how == "new, 0"


def test_new_action_values_are_the_mean_of_the_others():
  _, state, after, _ = operate(config_of(*Q), config_of(*Q), CATCH, EXTENDED)
  for name in ("params/policy/w", "params/policy/b"):
    mean = state[name][..., 1:].mean(axis=-1, keepdims=True)  # the dummy is no action
    np.testing.assert_allclose(after[name][..., 4:], np.repeat(mean, 2, axis=-1), rtol=1e-6)


def test_variables_of_past_selves_are_converted_as_the_parameters():
  before, changed, old, new = KINDS["statistics"]
  plan = make_plan(config_of(*before), old, config_of(*before, *changed), new)
  state = random_state(plan.old.config, old)
  after = transform(state, plan)
  numbers = {"params": "0", "net_state": "1"}
  given = {}
  for name, x in state.items():
    kind, _, path = name.partition("/")
    if kind in numbers:
      given[f"{numbers[kind]}/{path}"] = x
  for name, x in transform_variables(given, plan).items():
    kind = {"0": "params", "1": "net_state"}[name[0]]
    np.testing.assert_array_equal(x, after[f"{kind}/{name[2:]}"], err_msg=name)
  # Four environments begin without a return; the statistics of returns are carried.
  assert not after["net_state/returns/carried"].any()
  assert after["net_state/returns/stats/variance"] == state["net_state/returns/stats/variance"]


LOST = [
  (PPO, ("ppo.network.hidden_sizes=[6,4,4]",), "a new dense layer, whose tanh or layer norm changes"),
  ((*PPO, RELU), ("ppo.network.hidden_sizes=[6]",), "is dropped"),
  ((*PPO, "ppo.layer_norm=true"), ("ppo.network.hidden_sizes=[8,4]",), "a layer norm changes"),
  (PPO, ("ppo.history_length=1",), "entries are dropped (plane age 1)"),
  (
    (*PPO, "ppo.network.kind=conv"),
    ("ppo.network.channels=[3,3]",),
    "entries are dropped (policy_trunk/conv_0)",
  ),
  ((*PPO, *CATEGORICAL), ("scalar_transform.epsilon=0.01",), "every category stands for another value"),
  (Q, ("targets.history_length=1",), "entries are dropped (plane age 1)"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("before", "changed", "text"), LOST)
def test_what_is_lost_is_listed(before, changed, text):
  plan, _, after, _ = operate(config_of(*before), config_of(*before, *changed), CATCH, CATCH)
  assert any(text in line for line in plan.lost), plan.lost
  training_state(plan, after)  # raises ValueError if it is not a state of the new network
  assert all(np.isfinite(x).all() for x in after.values())


CONV_Q = (*Q, "q_learning.network.kind=conv")
TABLE = (*Q, "q_learning.kind=table", "q_learning.capacity=64")
REFUSED = [
  (PPO, ("ppo.network.hidden_sizes=[6,3]",), CATCH, "3 units of 4: surgery cannot make a layer narrower"),
  ((*PPO, RELU), ("ppo.network.hidden_sizes=[6,4,3]",), CATCH, "3 units of 4: surgery cannot make"),
  (PPO, ("ppo.network.activation=relu",), CATCH, "ppo.network.activation=relu: the state has tanh"),
  (PPO, ("ppo.network.sharing=shared",), CATCH, "ppo.network.sharing=shared: the state has separate"),
  (PPO, ("ppo.network.lstm_size=4",), CATCH, "ppo.network.lstm_size=4: the state has 0"),
  (PPO, CATEGORICAL, CATCH, "ppo.value_loss=categorical: the state has squared"),
  (PPO, ("ppo.normalize_rewards=true",), CATCH, "ppo.normalize_rewards=true: the state has false"),
  (PPO, ("algorithm=q_learning",), CATCH, "algorithm=q_learning: the state is of ppo"),
  (Q, ("q_learning.dueling=true",), CATCH, "q_learning.dueling=true: the state has false"),
  (CONV_Q, ("q_learning.conv_stride=2",), CATCH, "q_learning.conv_stride=2: the state has 1"),
  (Q, ("q_learning.kind=table",), CATCH, "q_learning.kind=table: the state has network"),
  (TABLE, ("q_learning.capacity=128",), CATCH, "q_learning.kind=table: has no surgery"),
  (TABLE, ("targets.history_length=3",), CATCH, "q_learning.kind=table: has no surgery"),
  (TABLE, (), EXTENDED, "q_learning.kind=table: has no surgery"),
]


@pytest.mark.parametrize(("before", "changed", "spec", "text"), REFUSED)
def test_refusals(before, changed, spec, text):
  with pytest.raises(UserError) as caught:
    make_plan(config_of(*before), CATCH, config_of(*before, *changed), spec)
  assert text in str(caught.value)


@pytest.mark.parametrize(
  ("before", "changed"),
  [
    (PPO, ("ppo.conv_stride=2", "ppo.observation_clip=5")),
    (TABLE, ("scalar_transform.support_max=9", "q_learning.network.activation=tanh")),
    ((*TABLE, "q_learning.network.kind=conv"), ("q_learning.conv_stride=2",)),
    (Q, ("q_learning.conv_stride=2",)),
  ],
)
def test_settings_without_an_effect_may_change(before, changed):
  assert make_plan(config_of(*before), CATCH, config_of(*before, *changed), CATCH).is_identity


def test_a_table_stays_as_it_is():
  plan = make_plan(config_of(*TABLE), CATCH, config_of(*TABLE, "q_learning.step_size=0.2"), CATCH)
  assert plan.is_identity
  # No label for each of its cells, which may be millions.
  assert not any(array.declared.axes for array in plan.arrays.values())
  state = random_state(plan.old.config, CATCH)
  after = transform(state, plan)
  assert after.keys() == state.keys()
  assert all(np.array_equal(after[name], state[name]) for name in state)


_WIDTHS = st.lists(st.sampled_from([4, 6, 8, 12]), max_size=3)
_NETWORKS = st.fixed_dictionaries(
  {
    "network.hidden_sizes": _WIDTHS,
    "network.channels": st.sampled_from([2, 3, 4, [3], [4, 2]]),
    "history": st.integers(1, 3),
    "support": st.integers(1, 4),
    "lstm": st.sampled_from([0, 3, 6, 7]),
  }
)
_FIXED = st.fixed_dictionaries(
  {
    "network.kind": st.sampled_from(["mlp", "conv"]),
    "network.sharing": st.sampled_from(["shared", "separate"]),
    "network.activation": st.sampled_from(["tanh", "relu"]),
    "layer_norm": st.sampled_from([False, False, True]),
    "categorical": st.booleans(),
    "dueling": st.booleans(),
  }
)


def _random_config(algorithm, fixed, sizes):
  values = {f"{algorithm}.{key}": x for key, x in (fixed | sizes).items() if key.startswith("network.")}
  if algorithm == "ppo":
    values |= {
      "ppo.layer_norm": fixed["layer_norm"],
      "ppo.history_length": sizes["history"],
      "ppo.network.lstm_size": sizes["lstm"],
      "scalar_transform.support_max": sizes["support"],
    }
    if fixed["categorical"]:
      values |= {"ppo.value_loss": "categorical", "ppo.clip_value": False}
  else:
    values |= {"q_learning.dueling": fixed["dueling"], "targets.history_length": sizes["history"]}
  return config_of(
    *(PPO if algorithm == "ppo" else Q), *(f"{key}={str(x).lower()}" for key, x in values.items())
  )


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "q_learning"])
@settings(max_examples=20)
@given(fixed=_FIXED, before=_NETWORKS, after=_NETWORKS, old=SPECS, new=SPECS)
def test_any_pair_is_preserved_or_refused(algorithm, fixed, before, after, old, new):
  """Random pairs of configurations: equal outputs, or a line that says what is lost, or a refusal."""
  configs = [_random_config(algorithm, fixed, sizes) for sizes in (before, after)]
  try:
    plan = make_plan(configs[0], old, configs[1], new)
  except UserError:
    event("refused")
    return
  state = random_state(configs[0], old)
  changed = transform(state, plan)
  training_state(plan, changed)
  event("lost" if plan.lost else "preserved")
  if not plan.lost:
    differences = compare(plan, state, changed)
    assert differences.largest <= TOLERANCE, differences


@st.composite
def _growths(draw):
  """Draws settings, sizes of a network before and after, and two environments; nothing becomes smaller."""
  fixed, before, old = draw(_FIXED), draw(_NETWORKS), draw(SPECS)
  is_free = fixed["network.activation"] == "relu" and not fixed["layer_norm"]
  more = st.sampled_from([0, 1, 3] if is_free else [0])  # units beyond a whole factor

  def grown(size):
    return draw(st.sampled_from([1, 2])) * size + draw(more)

  channels = before["network.channels"]
  hidden = [grown(size) for size in before["network.hidden_sizes"]]
  if is_free and hidden:
    hidden += [before["network.hidden_sizes"][-1] + draw(more) for _ in range(draw(st.integers(0, 2)))]
  after = {
    "network.hidden_sizes": hidden,
    "network.channels": list(map(grown, channels)) if isinstance(channels, list) else grown(channels),
    "history": before["history"] + draw(st.integers(0, 1)),
    "support": before["support"] + draw(st.integers(0, 2)),
    "lstm": grown(before["lstm"]) if before["lstm"] else 0,
  }
  height, width, planes = old.frame_shape
  names = tuple(draw(st.permutations((*old.action_names, "new"))))
  larger = (height, width, planes + draw(st.integers(0, 1)))
  new = dataclasses.replace(old, frame_shape=larger, num_env_actions=len(names), action_names=names)
  return fixed, before, after, old, draw(st.sampled_from([old, new]))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "q_learning"])
@settings(max_examples=15)
@given(growth=_growths())
def test_every_growth_is_preserved(algorithm, growth):
  fixed, before, after, old, new = growth
  if algorithm == "q_learning":
    fixed = fixed | {"layer_norm": False}  # it has no such option
  configs = [_random_config(algorithm, fixed, sizes) for sizes in (before, after)]
  plan, _, state, differences = operate(*configs, old, new)
  training_state(plan, state)
  assert not plan.lost
  assert differences.largest <= TOLERANCE, differences
