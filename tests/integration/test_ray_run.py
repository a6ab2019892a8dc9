"""The real system, through the command line, as its users have it."""

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
from moozi.io.metrics import read_metrics
from moozi.io.run_directory import SUMMARY_KEYS
from moozi.io.timeline import read_timeline
from tests.tiny_run import TINY

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "config" / "tiny" / "catch.yaml"
_RECORDS = "RAY_task_events_report_interval_ms"


def start(folder: Path, *overrides: str, **kwargs) -> subprocess.Popen:
  command = [
    sys.executable,
    "-m",
    "moozi.cli",
    "train",
    str(CONFIG),
    *TINY,
    f"run.dir={folder}",
    "run.name=one",
  ]
  return subprocess.Popen(
    [*command, "ray.num_cpus=4", *overrides],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    start_new_session=True,
    **kwargs,
  )


def finish(process: subprocess.Popen, timeout_s: float) -> tuple[str, str]:
  """What the process printed, once it has ended; one that does not end is killed with all of its group."""
  try:
    return process.communicate(timeout=timeout_s)
  except subprocess.TimeoutExpired:
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    raise


def wait_for(process: subprocess.Popen, condition, what: str, timeout_s: float = 240.0) -> None:
  end = time.monotonic() + timeout_s
  while not condition():
    if process.poll() is not None:
      pytest.fail(f"ended with {process.returncode} before {what}: {process.stderr.read()}")
    assert time.monotonic() < end, f"waited in vain for {what}"
    time.sleep(0.2)


def ticks(run: Path) -> list[dict]:
  return read_metrics(run / "metrics.jsonl") if (run / "metrics.jsonl").exists() else []


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, str]:
  """One short run to its end; its folder and what it printed."""
  folder = tmp_path_factory.mktemp("runs")
  options = ("evaluation.period_env_steps=100", "logging.period_s=0.5", "timeline.seconds=1e6")
  process = start(folder, *options, "max_env_steps=1600")
  out, err = finish(process, 400)
  assert process.returncode == 0, err
  return folder / "one", out


def test_the_run_directory_is_the_contract(finished):
  run, _ = finished
  assert {p.name for p in run.iterdir()} >= {
    *("config.yaml", "metrics.jsonl", "tensorboard", "checkpoints", "gifs", "logs", "summary.json")
  }
  logs = {p.stem for p in (run / "logs").iterdir()}
  assert logs == {"driver", "parameter_server", "replay_buffer", "testing_worker", "training_worker_0"}
  assert list((run / "gifs").glob("*.gif"))
  assert list((run / "checkpoints").iterdir())
  assert list((run / "tensorboard").glob("events*"))


def test_the_summary_is_whole_and_reuse_is_held(finished):
  run, _ = finished
  summary = json.loads((run / "summary.json").read_text())
  assert set(SUMMARY_KEYS) <= set(summary)
  assert summary["env_steps"] >= 1600
  assert summary["test_episodes"] == 5
  # The configuration's own ratio; the learner has its share before the run ends.
  assert summary["sample_reuse"] == pytest.approx(16.0, rel=0.05)


def test_metrics_are_json_with_growing_counters(finished):
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
  actors = ("parameter_server", "replay_buffer", "training_worker_0", "testing_worker")
  assert {f"system/{kind}/{actor}" for kind in ("busy_share", "memory_mib") for actor in actors} <= names


def test_the_timeline_has_every_actor(finished):
  run, _ = finished
  timeline = read_timeline(run / "timeline")
  assert list(timeline) == ["parameter_server", "replay_buffer", "training_worker_0", "testing_worker"]
  kinds = {span.name for track in timeline.values() for stretch in track for span in stretch.spans}
  assert {"update", "segment", "sample", "add", "checkpoint", "evaluation"} <= kinds


def test_replay_process_loads_no_jax(finished):
  run, _ = finished
  assert "JAX loaded: False" in (run / "logs" / "replay_buffer.log").read_text()


def test_the_end_tells_return_random_play_and_tensorboard(finished):
  run, out = finished
  assert str(run) in out
  assert "random play" in out
  assert f"--logdir {run}" in out


def test_evaluate_prints_one_json_object(finished):
  run, _ = finished
  command = [sys.executable, "-m", "moozi.cli", "evaluate", str(run), "--episodes", "6", "--json"]
  result = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
  figures = json.loads(result.stdout)
  assert tuple(figures) == EVALUATION_KEYS
  assert figures["episodes"] == 6
  assert figures["env"] == "tiny:catch"


