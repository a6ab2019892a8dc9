"""The inference server: a thin wrapper of `acting.served.BatchedAct` and `acting.batching.Batcher`."""

import threading
from collections.abc import Sequence
from typing import Any

from moozi.actors.remote import process
from moozi.actors.remote.inference_client import unpack
from moozi.core.config import Config
from moozi.core.spec import EnvSpec
from moozi.io import jax_process


class InferenceServer(process.Actor):
  """Decides for the training workers that ask it, in batches. Its methods run in several threads.

  Args:
    config, setup: as in `process.Actor`.
    spec: the environment's specification.
  """

  def __init__(self, config: Config, spec: EnvSpec, *, setup: process.Setup) -> None:
    super().__init__(config, setup)
    jax_process.set_up()
    from moozi.acting.batching import Batcher
    from moozi.run import build

    self._config, self._spec = config, spec
    self._act = build.build_inference(config, spec)
    wait_s = config.acting.max_wait_ms / 1000
    self._batcher: Batcher[Any, Any] = Batcher(self._answer, config.max_inference_batch, wait_s)
    self._has_parameters = threading.Event()
    # A log of work has one span at a time.
    self._working = threading.Lock()
    self._log.info("ready: at most %d requests per batch", config.max_inference_batch)

  def warm_up(self, request: Any) -> None:
    """Compiles acting for batches of packed requests like this one, unless it is compiled.

    It needs no parameters.
    """
    from moozi.acting.batching import sizes
    from moozi.run.build import variables_template

    with self._working, self._work.doing("compile"):
      template = variables_template(self._config, self._spec)
      self._act.warm_up(template, unpack(request), sizes(self._config.max_inference_batch))
    self._log.info("compiled acting")

  def set_parameters(self, parameters: tuple[Any, int]) -> None:
    """Sets (variables, version) for the next batch, unless it has parameters of a later version."""
    self._act.set_parameters(*parameters)
    self._has_parameters.set()

  def decide(self, request: Any) -> Any:
    """Returns the Answer to a packed Request; waits for the first parameters, and for its batch."""
    self._has_parameters.wait()
    return self._batcher.ask(unpack(request))

  def _answer(self, requests: Sequence[Any], waits_s: Sequence[float]) -> list[Any]:
    with self._working, self._work.doing("inference"):
      return self._act.answer(requests, waits_s)

  def report(self, keeps_spans: bool) -> Any:
    """As `process.Actor.report`; waits for the batch or the compilation in progress."""
    with self._working:
      return super().report(keeps_spans)

  def wait_for_end(self) -> None:
    """Does not return, so that Ray reports the end of this process to the caller."""
    threading.Event().wait()
