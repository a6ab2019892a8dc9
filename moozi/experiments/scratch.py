"""Short runs side by side, one core and one process each, of which only some figures are kept."""

import concurrent.futures
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from moozi.experiments.pieces import MOOZI, ROOT
from moozi.experiments.results import write_json

# The runs have each other beside them: one thread each, or they would fight for the cores.
_ONE_THREAD = {"NPROC": "1", "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}


def run_whole(config: Path, overrides: Sequence[str], keys: Sequence[str]) -> dict[str, Any]:
  """A run to its end, in a folder that goes away.

  Args:
    config: the YAML file.
    overrides: `key=value` each.
    keys: of the metrics that are kept.
  Returns: `summary`, as the run wrote it, and `curve`, a list of its ticks.
  Raises: CalledProcessError: the run failed. RuntimeError: it ended before it had made all its steps; such
    runs are held against each other at equal steps.
  """
  with tempfile.TemporaryDirectory() as folder:
    own = (
      "runtime=local",
      f"run.dir={folder}",
      "run.name=run",
      "logging.progress=none",
      "evaluation.gif=false",
    )
    command = [*MOOZI, "train", str(config), *own, *overrides]
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | _ONE_THREAD, stdout=subprocess.DEVNULL)
    summary = json.loads((Path(folder) / "run" / "summary.json").read_text())
    lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
  if summary["reason"] != "max_env_steps":
    raise RuntimeError(
      f"a run of {config.name} ended at {summary['env_steps']:,} steps, before max_env_steps: "
      f"{summary['reason']}"
    )
  ticks = [json.loads(line) for line in lines]
  return {"summary": summary, "curve": [{k: tick[k] for k in keys if k in tick} for tick in ticks]}


def make_missing(work: Mapping[Path, Callable[[], dict[str, Any]]], at_once: int) -> None:
  """Makes the JSON files that are not there yet, each written when its work is done.

  Args:
    work: what makes the content of each.
    at_once: so many side by side.
  """

  def make(path: Path) -> None:
    write_json(path, work[path](), indent=None)

  with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
    for future in [pool.submit(make, path) for path in work if not path.exists()]:
      future.result()
