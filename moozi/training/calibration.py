"""Measures the costs from which `training.sizing` predicts a run.

Each part is measured in a process of its own, as with Ray. Acting and learning are measured one after the
other and, unless they take turns in the run, also at the same time. Compilation is not counted.
"""

import contextlib
import dataclasses
import functools
import multiprocessing
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, cast

import numpy as np

from moozi.actors import passing
from moozi.actors.remote import process
from moozi.core.actor_report import REANALYZE_WORKER, REPLAY, SERVER, WORKER
from moozi.core.config import ActorResources, Config
from moozi.core.errors import UserError, one_line
from moozi.core.pytree import fields_of
from moozi.core.spec import EnvSpec
from moozi.io.machine import num_cores
from moozi.replay.frame_rows import packed
from moozi.run.work_log import resident_mib
from moozi.training.sizing import CallCost, PartCosts, takes_turns

# Steps in replay at least, so that its arrays do not fit in the processor's caches.
_FILLED_STEPS = 60_000
_MIN_CALLS = 3
# Duration of the measurement of adding segments, each of which takes about a millisecond.
_ADD_S = 0.2
# Factors of the number of environments for which acting is also measured.
_WIDTHS = (0.25, 0.5, 2.0, 4.0)
_END_TIMEOUT_S = 10.0
# Maximum time between two passages, so that enough of them are measured.
_MAX_PAUSE_S = 0.05


class _Measured(NamedTuple):
  """Mean seconds and processor seconds of a call."""

  seconds: float
  cpu_s: float


def calibrate(
  config: Config, spec: EnvSpec, seconds: float, on_phase: Callable[[str], None] = lambda text: None
) -> PartCosts:
  """Returns the costs of the run's calls on this machine.

  Args:
    seconds: approximate duration of all measurements together; the start of processes and compilation are
      not included.
    on_phase: called with a line of text when a phase begins.

  Raises: UserError: the configuration cannot be measured, a part fails, or Ray cannot start.
  """
  _check(config)
  with contextlib.ExitStack() as stack:

    def start(part: str, resources: ActorResources) -> "_Part":
      return stack.enter_context(_started(part, config, spec, resources))

    one_process = config.has_one_process
    every = ActorResources(num_threads=0)  # one process uses all cores for every part
    share = seconds / 8
    on_phase("compiling acting")
    learner = start(SERVER, every if one_process else config.ray.learner)
    worker = start(WORKER, every if one_process else config.workers.resources)
    variables = learner.ask("variables")
    segment = worker.ask("prepare", variables)
    costs: dict[str, Any] = {
      "segment_bytes": _num_bytes(segment),
      "parameter_bytes": _num_bytes(variables),
    }
    memory, batch, priorities, roots = dict[str, float](), segment, None, None
    if not config.is_on_policy:
      on_phase("measuring replay")
      replay = start(REPLAY, config.ray.replay)
      memory[REPLAY] = replay.ask("memory")  # before it has steps
      costs["add"] = CallCost(*replay.ask("prepare", segment))
      costs["draw"] = CallCost(*replay.ask("measure", share / 2))
      batch, priorities, roots = replay.ask("examples", config.reanalyze.ratio > 0)
      costs["batch_bytes"] = _num_bytes(batch)
    on_phase("compiling the update")
    learner.ask("prepare", batch)
    on_phase("measuring acting and learning")
    act, learn = _Measured(*worker.ask("measure", share)), _Measured(*learner.ask("measure", share))
    costs |= {"act": CallCost(*act), "learn": CallCost(*learn), "env_share": worker.ask("env_share")}
    if not takes_turns(config):
      # At the same time, for what processes take from each other.
      worker.send("measure", 2 * share)
      learner.send("measure", 2 * share)
      busy_act, busy_learn = _Measured(*worker.receive()), _Measured(*learner.receive())
      costs["act"] = CallCost(act.seconds, busy_act.cpu_s, busy_act.seconds)
      costs["learn"] = CallCost(learn.seconds, busy_learn.cpu_s, busy_learn.seconds)
      costs["crowded_cpus"] = num_cores()
    if roots is not None:
      on_phase("measuring reanalyze")
      again = start(REANALYZE_WORKER, every if one_process else config.reanalyze.resources)
      again.ask("prepare", (variables, roots))
      costs["reanalyze"] = CallCost(*again.ask("measure", share))
      memory[REANALYZE_WORKER] = again.ask("memory")
    memory |= {SERVER: learner.ask("memory"), WORKER: worker.ask("memory")}
    on_phase("measuring acting with other numbers of environments")
    costs["act_by_width"] = worker.ask("widths", 2 * share)
  if not one_process:
    on_phase("measuring Ray")
    given = None if config.is_on_policy else batch
    pauses_s = tuple(min(_MAX_PAUSE_S, costs[name].seconds) for name in ("act", "learn"))
    passed = passing.measure_passing(config, segment, given, priorities, share / 2, pauses_s)
    costs |= {"pass_segment": CallCost(*passed.segment), "pass_batch": CallCost(*passed.batch)}
    costs["idle_cores"] = passed.idle_cores
  memory["driver"] = resident_mib()
  return PartCosts(**costs, memory_mib=memory)


