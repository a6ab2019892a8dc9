"""Tests of `env.wrappers` on Gymnasium environments and on users' own; other suites refuse them."""

import numpy as np
import pytest

from moozi.core import plugins
from moozi.core.errors import UserError
from moozi.envs import registry
from tests.envs.contract import play

gymnasium = pytest.importorskip("gymnasium")
from gymnasium import spaces  # noqa: E402

pytestmark = pytest.mark.usefixtures("folder")
DM_ENV = "tests.envs.suites.user_fakes:make_counter"
HERE = "tests.envs.test_user_wrappers"


class Room(gymnasium.Env):
  """Returns dictionaries as observations, as MiniGrid does."""

  action_space = spaces.Discrete(2)
  observation_space = spaces.Dict(
    image=spaces.Box(0, 9, (3, 3, 2), np.uint8),
    inner=spaces.Dict(mission=spaces.Sequence(spaces.Discrete(2))),
  )

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    self._steps = int(self.np_random.integers(3))
    return self._observe(), {}

  def step(self, action):
    self._steps += 1
    return self._observe(), float(action), self._steps > 5, False, {}

  def _observe(self):
    return {"image": np.full((3, 3, 2), self._steps, np.uint8), "inner": {"mission": (0, 1)}}


def image(env):
  """Returns the environment with only the image as its observation, as a user's wrapper would."""
  space = env.observation_space["image"]
  return gymnasium.wrappers.TransformObservation(env, lambda observation: observation["image"], space)


def halved(env):
  return gymnasium.wrappers.TransformReward(env, lambda reward: reward / 2)


def test_dictionary_observations_need_a_wrapper():
  with pytest.raises(UserError, match=r"observations are Dict.*; a function in env.wrappers can change them"):
    registry.env_spec(f"{HERE}:Room")
  spec = registry.env_spec(f"{HERE}:Room", wrappers=[f"{HERE}:image"])
  assert (spec.frame_shape, spec.frame_dtype) == ((3, 3, 2), "float32")


def test_wrappers_are_applied_in_order():
  env = registry.make(f"{HERE}:Room", seed=3, wrappers=[f"{HERE}:image", f"{HERE}:halved"])
  steps = play(env, 30)
  assert {step.reward for step in steps if not step.first()} == {0.0, 0.5}
  plain = registry.make(f"{HERE}:Room", seed=3, wrappers=[f"{HERE}:image"])
  assert [s.observation.frame.max() for s in play(plain, 30)] == [s.observation.frame.max() for s in steps]


def test_gymnasiums_own_environments_are_wrapped():
  plugins.register_wrapper("halved")(halved)
  env = registry.make("gymnasium:CartPole-v1", seed=0, wrappers=["halved"])
  assert play(env, 3)[-1].reward == 0.5
  assert registry.env_spec("gymnasium:CartPole-v1", wrappers=["halved"]) == env.env_spec
  assert play(registry.make("gymnasium:CartPole-v1", seed=0), 3)[-1].reward == 1.0


def test_dm_env_environments_are_wrapped():
  def louder(env):
    step = env.step
    env.step = lambda action: step(action)._replace(reward=5.0)
    return env

  plugins.register_wrapper("louder")(louder)
  assert play(registry.make(DM_ENV, seed=0, wrappers=["louder"]), 3)[-1].reward == 5.0


def test_registered_environment(folder):
  plugins.register_environment("room")(lambda seed=None: image(Room()))
  assert registry.env_spec("room").frame_shape == (3, 3, 2)
  assert len(play(registry.make("room", seed=1), 4)) == 4
  with pytest.raises(
    UserError, match=r"env.name=rooms: unknown library 'rooms'; .*tiny, room; the nearest is"
  ):
    registry.env_spec("rooms")


@pytest.mark.parametrize(
  ("name", "wrapper", "message"),
  [
    ("tiny:catch", lambda env: env, r"env.wrappers=\['own'\]: environments of tiny are not wrapped"),
    (
      "gymnasium:CartPole-v1",
      lambda env: None,
      r"env.wrappers\[0\]=own: returns NoneType; must return the wrapped",
    ),
    (
      "gymnasium:CartPole-v1",
      lambda env: 1 / 0,
      r"env.wrappers\[0\]=own: the call failed: .*: ZeroDivisionError",
    ),
    (
      "gymnasium:CartPole-v1",
      lambda env: gymnasium.wrappers.TransformReward(env, lambda reward: 1 / 0),
      r"env.wrappers\[0\]=own: its first steps failed: .*test_user_wrappers.py:\d+: ZeroDivisionError",
    ),
    (DM_ENV, lambda env: 3, r"env.wrappers\[0\]=own: returns int; must return the wrapped environment"),
  ],
)
def test_wrappers_that_are_refused(name, wrapper, message):
  plugins.register_wrapper("own")(wrapper)
  with pytest.raises(UserError, match=message):
    registry.env_spec(name, wrappers=["own"])


def test_wrappers_take_arguments():
  plugins.register_wrapper("scaled")(
    lambda env, by, sign=1: gymnasium.wrappers.TransformReward(env, lambda reward: by * sign * reward)
  )
  wrappers = ["scaled(by=0.5)", f"{HERE}:halved", "scaled(by=3, sign=-1)"]
  assert play(registry.make("gymnasium:CartPole-v1", seed=0, wrappers=wrappers), 3)[-1].reward == -0.75
  assert registry.env_spec("gymnasium:CartPole-v1", wrappers=wrappers).num_env_actions == 2
  for wrapper, message in (
    ("scaled", r"env.wrappers\[0\]=scaled: its arguments do not fit: missing a required argument: 'by'"),
    ("scaled(to=3)", r"env.wrappers\[0\]=scaled\(to=3\): its arguments do not fit: .*'by'"),
    ("scaled(by=2, by=3)", r"env.wrappers\[0\]='scaled\(by=2, by=3\)': must be NAME or NAME\(key=value"),
    ("scaled(by=text)", r"env.wrappers\[0\]=scaled\(by=text\): its first steps failed: .*TypeError"),
  ):
    with pytest.raises(UserError, match=message):
      registry.env_spec("gymnasium:CartPole-v1", wrappers=[wrapper])


def test_minigrid():
  pytest.importorskip("minigrid")
  spec = registry.env_spec("gymnasium:minigrid:MiniGrid-Empty-5x5-v0", wrappers=[f"{HERE}:image"])
  assert spec.frame_shape == (7, 7, 3)
  assert len(play(registry.make(spec.name, seed=0, wrappers=[f"{HERE}:image"]), 20)) == 20
