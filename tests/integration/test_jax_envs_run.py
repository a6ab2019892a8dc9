"""Tests of a run with Ray in an environment written in JAX, with the compiled rollout."""

import json
import subprocess
import sys

import pytest

from moozi.io.metrics import read_metrics
from tests.acting.test_rollout import CONFIGS, SMALL, need_library


@pytest.mark.slow
@pytest.mark.parametrize(
  "config", ["gymnax/breakout.yaml", "pgx/tic_tac_toe.yaml", "alphazero/pgx/tic_tac_toe.yaml"]
)
def test_run_with_ray(config, tmp_path):
  need_library(config.removeprefix("alphazero/").replace("/", ":"))
  small = [*SMALL, *(["targets.unroll_steps=0"] if config.startswith("alphazero") else [])]
  command = [sys.executable, "-m", "moozi.cli", "train", str(CONFIGS / config), *small, "runtime=ray"]
  subprocess.run(
    [*command, "ray.num_cpus=4", f"run.dir={tmp_path}", "run.name=one", "max_env_steps=1280"],
    check=True,
    capture_output=True,
    timeout=400,
  )
  run = tmp_path / "one"
  summary = json.loads((run / "summary.json").read_text())
  assert summary["env_steps"] >= 1280
  assert summary["test_episodes"] == 2
  assert summary["sample_reuse"] == pytest.approx(1.0, rel=0.1)
  names = set().union(*read_metrics(run / "metrics.jsonl"))
  assert {"search/policy_entropy", "train/return_mean", "loss/total"} <= names
  assert "train/env_share" not in names  # the compiled rollout cannot measure it
