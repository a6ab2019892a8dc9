"""Tests of the adapter for Gymnasium environments."""

import sys

import numpy as np
import pytest
from dm_env import StepType

from moozi.core.errors import EnvValueError, UserError
from moozi.envs import registry
from moozi.envs.suites import gymnasium as gymnasium_suite
from tests.envs import hostile
from tests.envs.contract import EnvironmentContract, assert_same, play

gymnasium = pytest.importorskip("gymnasium")
from gymnasium import spaces  # noqa: E402

from tests.envs.suites.gymnasium_fakes import Walk  # noqa: E402


def wrap(env, name="gymnasium:Walk-v0", seed=0):
  wrapped = gymnasium_suite.wrap(name, env)
  wrapped.seed(seed)
  return wrapped


@pytest.mark.slow
class TestImages(EnvironmentContract):
  def make(self):
    return wrap(Walk())


@pytest.mark.slow
class TestActionsFromFive(EnvironmentContract):
  def make(self):
    return wrap(Walk(spaces.Box(-1, 1, (7,)), spaces.Discrete(4, start=5), ends="truncated"))


def test_cartpole_equals_gymnasiums():
  env = registry.make("gymnasium:CartPole-v1", seed=3)
  theirs = gymnasium.make("CartPole-v1")
  random = np.random.default_rng(0)
  seeds = np.random.default_rng(3)
  for _ in range(5):
    step, (observation, _) = env.reset(), theirs.reset(seed=int(seeds.integers(2**31)))
    while not step.last():
      np.testing.assert_allclose(
        step.observation.frame[0, 0], observation / [4.8, 1, 24 / 180 * np.pi, 1], rtol=1e-6
      )
      action = int(random.integers(2))
      step, (observation, reward, terminated, truncated, _) = env.step(action), theirs.step(action)
      assert step.reward == reward
      assert step.last() == (terminated or truncated)


def test_time_limit_truncates():
  env = registry.make("gymnasium:CartPole-v1", seed=0, max_episode_steps=3)
  step = play(env, 4)[-1]
  assert (step.step_type, step.discount) == (StepType.LAST, 1.0)


@pytest.mark.parametrize(("ends", "discount"), [("terminated", 0.0), ("truncated", 1.0), ("both", 0.0)])
def test_ends(ends, discount):
  steps = play(wrap(Walk(ends=ends)), 10)
  assert (steps[-1].step_type, steps[-1].discount, steps[-1].reward) == (StepType.LAST, discount, 0.5)


def test_every_episode_has_its_own_seed():
  env = Walk()
  play(wrap(env), 35)
  assert len(set(env.seeds)) == len(env.seeds) == 4
  assert all(type(seed) is int and 0 <= seed < 2**31 for seed in env.seeds)


def test_actions_start_where_the_space_starts():
  walk = Walk(action_space=spaces.Discrete(3, start=-1))
  env = wrap(walk)
  env.reset()
  for action in range(3):
    env.step(action)
  assert walk.actions == [-1, 0, 1]
  assert env.env_spec.action_names == ("-1", "0", "1")


def test_taxi_masks():
  env = registry.make("gymnasium:Taxi-v4", seed=0)
  theirs = gymnasium.make("Taxi-v4").unwrapped
  for step in play(env, 50):
    state = int(np.flatnonzero(step.observation.frame[0, 0])[0])
    np.testing.assert_array_equal(step.observation.legal_actions_mask, theirs.action_mask(state) == 1)
  assert not step.observation.legal_actions_mask.all()


class Masked(Walk):
  """Reports a mask of legal actions in `info`."""

  def __init__(self, mask, ends="terminated"):
    super().__init__(ends=ends)
    self._mask = mask

  def step(self, action):
    *out, info = super().step(action)
    return *out, info | {"action_mask": self._mask(self._step)}


def test_wrong_masks():
  env = wrap(Masked(lambda t: np.ones(2, np.int8)))
  env.reset()
  with pytest.raises(UserError, match=r"has shape \[2\], must be \[3\]"):
    env.step(0)
  env = wrap(Masked(lambda t: np.zeros(3, np.int8)))
  env.reset()
  with pytest.raises(UserError, match="has no legal action"):
    env.step(0)


def test_empty_mask_at_a_truncation():
  env = wrap(Masked(lambda t: np.full(3, t < 9), ends="truncated"))
  last = play(env, 10)[-1]
  assert last.last()
  assert last.observation.legal_actions_mask.all()


