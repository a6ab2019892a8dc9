"""Tests that plug-ins from a script or from the current folder reach Ray's actors."""

import json
import os
import subprocess
import sys

import pytest

from tests.integration.runs import CONFIG, ROOT
from tests.tiny_run import TINY

SCRIPT = """
import sys

import haiku as hk
import jax
import jax.numpy as jnp
import mctx

from moozi.core import plugins


class Encode(hk.Module):  # a class of the script, which no other process can import
  def __call__(self, history):
    return jnp.tanh(hk.Linear(16)(hk.Flatten()(history)))


@plugins.register_network("own")
def network(config, num_actions, support_size, num_frame_planes):
  encode, step, project = Encode(), hk.Linear(16), hk.Linear(16)
  value, reward, policy = hk.Linear(support_size), hk.Linear(support_size), hk.Linear(num_actions)
  return (
    lambda history, is_training: encode(history),
    lambda x, is_training: (value(x), policy(x)),
    lambda x, action, is_training: (jnp.tanh(step(x + action[:, None])), reward(x)),
    lambda x, is_training: project(x),
  )


@plugins.register_search("own")
def search(config, **kwargs):
  return mctx.muzero_policy(**kwargs, num_simulations=config.num_simulations)


@plugins.register_loss("own")
def loss(config, model):
  return lambda params, net_state, outputs, target: jnp.mean(outputs[0].policy_logits ** 2, axis=-1)


@plugins.register_callback("own")
def callback(config, run_path):
  return lambda event: print("event", type(event).__name__)


if __name__ == "__main__":
  from moozi.cli import main

  main(sys.argv[1:])
"""
ENV = """
from tests.envs.suites.user_fakes import Counter


def make():
  return Counter()


def wrapped(env):
  return env
"""
OWN = (
  *("network.kind=own", "planners.train.algorithm=own", "learner.extra_losses=own", "callbacks=own"),
  *(
    "env.name=own_envs:make",
    "env.wrappers=own_envs:wrapped",
    "reanalyze.ratio=0.5",
    "reanalyze.batch_size=16",
  ),
)


@pytest.mark.slow
def test_registered_functions_reach_the_actors(tmp_path):
  (tmp_path / "script.py").write_text(SCRIPT)
  (tmp_path / "own_envs.py").write_text(ENV)
  run = tmp_path / "runs" / "one"
  options = (*TINY, f"run.dir={run.parent}", "run.name=one", "ray.num_cpus=4", "evaluation.gif=false")
  done = subprocess.run(
    [sys.executable, "script.py", "train", CONFIG, *options, *OWN],
    cwd=tmp_path,
    env=os.environ | {"PYTHONPATH": str(ROOT)},
    capture_output=True,
    text=True,
    timeout=580,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  assert json.loads((run / "summary.json").read_text())["learner_steps"] > 0
  assert '"loss/own"' in (run / "metrics.jsonl").read_text()
  assert "event Updated" in done.stdout
  assert "JAX loaded: False" in (run / "logs" / "replay_buffer.log").read_text()