def _check(config: Config) -> None:
  """Raises UserError if the configuration cannot be measured."""
  if not config.searches and config.algorithm not in ("ppo", "q_learning"):
    raise UserError(f"algorithm={config.algorithm}: a plan needs muzero, alphazero, ppo or q_learning")
  if config.offline.trajectories is not None:
    raise UserError("offline.trajectories: must be null for a plan")
  if config.num_inference_servers:
    raise UserError("acting.mode=server: must be worker for a plan, which does not measure inference servers")
  if config.learner.num_hosts > 1:
    text = "must be 1 for a plan, which does not measure sums over hosts"
    raise UserError(f"learner.num_hosts={config.learner.num_hosts}: {text}")


# --- the processes ------------------------------------------------------------------------------------------


class _Part:
  """The other end of a part's process."""

  def __init__(self, name: str, connection: Connection) -> None:
    self._name, self._connection = name, connection

  def send(self, request: str, argument: Any = None) -> None:
    """Sends a request; `receive` returns the answer. Raises UserError if the process has ended."""
    with self._ending_as_error():
      self._connection.send((request, argument))

  def receive(self) -> Any:
    """Returns the answer to the oldest request without one. Raises UserError if the process has failed."""
    with self._ending_as_error():
      is_good, value = self._connection.recv()
    if not is_good:
      raise UserError(f"{self._name}: {value}")
    return value

  @contextlib.contextmanager
  def _ending_as_error(self) -> Iterator[None]:
    try:
      yield
    except (EOFError, OSError):
      raise UserError(f"{self._name}: its process ended while it was measured") from None

  def ask(self, request: str, argument: Any = None) -> Any:
    """Returns the answer to a request."""
    self.send(request, argument)
    return self.receive()


@contextlib.contextmanager
def _started(part: str, config: Config, spec: EnvSpec, resources: ActorResources) -> Iterator[_Part]:
  """Starts the process of a part; it ends with the block."""
  # A new interpreter, because JAX reads the number of threads when it starts.
  context = multiprocessing.get_context("spawn")
  ours, theirs = context.Pipe()
  child = context.Process(target=_serve, args=(theirs, part, config, spec, resources), daemon=True)
  child.start()
  theirs.close()
  try:
    yield _Part(part, ours)
  finally:
    ours.close()  # the process reads the end of its requests
    child.join(_END_TIMEOUT_S)
    if child.is_alive():
      child.kill()
      child.join()


def _serve(
  connection: Connection, part: str, config: Config, spec: EnvSpec, resources: ActorResources
) -> None:
  """Answers requests until there are no more."""
  process.prepare(process.Setup(part, resources))
  measured: Any = None
  while True:
    try:
      request, argument = connection.recv()
    except EOFError:
      return
    try:
      measured = measured or _PARTS[part](config, spec)
      answer = True, getattr(measured, request)(*(() if argument is None else (argument,)))
    except Exception as error:
      answer = False, f"{type(error).__name__}: {one_line(error)}"
    connection.send(answer)


class _Measurement:
  """A part in its process. Its public methods are the requests; `call` is what is measured."""

  def __init__(self, config: Config, spec: EnvSpec) -> None:
    self._config, self._spec = config, spec

  def call(self) -> None:
    """Makes the part's call once."""
    raise NotImplementedError

  def measure(self, seconds: float) -> _Measured:
    """Makes calls for some seconds."""
    return _mean(self.call, seconds)

  def memory(self) -> float:
    """Returns the resident memory of the process in MiB."""
    return resident_mib()


