"""Tests of the checks of actor resources and of the cluster's address, and of the errors of Ray's start."""

import contextlib
import socket
import socketserver
import sys
import threading
import types

import pytest

from moozi.actors import cluster, resources
from moozi.core.config import Config
from moozi.core.errors import ProcessLostError, RunError, UserError
from moozi.io.config import load_config
from tests.actors.ray_nodes import RayWithNodes


def test_default_fits_two_cores():
  resources.check_resources(Config(), {"CPU": 2.0})
  resources.check_resources(load_config(None, ["reanalyze.ratio=0.5"]), {"CPU": 2.0})


def test_too_many_cpus_are_named():
  config = load_config(None, ["workers.num_workers=30", "workers.num_envs=4"])
  with pytest.raises(
    UserError, match=r"16.25 CPUs.*ray.learner.num_cpus: 1.*workers.resources.num_cpus: 15.*has 2"
  ):
    resources.check_resources(config, {"CPU": 2.0})


def test_gpus_are_counted_separately():
  config = load_config(None, ["ray.learner.num_gpus=1"])
  with pytest.raises(UserError, match=r"1 GPUs.*has 0"):
    resources.check_resources(config, {"CPU": 8.0})
  resources.check_resources(config, {"CPU": 8.0, "GPU": 1.0})


def test_a_note_says_that_gpus_are_idle():
  available = {"CPU": 8.0, "GPU": 2.0}
  note = resources.idle_gpu_note(Config(), available)
  assert note == ("GPUs that no actor uses: 2; with ray.learner.num_gpus=1 learning uses one (docs/faq.md)")
  assert resources.idle_gpu_note(load_config(None, ["workers.resources.num_gpus=0.1"]), available) is None
  assert resources.idle_gpu_note(Config(), {"CPU": 8.0}) is None


def test_every_actor_is_counted():
  config = Config()
  total = sum(count * share.num_cpus for count, share in resources.demands(config).values())
  parts = (config.ray.learner, config.ray.replay, config.workers.resources, config.evaluation.resources)
  assert total == sum(part.num_cpus for part in parts)


def test_reanalyze_workers_are_counted():
  shares = ["reanalyze.num_workers=3", "reanalyze.resources.num_cpus=1"]
  resources.check_resources(load_config(None, shares), {"CPU": 2.0})
  with pytest.raises(UserError, match=r"reanalyze.resources.num_cpus: 3"):
    resources.check_resources(load_config(None, [*shares, "reanalyze.ratio=0.5"]), {"CPU": 2.0})


def test_workers_of_offline_learning_are_not_counted():
  overrides = ["workers.num_workers=4", "workers.resources.num_cpus=1", "offline.trajectories=runs/old"]
  resources.check_resources(load_config(None, [*overrides, "offline.fraction=1"]), {"CPU": 2.0})
  with pytest.raises(UserError, match=r"workers.resources.num_cpus: 4"):
    resources.check_resources(load_config(None, [*overrides, "offline.fraction=0.5"]), {"CPU": 2.0})


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_no_cluster_at_the_address(scheme):
  with socket.socket() as closed:
    closed.bind(("127.0.0.1", 0))
    address = f"{scheme}127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(UserError, match=rf"ray\.address='{address}': no Ray cluster answers"):
      cluster._check_reachable(address)


@contextlib.contextmanager
def _server(answer: bytes):
  """Yields the address of a server that answers each connection with these bytes."""

  class Handler(socketserver.BaseRequestHandler):
    def handle(self):
      self.request.recv(1024)
      self.request.sendall(answer)
      self.request.recv(1024)  # until the client ends the connection

  with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()


def test_a_server_that_is_not_rays():
  with _server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
    with pytest.raises(UserError, match=rf"ray\.address='{address}': what listens .* is not a Ray cluster"):
      cluster._check_reachable(address)


