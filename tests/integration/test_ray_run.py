"""Tests of runs with Ray through the command line."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from moozi.commands.evaluate import EVALUATION_KEYS
from moozi.io.checkpoints import list_checkpoints
from moozi.io.machine import free_port
from moozi.io.run_directory import SUMMARY_KEYS
from moozi.io.state_file import read_state
from moozi.io.timeline import read_timeline
from tests.integration.runs import CONFIG, ROOT, actors, finish, start, ticks, wait_for, wait_for_updates
from tests.tiny_run import TINY

_RECORDS = "RAY_task_events_report_interval_ms"


# --- the shared run -----------------------------------------------------------------------------------------


def test_run_directory_has_every_file(finished):
  run, _ = finished
  assert {p.name for p in run.iterdir()} >= {
    *("config.yaml", "metrics.jsonl", "checkpoints", "gifs", "logs", "summary.json")
  }
  logs = {p.stem for p in (run / "logs").iterdir()}
  assert logs == {"driver", "parameter_server", "replay_buffer", "testing_worker", "training_worker_0"}
  assert list((run / "gifs").glob("*.gif"))
  assert list((run / "checkpoints").iterdir())
  assert list(run.glob("events*"))


def test_summary_is_complete_and_reuse_is_held(finished):
  run, _ = finished
  summary = json.loads((run / "summary.json").read_text())
  assert set(SUMMARY_KEYS) <= set(summary)
  assert summary["env_steps"] >= 800
  assert summary["test_episodes"] == 5
  # The run ends only after all updates, so the ratio is the configured one.
  assert summary["sample_reuse"] == pytest.approx(16.0, rel=0.05)


def test_counters_never_decrease_and_metrics_are_complete(finished):
  run, _ = finished
  lines = ticks(run)
  for key in ("env_steps", "learner_steps", "wall_s"):
    values = [line[key] for line in lines]
    assert values == sorted(values)
  names = set().union(*lines)
  assert {
    "loss/total",
    "train/staleness",
    "train/sample_reuse",
    "train/return_mean",
    "test/return_mean",
    "system/segments_in_flight",
    "system/batches_in_flight",
  } <= names
  kinds = ("parameter_server", "replay_buffer", "training_worker_0", "testing_worker")
  assert {f"system/{figure}/{kind}" for figure in ("busy_share", "memory_mib") for kind in kinds} <= names


def test_timeline_has_every_actor(finished):
  run, _ = finished
  timeline = read_timeline(run / "timeline")
  assert list(timeline) == ["parameter_server", "replay_buffer", "training_worker_0", "testing_worker"]
  kinds = {span.name for track in timeline.values() for stretch in track for span in stretch.spans}
  assert {"update", "segment", "sample", "add", "checkpoint", "evaluation"} <= kinds


def test_replay_process_loads_no_jax(finished):
  run, _ = finished
  assert "JAX loaded: False" in (run / "logs" / "replay_buffer.log").read_text()


def test_killed_worker_costs_the_segments_in_flight(finished):
  run, _ = finished
  last = ticks(run)[-1]
  assert last["faults/training_worker"] == 1
  # At most two segments of 4 × 8 steps are in flight.
  assert last["faults/dropped_steps"] <= 2 * 32
  assert last["faults/lost_steps"] == last["faults/lost_updates"] == 0
  assert "training_worker_0 failed and was restarted" in (run / "logs" / "driver.log").read_text()


def test_every_step_is_in_the_last_checkpoint(finished):
  run, _ = finished
  summary = json.loads((run / "summary.json").read_text())
  newest = list_checkpoints(run / "resume")[-1]
  state = read_state(newest.path, newest.digest)
  assert newest.env_steps == state["progress/pacer/env_steps"] == summary["env_steps"]
  assert newest.env_steps == state["replay/counter/added"]


def test_end_prints_random_play_and_tensorboard(finished):
  run, out = finished
  assert str(run) in out
  assert "random play" in out
  assert f"--logdir {run.parent}" in out


def test_evaluate_repeats_the_final_evaluation(cli, finished):
  """The summary and `moozi evaluate` give the same figures for the last checkpoint."""
  run, _ = finished
  summary = json.loads((run / "summary.json").read_text())
  status, out, err = cli("evaluate", run, "--episodes", 5, "--json")
  assert status == 0, err
  figures = json.loads(out)
  assert tuple(figures) == EVALUATION_KEYS
  assert (figures["episodes"], figures["env"]) == (5, "tiny:catch")
  assert figures["return_mean"] == pytest.approx(summary["test_return_mean"])


def test_checkpoint_of_another_network_is_refused(cli, finished, tmp_path):
  run, _ = finished
  text = (run / "config.yaml").read_text()
  assert "latent_size: 16" in text
  (tmp_path / "config.yaml").write_text(text.replace("latent_size: 16", "latent_size: 32"))
  (tmp_path / "checkpoints").symlink_to(run / "checkpoints")
  status, _, err = cli("evaluate", tmp_path)
  assert status == 2
  assert "latent_size" in err
  assert "Traceback" not in err


# --- stops --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_signal_ends_with_a_checkpoint(tmp_path, number):
  process = start(
    tmp_path,
    "max_env_steps=100000000",
    "checkpoint.period_s=100000",
    "checkpoint.first_s=null",
    "logging.period_s=0.5",
  )
  run = tmp_path / "one"
  wait_for_updates(process, run)
  assert_loopback_only(process.pid)
  os.killpg(process.pid, number)
  _, err = finish(process)
  assert process.returncode == 0, err
  assert "Traceback" not in err
  summary = json.loads((run / "summary.json").read_text())
  assert summary["reason"] == "stopped"
  checkpoint = f"step_{summary['env_steps']:09d}"
  assert (run / "checkpoints" / f"{checkpoint}.safetensors").exists()
  assert not group_members(process.pid)


def group_members(group: int) -> list[str]:
  """Waits up to three minutes for the processes of a group to end; returns the names of the others."""
  end = time.monotonic() + 180
  while True:
    names = []
    for process in psutil.process_iter():
      try:
        if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
          names.append(process.name())
      except (ProcessLookupError, psutil.NoSuchProcess):
        continue
    if not names or time.monotonic() > end:
      return names
    time.sleep(0.3)


def assert_loopback_only(pid: int) -> None:
  """Asserts that the driver and its children listen only on the loopback address."""
  processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
  listeners = []
  for process in processes:
    try:
      found = process.net_connections("inet")
    except psutil.NoSuchProcess:
      continue
    listeners += [(process.name(), c.laddr.ip) for c in found if c.status == psutil.CONN_LISTEN]
  assert len(listeners) > 5
  open_ones = [(name, ip) for name, ip in listeners if ip not in ("127.0.0.1", "::1", "::ffff:127.0.0.1")]
  assert not open_ones


# --- starts -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_more_actors_than_the_cluster_can_run(tmp_path):
  process = start(tmp_path, "ray.num_cpus=1")
  _, err = finish(process, 120)
  assert process.returncode == 2
  assert "the Ray cluster has 1; set ray.num_cpus=2" in err
  assert "Traceback" not in err
  assert not (tmp_path / "one").exists(), "a refused run must not create its directory"


@pytest.mark.slow
@pytest.mark.parametrize(
  ("settings", "folder", "message"),
  [
    (["ray.object_store_mib=64"], "", "ray.object_store_mib=64: "),
    (["ray.object_store_mib=999999"], "", "ray.object_store_mib=999999: "),
    ([], "x" * 93, "TMPDIR="),
  ],
)
def test_ray_that_cannot_start_leaves_no_folder(tmp_path, settings, folder, message):
  temporary = tmp_path / folder if folder else None
  environment = dict(os.environ)
  if temporary is not None:
    temporary.mkdir()
    environment["TMPDIR"] = str(temporary)
  process = start(tmp_path / "runs", *settings, env=environment)
  _, err = finish(process, 240)
  assert process.returncode == 2
  assert "Traceback" not in err
  last = err.splitlines()[-1]
  assert last.startswith(f"moozi: error: {message}")
  assert last.endswith("or use runtime=local")
  assert not (tmp_path / "runs" / "one").exists()


@pytest.mark.slow
def test_run_starts_from_another_checkpoint(finished, tmp_path):
  run, _ = finished
  before = json.loads((run / "summary.json").read_text())["learner_steps"]
  process = start(tmp_path, f"checkpoint.start_from={run}", "evaluation.final_episodes=1")
  _, err = finish(process)
  assert process.returncode == 0, err
  summary = json.loads((tmp_path / "one" / "summary.json").read_text())
  assert summary["learner_steps"] > before
  assert summary["staleness_mean"] < before


def test_start_from_a_folder_without_a_checkpoint(cli, tmp_path):
  options = (*TINY, f"run.dir={tmp_path}", "run.name=one", f"checkpoint.start_from={tmp_path}")
  status, _, err = cli("train", CONFIG, *options)
  assert status == 2
  assert "not a checkpoint" in err
  assert not (tmp_path / "one").exists()


@pytest.mark.slow
def test_environments_of_all_processes_are_closed(tmp_path):
  envs = tmp_path / "environments"
  envs.mkdir()
  env = ["env.name=tests.envs.suites.user_fakes:Marking", f"env.kwargs.folder={envs}"]
  process = start(tmp_path, *env, "max_env_steps=96", "evaluation.max_random_starts=0", cwd=ROOT)
  _, err = finish(process)
  assert process.returncode == 0, err
  made, closed = ({path.stem for path in envs.glob(f"*.{kind}")} for kind in ("made", "closed"))
  # At least 1 environment for the spec, 4 for acting, 3 for the last evaluation and 1 for random play.
  assert len(made) >= 9
  assert closed == made


@pytest.mark.slow
def test_stop_does_not_wait_for_an_evaluation(tmp_path):
  """An endless evaluation episode does not delay the last checkpoint."""
  endless = ["env.name=tiny:corridor", "env.kwargs.length=1000", "env.kwargs.max_episode_steps=null"]
  slow_test = ["evaluation.max_episode_steps=100000000", "evaluation.period_env_steps=100"]
  process = start(tmp_path, *endless, *slow_test, "max_env_steps=100000000", "logging.period_s=0.5")
  run = tmp_path / "one"
  wait_for(process, lambda: any(t["learner_steps"] > 20 for t in ticks(run)), "updates")
  os.killpg(process.pid, signal.SIGTERM)
  _, err = finish(process)
  assert process.returncode == 0, err
  assert json.loads((run / "summary.json").read_text())["reason"] == "stopped"


@pytest.mark.slow
def test_too_many_failures_end_the_run_with_a_checkpoint(tmp_path):
  options = [
    "max_env_steps=100000000",
    "checkpoint.period_s=100000",
    "checkpoint.first_s=null",
    "logging.period_s=0.5",
  ]
  process = start(tmp_path, *options, "ray.max_restarts=0")
  run = tmp_path / "one"
  wait_for_updates(process, run)
  (worker,) = actors(process, "TrainingWorker")
  worker.kill()
  _, err = finish(process, 120)
  assert process.returncode == 2
  assert "Traceback" not in err
  message = "training_worker_0 failed more than ray.max_restarts=0 times in a row"
  assert f"moozi: error: {message}" in err
  assert any(info.env_steps > 0 for info in list_checkpoints(run / "checkpoints"))
  assert f"the run ends: {message}" in (run / "logs" / "driver.log").read_text()


def answers(port: int) -> bool:
  with socket.socket() as probe:
    return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "has_records"), [({}, False), ({_RECORDS: "200"}, True)])
def test_ray_records_no_calls_by_default(setting, has_records):
  """Ray's task events would use memory until the run ends; the user's setting takes precedence."""
  script = """
