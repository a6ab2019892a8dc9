"""Sets up an actor's process (device, threads, niceness, log file, plug-ins), and reports its work.

`prepare` must run before JAX makes its first array, so the actors' modules import JAX late.
"""

import logging
import os
import pathlib
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

from moozi.core.actor_report import ActorReport
from moozi.core.config import ActorResources, Config, uses
from moozi.core.errors import UserError, one_line
from moozi.io.logs import setup_logging
from moozi.run.work_log import WorkLog, resident_mib


class Setup(NamedTuple):
  """How an actor's process is set up.

  Attributes:
    name: the actor's name; its log file is `<log_dir>/<name>.log`.
    resources: `num_threads` limits the thread pools of XLA and NumPy (0 sets no limit); `niceness` is added
      to the niceness of the process.
    log_dir: folder of the log file; no log file if None, or if the folder does not exist on that machine.
    functions: the pickled `registered_functions` of the driver; empty if there is none.
    parts: the pickled OnPolicyParts of an on-policy run; empty in other runs.
    join: is called before the functions are loaded; in a process of a learner on several hosts, it waits for
      the other processes. None: nothing is called.
  """

  name: str
  resources: ActorResources
  log_dir: str | None = None
  functions: bytes = b""
  parts: bytes = b""
  join: Callable[[], None] | None = None


def prepare(setup: Setup) -> logging.Logger:
  """Sets up this process and returns its logger.

  Raises: UserError: a registered function cannot be loaded in this process. Errors of `setup.join`.
  """
  name, resources, log_dir, functions, _, join = setup
  if resources.num_threads:
    # XLA's CPU client reads NPROC when it is created; BLAS and OpenMP read their variables when loaded.
    for variable in ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
      os.environ[variable] = str(resources.num_threads)
  if resources.num_gpus == 0:
    os.environ["JAX_PLATFORMS"] = "cpu"
  elif resources.num_gpus < 1:
    # JAX reserves three quarters of a GPU's memory by default. An actor with a share of the GPU must leave
    # memory for the other actors.
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{0.9 * resources.num_gpus:.3f}")
  niceness = os.nice(resources.niceness)
  logger = logging.getLogger(f"moozi.{name}")
  if log_dir is not None and pathlib.Path(log_dir).is_dir():
    setup_logging(pathlib.Path(log_dir) / f"{name}.log")
  if join is not None:
    # The user's modules may use JAX when they are loaded, before which the processes must be joined.
    join()
  if functions:
    try:
      uses.install(pickle.loads(functions))  # noqa: S301  # from the driver, not from a file
    except Exception as error:
      raise UserError(
        f"a registered plug-in cannot be loaded in the process of {name}: {type(error).__name__}: "
        f"{one_line(error)}; its module must be importable in the run's folder"
      ) from error
  logger.info("process %d, threads %s, niceness %d", os.getpid(), resources.num_threads or "all", niceness)
  return logger


class Actor:
  """Base class of a run's actors: sets up the process, writes a log, and reports the actor's work.

  Args:
    config: the run's configuration.
    setup: how the process is set up.
  """

  def __init__(self, config: Config, setup: Setup) -> None:
    self._log = prepare(setup)
    # Loading the parts imports JAX.
    self._parts = pickle.loads(setup.parts) if setup.parts else None  # noqa: S301  # from the driver
    self._work = WorkLog(config.timeline.seconds > 0)

  @property
  def parts(self) -> Any:
    """The OnPolicyParts of an on-policy run."""
    assert self._parts is not None, "not an on-policy run"
    return self._parts

  def report(self, keeps_spans: bool) -> ActorReport:
    """Returns a report of this actor's work since the last report, and of its process's resident memory."""
    return self._work.report(keeps_spans, resident_mib())
