"""Whatever a user's code does in the middle of a run, the run goes on or ends in an error of one line.

In both cases its last checkpoint can be loaded, and without the fault the run can be resumed to its end.
"""

import itertools
import logging
import math
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.acting.reanalyzer import Reanalyzer
from moozi.agent import searches
from moozi.core import plugins
from moozi.core.config import Config
from moozi.core.errors import one_line
from moozi.io.checkpoints import expected_of, list_checkpoints, load_checkpoint
from moozi.io.metrics import read_metrics
from moozi.io.run_directory import RunDirectory
from moozi.run import build
from moozi.run.events import Finished, Reanalyzed, StateReady, Updated
from moozi.training import checks
from tests.envs import hostile
from tests.tiny_run import RESUMABLE

pytestmark = pytest.mark.slow
gymnasium = pytest.importorskip("gymnasium")
# `MOOZI_FUZZ_CASES=800 pytest -m slow tests/training/test_hostile_runs.py` draws more cases.
CASES = int(os.environ.get("MOOZI_FUZZ_CASES", "60"))
ERRORS = (*hostile.ERRORS, BaseExceptionGroup("a", [SystemExit(1)]))
VALUES = (*hostile.SCALARS, *map(hostile.Raises, ERRORS), np.zeros((9, 9, 3), np.uint8), np.zeros((4, 5, 3)))
SETTINGS = (
  *RESUMABLE,
  "max_env_steps=192",
  "network.kind=own",
  "planners.train.algorithm=own",
  "planners.test.algorithm=own",
  "learner.extra_losses=[own]",
  "callbacks=[own]",
  "reanalyze.ratio=0.5",
  "reanalyze.batch_size=16",
  "evaluation.period_env_steps=64",
  "evaluation.num_envs=4",
  "workers.max_env_faults=3",
)


PARTS = ("network", "targets", "learner", "planners", "chance")


class Switch(hostile._Odd):
  """The odd value of the current case: given from the first update after a checkpoint, until it is off."""

  def __init__(self) -> None:
    self.off()

  def set(self, place: str, value: Any, since: int, times: float) -> None:
    """Takes a case: `place` is odd `times` times, after `since` calls of it in the middle of the run."""
    super().__init__(place, value, since)
    self._left, self._has_state, self._is_on = times, False, False
    self.has_reanalyzed = False

  def off(self) -> None:
    self.set("none", None, 0, 0)

  def __call__(self, place: str, own: Any) -> Any:
    if not self._is_on or not self._left:
      return own
    self._left -= place == self._place and self._calls >= self._since
    return super().__call__(place, own)

  def on_event(self, event: Any) -> Any:
    """A callback of the run."""
    self._is_on |= self._has_state and isinstance(event, Updated)
    self._has_state |= isinstance(event, StateReady)
    self.has_reanalyzed |= isinstance(event, Reanalyzed)
    return self("callback", None)


switch = Switch()


class Wrapper(gymnasium.Wrapper):
  """Returns odd results in place of the environment's."""

  def reset(self, **options):
    return switch("wrapper_reset", super().reset(**options))

  def step(self, action):
    return switch("wrapper_step", super().step(action))


def through(place: str, x: jax.Array) -> jax.Array:
  """Returns `x`, which the user's code on the host computes again."""
  x = jax.lax.stop_gradient(x)
  shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
  return jax.pure_callback(lambda own: switch(place, np.asarray(own)), shape, x, vmap_method="sequential")


def make_network(config, num_actions, support_size, num_frame_planes):
  """Returns linear parts, whose results pass through the host."""
  encode, step, project = (hk.Linear(8) for _ in range(3))
  value, reward, policy = hk.Linear(support_size), hk.Linear(support_size), hk.Linear(num_actions)

  def representation(stacked_history, is_training):
    state = jnp.tanh(encode(hk.Flatten()(stacked_history)))
    return state + 0 * through("representation", state)

  def dynamics(state, action, is_training):
    state = jnp.tanh(step(jnp.concatenate([state, jax.nn.one_hot(action, num_actions)], axis=-1)))
    return state, reward(state) + 0 * through("dynamics", reward(state))

  return representation, lambda x, _: (value(x), policy(x)), dynamics, lambda x, _: project(x)