def test_a_server_that_does_not_answer(monkeypatch):
  monkeypatch.setattr(cluster, "_CONNECT_TIMEOUT_S", 0.2)
  with _server(b"") as address, pytest.raises(UserError, match=r"no Ray cluster answers .*timed out"):
    cluster._check_reachable(address)


def test_a_server_of_grpc_passes():
  with _server(bytes([0, 0, 6, 4, 0, 0, 0, 0, 0]) + bytes(6)) as address:
    cluster._check_reachable(address)


def test_only_host_and_port_are_checked():
  cluster._check_reachable("auto")


# --- the start ----------------------------------------------------------------------------------------------


class RayError(Exception):
  pass


@pytest.fixture
def ray(monkeypatch):
  """A fake `ray` module that is not connected; a test replaces `init`."""
  worker = types.SimpleNamespace(_global_node=None, print_to_stdstream=print)
  ray = types.SimpleNamespace(
    is_initialized=lambda: False,
    init=lambda **_: None,
    shutdown=lambda: None,
    exceptions=types.SimpleNamespace(RayError=RayError),
    _private=types.SimpleNamespace(worker=worker),
  )
  monkeypatch.setitem(sys.modules, "ray", ray)
  for name in ("RAY_TMPDIR", "TMPDIR"):
    monkeypatch.delenv(name, raising=False)
  return ray


def refusal(ray, error, *settings) -> str:
  """Returns the message for the user if Ray's start raises `error`."""

  def init(**_):
    raise error

  ray.init = init
  with pytest.raises(UserError) as caught, cluster.started(load_config(None, list(settings)).ray):
    pytest.fail("started")
  assert not isinstance(caught.value, RunError), "a run whose start failed leaves no folder"
  assert "\n" not in str(caught.value)
  assert "runtime=local" in str(caught.value)
  return str(caught.value)


@pytest.mark.parametrize(
  ("error", "settings", "message"),
  [
    (
      ValueError("Attempting to cap object store memory usage at 67108864 bytes, the minimum is 78643200"),
      ["ray.object_store_mib=64"],
      "ray.object_store_mib=64: Ray cannot start with it (Attempting to cap",
    ),
    (
      ValueError("adjust these settings with ray.init(memory=<bytes>,\n object_store_memory=<bytes>)."),
      ["ray.object_store_mib=999999"],
      "ray.object_store_mib=999999: Ray cannot start with it",
    ),
    (RuntimeError("Timed out waiting for file gcs_server_port"), [], "runtime=ray: Ray cannot start"),
    (FileNotFoundError(2, "No such file", "/proc/no"), [], "runtime=ray: Ray cannot start"),
    (OverflowError("int too big"), ["ray.num_cpus=3"], "runtime=ray: Ray cannot start (OverflowError: int"),
    (Exception("The current node timed out during startup."), [], "the current node"),
    (RuntimeError("Version mismatch: Ray 2.50.0"), ["ray.address=10.0.0.1"], "ray.address='10.0.0.1'"),
    (AssertionError(), ["ray.address=auto"], "ray.address='auto': the Ray cluster refused"),
  ],
)
def test_every_error_of_the_start_is_one_line_with_the_key_and_the_way_out(ray, error, settings, message):
  assert message.lower() in refusal(ray, error, *settings).lower()


@pytest.mark.parametrize("name", ["TMPDIR", "RAY_TMPDIR"])
def test_long_temporary_folder_is_named(ray, monkeypatch, name):
  monkeypatch.setenv("TMPDIR", "/tmp")
  monkeypatch.setenv(name, f"/tmp/{'x' * 93}")
  error = OSError("validate_socket_filename failed: AF_UNIX path length cannot exceed 107 bytes: /tmp/xxx")
  assert refusal(ray, error).startswith(f"{name}=/tmp/{'x' * 93}: too long for the paths of Ray's sockets")


def test_interrupt_of_the_start_is_not_translated(ray):
  def init(**_):
    raise KeyboardInterrupt

  ray.init = init
  with pytest.raises(KeyboardInterrupt), cluster.started(Config().ray):
    pytest.fail("started")


