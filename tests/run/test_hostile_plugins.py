"""Whatever a user's plug-in is or returns is right, or ends in an error of one line before the run.

Nothing is compiled: the functions that check a plug-in's results are called with arrays of zeros.
"""

import dataclasses
import functools
import types
from typing import Any

import jax
import jax.numpy as jnp
import mctx
import numpy as np
import pytest
from gymnasium import spaces

from moozi.agent import loss as losses
from moozi.agent import searches
from moozi.core import plugins, user_code
from moozi.core.errors import UserError
from moozi.envs.players import SeparatePlayer
from moozi.envs.suites import user
from moozi.envs.table import View
from moozi.io.config import load_config
from moozi.learning.learner import zero_targets
from moozi.nn import custom
from moozi.run import build
from moozi.training.callbacks import make_callbacks
from tests.envs import hostile
from tests.envs.hostile import give
from tests.tiny_run import TINY

B, A, S, N = 2, 3, 5, 4
SPEC = hostile.GAME_SPEC


class _Closed:
  """An object whose attributes all raise, also those that `isinstance` and `callable` read."""

  def __getattribute__(self, name: str) -> Any:
    raise RuntimeError(f"no {name}")


class _Open:
  """An object that has every attribute, as a mock; calls return itself."""

  def __getattr__(self, name: str) -> Any:
    return self

  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    return self


class _Exits:
  """An object whose text ends the process."""

  def __str__(self) -> str:
    raise SystemExit(0)

  __repr__ = __str__


ODD = (
  *hostile.SCALARS,
  *map(hostile.Raises, hostile.ERRORS),
  _Closed(),
  _Open(),
  _Exits(),
  hostile.Raises(RuntimeError(_Exits())),
  jnp.zeros((B, S)),
  jnp.zeros((B, A)),
  jnp.zeros(B, int),
  jnp.zeros(()),
  (jnp.zeros((B, S)), jnp.zeros((B, A))),
  (jnp.zeros((B, 7)), None),
  lambda: None,
  len,
  types.SimpleNamespace(action=3),
)


def is_float(value: Any, *shape: int) -> bool:
  return type(value) is type(jnp.zeros(0)) and value.dtype == jnp.float32 and value.shape == shape


def plugin_of(function: Any, key: str = "key=own") -> user_code.Plugin:
  return user_code.Plugin(key, function)


# --- one function for each kind: it passes the value through the checks and returns whether it is right


def network(config, place, value):
  own = {
    "representation": jnp.zeros((B, 7)),
    "prediction": (jnp.zeros((B, S)), jnp.zeros((B, A))),
    "dynamics": (jnp.zeros((B, 7)), jnp.zeros((B, S))),
    "projection": jnp.zeros((B, 7)),
  }

  def part(name):
    return lambda *args: give(value) if name == place else own[name]

  def make(*args):
    return give(value) if place == "made" else tuple(map(part, own))

  plugins.register_network("own")(make)
  parts = custom.make_parts(config.network.model_copy(update={"kind": "own"}), SPEC, S, 4)
  represent, predict, dynamics, project = parts
  state = represent(jnp.zeros((B, 1, 1, 4)), False)
  predict(own["representation"], False)
  dynamics(own["representation"], jnp.zeros(B, jnp.int32), False)
  project(own["representation"], False)
  if place == "prediction":
    return is_float(value[0], B, S) and is_float(value[1], B, A)
  return place == "representation" and state.ndim > 1 and state.shape[0] == B


def search(config, place, value):
  size = {"extra_data": None, "embeddings": jnp.zeros((B, N, 1)), "root_invalid_actions": jnp.zeros((B, A))}
  for name in {field.name for field in dataclasses.fields(mctx.Tree)} - size.keys():
    size[name] = jnp.zeros((B, N, A) if name.startswith("children_") else (B, N))
  if place in size:
    size[place] = value
  own = {"action": jnp.ones(B, jnp.int32), "action_weights": jnp.ones((B, A)) / A}
  own["search_tree"] = mctx.Tree(**size)
  if place in own:
    own[place] = value

  def searched(*args, **kwargs):
    return give(value) if place == "made" else mctx.PolicyOutput(**own)

  run = searches._custom_search(plugin_of(searched))
  run(config.planners.train, temperature=jnp.ones(1), invalid_actions=jnp.zeros((B, A)))
  return (
    (place == "action" and value.shape == (B,))
    or (place == "action_weights" and is_float(value, B, A))
    or (place.startswith("children_") and value.shape == (B, N, A))
  )


@functools.cache
def model():
  return build.build_model(load_config(None, list(TINY)), SPEC)


def loss(config, place, value):
  def make(*args):
    return give(value) if place == "made" else lambda *args: give(value)

  config = config.model_copy(update={"learner": config.learner.model_copy(update={"extra_losses": ("own",)})})
  plugins.register_loss("own")(make)
  (term,) = losses.make_extra_losses(config, model()).values()
  if place == "made":
    return callable(value)
  target = jax.tree.map(jnp.asarray, zero_targets(config, SPEC, (B,)))
  return is_float(term({}, {}, [], target), B)