def search(config, **arguments):
  """Searches as `gumbel`; the results pass through the host."""
  output = searches.SEARCHES["gumbel"](config.model_copy(update={"algorithm": "gumbel"}), **arguments)
  return output.replace(
    action=through("action", output.action), action_weights=through("weights", output.action_weights)
  )


def make_loss(config, model):
  return lambda params, net_state, outputs, target: through("loss", 0 * target.root_values[:, 0])


class Player:
  """Plays the first legal action."""

  def __init__(self, spec, seed):
    switch("player", None)

  def action(self, observation, legal):
    return switch("player_action", int(np.flatnonzero(legal)[0]))

  def observe(self, observation, legal, action):
    switch("player_observe", None)


def maker(kind: Any) -> Callable[[], Any]:
  """Returns the function that makes an environment of `hostile`, which draws pictures."""

  def make():
    env = switch("make", getattr(kind, "make", kind)(switch))
    if kind is not hostile.OddGame:
      type(env).render = lambda self: switch("picture", None)
    return env

  return make


# JAX itself ends the process if it cannot read the text of an error of a function that it calls.
ON_HOST = ("representation", "dynamics", "action", "weights", "loss")
PLUGINS = ("callback", "make", *ON_HOST)
PLAYERS = ("player", "player_action", "player_observe")
KINDS = {
  "gymnasium": (hostile.OddGymnasium, ("wrapper_reset", "wrapper_step", "picture", *PLUGINS)),
  "dm_env": (hostile.OddDmEnv, ("picture",)),
  "game": (hostile.OddGame, PLAYERS),
  "environment": (hostile.OddEnvironment, ("picture", *PLAYERS)),
}


@pytest.fixture(scope="module", autouse=True)
def shared():
  """Runs of the same networks share also the searches of reanalyze, and the checks of plug-ins."""
  patch = pytest.MonkeyPatch()

  def by_text(function: Callable[..., Any], key: Callable[..., Any]) -> Callable[..., Any]:
    made: dict[str, Any] = {}

    def cached(*arguments: Any, **options: Any) -> Any:
      text = repr(key(*arguments))
      if text not in made:
        made[text] = function(*arguments, **options)
      return made[text]

    return cached

  def own(config: Config, spec: Any, *others: Any) -> Any:
    return (spec, *others, *(getattr(config, part) for part in PARTS))

  patch.setattr(checks, "dry_run", by_text(checks.dry_run, own))
  make_reanalyzer = build.build_reanalyzer
  first = by_text(make_reanalyzer, lambda config, spec, *_: own(config, spec))

  def build_reanalyzer(*given: Any) -> Any:
    made = make_reanalyzer(*given)
    made._search = first(*given)._search
    return made

  patch.setattr(build, "build_reanalyzer", build_reanalyzer)
  yield
  patch.undo()


@pytest.fixture
def train(folder, cli):
  """Returns a function that trains a run, and returns its path, its status and what it prints on stderr."""
  logging.disable(logging.CRITICAL)
  numbers = itertools.count()
  plugins.register_network("own")(make_network)
  plugins.register_search("own")(search)
  plugins.register_loss("own")(make_loss)
  plugins.register_player("own")(Player)
  plugins.register_wrapper("own")(Wrapper)
  plugins.register_callback("own")(lambda config, path: switch.on_event)
  for name, (kind, _) in KINDS.items():
    plugins.register_environment(f"own_{name}")(maker(kind))

  def run(name: str) -> tuple[Path, int, str]:
    path = Path("runs") / str(next(numbers))
    settings = [*SETTINGS, f"env.name=own_{name}", f"run.name={path.name}", f"run.dir={path.parent}"]
    if name == "gymnasium":
      settings.append("env.wrappers=[own]")
    if name in ("game", "environment"):
      settings.append("evaluation.opponent=own")
    Path("own.yaml").write_text("{}\n")
    status, _, err = cli("train", "own.yaml", *settings)
    return path, status, err

  yield run
  logging.disable(logging.NOTSET)


def template(config: Config) -> Any:
  return jax.eval_shape(lambda: build.initial_training_state(config, build.env_spec(config)))


