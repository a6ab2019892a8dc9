"""Tests of the names and options of environments."""

import pytest

from moozi.core.errors import UserError
from moozi.envs import registry
from moozi.envs.environment import Environment

LIBRARIES = ("minatar", "tiny")
"""Libraries whose environments are made quickly; the others have their own tests."""
ALL = [
  "minatar:asterix",
  "minatar:breakout",
  "minatar:freeway",
  "minatar:seaquest",
  "minatar:space_invaders",
  "tiny:catch",
  "tiny:coin",
  "tiny:corridor",
  "tiny:dials",
  "tiny:gates",
  "tiny:point",
  "tiny:tmaze",
]


def test_list_is_sorted_and_complete():
  infos = [info for library in LIBRARIES for info in registry.list_environments(library)]
  assert [info.name for info in infos] == ALL
  names = [info.name for info in registry.list_environments()]
  assert set(ALL) < set(names)
  assert len(set(names)) == len(names)
  assert all(info.summary and "max_episode_steps" in info.options for info in infos)


@pytest.mark.parametrize("name", ALL)
def test_spec_equals_the_envs(name):
  env = registry.make(name, seed=0)
  assert isinstance(env, Environment)
  assert env.env_spec == registry.env_spec(name)
  assert env.env_spec.name == name


@pytest.mark.parametrize(
  ("name", "parts"),
  [
    (
      "minatar:brekout",
      ("unknown game 'brekout' of minatar", "space_invaders", "nearest is minatar:breakout"),
    ),
    ("breakout", ("unknown library 'breakout'", "minatar, ", "nearest is minatar:breakout")),
    ("minitar:freeway", ("unknown library 'minitar'", "nearest is minatar:freeway")),
    (
      "atari_envs:make_env",
      (
        "unknown library 'atari_envs'",
        "the nearest is ",
        "there is no module atari_envs in the current folder",
      ),
    ),
    ("tiny:Catch", ("unknown game 'Catch' of tiny", "catch, corridor, coin", "nearest is tiny:catch")),
    ("", ("unknown library ''",)),
    ("my.module.make", ("unknown library 'my.module.make'", "did you mean my.module:make?")),
    ("minatar.breakout", ("did you mean minatar:breakout?",)),
    ("minatar:", ("unknown game '' of minatar",)),
    ("minatar:../gui", ("unknown game '../gui' of minatar",)),
  ],
)
def test_unknown_names(name, parts):
  for call in (lambda: registry.make(name, seed=0), lambda: registry.env_spec(name)):
    with pytest.raises(UserError) as error:
      call()
    message = str(error.value)
    assert message.startswith(f"env.name={name}:")
    assert "\n" not in message
    for part in parts:
      assert part in message


@pytest.mark.parametrize(
  ("key", "value", "parts"),
  [
    ("stiky_action_prob", 0.1, ("unknown option of minatar:breakout", "the nearest is sticky_action_prob")),
    ("length", 8, ("unknown option of minatar:breakout", "difficulty_ramping, minimal_actions")),
    ("sticky_action_prob", 1.5, ("less than or equal to 1",)),
    ("sticky_action_prob", -0.1, ("greater than or equal to 0",)),
    ("sticky_action_prob", float("nan"), ("finite",)),
    ("sticky_action_prob", "often", ("valid number",)),
    ("sticky_action_prob", True, ("must be a number",)),
    ("difficulty_ramping", 1, ("must be true or false",)),
    ("difficulty_ramping", None, ("must be true or false",)),
    ("minimal_actions", "no", ("must be true or false",)),
    ("max_episode_steps", 0, ("greater than or equal to 1",)),
    ("max_episode_steps", 2.5, ("integer",)),
    ("max_episode_steps", [1], ("integer",)),
  ],
)
def test_wrong_options(key, value, parts):
  with pytest.raises(UserError) as error:
    registry.make("minatar:breakout", seed=0, **{key: value})
  message = str(error.value)
  assert message.startswith(f"env.kwargs.{key}={value!r}: ")
  assert "\n" not in message
  for part in parts:
    assert part in message


def test_options_belong_to_one_env():
  with pytest.raises(UserError, match="unknown option of tiny:catch; must be one of max_episode_steps"):
    registry.make("tiny:catch", seed=0, sticky_action_prob=0.1)


@pytest.mark.parametrize("length", [2, 1001])
def test_corridor_length_bounds(length):
  with pytest.raises(UserError, match=rf"env.kwargs.length={length}: .*3 to 1000"):
    registry.make("tiny:corridor", seed=0, length=length)


def test_number_as_text():
  assert (
    registry.make("minatar:breakout", seed=0, sticky_action_prob="1e-3")._game._sticky_action_prob == 1e-3
  )