def player(config, place, value):
  class Own:
    def __init__(self):
      self.action = value if place == "attribute" else lambda *_: give(value) if place == "action" else 0
      self.observe = value if place == "observer" else lambda *_: give(value) if place == "observe" else 0
      self.follow = lambda *_: give(value) if place == "follow" else None

  plugins.register_player("own")(lambda *_: give(value) if place == "made" else Own())
  made, at = SeparatePlayer("own", SPEC), (0, 0)
  made.reset({at: (types.SimpleNamespace(position=dict), 0)})
  views = {at: View(0, lambda: np.zeros((1, 1, 2), np.float32), lambda: np.array([False, True]))}
  made.observe(views, {at: 1})
  assert place != "action" or made.act(views) == {at: 1}
  if place == "made":
    return type(value) is _Open
  return (place != "attribute" or callable(value)) and type(value) is not hostile.Raises


def callback(config, place, value):
  plugins.register_callback("own")(lambda *_: give(value) if place == "made" else lambda event: give(value))
  (made,) = make_callbacks(config.model_copy(update={"callbacks": ("own",)}), None)
  if place == "made":
    return callable(value)
  made(None)
  return type(value) is not hostile.Raises


def environment(config, place, value):
  """An environment, its spaces and specs, what makes it, and what wraps it."""
  odd = hostile._Odd("none", None, 0)

  def wrap(env):
    return give(value)

  def gym_env(**attributes):
    env = hostile.OddGymnasium.make(odd)
    vars(env).update(attributes)
    return env

  class DmEnv(hostile.OddDmEnv):
    def observation_spec(self):
      own = super().observation_spec()
      return {**own, "frame": give(value)} if place == "frame_spec" else give(value)

    def action_spec(self):
      return give(value) if place == "action_spec" else super().action_spec()

    if place != "observation_spec":
      observation_spec = hostile.OddDmEnv.observation_spec if place == "action_spec" else observation_spec

  class Own(hostile.OddEnvironment):
    max_moves = 3 if place in ("clone", "position") else None

    def clone(self):
      return give(value)

    def position(self):
      return give(value)

    def render(self):
      return give(value) if place == "render" else None

    if place == "max_moves":
      max_moves = property(lambda self: give(value))
    if place == "env_spec":
      env_spec = property(lambda self: give(value))

  makers = {
    "made": lambda: give(value),
    "wrapper": lambda: gym_env(),
    "observation_space": lambda: gym_env(observation_space=value),
    "action_space": lambda: gym_env(action_space=value),
    "dict_space": lambda: gym_env(observation_space=spaces.Dict(a=spaces.Discrete(2)), observation=value),
    **dict.fromkeys(("observation_spec", "frame_spec", "action_spec"), lambda: DmEnv(odd)),
    **dict.fromkeys(("env_spec", "max_moves", "clone", "position", "render"), lambda: Own(odd)),
  }
  plugins.register_environment("own")(makers[place])
  plugins.register_wrapper("own")(wrap)
  wrappers = ("own",) if place == "wrapper" else ()
  user.make_spec("own", user.UserOptions(wrappers=wrappers))
  if place == "render":
    return value is None or np.ndim(value) in (2, 3)
  return (place, value) in (("dict_space", {"a": 1}), ("max_moves", None)) or place == "position"


def odd_function(config, place, value):
  """A callable object with odd attributes, in the place of a function that fails."""

  class Callable:
    def __call__(self, *args, **kwargs):
      raise ValueError("a\nb")

  if place == "object":
    function = value if callable(value) else Callable()
  else:
    kind = type("Kind", (Callable,), {place: property(lambda self: give(value))})
    function = kind()
  plugins.register_environment("own")(function)
  user.make_environment("own", user.UserOptions(kwargs={"x": 1}))
  return False


PLACES = (
  *((network, x) for x in ("made", "representation", "prediction", "dynamics", "projection")),
  *((search, x) for x in ("made", "action", "action_weights", "search_tree", "node_visits", "parents")),
  *((loss, x) for x in ("made", "term")),
  *((player, x) for x in ("made", "attribute", "observer", "action", "observe", "follow")),
  *((callback, x) for x in ("made", "called")),
  *(
    (environment, x)
    for x in (
      *("made", "wrapper", "observation_space", "action_space", "dict_space", "observation_spec"),
      *("frame_spec", "action_spec", "env_spec", "max_moves", "clone", "position", "render"),
    )
  ),
  *((odd_function, x) for x in ("object", "__signature__", "__code__", "__module__", "__name__")),
)


def check(config, kind, place, value):
  try:
    is_right = kind(config, place, value)
  except UserError as error:
    text = str(error)
    assert "=" in text.partition(": ")[0], text
    assert "\n" not in text
    assert len(text) < 900
  else:
    assert is_right, "accepted"


def failures(config, kind, place, values):
  """Returns a line for each value that is misread, or ends in another error than a UserError."""
  failed = []
  for value in values:
    try:
      check(config, kind, place, value)
    except KeyboardInterrupt:
      raise
    except BaseException as error:
      failed.append(f"{place}={hostile.name_of(value)}: {type(error).__name__}: {str(error)[:150]}")
  return failed


@pytest.mark.usefixtures("folder")
def test_a_sample_of_values(tiny_config):
  """Every place meets some of the odd values."""
  failed = []
  for i, (kind, place) in enumerate(PLACES):
    failed += failures(tiny_config, kind, place, ODD[i % 31 :: 31])
  assert failed == []


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "place"), PLACES, ids=lambda x: getattr(x, "__name__", x))
@pytest.mark.usefixtures("folder")
def test_all_values(tiny_config, kind, place):
  assert failures(tiny_config, kind, place, ODD) == []
