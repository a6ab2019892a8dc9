"""Prints the results of the soak."""

import itertools
import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
# The counter of each kind of injected fault in the run's metrics.
COUNTERS = {
  "TrainingWorker": "training_worker",
  "TestingWorker": "testing_worker",
  "ReplayActor": "replay_buffer",
  "ParameterServer": "parameter_server",
  "environment raises": "env_errors",
  "environment hangs": "env_errors",
}
PERIOD = 250_000
# An evaluation with faults is compared with the calm runs' evaluations within this number of steps.
WITHIN = 2 * PERIOD
NUM_COMPARED = 5


def read() -> dict[str, dict[str, Any]]:
  """Returns the committed results by name."""
  return {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(RESULTS.glob("soak_*.json"))}


def main() -> None:
  """Prints each run, and the comparison of the last evaluations with faults."""
  results = read()
  for name, result in results.items():
    print("\n".join(describe(name, result)))
  if "soak_faults" in results:
    calm = [result["evaluations"] for name, result in results.items() if "calm" in name]
    last = results["soak_faults"]["evaluations"][-NUM_COMPARED:]
    print("\n".join(compare(last, calm)))
    print("\n".join(calibrate(last, calm)))
  if not results:
    print(f"{RESULTS} holds no results")


def describe(name: str, result: dict[str, Any]) -> list[str]:
  """Returns lines of text about one run."""
  injected, counted = result["injected"], result["faults"]
  driver = [fault for fault in injected if "resumed_at" in fault]
  unaccounted = result["checkpoint_env_steps"] - result["replay_added"] - counted["lost_steps"]
  again = sum(max(0, fault["last_tick"] - fault["resumed_at"]) for fault in driver)
  made = f"{result['env_steps']:,} steps and {result['learner_steps']:,} updates"
  lines = [
    f"{name}: {made} in {result['wall_s'] / 60:.0f} min, exit status {result['exit_status']}",
    f"  injected: {count(fault['kind'] for fault in injected)}",
    f"  counted: {', '.join(f'{kind} {n:,}' for kind, n in counted.items() if n) or 'nothing'}",
    f"  counted against injected: {', '.join(mismatches(injected, counted)) or 'the same numbers'}",
    f"  steps not accounted for: {unaccounted}",
    f"  steps after the last checkpoint: {result['env_steps'] - result['checkpoint_env_steps']}",
    f"  steps repeated after the checkpoint from which the run resumed: {again:,}",
  ]
  for fault in driver:
    if fault["kind"].startswith("SIG"):
      lines.append(f"  {fault['kind']}: status {fault['status']} after {fault['ended_after_s']} s")
    if not fault.get("is_passed_over", True):
      lines.append(f"  a damaged checkpoint was not skipped: {fault}")
  for what in ("resident_mib", "files"):
    medians = [statistics.median(part) for part in fifths([sample[what] for sample in result["samples"]])]
    lines.append(f"  {what}, median of each fifth: {', '.join(f'{median:g}' for median in medians)}")
  return lines


def count(kinds: Any) -> str:
  """Returns the number of faults of each kind as text."""
  return ", ".join(f"{kind} {n}" for kind, n in sorted(Counter(kinds).items())) or "nothing"


def mismatches(injected: list[dict[str, Any]], counted: dict[str, int]) -> list[str]:
  """Returns a text for each counter that differs from the number of injected faults."""
  expected = Counter(COUNTERS[fault["kind"]] for fault in injected if fault["kind"] in COUNTERS)
  kinds = dict.fromkeys(COUNTERS.values())
  return [f"{k}: {counted[k]} counted, {expected[k]} injected" for k in kinds if counted[k] != expected[k]]


def compare(last: list[dict[str, Any]], calm: list[list[dict[str, Any]]]) -> list[str]:
  """Compares evaluations with the range of other runs' evaluations at about the same steps; returns lines."""
  lines, num_within, num_near = [], 0, 0
  for evaluation in last:
    at, mean = evaluation["env_steps"], evaluation["return_mean"]
    near = [[e["return_mean"] for e in run if abs(e["env_steps"] - at) <= WITHIN] for run in calm]
    if not near or not all(near):
      lines.append(f"{mean:.2f} at {at / 1e6:.2f}M steps: not every run without faults has this many steps")
      continue
    low, high = min(map(min, near)), max(map(max, near))
    error = 2 * evaluation["return_std"] / evaluation["episodes"] ** 0.5
    off = max(low - mean, mean - high, 0.0)
    num_within, num_near = num_within + (off == 0), num_near + (off <= error)
    verdict = "within" if off == 0 else f"by {off:.2f} OUTSIDE"
    lines.append(
      f"{mean:.2f} ± {error:.2f} at {at / 1e6:.2f}M steps: {verdict} {low:.2f} … {high:.2f} of the others"
    )
  return [
    *lines,
    f"{num_within} of {len(lines)} are in the range of the others, {num_near} by two standard errors",
  ]


def calibrate(last: list[dict[str, Any]], calm: list[list[dict[str, Any]]]) -> list[str]:
  """Compares each run without faults with the others, at its evaluations nearest to `last`; returns lines."""
  steps = [e["env_steps"] for e in last]
  lines = [f"mean of the {len(last)} with faults: {statistics.mean(e['return_mean'] for e in last):.1f}"]
  for index, run in enumerate(calm):
    own = [min(run, key=lambda e: abs(e["env_steps"] - at)) for at in steps]
    others = [other for i, other in enumerate(calm) if i != index]
    mean = statistics.mean(e["return_mean"] for e in own)
    where = f"run without faults {index + 1}, at the nearest evaluations"
    lines.append(f"{where}: mean {mean:.1f}; {compare(own, others)[-1]}")
  return lines


def fifths(values: list[Any]) -> list[list[Any]]:
  """Splits the values into five consecutive parts of about equal length; leaves out empty parts."""
  edges = [round(i * len(values) / 5) for i in range(6)]
  parts = [values[a:b] for a, b in itertools.pairwise(edges)]
  return [part for part in parts if part]


if __name__ == "__main__":
  main()
