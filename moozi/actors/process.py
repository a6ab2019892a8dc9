"""What every actor's process does first: its threads, its niceness, its log file.

Must run before JAX makes its first array there, which is why the actor modules import JAX late.
"""

import logging
import os
import pathlib

from moozi.core.actor_report import ActorReport
from moozi.core.config import ActorResources
from moozi.io.logs import setup_logging
from moozi.run.work_log import WorkLog, resident_mib


def prepare(name: str, resources: ActorResources, log_dir: str | None) -> logging.Logger:
  """Settles this process and returns its logger.

  Args:
    name: of the actor; its log file is `<log_dir>/<name>.log`.
    resources: `num_threads` bounds XLA's and NumPy's pools (0 leaves them alone), `niceness` is added.
    log_dir: null logs nowhere (an actor on another machine than the run directory).
  """
  if resources.num_threads:
    # XLA's CPU client sizes its pools by NPROC when it is made; BLAS and OpenMP read theirs when loaded.
    for variable in ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
      os.environ[variable] = str(resources.num_threads)
  if resources.num_gpus == 0:
    os.environ["JAX_PLATFORMS"] = "cpu"
  elif resources.num_gpus < 1:
    # JAX takes three quarters of a GPU's memory for itself; whoever has a share of one leaves the rest.
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{0.9 * resources.num_gpus:.3f}")
  niceness = os.nice(resources.niceness)
  logger = logging.getLogger(f"moozi.{name}")
  if log_dir is not None and pathlib.Path(log_dir).is_dir():
    setup_logging(pathlib.Path(log_dir) / f"{name}.log")
  logger.info("process %d, threads %s, niceness %d", os.getpid(), resources.num_threads or "all", niceness)
  return logger


def report(work: WorkLog, keeps_spans: bool) -> ActorReport:
  """What the actor in this process did since the last time, and the memory that it has."""
  return work.report(keeps_spans, resident_mib())
