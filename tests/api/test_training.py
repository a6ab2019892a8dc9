"""Tests of training from Python."""

import asyncio
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import moozi
from moozi.api.training import read_config
from moozi.core.errors import RunError, UserError
from moozi.io.config import load_config
from moozi.run import events
from tests.tiny_run import TINY

LOCAL = (*TINY, "runtime=local", "logging.progress=none", "logging.tensorboard=false", "evaluation.gif=false")


@pytest.fixture
def config(tmp_path):
  return load_config(None, [*LOCAL, f"run.dir={tmp_path}", "run.name=first", "evaluation.final_episodes=2"])


class TestSettings:
  def test_kinds_of_configuration(self, tmp_path):
    path = tmp_path / "catch.yaml"
    path.write_text("env: {name: 'tiny:catch'}\nlearner: {batch_size: 32, max_grad_norm: 1.0}\n")
    data = {"env": {"name": "tiny:catch"}, "learner": {"batch_size": 32}, "learner.max_grad_norm": 1.0}
    configs = [read_config(given, {}) for given in (path, str(path), data)]
    assert configs == [load_config(path)] * 3
    assert read_config(configs[0], {}) is configs[0]

  def test_overrides(self, tmp_path):
    overrides = {
      "seed": np.int64(3),
      "learner": {"batch_size": 8},
      "learner.max_grad_norm": 2,
      "run": {"dir": tmp_path},
      "planners": {"train": moozi.Config().planners.train.model_copy(update={"num_simulations": 3})},
    }
    base = {"learner": {"batch_size": 32, "samples_per_step": 1.0}}
    for given in (base, moozi.Config(learner={"batch_size": 32, "samples_per_step": 1.0})):
      config = read_config(given, overrides)
      assert (config.seed, config.learner.batch_size, config.learner.max_grad_norm) == (3, 8, 2.0)
      assert config.learner.samples_per_step == 1.0
      assert config.run.dir == str(tmp_path)
      assert config.planners.train.num_simulations == 3

  @pytest.mark.parametrize(
    ("given", "overrides", "message"),
    [
      ({}, {"learner": {"batchsize": 3}}, "learner.batchsize: unknown key; did you mean learner.batch_size?"),
      ({}, {"seeds": 3}, "seeds: unknown key"),
      ({}, {"seed": "3"}, 'seed="3": must be a valid integer'),
      ({}, {"seed": object()}, "only plain values are allowed"),
      ({}, {"run.name": "${oc.env:HOME}"}, "interpolations are not supported"),
      (3, {}, "config=3: must be the name or path of a configuration"),
    ],
  )
  def test_wrong_settings(self, given, overrides, message):
    with pytest.raises(UserError) as caught:
      read_config(given, overrides)
    assert message in str(caught.value)

  def test_refusals_create_nothing(self, tmp_path):
    own = {"env": {"name": "my_envs:make_env"}, "run.dir": tmp_path / "runs"}
    with pytest.raises(UserError, match="allow_code=True"):
      moozi.train(own, allow_code=False)
    with pytest.raises(UserError, match="the nearest is tiny:catch"):
      moozi.train(own, env={"name": "tiny:cach"})
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
  ("callbacks", "message"),
  [
    ([print, 5], "callbacks[1]=5: must be a function or a name"),
    (print, "callbacks=<built-in function print>: must be a list of functions and names"),
    ("own:make", "callbacks=own:make: must be a list of functions and names"),
  ],
)
def test_wrong_callbacks(config, tmp_path, callbacks, message):
  for call in (moozi.train_events, lambda config, **given: moozi.resume_events(tmp_path, **given)):
    with pytest.raises(UserError) as caught:
      call(config, callbacks=callbacks)
    assert message in str(caught.value)
  assert not (tmp_path / "first").exists()


def test_a_run_that_never_started_is_removed(config):
  training = moozi.train_events(config)
  path = training.run.path
  with pytest.raises(UserError, match="never overwritten"):
    moozi.train_events(config)
  training.close()
  training.close()
  assert not path.exists()
  assert list(training) == []


def test_closing_ends_with_a_checkpoint(config):
  seen = []
  with moozi.train_events(config, callbacks=[seen.append]) as training:
    assert next(training) is seen[0]
    assert isinstance(seen[0], events.Started)
    with pytest.raises(RunError, match="only one process"):
      training.run.directory.claim()
  assert len(seen) == 1
  assert training.summary == training.run.summary
  assert training.summary["reason"] == "stopped"
  assert [c.name for c in training.run.checkpoints()] == ["step_000000000"]
  training.run.directory.claim().close()
  assert list(training) == []


