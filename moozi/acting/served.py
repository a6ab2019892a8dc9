"""Acting in which an inference server decides for several training workers.

A worker keeps its environments, the agent's carry and the random key. A request has all that a decision
depends on except the variables, which are all that a server keeps. A request can therefore be asked again, of
the same or of another server.
"""

import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Array, Float, PyTree, UInt32

from moozi.acting.collector import Schedule, TrajectoryCollector
from moozi.agent.agent import Carry, Decision, PureAgent, keyed
from moozi.core.records import BatchedTimeStep
from moozi.core.types import AnyArray
from moozi.envs.environment import VectorEnvironment


class Request(NamedTuple):
  """What a decision on the B lanes of a worker depends on, apart from the variables; in NumPy.

  Attributes:
    carry: of the lanes, with the last frames and actions already in it.
    timestep: the current frames.
    rng_key: the worker's random key, [2] uint32.
    temperature: of acting; a scalar.
    position: the environments' positions, for an agent that `plans_with_rules`; else None.
  """

  carry: Carry
  timestep: BatchedTimeStep
  rng_key: UInt32[AnyArray, "2"]
  temperature: Float[AnyArray, ""]
  position: PyTree


class Answer(NamedTuple):
  """The answer to a request, in NumPy.

  Attributes:
    rng_key: the worker's next random key.
    decision: on the worker's B lanes.
    version: learner step of the parameters that decided.
    batch_size: number of requests in the batch.
    wait_s: seconds from the request's arrival to the beginning of its batch.
  """

  rng_key: UInt32[np.ndarray, "2"]
  decision: Decision
  version: int
  batch_size: int
  wait_s: float


class BatchedAct:
  """Decides on batches of requests of equal shapes, with variables that are swapped between batches.

  A batch of one request runs the program with which a worker decides without a server. A batch of several
  runs that program mapped over the requests, with each request's own random key: a request draws the same
  numbers in every batch, and its decision depends on the number of requests only by rounding.

  Args:
    agent: with the wrappers with which it acts; its `observe` must not read the variables.
  """

  def __init__(self, agent: PureAgent) -> None:
    act = keyed(agent)

    def decide(variables: PyTree, request: Request) -> tuple[Array, Decision]:
      rng_key, _, decision = act(variables, *request[:4], None, request.position)
      return rng_key, decision

    self._one = jax.jit(act)
    self._several = jax.jit(jax.vmap(decide, in_axes=(None, 0)))
    self._held: tuple[PyTree, int] | None = None
    self._swapping, self._compiling = threading.Lock(), threading.Lock()
    self._compiled: set[int] = set()

  def set_parameters(self, variables: PyTree, version: int) -> None:
    """Sets the variables for the next batch; keeps the present ones if they are of a later version."""
    on_device = jax.device_put(variables)
    with self._swapping:
      if self._held is None or version >= self._held[1]:
        self._held = on_device, version

  def warm_up(self, template: PyTree, request: Request, batch_sizes: Sequence[int]) -> None:
    """Compiles the functions of some batch sizes, unless they are compiled.

    Args:
      template: the shapes and dtypes of the variables.
      request: one with the shapes and dtypes of all requests.
      batch_sizes: numbers of requests.
    """
    with self._compiling:
      zeros = jax.device_put(jax.tree_util.tree_map(lambda x: np.zeros(x.shape, x.dtype), template))
      for size in batch_sizes:
        if size not in self._compiled:
          self._decide(zeros, [request] * size)
          self._compiled.add(size)

  def answer(self, requests: Sequence[Request], waits_s: Sequence[float]) -> list[Answer]:
    """Returns the answers to the requests of a batch; `waits_s` are the seconds that each has waited."""
    assert self._held is not None, "call set_parameters first"
    variables, version = self._held
    decided = self._decide(variables, requests)
    return [
      Answer(*own, version, len(requests), wait_s) for own, wait_s in zip(decided, waits_s, strict=True)
    ]

  def _decide(self, variables: PyTree, requests: Sequence[Request]) -> list[tuple[Any, Decision]]:
    if len(requests) == 1:
      rng_key, _, decision = self._one(variables, *requests[0][:4], None, requests[0].position)
      return [jax.device_get((rng_key, decision))]
    stacked = jax.tree_util.tree_map(lambda *xs: np.stack(xs), *requests)
    found = jax.device_get(self._several(variables, stacked))
    return [jax.tree_util.tree_map(lambda x, i=i: x[i], found) for i in range(len(requests))]


@runtime_checkable
class InferenceClient(Protocol):
  """Asks an inference server.

  Attributes:
    num_repeated: number of requests that were asked again so far, after a server was lost.
  """

  num_repeated: int

  def warm_up(self, request: Request) -> None:
    """Waits until the server has compiled acting for requests like this one."""

  def decide(self, request: Request) -> Answer:
    """Returns the answer to a request."""


class ServedCollector(TrajectoryCollector):
  """A collector whose decisions an inference server makes.

  The carry is that of a `TrajectoryCollector`: the server's answer has the actions, and `agent.observe`
  makes the carry from them in NumPy.

  Args:
    agent: as in `BatchedAct`.
    env, segment_length, temperature, seed: as in `TrajectoryCollector`.
    client: asks the server.
  """

  def __init__(
    self,
    agent: PureAgent,
    env: VectorEnvironment,
    segment_length: int,
    temperature: Schedule,
    seed: int,
    client: InferenceClient,
  ) -> None:
    super().__init__(agent, env, segment_length, temperature, seed)
    self._observe, self._client, self._num_reported_repeats = agent.observe, client, 0

  def begin_segment(self) -> None:
    super().begin_segment()
    self._batch_sizes: list[int] = []
    self._waits_s: list[float] = []
    self._answers_s: list[float] = []

  def warm_up(self, template: PyTree) -> None:
    """Waits until the server has compiled acting. Changes nothing here."""
    del template
    self._client.warm_up(self._request(np.float32(1)))

  def _request(self, temperature: Float[AnyArray, ""]) -> Request:
    position = self._env.positions() if self._plans_with_rules else None
    request: Request = jax.device_get(Request(self.carry, self.timestep, self.rng_key, temperature, position))
    return request

  def _decide(self, temperature: Float[AnyArray, ""]) -> tuple[Any, Carry, Decision]:
    request, begin_s = self._request(temperature), time.perf_counter()
    answer = self._client.decide(request)
    self._answers_s.append(time.perf_counter() - begin_s)
    self._batch_sizes.append(answer.batch_size)
    self._waits_s.append(answer.wait_s)
    self.version = answer.version
    carry = self._observe(None, request.carry, request.timestep, answer.decision.action)
    return answer.rng_key, carry, answer.decision

  def _own_metrics(self) -> dict[str, float]:
    """Returns the mean batch size and times of the segment's requests, and how many were asked again."""
    metrics = {
      "inference/batch_size": float(np.mean(self._batch_sizes)),
      "inference/wait_ms": 1000 * float(np.mean(self._waits_s)),
      "inference/answer_ms": 1000 * float(np.mean(self._answers_s)),
    }
    if num_repeats := self._client.num_repeated - self._num_reported_repeats:
      metrics["faults/repeated_requests"] = float(num_repeats)
      self._num_reported_repeats = self._client.num_repeated
    return metrics
