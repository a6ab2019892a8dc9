"""Tests of users' own environments, `module:function`."""

import logging
import os
import re
import sys

import pytest

from moozi.core.errors import UserError
from moozi.envs import registry
from moozi.envs.bots import make_bot
from moozi.envs.game import GameEnvironment
from moozi.envs.players import Seats, SeparatePlayer
from moozi.envs.suites import user
from moozi.envs.table import view_of
from moozi.envs.vector import make_vector
from tests.envs.contract import assert_same, play
from tests.envs.suites import user_fakes

FAKES = "tests.envs.suites.user_fakes"


@pytest.mark.parametrize("function", ["make_counter", "make_seeded", "make_walk", "make_catch", "Counter"])
def test_spec_equals_the_envs(function):
  env = registry.make(f"{FAKES}:{function}", seed=0)
  assert isinstance(env, GameEnvironment) == (function != "make_seeded")
  assert env.env_spec == registry.env_spec(f"{FAKES}:{function}")


def test_arguments_reach_the_function():
  assert len(play(registry.make(f"{FAKES}:make_seeded", seed=0, length=4), 5)) == 5
  assert play(registry.make(f"{FAKES}:make_seeded", seed=0, length=4), 5)[-1].last()


def test_argument_called_name(folder):
  (folder / "moozi_own_named.py").write_text(
    "from tests.envs.suites.user_fakes import Counter\ndef make_env(name):\n  return Counter(name)\n"
  )
  assert len(play(registry.make("moozi_own_named:make_env", seed=0, name=4), 5)) == 5
  assert registry.env_spec("moozi_own_named:make_env", name=4).num_env_actions == 3


def test_env_without_a_seed_warns_once(caplog):
  user._warn_unseeded.cache_clear()
  with caplog.at_level(logging.WARNING, "moozi.envs"):
    registry.make(f"{FAKES}:make_counter", seed=0)
    assert not caplog.records
    env = registry.make(f"{FAKES}:make_unseeded", seed=0)
    registry.make(f"{FAKES}:make_unseeded", seed=1)
  (record,) = caplog.records
  assert "make_unseeded has no seed" in record.getMessage()
  with pytest.raises(ValueError, match="seed="):
    env.seed(-1)


def test_current_folder_comes_first(folder):
  (folder / "moozi_own_here.py").write_text(
    "from tests.envs.suites.user_fakes import make_counter as make_env\n"
  )
  env = registry.make("moozi_own_here:make_env", seed=5)
  assert env.env_spec.name == "moozi_own_here:make_env"
  assert sys.path[0] == os.getcwd()
  # The standard library has a module of this name too.
  (folder / "antigravity.py").write_text(
    "from tests.envs.suites.user_fakes import make_counter as make_env\n"
  )
  assert registry.env_spec("antigravity:make_env").num_env_actions == 3


def test_module_of_a_package(folder):
  (folder / "moozi_own_package" / "inner").mkdir(parents=True)
  (folder / "moozi_own_package" / "inner" / "environments.py").write_text(
    "from tests.envs.suites.user_fakes import make_counter\n"
  )
  env = registry.make("moozi_own_package.inner.environments:make_counter", seed=5)
  assert_same(play(env, 20), play(registry.make(f"{FAKES}:make_counter", seed=5), 20))