@pytest.mark.parametrize(
  ("space", "shape", "dtype"),
  [
    (spaces.Box(-1, 1, (4,)), (1, 1, 4), "float32"),
    (spaces.Box(-np.inf, np.inf, (4,), np.float64), (1, 1, 4), "float32"),
    (spaces.Box(0, 255, (8, 9), np.uint8), (8, 9, 1), "uint8"),
    (spaces.Box(0, 255, (8, 9, 4), np.uint8), (8, 9, 4), "uint8"),
    (spaces.Box(0, 255, (16,), np.uint8), (1, 1, 16), "uint8"),
    (spaces.Box(0, 1, (8, 9, 2)), (8, 9, 2), "float32"),
    (spaces.Box(0, 9, (8, 9), np.int32), (8, 9, 1), "float32"),
    (spaces.Discrete(6, start=2), (1, 1, 6), "bool"),
    (spaces.MultiDiscrete([2, 3]), (1, 1, 5), "bool"),
    (spaces.MultiBinary([2, 3]), (1, 1, 6), "bool"),
    (spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 2, (2,))]), (1, 1, 5), "float32"),
    (spaces.Dict(a=spaces.Box(0, 2, (2, 2)), b=spaces.MultiBinary(3)), (1, 1, 7), "float32"),
  ],
)
def test_observation_spaces(space, shape, dtype):
  env = wrap(Walk(space))
  assert (env.env_spec.frame_shape, env.env_spec.frame_dtype) == (shape, dtype)
  for step in play(env, 20):
    assert step.observation.frame.shape == shape
    assert step.observation.frame.dtype == np.dtype(dtype)


def test_dict_is_flattened_and_scaled():
  space = spaces.Dict(b=spaces.Box(0, 2, (2,)), a=spaces.Discrete(3))
  env = wrap(Walk(space, show=lambda t: {"a": 1, "b": np.array([1.0, 2.0], np.float32)}))
  np.testing.assert_allclose(env.reset().observation.frame[0, 0], [0.5, 1.0, 0, 1, 0])


@pytest.mark.parametrize(
  ("space", "message"),
  [
    (spaces.Box(-np.inf, 1, (2,)), "without finite bounds"),
    (spaces.Text(3), "must be Discrete, Box"),
    (spaces.Discrete(2**40), "it has 1099511627776 actions; must have 1 to 65,536"),
  ],
)
def test_unsupported_actions(space, message):
  with pytest.raises(UserError, match=rf"env.name=gymnasium:Walk-v0: .*{message}"):
    wrap(Walk(action_space=space))


@pytest.mark.parametrize(
  "space",
  [
    spaces.Text(5),
    spaces.Sequence(spaces.Discrete(2)),
    spaces.Dict(a=spaces.Sequence(spaces.Discrete(2))),
    spaces.Box(0, 1, (2, 2, 2, 2)),
  ],
)
def test_unsupported_observations(space):
  with pytest.raises(UserError, match=r"env.name=gymnasium:Walk-v0: .*; must be") as error:
    wrap(Walk(space))
  assert "\n" not in str(error.value)


def test_reward_must_be_finite():
  walk = Walk()
  walk.step = lambda action: (walk._observe(), float("nan"), False, False, {})
  env = wrap(walk)
  env.reset()
  with pytest.raises(EnvValueError, match="reward=nan"):
    env.step(0)