@pytest.mark.slow
def test_stop_and_resume_in_a_thread(config):
  """Outside the main thread, Python cannot install signal handlers."""
  seen = []
  with moozi.train_events(config) as training:
    for event in training:
      seen.append(event)
      if event.env_steps >= 96:
        training.stop.set()
  assert isinstance(seen[-1], events.Finished)
  assert 96 <= training.summary["env_steps"] < 320
  assert training.run.checkpoints()[-1].env_steps == training.summary["env_steps"]

  def resume():
    ended.append(moozi.resume(training.run, max_env_steps=160, callbacks=[seen.append]))

  ended = []
  thread = threading.Thread(target=resume)
  thread.start()
  thread.join()
  (run,) = ended
  assert run == training.run
  assert run.summary["env_steps"] == run.config.max_env_steps == 160
  assert isinstance(seen[-1], events.Finished)
  with pytest.raises(UserError, match="give a larger one to resume"):
    moozi.resume(run)
  with pytest.raises(UserError, match="seed=5: a run cannot change it"):
    moozi.resume(run, seed=5)
  run.directory.claim().close()


@pytest.mark.slow
def test_a_callback_that_fails_ends_the_run_with_a_checkpoint(config):
  def fail(event):
    if event.env_steps >= 64:
      raise ZeroDivisionError

  with pytest.raises(ZeroDivisionError):
    moozi.train(config, callbacks=[fail])
  run = moozi.Run(f"{config.run.dir}/first")
  assert run.summary["reason"] == "stopped"
  assert run.checkpoints()


@pytest.mark.slow
def test_train_inside_an_event_loop_equals_the_command(config, cli):
  """A notebook also runs cells inside an event loop. The parameters are equal to the bit."""

  async def cell():
    return moozi.train(config)

  run = asyncio.run(cell())
  other = [*LOCAL, f"run.dir={config.run.dir}", "run.name=second", "evaluation.final_episodes=2"]
  path = run.path.with_name("catch.yaml")
  path.write_text("seed: 0\n")
  assert cli("train", path, *other)[0] == 0
  agents = [moozi.load(p) for p in (run, run.path.with_name("second"))]
  leaves = [np.concatenate([np.ravel(x) for x in _leaves(agent.params)]) for agent in agents]
  np.testing.assert_array_equal(*leaves)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # Ray forks, of which JAX warns
def test_train_with_ray_in_a_thread_and_an_event_loop(config):
  async def cell():
    return moozi.train(config, runtime="ray", **{"ray.num_cpus": 2, "max_env_steps": 160})

  ended = []
  thread = threading.Thread(target=lambda: ended.append(asyncio.run(cell())))
  thread.start()
  thread.join()
  assert ended[0].summary["reason"] == "max_env_steps"


# Prints JAX's platforms in the driver of a run that has not started, and of the same run when it is resumed.
_PLATFORMS = """
import sys, jax, moozi
from jax._src import xla_bridge
before = jax.config.jax_platforms
set_platforms = jax.config.update
def update(name, value):
  if name == "jax_platforms":
    assert not xla_bridge.backends_are_initialized()
  set_platforms(name, value)
jax.config.update = update
training = moozi.train_events("tiny/catch", runtime=sys.argv[1], **{"run.dir": sys.argv[2]})
print(before, jax.config.jax_platforms)
set_platforms("jax_platforms", None)
training._lock.close()
try:
  moozi.resume_events(training.run)
except moozi.UserError:  # there is no checkpoint
  print(jax.config.jax_platforms)
"""


@pytest.mark.parametrize(
  ("runtime", "platforms"),
  [("ray", ["None cpu", "cpu"]), pytest.param("local", ["None None", "None"], marks=pytest.mark.slow)],
)
def test_driver_of_ray_runs_uses_the_cpu(tmp_path, runtime, platforms):
  env = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
  command = [sys.executable, "-c", _PLATFORMS, runtime, tmp_path]
  done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
  assert done.stdout.splitlines() == platforms


def _leaves(tree):
  import jax

  return jax.tree_util.tree_leaves(tree)
