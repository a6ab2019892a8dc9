"""Tests of packages of environments that are missing or too old, and of games that are not offered."""

import importlib.metadata
import importlib.util
import sys

import pytest

from moozi.core.errors import UserError
from moozi.envs import registry
from moozi.envs.jax.suite_parts import check_package
from moozi.envs.suites import minatar
from moozi.envs.suites.open_spiel import environment as open_spiel


def forget():
  """Forgets what was loaded from the packages."""
  for function in (minatar.load_game, open_spiel._game_types, open_spiel._rules_of):
    function.cache_clear()


@pytest.fixture(autouse=True)
def _fresh():
  forget()
  yield
  forget()


@pytest.mark.parametrize(
  ("name", "package", "hint"),
  [
    ("atari:Pong", "ale_py", "ale-py is not installed; run pip install 'moozi[atari]' (GPL)"),
    (
      "dm_control:walker-walk",
      "dm_control",
      "dm_control is not installed; run pip install 'moozi[dm-control]'",
    ),
    ("gymnasium:CartPole-v1", "gymnasium", "gymnasium is not installed; run pip install 'moozi[gymnasium]'"),
    ("gymnax:Pong-misc", "gymnax", "gymnax is not installed; run pip install 'moozi[gymnax]'"),
    ("minatar:breakout", "minatar", "minatar is not installed; run pip install 'moozi[minatar]'"),
    ("open_spiel:tic_tac_toe", "pyspiel", "run pip install 'moozi[open-spiel]'"),
    ("pgx:hex", "pgx", "pgx is not installed; run pip install 'moozi[pgx]'"),
  ],
)
def test_missing_package(monkeypatch, name, package, hint):
  find, library = importlib.util.find_spec, name.partition(":")[0]
  monkeypatch.setattr(importlib.util, "find_spec", lambda x, *rest: None if x == package else find(x, *rest))
  monkeypatch.setitem(sys.modules, package, None)
  with pytest.raises(UserError) as error:
    registry.make(name, seed=0, max_episode_steps=3)
  assert str(error.value).startswith(f"env.name={library}:")
  assert hint in str(error.value)
  if library in ("atari", "gymnasium", "open_spiel"):  # the others have fixed lists of games
    (info,) = registry.list_environments(library)
    assert hint in info.summary


@pytest.mark.parametrize(
  ("name", "version", "least"),
  [
    ("gymnax:Pong-misc", "0.0.9", "1.0"),
    *(("pgx:hex", version, "2.6") for version in ("2.5.9", "1.10", "2", "0.x")),
  ],
)
def test_old_version(monkeypatch, name, version, least):
  library = name.partition(":")[0]
  monkeypatch.setattr(importlib.metadata, "version", lambda package: version)
  message = rf"env\.name={name}: {library} {version} is too old; .*{library}>={least}"
  with pytest.raises(UserError, match=message):
    registry.make(name, 0, max_episode_steps=3)


@pytest.mark.parametrize("version", ["2.6", "2.6.0rc1", "2.10.1", "3"])
def test_newer_version(monkeypatch, version):
  monkeypatch.setattr(importlib.metadata, "version", lambda package: version)
  check_package("pgx", "hex", "2.6")


@pytest.mark.parametrize(
  ("name", "part"),
  [
    ("atari:Brekout", "unknown game.*the nearest is atari:Breakout"),
    ("atari:pong", "unknown game.*the nearest is atari:Pong"),
    ("atari:", "unknown game.*the nearest is atari:"),
    ("atari:../x", "unknown game.*the nearest is atari:"),
    ("gymnax:breakout-minatar", "unknown game 'breakout-minatar'.*nearest is gymnax:Breakout-MinAtar"),
    ("gymnax:Reacher-misc", "several continuous dimensions"),
    ("dm_control:cartpole-swing_up", "unknown game.*the nearest is dm_control:cartpole-swingup"),
    ("dm_control:cartpole", "unknown game.*the nearest is dm_control:cartpole-"),
    ("dm_control:dog-run", "too many dimensions"),
    ("dm_control:lqr-lqr_2_1", "no bounds"),
    ("dm_control:quadruped-escape", "OpenGL"),
    ("gymnax:MNISTBandit-bsuite", "downloads"),
    ("gymnax:SimpleBandit-bsuite", "bandit"),
    ("pgx:tictactoe", "unknown game 'tictactoe' of pgx; .*nearest is pgx:tic_tac_toe"),
    ("pgx:backgammon", "several times in a row"),
    ("pgx:leduc_holdem", "alternate"),
    ("pgx:sparrow_mahjong", "three players"),
    ("pgx:bridge_bidding", "four players"),
  ],
)
def test_games_that_are_refused(name, part):
  with pytest.raises(UserError, match=f"^env.name={name}: .*{part}") as error:
    registry.make(name, seed=0)
  assert "\n" not in str(error.value)
