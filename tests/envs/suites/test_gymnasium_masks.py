"""Tests of the places where Gymnasium environments have their masks of legal actions."""

import numpy as np
import pytest

from moozi.core.errors import UserError
from moozi.envs.suites import gymnasium as gymnasium_suite
from tests.envs.contract import play

gymnasium = pytest.importorskip("gymnasium")
from gymnasium import spaces, wrappers  # noqa: E402

from tests.envs.ring import Ring  # noqa: E402

BOX = spaces.Box(0, 1, (4,), np.float32)


class InObservation(Ring):
  """PettingZoo's form. Action 1 is illegal in cell 0, as in all classes here."""

  observation_space = spaces.Dict(observation=BOX, action_mask=spaces.MultiBinary(2))

  def observe(self):
    return {"observation": super().observe(), "action_mask": np.array([1, int(self.cell != 0)], np.int8)}


class AmongOthers(InObservation):
  """A mask among several entries, as a Box."""

  observation_space = spaces.Dict(
    hand=spaces.Discrete(3), observation=BOX, action_mask=spaces.Box(0, 1, (2,), np.int8)
  )

  def observe(self):
    return super().observe() | {"hand": 2}


class Nested(InObservation):
  """A mask in a Dict within a Dict, beside another entry."""

  observation_space = spaces.Dict(all=InObservation.observation_space, hand=spaces.Discrete(3))

  def observe(self):
    return {"all": super().observe(), "hand": 2}


class ByMethod(Ring):
  """The form of sb3-contrib."""

  def action_masks(self):
    return [True, self.cell != 0]


class InInfo(Ring):
  def info(self):
    return {"action_mask": np.array([1, self.cell != 0], np.int8)}


class Listed(Ring):
  """The environment's own actions, which start at 5."""

  action_space = spaces.Discrete(2, start=5)

  def info(self):
    return {"legal_actions": [5, 6] if self.cell else {5}}


@pytest.mark.parametrize("kind", [InObservation, AmongOthers, Nested, ByMethod, InInfo, Listed])
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_masks_are_used(kind, is_wrapped):
  env = kind()
  env = gymnasium_suite.wrap("own:make", wrappers.TimeLimit(env, 6) if is_wrapped else env)
  assert env.env_spec.frame_shape == ((1, 1, 7) if kind in (AmongOthers, Nested) else (1, 1, 4))
  seen = set()
  for step in play(env, 40):
    entries = step.observation.frame[0, 0]
    cell = int((entries[:4] if kind is Nested else entries[-4:]).argmax())
    assert step.observation.legal_actions_mask.tolist() == [True, cell != 0]
    seen.add(cell)
  assert seen == {0, 1, 2, 3}


def test_pictures_beside_a_mask_stay_pictures():
  space = spaces.Dict(board=spaces.Box(0, 1, (3, 3, 2), np.int8), action_mask=spaces.MultiBinary(2))
  env = InObservation(observation_space=space)
  env.observe = lambda: {"board": np.ones((3, 3, 2), np.int8), "action_mask": np.ones(2, np.int8)}
  wrapped = gymnasium_suite.wrap("own:make", env)
  assert wrapped.env_spec.frame_shape == wrapped.reset().observation.frame.shape == (3, 3, 2)


def test_a_mask_alone_is_an_observation():
  env = Ring(observation_space=spaces.Dict(action_mask=spaces.MultiBinary(2)))
  env.observe = lambda: {"action_mask": np.array([1, 0], np.int8)}
  wrapped = gymnasium_suite.wrap("own:make", env)
  assert wrapped.reset().observation.legal_actions_mask.all()
  assert wrapped.env_spec.frame_shape == (1, 1, 2)


def with_info(info):
  env = Ring(action_space=spaces.Discrete(2, start=5))
  env.info = lambda: info
  return env


def with_method(mask):
  env = Ring()
  env.action_masks = lambda: mask
  return env


@pytest.mark.parametrize(
  ("make", "message"),
  [
    (lambda: with_method([True]), r"action_masks\(\) has shape \[1\], must be \[2\]"),
    (lambda: with_method([0.0, -np.inf]), r"action_masks\(\)=\[0.0, -inf\]: must be 2 values 0 or 1"),
    (lambda: with_method([1, 2]), "must be 2 values 0 or 1"),
    (lambda: with_method(["yes", "no"]), "must be 2 values 0 or 1"),
    (lambda: with_method([[1], [1, 2]]), "must be 2 values 0 or 1"),
    (lambda: with_method(None), None),
    (lambda: with_info({"action_mask": [0, 0]}), "has no legal action before the end"),
    (lambda: with_info({"legal_actions": [0, 1]}), r"\['legal_actions'\]=\[0, 1\]: .* from 5 to 6"),
    (lambda: with_info({"legal_actions": [5, 5]}), "must be different actions"),
    (lambda: with_info({"legal_actions": [5.5]}), "must be different actions"),
    (lambda: with_info({"legal_actions": "56"}), "must be different actions"),
    (lambda: with_info({"legal_actions": []}), "has no legal action before the end"),
    (lambda: with_info({"legal_actions": None, "action_mask": None}), None),
  ],
)
def test_wrong_masks(make, message):
  env = gymnasium_suite.wrap("own:make", make())
  if message is None:
    assert env.reset().observation.legal_actions_mask.all()
    return
  with pytest.raises(UserError, match=rf"^env.name=own:make: .*{message}"):
    env.reset()


@pytest.mark.parametrize("missing", ["observation", "action_mask"])
def test_observations_without_an_entry(missing):
  env = InObservation()
  observe = env.observe
  env.observe = lambda: {key: value for key, value in observe().items() if key != missing}
  with pytest.raises(
    UserError, match=rf"env.name=own:make: an observation without '{missing}', an entry of its"
  ):
    gymnasium_suite.wrap("own:make", env).reset()


def test_space_of_a_mask_of_another_size():
  space = spaces.Dict(observation=BOX, action_mask=spaces.MultiBinary(3))
  with pytest.raises(UserError, match=r"action_mask is MultiBinary\(3\); must have 2 entries"):
    gymnasium_suite.wrap("own:make", Ring(observation_space=space))