# --- errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    ("import none_such", "moozi_own_bad.py:1: ModuleNotFoundError: No module named 'none_such'"),
    ("x = 1\ny = x / 0", "moozi_own_bad.py:2: ZeroDivisionError: division by zero"),
    ("def make_env(:", "SyntaxError: invalid syntax (moozi_own_bad.py, line 1)"),
    ("import sys; sys.exit(3)", "moozi_own_bad.py:1: SystemExit: 3"),
    ("def make_evn(): pass", "has no make_env; the nearest is make_evn"),
    ("make_env = 3", "make_env is a int; must be a function"),
    (
      "def make_env(): pass",
      "it makes builtins.NoneType; it must be a dm_env.Environment, a gymnasium.Env or a moozi.Table",
    ),
    ("def make_env():\n  return [][1]", "moozi_own_bad.py:2: IndexError: list index out of range"),
    (
      "def make_env(length): pass",
      "env.kwargs={}: moozi_own_bad:make_env is make_env(length): missing a required",
    ),
    (
      (
        "from tests.envs.suites.user_fakes import Counter, specs\n"
        "class make_env(Counter):\n"
        "  def action_spec(self):\n"
        "    return specs.BoundedArray((1,), float, -1, float('inf'))"
      ),
      "without finite bounds",
    ),
    (
      (
        "from tests.envs.suites.user_fakes import Counter\n"
        "class Environment(Counter):\n"
        "  def reset(self):\n"
        "    raise KeyError('a\\nb')\n"
        "make_env = Environment"
      ),
      "moozi_own_bad.py:4: KeyError: 'a\\nb'",
    ),
    ("import sys\ndef make_env():\n  sys.exit(0)", "making the environment failed: "),
    (
      (
        "from tests.envs.suites.user_fakes import Counter\n"
        "class make_env(Counter):\n"
        "  def action_spec(self):\n"
        "    return {}[3]"
      ),
      "moozi_own_bad.py:4: KeyError: 3",
    ),
    (
      (
        "from tests.envs.suites.user_fakes import Counter\n"
        "class make_env(Counter):\n"
        "  def close(self):\n"
        "    raise OSError('stuck')"
      ),
      "moozi_own_bad.py:4: OSError: stuck",
    ),
    (
      (
        "import sys\n"
        "from tests.envs.suites.user_fakes import Counter\n"
        "class make_env(Counter):\n"
        "  def step(self, action):\n"
        "    sys.exit('enough')"
      ),
      "moozi_own_bad.py:5: SystemExit: enough",
    ),
  ],
)
def test_errors_name_the_place(folder, text, expected):
  (folder / "moozi_own_bad.py").write_text(text + "\n")
  with pytest.raises(UserError) as error:
    registry.env_spec("moozi_own_bad:make_env")
  message = str(error.value)
  assert message.startswith(("env.name=moozi_own_bad:make_env: ", "env.kwargs="))
  assert expected in message
  assert "\n" not in message


@pytest.mark.parametrize(
  ("kind", "message"),
  [
    ("TooLong", r"an observation of shape \[3\]; its spec says \[2\]"),
    ("MovesTwice", "player 1 moves twice in a row"),
    ("Rewardless", "reward=None: must be a number"),
    ("Discounted", "a LAST step of discount 0.9"),
    ("EndsBadly", r"user_fakes.py:\d+: ZeroDivisionError: "),
  ],
)
def test_trial_episode(kind, message):
  """Before a run, a trial episode finds violations of the spec; the environment is closed afterwards."""
  closed = getattr(user_fakes, kind).num_closed
  with pytest.raises(UserError, match=rf"^env.name={FAKES}:{kind}: .*{message}"):
    registry.env_spec(f"{FAKES}:{kind}")
  assert getattr(user_fakes, kind).num_closed == closed + 1


@pytest.mark.parametrize(
  ("fault", "message"),
  [
    ("frame", r"a frame is float32\[1, 1, 2\]; its spec says uint8\[1, 1, 2\]"),
    ("mask", r"legal_actions_mask has shape \[2\], must be \[3\]"),
    ("reward", "reward=nan is not finite"),
    ("discount", "a step of discount 0.9"),
    ("player", "to_play=0; must be 0 and 1 in turn"),
  ],
)
def test_trial_of_an_env_without_an_adapter(fault, message):
  assert registry.env_spec(f"{FAKES}:Own") == user_fakes.Own.env_spec
  with pytest.raises(UserError, match=message):
    registry.env_spec(f"{FAKES}:Own", fault=fault)


def test_trial_of_an_endless_env():
  assert registry.env_spec(f"{FAKES}:make_counter", length=10**9).num_env_actions == 3


def test_unsupported_env_is_closed():
  closed = user_fakes.TooMany.num_closed
  with pytest.raises(UserError, match="must have 1 to 65,536"):
    registry.env_spec(f"{FAKES}:TooMany")
  assert user_fakes.TooMany.num_closed == closed + 1


