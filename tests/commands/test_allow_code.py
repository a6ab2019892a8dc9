"""Tests of --allow-code for runs that are named as players: they import modules only with it."""

import io
import pickle
import sys
from types import SimpleNamespace

import pytest

import moozi
from moozi.actors.pool import ActorPool
from moozi.api.players import TrainedPlayer, make_player
from moozi.api.training import continue_run
from moozi.commands import train
from moozi.core import plugins
from moozi.core.config import uses
from moozi.core.errors import UserError
from moozi.envs.registry import env_spec
from moozi.io.config import load_config
from moozi.run.session import RunInputs
from tests.commands.conftest import PPO, make_run
from tests.tiny_run import TINY

pytest.importorskip("pyspiel")
BOARD = (*PPO, "env.name=open_spiel:tic_tac_toe")
SEAT = (*PPO, "env.name=open_spiel:kuhn_poker", "env.kwargs.seat=0")
CODE = "callbacks=['json:loads']"
REFUSED = "callbacks[0]=json:loads imports a Python module"


@pytest.fixture
def names(folder):
  """Returns the name of a run that names code, as a player of each kind of game."""
  return {game: f"run:{make_run(folder, f'old{len(game)}', *game, CODE)}" for game in (BOARD, SEAT)}


def test_players_of_other_seats(cli, refused, folder, names, monkeypatch):
  monkeypatch.setattr(sys, "stdin", io.StringIO())
  own = make_run(folder, "own", *SEAT, f"env.kwargs.test_others=['{names[SEAT]}']")
  play = ("play", "open_spiel:kuhn_poker", "seat=0", f"others={names[SEAT]}")
  for arguments in (("evaluate", own, "--episodes", "1"), play):
    assert REFUSED in refused(*arguments)
    status, _, err = cli(*arguments, "--allow-code")
    assert status == 0, err
  with pytest.raises(UserError, match="allow_code=True"):
    moozi.load(own).make_env()
  moozi.load(own, allow_code=True).make_env().close()


@pytest.mark.parametrize(
  ("game", "key"),
  [(BOARD, "evaluation.opponent"), (SEAT, "env.kwargs.others"), (SEAT, "env.kwargs.test_others")],
)
def test_players_of_a_new_run(cli, refused, folder, names, monkeypatch, game, key):
  (folder / "own.yaml").write_text("seed: 1\n")
  monkeypatch.setattr(train, "_run_training", lambda *_: 0)
  arguments = ("train", "own.yaml", *TINY, *game, f"{key}={names[game]}")
  message = refused(*arguments)
  assert REFUSED in message
  assert "pass --allow-code" in message
  status, _, err = cli(*arguments, "--allow-code")
  assert status == 0, err


def test_players_of_a_resumed_run(folder, names):
  own = make_run(folder, "own", *BOARD)
  opponent = {"evaluation.opponent": names[BOARD], "max_env_steps": 400}
  layers = [f"{key}={value}" for key, value in opponent.items()]
  for allow_code, message in ((False, "allow_code=True"), (True, "has no state to resume")):
    with pytest.raises(UserError, match=message):
      moozi.resume(own, allow_code=allow_code, **opponent)
    with pytest.raises(UserError, match=message):
      continue_run(own, layers, allow_code=allow_code, allow_own_code=True)


def test_a_new_run_imports_its_own_code_by_default(folder, names):
  (folder / "own_callbacks.py").write_text("def make(config, run):\n  return print\n")
  config = load_config(None, [*TINY, *BOARD, "callbacks=['own_callbacks:make']", f"run.dir={folder}/runs"])
  moozi.train_events(config).close()
  with pytest.raises(UserError, match=r"config: callbacks\[0\]=own_callbacks:make imports"):
    moozi.train_events(config, allow_code=False)
  opponent = {"evaluation.opponent": names[BOARD]}
  with pytest.raises(UserError, match=r"old.*: callbacks\[0\]=json:loads imports"):
    moozi.train_events(config, **opponent)
  moozi.train_events(config, allow_code=True, **opponent).close()


def test_actors_receive_the_permission(names, monkeypatch):
  """Each actor is a process of its own, which knows only what the driver sends to it."""
  name, spec = names[BOARD], env_spec("open_spiel:tic_tac_toe")
  config = load_config(None, [*BOARD, f"evaluation.opponent={name}"]).allowing_code(True)
  monkeypatch.setattr(ActorPool, "_start", lambda *_: None)
  functions = ActorPool(SimpleNamespace(cloudpickle=pickle), RunInputs(config=config, spec=spec))._functions
  plugins.PLAYERS.registered.clear()
  uses.install(pickle.loads(functions))
  sent = pickle.loads(pickle.dumps(config)).evaluation
  assert isinstance(plugins.PLAYERS.get(name, allow_code=sent.allows_code)(spec), TrainedPlayer)
  with pytest.raises(UserError, match="allow_code=True"):
    plugins.PLAYERS.get(name)(spec)


def test_permission_is_that_of_the_call(names):
  spec = env_spec("open_spiel:tic_tac_toe")
  assert isinstance(make_player(names[BOARD], spec, allow_code=True), TrainedPlayer)
  with pytest.raises(UserError, match="allow_code=True"):
    make_player(names[BOARD], spec)


def test_two_agents_have_their_own_permission(folder, names):
  """In one process, only the agent that has `allow_code` lets its opponent import modules."""
  own = make_run(folder, "own", *BOARD)
  allowed, refused = moozi.load(own, allow_code=True), moozi.load(own)
  assert allowed.evaluate(2, names[BOARD]).summary()["episodes"] == 2
  with pytest.raises(UserError, match="allow_code=True"):
    refused.evaluate(2, names[BOARD])
