"""Tests that `runtime=local` works without Ray and does not import it."""

import subprocess
import sys

import pytest

from moozi.actors import resources
from moozi.core.config import Config
from moozi.core.errors import UserError
from tests.install.build import ROOT
from tests.tiny_run import TINY

# Imports the modules of runs in one process and of the commands; fails if that imports Ray.
IMPORTS = """
import sys
import moozi.cli, moozi.training.start, moozi.run.local, moozi.baselines.ppo.algorithm
import moozi.evaluation.evaluator, moozi.analysis.inspection, moozi.vis.report
sys.exit("ray is imported" if "ray" in sys.modules else 0)
"""
TRAIN = """
import sys


class Uninstalled:
  def find_spec(self, name, path=None, target=None):
    if name.partition(".")[0] == "ray":
      raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Uninstalled())
from moozi.cli import main

main(sys.argv[1:])
"""


def test_no_module_of_a_local_run_imports_ray():
  done = subprocess.run(
    [sys.executable, "-c", IMPORTS], cwd=ROOT, capture_output=True, text=True, check=False
  )
  assert done.returncode == 0, done.stderr


def test_runtime_ray_says_that_ray_is_missing(monkeypatch):
  monkeypatch.setitem(sys.modules, "ray", None)
  with pytest.raises(UserError, match="runtime=ray: the package ray is not installed; use runtime=local"):
    resources.connected(Config()).__enter__()


@pytest.mark.slow
@pytest.mark.parametrize("settings", [(), ("--ppo",)])
def test_local_run_without_ray(tmp_path, settings):
  ppo = (
    "algorithm=ppo",
    "runtime=local",
    "env.name=tiny:catch",
    "max_env_steps=256",
    "ppo.segment_length=16",
    "ppo.num_envs=4",
  )
  arguments = ("train", "tiny/catch", *(ppo if settings else ("runtime=local", *TINY)), f"run.dir={tmp_path}")
  command = [sys.executable, "-c", TRAIN, *arguments]
  done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=540, check=False)
  assert done.returncode == 0, done.stderr
  assert "return:" in done.stdout
