"""Compares the predictions of `moozi plan` with runs of the same configurations.

    python scripts/check_plan.py [--only NAME …] [--plan-s 60] [--run-s 40] [--json FILE]
    python scripts/check_plan.py --config NAME [KEY=VALUE …] [--config …]

For each configuration of CASES, or for those of `--config`, the script predicts environment steps per second,
trains without evaluations, and measures the rate over `--run-s` seconds of the run, which begin 10 seconds
after learning has begun. Run it on an idle machine. The error is the prediction's, relative to the measured
rate.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measuring import make_parser, report

CASES: dict[str, tuple[str, ...]] = {
  "tiny/catch": (),
  "minatar/breakout": (),
  "minatar/asterix": ("runtime=local",),
  "boards/tic_tac_toe": (),
  "gymnasium/cartpole": (),
  "ppo/minatar/breakout": (),
  "atari/pong": ("replay.min_steps_to_learn=2000",),
  "pgx/2048": (),
}
"""Configurations with the settings that they are tried with."""
SETTINGS = (
  *("max_env_steps=1_000_000_000", "evaluation.period_env_steps=1_000_000_000", "checkpoint.period_s=1e6"),
  *("checkpoint.first_s=null", "checkpoint.milestones_env_steps=null", "evaluation.final_episodes=1"),
  *("logging.progress=none", "logging.period_s=1"),
)
SETTLE_S = 10.0
_STEP_S, _TIMEOUT_S = 0.5, 600.0


def rate_of(ticks: Sequence[dict[str, float]], seconds: float) -> float | None:
  """Returns the environment steps per second of a run's ticks in the window; None if it is not over.

  The window is of `seconds`, and begins 10 seconds after the first tick with an update.
  """
  learning = [tick for tick in ticks if tick.get("train/sample_reuse", 0.0) > 0]
  if not learning:
    return None
  begin_s = learning[0]["wall_s"] + SETTLE_S
  window = [tick for tick in learning if begin_s <= tick["wall_s"]]
  if len(window) < 2 or window[-1]["wall_s"] - window[0]["wall_s"] < seconds:
    return None
  first, last = window[0], window[-1]
  return (last["env_steps"] - first["env_steps"]) / (last["wall_s"] - first["wall_s"])


def measured(name: str, overrides: Sequence[str], seconds: float) -> float:
  """Trains until the window is over; returns environment steps per second."""
  with tempfile.TemporaryDirectory() as folder:
    command = [sys.executable, "-m", "moozi.cli", "train", name, *overrides, *SETTINGS]
    command += [f"run.dir={folder}", "run.name=check"]
    metrics = Path(folder) / "check" / "metrics.jsonl"
    end_s = time.monotonic() + _TIMEOUT_S + seconds
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
      try:
        while time.monotonic() < end_s and run.poll() is None:
          time.sleep(_STEP_S)
          lines = metrics.read_text().splitlines()[:-1] if metrics.exists() else []
          if (rate := rate_of([json.loads(line) for line in lines], seconds)) is not None:
            return rate
      finally:
        run.send_signal(signal.SIGINT)
    raise SystemExit(f"{name}: the run ended, or made no update in {_TIMEOUT_S:g} s")


def predicted(name: str, overrides: Sequence[str], seconds: float) -> dict[str, Any]:
  """Returns the plan of a configuration."""
  command = [sys.executable, "-m", "moozi.cli", "plan", name, *overrides, *SETTINGS, "--json"]
  command += ["--seconds", f"{seconds:g}"]
  out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
  found: dict[str, Any] = json.loads(out)
  return found


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
  rows = []
  print(f"{'configuration':<24} {'predicted':>10} {'measured':>10} {'error':>7}  limit", flush=True)
  for name, overrides in cases_of(args):
    plan = predicted(name, overrides, args.plan_s)
    rate = measured(name, overrides, args.run_s)
    row = {
      "config": name,
      "overrides": list(overrides),
      "predicted": plan["steps_per_s"],
      "measured": rate,
      "error": plan["steps_per_s"] / rate - 1,
      "plan": plan,
    }
    rows.append(row)
    error, limit = f"{row['error']:+.0%}", plan["limit"]
    print(f"{name:<24} {row['predicted']:>10,.0f} {rate:>10,.0f} {error:>7}  {limit}", flush=True)
  return rows


def cases_of(args: argparse.Namespace) -> list[tuple[str, Sequence[str]]]:
  """Returns the configurations that the options choose, each with its overrides."""
  if args.config:
    return [(name, overrides) for name, *overrides in args.config]
  return [(name, CASES[name]) for name in args.only or CASES]


def make_options() -> argparse.ArgumentParser:
  parser = make_parser(__doc__)
  chosen = parser.add_mutually_exclusive_group()
  chosen.add_argument("--only", nargs="+", choices=CASES, help="some of the configurations")
  chosen.add_argument(
    "--config",
    nargs="+",
    action="append",
    metavar=("NAME", "KEY=VALUE"),
    help="another configuration, with overrides; the option can be repeated",
  )
  parser.add_argument("--plan-s", type=float, default=60.0, help="seconds of a plan (%(default)g)")
  parser.add_argument("--run-s", type=float, default=40.0, help="seconds of a run's window (%(default)g)")
  return parser


def main() -> None:
  report(make_options(), measure)


if __name__ == "__main__":
  main()
