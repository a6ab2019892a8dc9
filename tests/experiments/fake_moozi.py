"""Stands in for `moozi` in tests of sweeps: leaves what the program leaves, without training anything.

What lies in the folder of the runs says how it behaves: with `pause` a run stops at half of its steps and has
its caller told that the time is over; with `fail` every evaluation fails; with `die` a run ends at its last
step as one that is killed there; with `hang` it leaves its process id in `hanging`, and does nothing more.
"""

import itertools
import json
import os
import signal
import sys
from pathlib import Path

import numpy as np

from moozi.io.checkpoints import find_checkpoint, save_checkpoint
from moozi.io.config import load_config
from moozi.io.run_directory import SUMMARY_KEYS, RunDirectory, load_resumed_config, save_resumed_config


def train(arguments: list[str]) -> None:
  stopped: list[int] = []
  signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
  if arguments[0] == "--resume":
    run = RunDirectory.open(arguments[1])
    config = load_resumed_config(run, arguments[2:])
    save_resumed_config(run, config, 0)
  else:
    run = RunDirectory.create(load_config(arguments[0], arguments[1:]))
    config = run.load_config()
  if (run.path.parent / "hang").exists():
    (run.path / "pid").write_text(str(os.getpid()))
    (run.path / "pid").rename(run.path.parent / "hanging")
    while True:
      signal.pause()
  pause = run.path.parent / "pause"
  steps = config.max_env_steps // 2 if pause.exists() else config.max_env_steps
  meta = {
    "env_steps": steps,
    "learner_steps": steps,
    "wall_s": 60.0 * steps,
    "is_milestone": True,
    "commit": "abc",
  }
  for folder in (run.resume_path, run.checkpoints_path):
    save_checkpoint(folder, f"step_{steps:09d}", {"x": np.zeros(1)}, meta)
  tick = {"env_steps": steps, "learner_steps": steps, "wall_s": 60.0 * steps, "test/return_mean": 1.5}
  with run.metrics_path.open("a") as file:
    file.write(json.dumps(tick) + "\n")
  if pause.exists():
    os.kill(os.getppid(), signal.SIGTERM)
    while not stopped:
      signal.pause()
  if (run.path.parent / "die").exists():
    return
  summary = dict.fromkeys(SUMMARY_KEYS, 0) | {
    "env_steps": steps,
    "learner_steps": steps,
    "training_s": 60.0 * steps,
  }
  # One whose own time was over had been evaluated when it was told to stop.
  is_timed_out = config.max_wall_s is not None and 60.0 * steps >= config.max_wall_s
  reason = "max_wall_s" if is_timed_out else "stopped" if pause.exists() else "max_env_steps"
  run.write_summary(summary | {"reason": reason})


def evaluate(arguments: list[str]) -> None:
  run = Path(arguments[0])
  if (run.parent / "fail").exists():
    print("moozi: error: it broke", file=sys.stderr)
    sys.exit(2)
  given = dict(itertools.pairwise(arguments))
  found = find_checkpoint(run / "checkpoints", given["--checkpoint"])
  count = int(given["--episodes"])
  returns = [float(given.get("--simulations", 0)) + i for i in range(count)]
  figures = {"checkpoint": found.name, "env_steps": found.env_steps, "episodes": count}
  print(json.dumps(figures | {"return_mean": float(np.mean(returns)), "returns": returns}))


if __name__ == "__main__":
  {"train": train, "evaluate": evaluate}[sys.argv[1]](sys.argv[2:])