@pytest.mark.parametrize(
  ("method", "returned", "message"),
  [
    (
      "step",
      (np.zeros(4), 1.0, False, {}),
      r"step returns \['ndarray', 'float', 'bool', 'dict'\]; must return \(",
    ),
    ("step", (np.zeros(4), 1.0, False, False, None), "with a dict as info"),
    ("step", None, "step returns NoneType"),
    ("reset", np.zeros(4), r"reset returns ndarray; must return \(observation, info\)"),
    ("reset", (np.zeros(4),), r"reset returns \['ndarray'\]"),
    ("step", (np.zeros(4), 1.0, "no", False, {}), "terminated=no: must be true or false"),
    ("step", (np.zeros(4), 1.0, False, None, {}), "truncated=None: must be true or false"),
    ("step", (np.zeros(4), 1.0, np.zeros(2, bool), False, {}), r"terminated=\[False False\]: must be"),
    ("step", (np.zeros(4), 1.0, 2, False, {}), "terminated=2: must be true or false"),
    ("step", (np.zeros(4), "1.0", False, False, {}), "reward=1.0: must be a number"),
    ("step", (np.zeros(4), None, False, False, {}), "reward=None: must be a number"),
    ("step", (np.zeros(4), np.ones(2), False, False, {}), r"reward=\[1. 1.\]: must be a number"),
    ("step", (np.zeros(4), 1 + 2j, False, False, {}), "must be a number"),
    (
      "step",
      (np.zeros(4), 1e39, False, False, {}),
      r"reward=1e\+39 is not finite in float32; scale the rewards",
    ),
    ("step", (np.zeros(4), -(10**400), False, False, {}), "is not finite in float32"),
  ],
)
def test_returned_values_of_another_form(method, returned, message):
  """The older API of gym, and rewards that are no number of float32."""
  walk = Walk(spaces.Box(0, 1, (4,)))
  env = wrap(walk)
  env.reset()
  setattr(walk, method, lambda *_, **__: returned)
  with pytest.raises(UserError, match=rf"env.name=gymnasium:Walk-v0: .*{message}"):
    env.step(0) if method == "step" else env.reset()


@pytest.mark.parametrize("reward", [True, np.bool_(True), np.ones(1), np.array(1), np.float16(1), 1])
def test_returned_rewards_that_are_one_number(reward):
  walk = Walk(spaces.Box(0, 1, (4,)))
  walk.step = lambda action: (np.zeros(4), reward, True, True, {})
  env = wrap(walk)
  env.reset()
  step = env.step(0)
  assert (type(step.reward), step.reward, step.discount) == (float, 1.0, 0.0)  # both ends: terminal


@pytest.mark.parametrize(
  ("space", "observation"),
  [
    (spaces.MultiDiscrete([2, 3]), np.array([2, 0])),  # would be the first value of the second entry
    (spaces.MultiDiscrete([2, 3]), np.array([-1, 0])),
    (spaces.Discrete(3), 0.5),
    (spaces.Tuple([spaces.Discrete(3), spaces.Discrete(2)]), (-1, 0)),  # would be the last value
    (
      spaces.Dict(a=spaces.Dict(b=spaces.Discrete(3, start=2), c=spaces.Discrete(2))),
      {"a": {"b": 5, "c": 0}},
    ),
  ],
)
def test_integers_outside_their_space(space, observation):
  env = wrap(Walk(space, show=lambda t: observation))
  with pytest.raises(UserError, match=r"env.name=gymnasium:Walk-v0: observation .*; its spec says"):
    env.reset()


def test_close():
  env = Walk()
  wrap(env).close()
  assert env.closed


class Ramp(Walk):
  """Pays 1, 2, 3 … and terminates or truncates at step 9; action 2 is illegal from step 2 on."""

  def step(self, action):
    observation, _, *rest, info = super().step(action)
    mask = np.array([1, 1, self._step < 2], np.int8)
    return observation, float(self._step), *rest, info | {"action_mask": mask}


@pytest.mark.parametrize("ends", ["terminated", "truncated"])
def test_action_repeat(ends):
  walk = Ramp(ends=ends)
  env = gymnasium_suite.wrap("gymnasium:Walk-v0", walk, action_repeat=4)
  env.reset()
  steps = [env.step(1) for _ in range(3)]
  assert [step.reward for step in steps] == [1 + 2 + 3 + 4, 5 + 6 + 7 + 8, 9]
  assert [step.last() for step in steps] == [False, False, True]
  assert steps[-1].discount == (0.0 if ends == "terminated" else 1.0)
  assert walk.actions == [1] * 9
  assert env.step(1).first()


def test_an_action_is_not_repeated_once_it_is_illegal():
  walk = Ramp()
  env = gymnasium_suite.wrap("gymnasium:Walk-v0", walk, action_repeat=4)
  env.reset()
  assert env.step(2).reward == 1 + 2
  with pytest.raises(ValueError, match="illegal"):
    env.step(2)


def test_action_repeat_by_name():
  single = registry.make("gymnasium:CartPole-v1", seed=3)
  double = registry.make("gymnasium:CartPole-v1", seed=3, action_repeat=2, max_episode_steps=3)
  assert_same([single.reset()], [double.reset()])
  for i in range(3):
    left = [single.step(i % 2) for _ in range(2)][-1]
    right = double.step(i % 2)
    np.testing.assert_array_equal(left.observation.frame, right.observation.frame)
    assert right.reward == 2.0
  assert right.last()
  assert right.discount == 1.0


