"""The commands of docs/cluster.md for two machines, on two addresses of this machine."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from moozi.io.machine import free_port
from tests.docs.pages import ROOT, blocks
from tests.integration.runs import CONFIG, ENDLESS, actors, popen, ticks, wait_for, wait_for_start
from tests.integration.test_ray_faults import end
from tests.tiny_run import TINY

RAY = str(Path(sys.executable).with_name("ray"))
FIRST, SECOND = "127.0.0.2", "127.0.0.3"


def commands_of_the_page(port: int) -> dict[str, list[str]]:
  """Returns the arguments of the first commands of the page by their first words, with local addresses."""
  found = {}
  shells = [block for block in blocks(ROOT / "docs" / "cluster.md") if block.kind == "sh"]
  for line in "".join(block.text for block in shells[:5]).splitlines():
    line = line.replace("10.0.0.1", FIRST).replace("10.0.0.2", SECOND).replace("6379", str(port))
    words = shlex.split(line, comments=True)
    number = 3 if words[:2] == ["ray", "start"] else 2
    found.setdefault(" ".join(words[:number]).partition("=")[0], words[1:])
  return found


@contextlib.contextmanager
def started(arguments: list[str], folder: str, environment: dict[str, str]):
  """Starts a node in the foreground; yields its process, and ends it."""
  # `ray stop` would end each Ray of this machine.
  options = ["--block", "--num-cpus=16", f"--object-store-memory={150 << 20}", f"--temp-dir={folder}"]
  process = subprocess.Popen(
    [RAY, *arguments, *options],
    env=environment,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.PIPE,
    text=True,
    start_new_session=True,
  )
  try:
    yield process
  finally:
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=60)


@pytest.mark.slow
def test_two_machines_run_a_job(tmp_path):
  commands = commands_of_the_page(free_port(FIRST))
  inherited = {name: x for name, x in os.environ.items() if not name.startswith("RAY_")}
  environment = inherited | {
    "HOME": str(tmp_path),
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
  }

  def ray(*arguments: str) -> str:
    # `ray status` fails until the head has started.
    command = [RAY, *arguments]
    return subprocess.run(
      command, env=environment, capture_output=True, text=True, timeout=120, check=False
    ).stdout

  # The second machine has the same home folder, so it has the token.
  token = ray(*commands["ray get-auth-token"])
  assert (tmp_path / ".ray" / "auth_token").read_text() == token
  name, _, value = commands["export RAY_AUTH_MODE"][0].partition("=")
  environment[name] = value
  head, other = commands["ray start --head"], commands["ray start --address"]
  # Ray creates sockets in this folder, so its path must be short.
  with (
    tempfile.TemporaryDirectory(prefix="mz", ignore_cleanup_errors=True) as folder,
    started([*head, "--include-dashboard=false"], folder, environment) as first,
  ):
    status = [*commands["ray status"], other[1]]
    wait_for(first, lambda: "16.0 CPU" in ray(*status), "the head", 120)
    with started(other, folder, environment) as second:
      wait_for(second, lambda: "32.0 CPU" in ray(*status), "the second node", 120)
      train = [CONFIG if word == "minatar/breakout" else word for word in commands["moozi train"]]
      process = popen(*train, *TINY, *ENDLESS, f"run.dir={tmp_path}", "run.name=one", env=environment)
      run = tmp_path / "one"
      wait_for_start(process, run)
      wait_for(process, lambda: ticks(run)[-1].get("system/training_workers") == 8, "eight workers")
      numbers = [len(actors(node, "TrainingWorker")) for node in (first, second)]
      assert sum(numbers) == 8
      assert all(numbers), numbers
      assert ray(*status, "-v").count("/16.0 CPU") == 2
      end(process, run)