def check(train, cli, name: str, place: str, value: Any, since: int, times: float) -> None:
  switch.set(place, value, since, times)
  path, status, err = train(name)
  has_reanalyzed = switch.has_reanalyzed
  switch.off()
  assert "Traceback" not in err
  assert status in (0, 2), (status, err)
  lines = err.splitlines()
  errors = [line for line in lines if line.startswith("moozi: error: ")]
  assert (len(errors), lines[-1:] == errors) == ((1, True) if status else (0, not lines)), err
  assert all(len(line) < 1000 for line in lines)
  directory = RunDirectory.open(path)
  saved = list_checkpoints(directory.checkpoints_path)[-1]
  assert saved.env_steps >= 64
  config = directory.load_config()
  load_checkpoint(saved.path, template(config), expected_of(config, build.env_spec(config)))
  if not directory.summary_path.exists():
    assert status == 2
    status, _, err = cli("train", "--resume", path)
    assert (status, "error" in err) == (0, False), err
  assert list_checkpoints(directory.checkpoints_path)[-1].env_steps == 192
  assert has_reanalyzed or switch.has_reanalyzed


@pytest.mark.parametrize("name", KINDS)
def test_drawn_cases(train, cli, name):
  kind, others = KINDS[name]
  rng = random.Random(name)
  failed = []
  for _ in range(max(1, CASES // len(KINDS))):
    place, value = rng.choice((*kind.places, *others)), rng.choice(VALUES)
    since, times = rng.choice((0, 0, 1, 5, 20)), rng.choice((1, 2, math.inf))
    if place in ON_HOST and isinstance(getattr(value, "error", None), hostile.MuteError | UnicodeError):
      continue
    try:
      check(train, cli, name, place, value, since, times)
    except Exception as error:
      text = f"{type(error).__name__}: {one_line(error)}"
      failed.append(f"{place}={hostile.name_of(value)}, {since}, {times}: {text}")
  assert not failed, "\n".join(failed)


@pytest.mark.parametrize("index", [0, 1, 2, 7, 20, 21, 22, 23, -3, -2, -1])
def test_a_callback_that_panics_at_any_event(train, cli, index):
  """The run ends with a checkpoint of the step that it has reached, and can be resumed unless it is over."""
  events: list[Any] = []
  plugins.register_callback("own")(lambda config, path: events.append)
  train("dm_env")
  num_events = len(events)
  assert isinstance(events[-1], Finished)
  events.clear()

  def panic(event: Any) -> None:
    events.append(event)
    if len(events) == 1 + index % num_events:
      raise hostile.Panic("unwrap on None")

  plugins.register_callback("own")(lambda config, path: panic)
  path, status, err = train("dm_env")
  failed_at = events[-1]
  where = f"callbacks[0]=own: the callback failed at {type(failed_at).__name__}: "
  assert (status, err.startswith(f"moozi: error: {where}"), err.count("\n")) == (2, True, 1), err
  directory = RunDirectory.open(path)
  assert list_checkpoints(directory.resume_path)[-1].env_steps == failed_at.env_steps
  plugins.register_callback("own")(lambda config, path: events.append)
  # After the final evaluation the run is complete, whatever the callback does.
  is_complete = directory.summary_path.exists() and directory.read_summary()["reason"] != "stopped"
  status, _, err = cli("train", "--resume", path)
  if is_complete:
    assert index < 0
    assert (status, "has made 192 environment steps" in err, err.count("\n")) == (2, True, 1), err
  else:
    assert (status, "error" in err) == (0, False), err
  assert directory.read_summary()["env_steps"] == 192


def test_a_search_that_fails_in_reanalyze_leaves_a_last_checkpoint(train, cli, monkeypatch):
  """An update that fails leaves no parameters to save, but a search does."""
  run, calls = Reanalyzer.run, itertools.count()

  def fails(self, positions):
    if next(calls) == 2:
      raise ValueError(
        "INTERNAL: CpuCallback error calling callback: Traceback (most recent call last):\n"
        '  File "a", line 1\n'
        "ValueError: no"
      )
    return run(self, positions)

  monkeypatch.setattr(Reanalyzer, "run", fails)
  path, status, err = train("dm_env")
  assert (status, err) == (2, "moozi: error: ValueError: no\n")
  directory = RunDirectory.open(path)
  last = list(read_metrics(directory.metrics_path))[-1]["env_steps"]
  assert list_checkpoints(directory.resume_path)[-1].env_steps == last
  status, _, err = cli("train", "--resume", path)
  assert (status, "error" in err) == (0, False), err