def _mean(call: Callable[[], object], seconds: float) -> _Measured:
  """Returns the mean cost of calls that take at least `seconds` together."""
  count, begin_s, begin_cpu_s = 0, time.perf_counter(), time.process_time()
  while count < _MIN_CALLS or time.perf_counter() - begin_s < seconds:
    call()
    count += 1
  return _Measured((time.perf_counter() - begin_s) / count, (time.process_time() - begin_cpu_s) / count)


class _Acting(_Measurement):
  """A training worker: the cost of a segment."""

  def __init__(self, config: Config, spec: EnvSpec) -> None:
    super().__init__(config, spec)
    _set_up_jax()
    self._parameters: Any = None
    self._collector: Any = None
    self._env_shares: list[float] = []

  def prepare(self, variables: Any) -> Any:
    """Builds the collector, acts for two segments, and returns the first."""
    self._parameters = variables, 0
    self._collector = _build_collector(self._config, self._spec)
    first, _ = self._run()
    self.call()
    self._env_shares.clear()  # these calls compile
    return first

  def call(self) -> None:
    share = self._run()[1].get("train/env_share")
    self._env_shares += [] if share is None else [share]

  def env_share(self) -> float | None:
    """Returns the mean share of the environments in the calls; None if a collector does not measure it."""
    return float(np.mean(self._env_shares)) if self._env_shares else None

  def _run(self) -> tuple[Any, dict[str, float]]:
    """Acts for a segment; returns it and its metrics."""
    config, collector = self._config, self._collector
    past = self._parameters if config.num_past_lanes else None
    if config.is_on_policy:
      from moozi.run.on_policy import collect

      rollout, result = collect(config, collector, self._parameters, 0, past)
      return rollout, result.acted.metrics
    if past is not None:
      collector.set_opponent(*past)
    collector.set_parameters(*self._parameters)
    segment, acted = collector.run(0)
    return packed(segment, self._spec), acted.metrics  # packed, as a training worker returns it

  def widths(self, seconds: float) -> dict[int, float]:
    """Returns the steps per second by number of environments, as many as can be measured in some seconds."""
    config, spec = self._config, self._spec
    steps = {config.worker_envs: config.worker_envs * config.segment_length / self.measure(0.0).seconds}
    if config.is_on_policy or config.num_past_lanes:
      return steps
    end_s = time.monotonic() + seconds
    for factor in _WIDTHS:
      num_envs = int(factor * config.worker_envs)
      if num_envs < 1 or time.monotonic() > end_s:
        continue
      workers = config.workers.model_copy(update={"num_envs": num_envs})
      other = config.model_copy(update={"workers": workers})
      collector = _build_collector(other, spec)
      with contextlib.closing(collector):
        collector.set_parameters(*self._parameters)
        collector.run(0)
        mean = _mean(functools.partial(collector.run, 0), seconds / len(_WIDTHS) / 2)
      steps[num_envs] = num_envs * config.segment_length / mean.seconds
    return dict(sorted(steps.items()))


class _Learning(_Measurement):
  """The learner: the cost of one call, or of the updates of a round."""

  def __init__(self, config: Config, spec: EnvSpec) -> None:
    super().__init__(config, spec)
    _set_up_jax()
    from moozi.run import build

    self._learner = (_parts_of(config) or build).build_learner(config, spec)
    self._batch: Any = None

  def variables(self) -> Any:
    """Returns the agent's variables."""
    return self._learner.parameters()[0]

  def prepare(self, batch: Any) -> None:
    """Receives targets, or the segment of a worker; compiles the update."""
    self._batch = batch
    self.call()

  def call(self) -> None:
    config = self._config
    if config.is_on_policy:
      from moozi.run.on_policy import learn

      learn(_parts_of(config), config, self._learner, [self._batch] * config.num_acting_workers, 0, 0.0)
    else:
      self._learner.update(self._batch)