def test_the_final_evaluation_can_be_repeated(finished):
  """The summary's figures are those of the last checkpoint, to the number."""
  run, _ = finished
  summary = json.loads((run / "summary.json").read_text())
  command = [sys.executable, "-m", "moozi.cli", "evaluate", str(run), "--episodes", "5", "--json"]
  figures = json.loads(
    subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stdout
  )
  assert figures["return_mean"] == pytest.approx(summary["test_return_mean"])


def test_a_checkpoint_of_another_network_is_refused(finished, tmp_path):
  run, _ = finished
  other = tmp_path / "other"
  other.mkdir()
  text = (run / "config.yaml").read_text()
  assert "latent_size: 16" in text
  (other / "config.yaml").write_text(text.replace("latent_size: 16", "latent_size: 32"))
  (other / "checkpoints").symlink_to(run / "checkpoints")
  command = [sys.executable, "-m", "moozi.cli", "evaluate", str(other)]
  result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
  assert result.returncode == 2
  assert "latent_size" in result.stderr
  assert "Traceback" not in result.stderr


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_a_signal_to_the_whole_group_ends_with_a_checkpoint(tmp_path, number):
  process = start(tmp_path, "max_env_steps=100000000", "checkpoint.period_s=100000", "logging.period_s=0.5")
  run = tmp_path / "one"
  wait_for(process, lambda: any(t["learner_steps"] > 0 for t in ticks(run)), "the first update")
  assert_loopback_only(process.pid)
  os.killpg(process.pid, number)
  _, err = finish(process, 60)
  assert process.returncode == 0, err
  assert "Traceback" not in err
  summary = json.loads((run / "summary.json").read_text())
  assert summary["reason"] == "stopped"
  checkpoint = f"step_{summary['env_steps']:09d}"
  assert (run / "checkpoints" / checkpoint / "manifest.json").exists()
  assert not group_members(process.pid), "processes are left"


def group_members(group: int) -> list[str]:
  """Names of living processes of a process group, a moment after its end."""
  end = time.monotonic() + 15
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
  """Every socket that the driver or a process below it listens on is on the loopback address."""
  processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
  listeners = []
  for process in processes:
    try:
      found = process.net_connections("inet")
    except psutil.NoSuchProcess:
      continue
    listeners += [(process.name(), c.laddr.ip) for c in found if c.status == psutil.CONN_LISTEN]
  assert len(listeners) > 5, "Ray listens somewhere"
  open_ones = [(name, ip) for name, ip in listeners if ip not in ("127.0.0.1", "::1", "::ffff:127.0.0.1")]
  assert not open_ones


@pytest.mark.slow
def test_asking_for_more_than_the_cluster_has(tmp_path):
  process = start(tmp_path, "ray.num_cpus=1")
  _, err = finish(process, 120)
  assert process.returncode == 2
  assert "the Ray cluster has 1" in err
  assert "Traceback" not in err


@pytest.mark.slow
def test_a_refused_run_leaves_its_name_free(tmp_path):
  process = start(tmp_path, "ray.num_cpus=1")
  finish(process, 120)
  assert not (tmp_path / "one").exists()


@pytest.mark.slow
def test_a_run_starts_from_another_ones_checkpoint(finished, tmp_path):
  run, _ = finished
  before = json.loads((run / "summary.json").read_text())["learner_steps"]
  process = start(tmp_path, f"checkpoint.start_from={run}", "evaluation.final_episodes=1")
  _, err = finish(process, 240)
  assert process.returncode == 0, err
  summary = json.loads((tmp_path / "one" / "summary.json").read_text())
  assert summary["learner_steps"] > before
  assert summary["staleness_mean"] < before


def test_start_from_what_is_no_checkpoint(tmp_path):
  process = start(tmp_path, f"checkpoint.start_from={tmp_path}")
  _, err = finish(process, 60)
  assert process.returncode == 2
  assert "not a checkpoint" in err
  assert not (tmp_path / "one").exists()


@pytest.mark.slow
def test_the_envs_of_all_processes_are_closed(tmp_path):
  envs = tmp_path / "environments"
  envs.mkdir()
  world = ["env.name=tests.envs.suites.user_fakes:Marking", f"env.kwargs.folder={envs}"]
  process = start(tmp_path, *world, "max_env_steps=96", "evaluation.max_random_starts=0", cwd=ROOT)
  _, err = finish(process, 240)
  assert process.returncode == 0, err
  made, closed = ({path.stem for path in envs.glob(f"*.{kind}")} for kind in ("made", "closed"))
  # One to try it, four to act in, three to test in at the end, and one for random play.
  assert len(made) >= 9
  assert closed == made


