"""Tests of the dimensions of joint actions and of the spec's numbers of actions and entries."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moozi.core.factors import ActionPart, Factors, Intervals, bins
from moozi.core.spec import EnvSpec

THROTTLE = ActionPart(path=("throttle",), shape=(2,), dtype="float32", values=(bins(-1, 1, 7),) * 2)
GEAR = ActionPart(path=("gear",), shape=(), dtype="int64", values=((2, 3, 4),))
CAR = Factors(parts=(THROTTLE, GEAR), names=("throttle left", "throttle right", "gear"))


def spec_of(factors, **changes):
  facts = {"name": "a:b", "frame_shape": (1, 1, 2), "frame_dtype": "float32", "factors": factors}
  return EnvSpec(**(facts | {"num_env_actions": factors.num_joint_actions} | changes))


def test_actions_as_text():
  text = "147 joint actions of 3 dimensions: throttle left from -1 to 1 (7 values), "
  assert spec_of(CAR).actions_text.startswith(text)
  assert spec_of(CAR).actions_text.endswith("gear from 2 to 4 (3 values)")
  thrust = ActionPart(path=(), shape=(1,), dtype="float32", values=((-2.0, 2.0),))
  continuous = spec_of(Intervals(parts=(thrust,), names=("thrust",)))
  assert continuous.actions_text == "continuous actions of 1 dimension: thrust from -2 to 2"
  facts = {"name": "a:b", "frame_shape": (1, 1, 2), "frame_dtype": "float32"}
  named = EnvSpec(**facts, num_env_actions=3, action_names=("left", "right"))
  assert named.actions_text == "3 actions: left, right"
  assert EnvSpec(**facts, num_env_actions=1).actions_text == "1 action"
  many = EnvSpec(**facts, num_env_actions=13, action_names=tuple("abcdefghijklm"))
  assert many.actions_text == "13 actions: a, b, c, d, e, f, g, h, i, j, k, and 2 more"


def test_own_actions():
  assert CAR.sizes == (7, 7, 3)
  assert CAR.num_joint_actions == 147
  own = CAR.own_action(5 * 3 + 2)
  assert own["gear"] == 4
  assert own["gear"].dtype == np.int64
  np.testing.assert_allclose(own["throttle"], [-1, 2 / 3], rtol=1e-6)
  assert own["throttle"].dtype == np.float32
  assert CAR.name(5 * 3 + 2) == "throttle left=-1 throttle right=+0.667 gear=4"
  assert CAR.name(3 * 21 + 3 * 3) == "throttle left=0 throttle right=0 gear=2"


def test_every_joint_action_is_that_of_its_own_form():
  assert [CAR.joint_action(CAR.own_action(i)) for i in range(147)] == list(range(147))


def test_the_nearest_values_are_taken():
  assert CAR.row(CAR.joint_action({"throttle": [0.1, -0.6], "gear": 3})) == (3, 1, 1)


@pytest.mark.parametrize(
  ("own", "message"),
  [
    ({"throttle": [0.1, 2.0], "gear": 3}, r"action=2: must be from -1 to 1"),
    ({"throttle": [0.1, np.nan], "gear": 3}, r"action=nan: must be from -1 to 1"),
    ({"throttle": [0.1], "gear": 3}, r"action\['throttle'\]: must be numbers of shape \[2\]"),
    ({"gear": 3}, r"action\['throttle'\]: must be numbers of shape \[2\]"),
    (7, r"action\['throttle'\]: must be numbers of shape \[2\]"),
  ],
)
def test_other_actions_are_refused(own, message):
  with pytest.raises(ValueError, match=message):
    CAR.joint_action(own)


def test_tuples_and_nested_parts():
  one = ActionPart(path=(0, "a"), shape=(), dtype="int64", values=((0, 1),))
  two = ActionPart(path=(1,), shape=(1,), dtype="float64", values=((0.0, 1.0),))
  factors = Factors(parts=(one, two), names=("a", "b"))
  own = factors.own_action(3)
  assert isinstance(own, tuple)
  assert own[0] == {"a": 1}
  assert own[1].tolist() == [1.0]
  assert factors.joint_action(own) == 3


@given(st.data())
def test_every_structure_is_read_back(data):
  paths = data.draw(st.sampled_from([((),), (("a",), ("b", 0), ("b", 1)), ((0,), (1, "x"), (1, "y"))]))
  parts = []
  for path in paths:
    shape = data.draw(st.sampled_from([(), (1,), (2,), (2, 2)]))
    size, is_float = data.draw(st.integers(2, 4)), data.draw(st.booleans())
    values = bins(-0.7, 2.0, size) if is_float else tuple(range(-1, size - 1))
    rows = (values,) * int(np.prod(shape))
    parts.append(ActionPart(path=path, shape=shape, dtype="float32" if is_float else "int16", values=rows))
  names = tuple(str(i) for i in range(sum(len(part.values) for part in parts)))
  factors = Factors(parts=tuple(parts), names=names)
  action = data.draw(st.integers(0, factors.num_joint_actions - 1))
  own = factors.own_action(action)
  assert isinstance(own, {(): np.ndarray, ("a",): dict, (0,): tuple}[paths[0]])
  assert factors.joint_action(own) == action


def test_rounding_does_not_leave_the_bounds():
  part = ActionPart(path=(), shape=(1,), dtype="float32", values=(bins(-0.1, 0.1, 3),))
  factors = Factors(parts=(part,), names=("x",))
  assert factors.joint_action(np.array([0.1], np.float32)) == 2  # above 0.1 in float64


def test_few_joint_actions_have_entries_of_their_own():
  few = Factors(parts=(GEAR,), names=("gear",))
  spec = spec_of(few)
  assert (spec.policy_groups, spec.policy_size, spec.mask_size, spec.is_factored) == ((4,), 4, 3, False)
  spec = spec_of(CAR)
  assert (spec.policy_groups, spec.policy_size, spec.is_factored) == ((1, 7, 7, 3), 18, True)
  assert (spec.num_actions, spec.mask_size) == (148, 17)


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"dtype": "object"}, "dtype='object': must be one of"),
    ({"shape": (3,)}, r"shape=\(3,\): must have 1 entries"),
    ({"values": ((1,),)}, "must be at least 2 finite numbers that rise"),
    ({"values": ((1, 0),)}, "must be at least 2 finite numbers that rise"),
    ({"values": ((0, np.inf),)}, "must be at least 2 finite numbers that rise"),
  ],
)
def test_wrong_parts_are_refused(change, message):
  with pytest.raises(ValueError, match=message):
    ActionPart(**({"path": (), "shape": (), "dtype": "int64", "values": ((0, 1),)} | change))


def test_wrong_factors_are_refused():
  with pytest.raises(ValueError, match="must be 1 printable texts"):
    Factors(parts=(GEAR,), names=("a", "b"))
  with pytest.raises(ValueError, match="must be 1 printable texts"):
    Factors(parts=(GEAR,), names=("a\n",))
  with pytest.raises(ValueError, match="no dimension"):
    Factors(parts=(), names=())
  many = ActionPart(path=(), shape=(12,), dtype="float32", values=(bins(0, 1, 7),) * 12)
  with pytest.raises(ValueError, match="13,841,287,201 joint actions of 12 dimensions, must be at most"):
    Factors(parts=(many,), names=tuple("abcdefghijkl"))
  bits = ActionPart(path=(), shape=(2_000,), dtype="int8", values=((0, 1),) * 2_000)
  with pytest.raises(ValueError, match=r"^10\^602 joint actions of 2000 dimensions"):
    Factors(parts=(bits,), names=tuple(map(str, range(2_000))))
  with pytest.raises(ValueError, match="num_env_actions=5: must be 147, as factors say"):
    spec_of(CAR, num_env_actions=5)


def test_a_spec_as_json():
  data = json.loads(json.dumps(spec_of(CAR).to_dict()))
  assert data["factors"]["names"] == list(CAR.names)
  assert data["factors"]["parts"][1]["values"] == [[2, 3, 4]]


@pytest.mark.parametrize(
  "text", ["-1 0.667 4", "-1, 0.67, 4", "gear=4 throttle right=+0.667 throttle left=-1"]
)
def test_an_action_from_text(text):
  assert CAR.parse(text) == 5 * 3 + 2
  assert all(CAR.parse(CAR.name(i)) == CAR.parse(" ".join(CAR.texts(i))) == i for i in range(147))


@pytest.mark.parametrize(
  ("text", "message"),
  [
    ("", "'': must be a value for each of throttle left, throttle right, gear"),
    ("1 1", "must be a value for each of"),
    ("1 1 2 2", "must be a value for each of"),
    ("a b c", "must be a value for each of"),
    ("gear=4 throttle left=1", "must be a value for each of"),
    ("gear=4 throttle left=1 throttle right=1 more=2", "must be a value for each of"),
    ("0 nan 2", "action=nan: must be from -1 to 1 in throttle right"),
    ("0 0 1", "action=1: must be from 2 to 4 in gear"),
    ("0 0 2.5", "action=2.5: must be one of 2, 3, 4 in gear"),
  ],
)
def test_text_that_is_no_action(text, message):
  with pytest.raises(ValueError, match=message):
    CAR.parse(text)


def test_several_own_actions():
  numbers = np.array([0, 17, 146])
  owns = CAR.own_actions(numbers)
  assert owns["throttle"].shape == (3, 2)
  assert owns["throttle"].dtype == np.float32
  assert owns["gear"].shape == (3,)
  assert [CAR.joint_action(own) for own in CAR.split(owns)] == numbers.tolist()
  assert CAR.own_actions(np.zeros(0, int))["throttle"].shape == (0, 2)
  for wrong in ({"gear": [1, 2], "throttle": np.zeros((3, 2))}, {"gear": [1]}, 3):
    with pytest.raises(ValueError, match="actions: must have one row for each action"):
      CAR.split(wrong)