def test_pendulum_has_bins_and_the_rewards_of_gymnasium():
  env, own = registry.make("gymnasium:Pendulum-v1", seed=5, action_bins=5), gymnasium.make("Pendulum-v1")
  assert env.env_spec.action_names == tuple(f"action={x}" for x in ("-2", "-1", "0", "+1", "+2"))
  step = env.reset()
  own.reset(seed=int(np.random.default_rng(5).integers(2**31)))
  for i in range(200):
    step = env.step(i % 5)
    observation, reward, *_ = own.step(np.array([i % 5 - 2], np.float32))
    np.testing.assert_allclose(step.observation.frame[0, 0], observation / np.float32([1, 1, 8]), rtol=1e-6)
    assert step.reward == pytest.approx(reward)
  assert step.last()
  assert step.discount == 1.0


@pytest.mark.slow
def test_mujoco_names_its_joints_and_writes_no_file(tmp_path, monkeypatch):
  pytest.importorskip("mujoco")
  monkeypatch.chdir(tmp_path)
  assert registry.env_spec("gymnasium:HalfCheetah-v5").factors.names == (
    *("bthigh", "bshin", "bfoot"),
    *("fthigh", "fshin", "ffoot"),
  )
  assert registry.env_spec("gymnasium:Hopper-v5").factors.names == ("thigh_joint", "leg_joint", "foot_joint")
  assert not list(tmp_path.iterdir())


# --- names --------------------------------------------------------------------------------------------


def test_list_has_the_newest_versions():
  games = gymnasium_suite.list_games()
  assert "CartPole-v1" in games
  assert "CartPole-v0" not in games
  assert "Pendulum-v1" in games
  assert not any("Humanoid" in game or "/" in game for game in games)


def test_unlisted_envs_are_created(recwarn):
  assert registry.env_spec("gymnasium:CartPole-v0").frame_shape == (1, 1, 4)
  assert not recwarn.list  # gymnasium's own warning, that the version is out of date, is suppressed


@pytest.fixture
def plugin(tmp_path, monkeypatch):
  """Adds a package to Python's path that registers an environment when imported."""
  (tmp_path / "moozi_plugin.py").write_text(
    "import gymnasium\n"
    "gymnasium.register('moozi_plugin/Walk-v0', entry_point='tests.envs.suites.gymnasium_fakes:Walk')\n"
  )
  monkeypatch.syspath_prepend(tmp_path)
  yield
  sys.modules.pop("moozi_plugin", None)
  gymnasium.registry.pop("moozi_plugin/Walk-v0", None)


def test_module_that_registers_an_env(plugin):
  with pytest.raises(
    UserError, match="name the module that registers it, gymnasium:MODULE:moozi_plugin/Walk"
  ):
    registry.env_spec("gymnasium:moozi_plugin/Walk-v0")
  name = "gymnasium:moozi_plugin:moozi_plugin/Walk-v0"
  env = registry.make(name, seed=0, kwargs={"ends": "truncated"})
  assert env.env_spec == registry.env_spec(name)
  assert play(env, 10)[-1].discount == 1.0


def test_module_that_exits(tmp_path, monkeypatch):
  (tmp_path / "moozi_exits.py").write_text("import sys\nsys.exit(0)\n")
  monkeypatch.syspath_prepend(tmp_path)
  with pytest.raises(UserError, match="the module moozi_exits cannot be imported: SystemExit: 0"):
    registry.env_spec("gymnasium:moozi_exits:Walk-v0")


@pytest.mark.parametrize(
  ("name", "parts"),
  [
    ("gymnasium:CartPol-v1", ("unknown game 'CartPol-v1' of gymnasium", "nearest is gymnasium:CartPole-v1")),
    ("gymnasium:CartPole", ("unknown game 'CartPole'", "nearest is gymnasium:CartPole-v1")),
    ("gymnasium:cartpole-v1", ("unknown game", "nearest is gymnasium:CartPole-v1")),
    ("gymnasium:GymV26Environment-v0", ("unknown game",)),
    ("gymnasium:none_such:Walk-v0", ("the module none_such cannot be imported",)),
    ("gymnasium:json:Walk-v0", ("the module json registers no Walk-v0",)),
    ("gymnasium:a b:Walk-v0", ("'a b' is not a module name",)),
  ],
)
def test_wrong_names(name, parts):
  with pytest.raises(UserError) as error:
    registry.env_spec(name)
  message = str(error.value)
  assert message.startswith(f"env.name={name}: ")
  assert "\n" not in message
  for part in parts:
    assert part in message