import time
from moozi.actors import resources
from moozi.io.config import load_config
with resources.connected(load_config(None, ["ray.num_cpus=4"])) as ray:
  work = ray.remote(lambda: 1).options(num_cpus=0)
  ray.get([work.remote() for _ in range(3)])
  time.sleep(3)
  print(len(ray.timeline()))
"""
  environment = {name: value for name, value in os.environ.items() if name != _RECORDS} | setting
  done = subprocess.run(
    [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120, check=False
  )
  assert done.returncode == 0, done.stderr
  assert (int(done.stdout.split()[-1]) > 0) == has_records


@pytest.mark.slow
def test_joining_an_existing_cluster(tmp_path):
  port = free_port("127.0.0.1")
  # The cluster needs no token, because only this machine can reach it.
  environment = os.environ | {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
  # Ray creates sockets in this folder, so its path must be short.
  with tempfile.TemporaryDirectory(prefix="mz", ignore_cleanup_errors=True) as ray_folder:
    head = [str(Path(sys.executable).with_name("ray")), "start", "--head", f"--port={port}", "--block"]
    head += ["--node-ip-address=127.0.0.1", "--num-cpus=4", "--include-dashboard=false"]
    cluster = subprocess.Popen(
      [*head, f"--temp-dir={ray_folder}"],
      env=environment | {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"},
      stdout=subprocess.DEVNULL,
      stderr=subprocess.DEVNULL,
      start_new_session=True,
    )
    try:
      end = time.monotonic() + 60
      while not answers(port):
        assert time.monotonic() < end
        time.sleep(0.3)
      time.sleep(5)
      process = start(tmp_path, f"ray.address=127.0.0.1:{port}", "ray.num_cpus=null", env=environment)
      _, err = finish(process)
      assert process.returncode == 0, err
      assert json.loads((tmp_path / "one" / "summary.json").read_text())["env_steps"] == 320
    finally:
      os.killpg(cluster.pid, signal.SIGTERM)
      cluster.wait(timeout=60)


@pytest.mark.slow
def test_no_cluster_at_the_address(tmp_path):
  process = start(tmp_path, f"ray.address=127.0.0.1:{free_port('127.0.0.1')}")
  _, err = finish(process)
  assert process.returncode == 2
  assert "ray.address" in err
  assert "Traceback" not in err


@pytest.mark.slow
def test_users_own_environment(tmp_path):
  """Ray's processes import the environment's module from the working directory."""
  here = tmp_path / "here"
  here.mkdir()
  (here / "own_envs.py").write_text(
    "import os, pathlib\n"
    "from tests.envs.suites.user_fakes import Counter as make_env\n"
    "pathlib.Path(f'seen_by_{os.getpid()}').touch()\n"
  )
  process = start(
    tmp_path, "env.name=own_envs:make_env", cwd=here, env=os.environ | {"PYTHONPATH": str(ROOT)}
  )
  _, err = finish(process)
  assert process.returncode == 0, err
  assert json.loads((tmp_path / "one" / "summary.json").read_text())["env"] == "own_envs:make_env"
  # At least the driver, a training worker and the testing worker imported the module.
  assert len(list(here.glob("seen_by_*"))) >= 3