def test_error_of_ray_after_one_of_its_processes_ended_names_the_process(ray):
  calls = []
  ray.shutdown = lambda: calls.append("shutdown")
  ended = []
  ray._private.worker._global_node = types.SimpleNamespace(dead_processes=lambda: ended)
  with pytest.raises(RayError, match="no process"), cluster.started(Config().ray):
    raise RayError("no process has ended")
  ended.append(("raylet", None))
  with pytest.raises(ProcessLostError, match="raylet"), cluster.started(Config().ray):
    raise RayError("cannot submit")
  assert calls == ["shutdown", "shutdown"]


def test_messages_of_ray_are_logged_and_not_printed(ray, capsys, caplog):
  with cluster.started(Config().ray):
    ray._private.worker.print_to_stdstream(
      {"lines": ["Raylet is terminated.", "state"], "pid": "raylet", "is_err": False}, ignore_prefix=False
    )
  assert capsys.readouterr() == ("", "")
  assert "Ray (raylet): Raylet is terminated.\nstate" in caplog.text
  assert ray._private.worker.print_to_stdstream is print


def test_one_core_has_ways_out():
  with pytest.raises(
    UserError, match=r"1.75 CPUs.*the Ray cluster has 1; set ray.num_cpus=2,.*or use runtime=local$"
  ):
    resources.check_resources(Config(), {"CPU": 1.0})
  with pytest.raises(UserError, match=r"has 0; set ray.num_gpus=1 if .*runtime=local$"):
    resources.check_resources(load_config(None, ["ray.learner.num_gpus=0.5"]), {"CPU": 8.0})


def test_the_hosts_of_a_learner_must_fit_on_the_nodes(monkeypatch):
  shares = ["ray.address=auto", "ray.learner.num_gpus=4", "ray.learner.num_cpus=4"]
  config = load_config(None, [*shares, "learner.num_hosts=2"])
  large, small = {"CPU": 8.0, "GPU": 4.0}, {"CPU": 8.0, "GPU": 2.0}
  resources.check_nodes(config, [small, large, large])
  resources.check_nodes(config, [{"CPU": 8.0, "GPU": 9.0}])
  nodes = {"a": large, "b": small, "c": small}
  # The sums would be enough.
  monkeypatch.setattr(cluster, "started", lambda _: contextlib.nullcontext(RayWithNodes(nodes)))
  with pytest.raises(UserError) as caught, resources.connected(config):
    pytest.fail("started")
  assert str(caught.value) == (
    "ray.learner: each process needs 4 CPUs and 4 GPUs on one node; the nodes of the Ray cluster have room "
    "for 1 of learner.num_hosts=2 (1 × 8 CPUs and 4 GPUs, 2 × 8 CPUs and 2 GPUs); add nodes, or use a "
    "smaller ray.learner or learner.num_hosts"
  )
  with pytest.raises(UserError, match=r"^ray.learner: .*room for 0 of 1 \(.*or use a smaller ray.learner$"):
    resources.check_nodes(load_config(None, shares), [small, small])


def test_shares_of_a_gpu_must_each_fit_on_one():
  shares = ["workers.num_workers=3", "workers.num_envs=4", "workers.resources.num_gpus=0.6"]
  nodes = [{"CPU": 8.0, "GPU": 2.0}]
  with pytest.raises(UserError, match=r"0.6 GPUs on .* room for 2 of 3 \(1 × 8 CPUs and 2 GPUs\); use a s"):
    resources.check_nodes(load_config(None, shares), nodes)
  resources.check_nodes(load_config(None, [*shares, "ray.min_workers=2"]), nodes)


def test_joined_cluster_needs_more_nodes():
  """`ray.num_cpus` is a setting of the local cluster only."""
  with pytest.raises(UserError, match=r"has 1; add nodes to the cluster, or use runtime=local$"):
    resources.check_resources(load_config(None, ["ray.address=auto"]), {"CPU": 1.0})