class _Storing(_Measurement):
  """Replay: the cost of adding a segment, and of drawing targets and setting their priorities."""

  def prepare(self, segment: Any) -> _Measured:
    """Adds copies of a segment to replay until it is large enough; returns the cost of adding one."""
    from moozi.replay.mixture import make_replay

    config, self._number = self._config, 0
    self._replay, self._segment = make_replay(config, self._spec, None), segment
    num_steps = config.worker_envs * config.segment_length
    capacity = self._replay.num_slots
    target = min(capacity, max(_FILLED_STEPS, 2 * config.replay.min_steps_to_learn))
    while self._replay.num_steps < target and self._number * num_steps < 2 * capacity:
      self._add()
    while not self._replay.can_sample(config.learner.batch_size):
      if self._number * num_steps > 2 * capacity:
        raise UserError("replay cannot draw a batch although it is full; see replay.min_steps_to_learn")
      self._add()
    return _mean(self._add, _ADD_S)

  def _add(self) -> None:
    config, replay = self._config, self._replay
    first_lane = self._number % config.num_acting_workers * config.worker_envs
    replay.add(self._segment, first_lane)
    self._number += 1
    if not config.has_one_process:
      # What the replay actor reports.
      replay.can_sample(config.learner.batch_size)
      replay.supply()
      replay.stats()

  def call(self) -> None:
    targets = self._draw()
    if self._config.replay.refreshes_priorities:
      self._replay.update_priorities(*self._priorities(targets))

  def _draw(self) -> Any:
    learner, parts = self._config.learner, _parts_of(self._config)
    sizes = learner.updates_per_call, learner.batch_size
    return self._replay.sample_many(*sizes) if parts is None else parts.sample(self._replay, *sizes)

  def _priorities(self, targets: Any) -> tuple[Any, Any, Any]:
    return targets.slot, targets.sequence, np.ones(targets.slot.shape, np.float32)

  def examples(self, has_roots: bool) -> tuple[Any, Any, Any]:
    """Returns (targets of one call, their priorities, roots to reanalyze or None)."""
    targets = self._draw()
    roots = self._replay.positions(self._config.reanalyze, 1) if has_roots else None
    return targets, self._priorities(targets), roots


class _Searching(_Measurement):
  """A reanalyze worker: the cost of a call."""

  def __init__(self, config: Config, spec: EnvSpec) -> None:
    super().__init__(config, spec)
    _set_up_jax()
    from moozi.run.build import build_reanalyzer

    self._reanalyzer, self._roots = build_reanalyzer(config, spec, 0), cast(Any, None)

  def prepare(self, given: tuple[Any, Any]) -> None:
    """Receives variables and roots; compiles the search."""
    variables, self._roots = given
    self._reanalyzer.set_parameters(variables, 1)
    self.call()

  def call(self) -> None:
    self._reanalyzer.run(self._roots)


_PARTS: dict[str, Callable[[Config, EnvSpec], _Measurement]] = {
  WORKER: _Acting,
  SERVER: _Learning,
  REPLAY: _Storing,
  REANALYZE_WORKER: _Searching,
}


def _set_up_jax() -> None:
  from moozi.io import jax_process

  jax_process.set_up()


def _parts_of(config: Config) -> Any:
  """Returns the parts of a baseline; None for MuZero and AlphaZero."""
  if config.algorithm == "ppo":
    from moozi.baselines.ppo import algorithm as ppo

    return ppo.PARTS
  if config.algorithm == "q_learning":
    from moozi.baselines.q_learning import algorithm as q

    return q.PARTS
  return None


def _build_collector(config: Config, spec: EnvSpec) -> Any:
  from moozi.run import build

  if config.algorithm == "q_learning":
    one = config.workers.model_copy(update={"num_workers": 1})
    config = config.model_copy(update={"workers": one})
    return _parts_of(config).build_collectors(config, spec, None).workers[0]
  if config.is_on_policy:
    return _parts_of(config).build_collector(config, spec, 0, 0)
  return build.build_collector(config, spec, 0)


def _num_bytes(tree: Any) -> int:
  """Returns the bytes of the arrays in a record or tree."""
  if tree is None:
    return 0
  if hasattr(tree, "nbytes"):
    return int(tree.nbytes)
  if isinstance(tree, dict):
    return sum(_num_bytes(value) for value in tree.values())
  if isinstance(tree, tuple | list):
    return sum(_num_bytes(value) for value in tree)
  return _num_bytes(fields_of(tree)) if dataclasses.is_dataclass(tree) else 0