@pytest.mark.slow
def test_a_stop_during_an_evaluation_does_not_wait_for_it(tmp_path):
  """An endless episode is being tested: the checkpoint comes first, and the run ends."""
  endless = ["env.name=tiny:corridor", "env.kwargs.length=1000", "env.kwargs.max_episode_steps=null"]
  slow_test = ["evaluation.max_episode_steps=100000000", "evaluation.period_env_steps=100"]
  process = start(tmp_path, *endless, *slow_test, "max_env_steps=100000000", "logging.period_s=0.5")
  run = tmp_path / "one"
  wait_for(process, lambda: any(t["learner_steps"] > 20 for t in ticks(run)), "updates")
  os.killpg(process.pid, signal.SIGTERM)
  _, err = finish(process, 40)
  assert process.returncode == 0, err
  assert json.loads((run / "summary.json").read_text())["reason"] == "stopped"


@pytest.mark.slow
def test_a_worker_that_may_not_be_made_anew_ends_the_run_with_a_checkpoint(tmp_path):
  options = ["max_env_steps=100000000", "checkpoint.period_s=100000", "logging.period_s=0.5"]
  process = start(tmp_path, *options, "ray.max_restarts=0")
  run = tmp_path / "one"
  wait_for(process, lambda: any(t["learner_steps"] > 0 for t in ticks(run)), "the first update")
  (worker,) = [
    p
    for p in psutil.Process(process.pid).children(recursive=True)
    if "TrainingWorker" in "".join(p.cmdline())
  ]
  worker.kill()
  _, err = finish(process, 120)
  assert process.returncode == 2
  assert "Traceback" not in err
  said = "training_worker_0 died, and ray.max_restarts=0 in a row allows no more"
  assert f"moozi: error: {said}" in err
  assert any(info.env_steps > 0 for info in list_checkpoints(run / "checkpoints"))
  assert f"the run ends: {said}" in (run / "logs" / "driver.log").read_text()


def answers(port: int) -> bool:
  with socket.socket() as probe:
    return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "has_records"), [({}, False), ({_RECORDS: "200"}, True)])
def test_ray_keeps_no_record_of_calls_unless_it_is_asked_to(asked, has_records):
  """They take memory for as long as a run goes on; a user who wants Ray's timeline says so."""
  script = """
import time
from moozi.actors import cluster
from moozi.io.config import load_config
with cluster.connected(load_config(None, ["ray.num_cpus=4"])) as ray:
  work = ray.remote(lambda: 1).options(num_cpus=0)
  ray.get([work.remote() for _ in range(3)])
  time.sleep(3)
  print(len(ray.timeline()))
"""
  environment = {name: value for name, value in os.environ.items() if name != _RECORDS} | asked
  done = subprocess.run(
    [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120, check=False
  )
  assert done.returncode == 0, done.stderr
  assert (int(done.stdout.split()[-1]) > 0) == has_records


@pytest.mark.slow
def test_joining_an_existing_cluster(tmp_path):
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
  # Only this machine can reach it, so it asks for no token.
  environment = os.environ | {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
  # Ray's own folder must have a short name: its sockets lie in it.
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
        assert time.monotonic() < end, "the cluster did not start"
        time.sleep(0.3)
      time.sleep(5)
      process = start(tmp_path, f"ray.address=127.0.0.1:{port}", "ray.num_cpus=null", env=environment)
      _, err = finish(process, 240)
      assert process.returncode == 0, err
      assert json.loads((tmp_path / "one" / "summary.json").read_text())["env_steps"] == 320
    finally:
      os.killpg(cluster.pid, signal.SIGTERM)
      cluster.wait(timeout=60)


def test_no_cluster_at_the_address(tmp_path):
  with socket.socket() as closed:
    closed.bind(("127.0.0.1", 0))
    port = closed.getsockname()[1]
  process = start(tmp_path, f"ray.address=127.0.0.1:{port}")
  _, err = finish(process, 240)
  assert process.returncode == 2
  assert "ray.address" in err
  assert "Traceback" not in err


@pytest.mark.slow
def test_a_users_own_env(tmp_path):
  """Its file lies where the user stands; Ray's processes find it there too."""
  here = tmp_path / "here"
  here.mkdir()
  (here / "worlds_of_mine.py").write_text(
    "import os, pathlib\n"
    "from tests.envs.suites.user_fakes import Counter as make_env\n"
    "pathlib.Path(f'seen_by_{os.getpid()}').touch()\n"
  )
  process = start(
    tmp_path, "env.name=worlds_of_mine:make_env", cwd=here, env=os.environ | {"PYTHONPATH": str(ROOT)}
  )
  _, err = finish(process, 240)
  assert process.returncode == 0, err
  assert json.loads((tmp_path / "one" / "summary.json").read_text())["env"] == "worlds_of_mine:make_env"
  # The driver, a training and a testing worker at least.
  assert len(list(here.glob("seen_by_*"))) >= 3