def test_env_made_per_seed_forwards_everything():
  """The adapter forwards MooZi's additions to dm_env: pictures, opponents and lives."""
  env = registry.make(f"{FAKES}:make_seeded_lives", seed=3)
  step = env.reset()
  assert env.render().shape == (4, 6, 3)
  assert make_bot(env, "random", 1, seed=0).action(*step.observation[:2]) in (0, 1)
  assert not env.will_continue
  while not step.last():
    step = env.step(0)
  assert env.will_continue
  assert env.reset().observation.is_continued


def test_bot_of_the_next_episode():
  """A lane is reset before its environment makes the episode's game; the bot plays that game."""
  env = registry.make(f"{FAKES}:make_board", seed=0)
  with pytest.raises(UserError, match="no such player"):
    make_bot(env, "expert", 1, 0)
  player, seats = SeparatePlayer("mcts:4", env.env_spec), Seats()
  for seed in range(3):
    seats.start({0: (env, {0: (player, seed), 1: (player, seed)})})
    env.seed(seed)
    step = env.reset()
    while not step.last():
      action = seats.act({0: view_of(step.observation)})[0]
      assert step.observation.legal_actions_mask[action]
      step = env.step(action)


def test_env_that_cannot_be_made_again_is_a_users_error(monkeypatch):
  monkeypatch.setattr(user_fakes.FailsOnce, "num_made", 1)
  with pytest.raises(UserError, match=r"making the environment failed: .*port in use"):
    registry.make(f"{FAKES}:FailsOnce", seed=0)


def test_bot_of_an_env_made_per_seed_shows_its_search():
  env = registry.make(f"{FAKES}:make_board", seed=0)
  bot = make_bot(env, "mcts", 4, 0)
  env.seed(1)
  env.reset()
  assert sum(visits for _, visits, _ in bot.search()) > 0


def test_guard_replaces_an_env_that_cannot_be_made_again(monkeypatch):
  monkeypatch.setattr(user_fakes.FailsOnce, "num_made", 0)
  vector = make_vector(f"{FAKES}:FailsOnce", {}, 1, seed=0, max_faults=3)
  step = vector.reset()
  assert vector.num_faults == 1
  assert step.is_first.all()
  vector.close()


def test_spec_must_not_depend_on_the_seed():
  env = user.make_environment(f"{FAKES}:make_uneven", user.UserOptions())
  message = r"must not depend on the seed; frame_shape was \(1, 1, 2\) and is \(1, 1, 3\) with another seed"
  with pytest.raises(UserError, match=message):
    list(map(env.seed, range(20)))


def test_wrong_arguments():
  with pytest.raises(UserError, match=r"env.kwargs=\{'lenght': 3\}: .*unexpected keyword argument 'lenght'"):
    registry.make(f"{FAKES}:make_seeded", seed=0, lenght=3)
  with pytest.raises(UserError, match=r"env.kwargs.seed=3: not allowed"):
    registry.env_spec(f"{FAKES}:make_seeded", seed=3)


@pytest.mark.parametrize(
  "name",
  ["minitar:freeway", "tiny catch:x", "..:x", "os.path/x:y", "tinny:catch", ":x"],
)
def test_unknown_library(folder, name):
  with pytest.raises(UserError, match=r"unknown library .*; (the nearest is|did you mean os\.path\.x:y\?$)"):
    registry.env_spec(name)
  assert str(folder) not in sys.path


def test_unknown_module(folder):
  """The error names the module and the searched folders; modules with similar names are not imported."""
  with pytest.raises(
    UserError, match=rf"no module my_wrold in .*{re.escape(str(folder))}.* path \(sys.path\)"
  ):
    registry.env_spec("my_wrold:make_env")
  (folder / "my_world.py").write_text("raise SystemExit('ran')\n")
  with pytest.raises(UserError, match=r"no module my_wrold; the nearest in the current folder is my_world;"):
    registry.env_spec("my_wrold:make_env")
  assert str(folder) not in sys.path


def test_package_without_the_module(folder):
  with pytest.raises(UserError, match=r"there is no module tests.envs.none_such"):
    registry.env_spec("tests.envs.none_such:make_env")