def test_wrong_kwargs():
  with pytest.raises(UserError, match=r"env.kwargs.kwargs=\{'sticky': 1\}: .*'sticky'") as error:
    registry.env_spec("gymnasium:CartPole-v1", kwargs={"sticky": 1})
  assert error.value.__cause__ is not None


def test_missing_extra(monkeypatch):
  monkeypatch.setitem(sys.modules, "Box2D", None)
  for module in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
    monkeypatch.delitem(sys.modules, module)
  with pytest.raises(
    UserError, match=r"env.name=gymnasium:LunarLander-v3: .*pip install .*gymnasium\[box2d\]"
  ):
    registry.env_spec("gymnasium:LunarLander-v3")


def test_pictures_of_the_environment():
  env = wrap(Walk(render_mode="rgb_array"))
  env.reset()
  env.step(0)
  np.testing.assert_array_equal(env.render(), np.ones((8, 9, 3), np.uint8))
  env = wrap(Walk())
  env.reset()
  assert env.render() is None


@pytest.mark.parametrize("wrappers", [(), (f"{__name__}:unchanged",)])
def test_picture_that_cannot_be_drawn_is_found_with_the_spec(wrappers, monkeypatch):
  monkeypatch.setitem(sys.modules, "pygame", None)
  message = (
    r"^env\.name=gymnasium:CartPole-v1: its picture cannot be drawn with "
    r"env\.kwargs\.kwargs=\{'render_mode': 'rgb_array'\}: pygame is not installed"
  )
  with pytest.raises(UserError, match=message):
    registry.env_spec("gymnasium:CartPole-v1", wrappers=wrappers, kwargs={"render_mode": "rgb_array"})


def test_reset_that_fails_is_found_with_the_spec(monkeypatch):
  """With render_mode=human, Gymnasium draws in `reset`. A wrapper's error has its file and line."""
  monkeypatch.setitem(sys.modules, "pygame", None)
  human = {"render_mode": "human"}
  with pytest.raises(UserError, match=r"^env\.name=gymnasium:CartPole-v1: its picture cannot .*pygame"):
    registry.env_spec("gymnasium:CartPole-v1", kwargs=human)
  for options in ({}, {"kwargs": {"render_mode": "rgb_array"}}):
    with pytest.raises(UserError, match=r"its first steps failed: .*test_gymnasium\.py:\d+: ArithmeticError"):
      registry.env_spec("gymnasium:CartPole-v1", wrappers=(f"{__name__}:without_reset",), **options)


def unchanged(env):
  return env


def without_reset(env):
  def reset(**kwargs):
    raise ArithmeticError

  env.reset = reset
  return env


@pytest.mark.parametrize("error", hostile.ERRORS[-6:], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("method", ["__init__", "reset", "render", "close"])
def test_any_error_of_a_registered_environment_is_one_line(plugin, monkeypatch, method, error):
  def fail(*_, **__):
    raise error.with_traceback(None)

  monkeypatch.setattr(Walk, method, fail)
  gymnasium_suite._make_spec.cache_clear()
  name = "gymnasium:moozi_plugin:moozi_plugin/Walk-v0"
  if method == "close":
    registry.env_spec(name)
  else:
    with pytest.raises(UserError, match=rf"^env\.name={name}: .*cannot be (made|drawn) with [^\n]*$"):
      registry.env_spec(name, kwargs={"render_mode": "rgb_array"})
  gymnasium_suite._make_spec.cache_clear()


def test_picture_is_drawn_once_for_the_spec(plugin, monkeypatch):
  drawn = []
  monkeypatch.setattr(Walk, "render", lambda env: drawn.append(env))
  name = "gymnasium:moozi_plugin:moozi_plugin/Walk-v0"
  registry.env_spec(name)
  assert not drawn
  registry.env_spec(name, kwargs={"render_mode": "rgb_array"})
  (env,) = drawn
  assert env.closed
