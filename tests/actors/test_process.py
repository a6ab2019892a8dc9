import os
import pickle
import subprocess
import sys

import pytest

from moozi.actors.remote import process
from moozi.core import plugins
from moozi.core.config import ActorResources
from moozi.core.errors import UserError


@pytest.mark.parametrize(
  ("num_gpus", "expected"),
  [
    (0.0, {"JAX_PLATFORMS": "cpu"}),
    (0.1, {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.090"}),
    (1.0, {}),
  ],
)
def test_gpu_share_is_a_share_of_its_memory(monkeypatch, num_gpus, expected):
  environment: dict[str, str] = {}
  monkeypatch.setattr(process.os, "environ", environment)
  process.prepare(process.Setup("test", ActorResources(num_gpus=num_gpus, num_threads=0)))
  assert environment == expected


_PREPARE = """
import sys
from moozi.actors import parallel
from moozi.actors.remote import parameter_server, process, replay_buffer, workers
from moozi.core.config import ActorResources
assert "jax" not in sys.modules
process.prepare(process.Setup("test", ActorResources(num_gpus=0)))
import jax
print(jax.config.jax_platforms)
"""


def test_actors_without_a_gpu_import_jax_after_the_platform_is_set():
  env = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
  done = subprocess.run([sys.executable, "-c", _PREPARE], env=env, capture_output=True, text=True, check=True)
  assert done.stdout.strip() == "cpu"


def test_users_memory_share_is_kept(monkeypatch):
  environment = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.3"}
  monkeypatch.setattr(process.os, "environ", environment)
  process.prepare(process.Setup("test", ActorResources(num_gpus=0.5, num_threads=2)))
  assert environment["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.3"
  assert environment["NPROC"] == "2"


def test_registered_functions_are_installed(folder, monkeypatch):
  monkeypatch.setattr(process.os, "environ", {})
  functions = pickle.dumps({("network", "wide"): print})
  process.prepare(process.Setup("test", ActorResources(num_threads=0), None, functions))
  assert plugins.NETWORKS.get("wide").function is print
  missing = functions.replace(b"builtins", b"buildins")
  with pytest.raises(
    UserError, match=r"cannot be loaded in the process of test: .*No module named 'buildins'"
  ):
    process.prepare(process.Setup("test", ActorResources(num_threads=0), None, missing))
