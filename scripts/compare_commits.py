"""Compares two commits by the final states of short runs, or by speed, with this Python's packages.

    python scripts/compare_commits.py BEFORE AFTER [--only catch,ppo]
    python scripts/compare_commits.py BEFORE AFTER --speed 3 [--config atari/pong]

The first command makes the same short runs with both commits and `runtime=local`. It exits with status 1 if
the training state at the end of a run differs in any bit. Compare commits on one processor, because these
states differ between processors. The second command trains a configuration (by default MinAtar Breakout)
through Ray N times with each commit, in the order before, after, after, before, and prints environment
steps/s after the warm-up. Run it on an idle machine and read the ratios. States of commits before format 3 of
`moozi.io.state_file` cannot be read.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import safetensors.numpy

ROOT = Path(__file__).resolve().parent.parent
COMMON = (
  "runtime=local",
  "seed=1",
  "max_wall_s=null",
  "evaluation.episodes=4",
  "evaluation.final_episodes=4",
  "evaluation.period_env_steps=1000000000",
  "logging.progress=none",
)
SMALL = (
  "replay.min_steps_to_learn=1000",
  "learner.batch_size=64",
  "planners.train.num_simulations=8",
  "planners.test.num_simulations=4",
)
BREAKOUT_CONFIG = "config/minatar/breakout.yaml"
# Settings that config/minatar/breakout.yaml had in older commits, set here so that all commits train alike.
BREAKOUT = ("learner.consistency_coef=0", "learner.learning_rate.decay_steps=62500")
# Each run has a configuration, and overrides that end it after a few dozen updates.
RUNS = {
  "catch": ("config/tiny/catch.yaml", ("max_env_steps=6000",)),
  "breakout": (BREAKOUT_CONFIG, ("max_env_steps=6000", *SMALL, *BREAKOUT)),
  "breakout_defaults": (
    BREAKOUT_CONFIG,
    ("max_env_steps=5000", *SMALL, *BREAKOUT, "replay.sampling=rank", "learner.consistency_coef=1"),
  ),
  "tic_tac_toe": ("config/boards/tic_tac_toe.yaml", ("max_env_steps=8000", *SMALL)),
  "alphazero": ("config/alphazero/boards/tic_tac_toe.yaml", ("max_env_steps=4000", *SMALL)),
  "past_selves": (
    "config/boards/tic_tac_toe.yaml",
    ("max_env_steps=8000", *SMALL, "opponents.past_share=0.5", "opponents.period_updates=8"),
  ),
  "reanalyze": (
    "config/tiny/catch.yaml",
    # The search of stored positions is set here: its default has changed to that of training.
    (
      *("max_env_steps=4000", "reanalyze.ratio=0.5", "reanalyze.batch_size=64"),
      "planners.reanalyze.q_range_floor=0.01",
    ),
  ),
  "holding": ("config/tiny/corridor.yaml", ("max_env_steps=3000", "workers.num_holding_envs=2")),
  # Its environment is written in JAX, so that it acts with a compiled rollout.
  "rollout": ("config/tiny/catch.yaml", ("max_env_steps=6000", "env.name=gymnax:Catch-bsuite")),
  "ppo": ("config/ppo/minatar/breakout.yaml", ("max_env_steps=40000",)),
  "q_learning": (
    "config/q_learning/boards/tic_tac_toe.yaml",
    ("max_env_steps=4000", "replay.min_steps_to_learn=1000", "learner.batch_size=64"),
  ),
  "q_network": (
    "config/q_learning/minatar/breakout.yaml",
    ("max_env_steps=4000", "replay.min_steps_to_learn=1000", "learner.batch_size=64"),
  ),
}

SPEED_WARMUP_S, SPEED_S = 50.0, 110.0


def main() -> int:
  """Prints one line for each run; returns the exit status."""
  parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
  parser.add_argument("before", help="a commit")
  parser.add_argument("after", help="a commit")
  parser.add_argument("--only", help=f"runs, comma-separated: {', '.join(RUNS)}")
  parser.add_argument("--speed", type=int, metavar="N", help="compare the speed over N runs of each instead")
  parser.add_argument("--config", default=BREAKOUT_CONFIG, help="with --speed: a configuration (%(default)s)")
  arguments = parser.parse_args()
  names = arguments.only.split(",") if arguments.only else list(RUNS)
  if unknown := set(names) - RUNS.keys():
    parser.error(f"--only={arguments.only}: unknown run {min(unknown)!r}; must be one of {', '.join(RUNS)}")
  with tempfile.TemporaryDirectory() as scratch:
    trees = {}
    try:
      for side, commit in (("before", arguments.before), ("after", arguments.after)):
        _git("worktree", "add", "--detach", str(Path(scratch) / side), commit)
        trees[side] = Path(scratch) / side
      if arguments.speed:
        _compare_speed(trees, Path(scratch), arguments.speed, arguments.config)
        return 0
      differing = [name for name in names if not _compare(name, trees, Path(scratch))]
    finally:
      for tree in trees.values():
        _git("worktree", "remove", "--force", str(tree))
  return 1 if differing else 0


def _compare(name: str, trees: dict[str, Path], scratch: Path) -> bool:
  states = [_final_state(name, side, tree, scratch / "runs") for side, tree in trees.items()]
  before, after = states
  different = sorted(
    key for key in before.keys() | after.keys() if not _same(before.get(key), after.get(key))
  )
  print(
    f"{name}: {len(before)} arrays, "
    + (f"{len(different)} differ, first {different[0]}" if different else "equal")
  )
  return not different


def _compare_speed(trees: dict[str, Path], scratch: Path, num_pairs: int, config: str) -> None:
  rates: dict[str, list[float]] = {"before": [], "after": []}
  for pair in range(num_pairs):
    for side in ("before", "after") if pair % 2 == 0 else ("after", "before"):
      rates[side].append(_steps_per_s(trees[side], scratch, f"{side}_{pair}", config))
      print(f"pair {pair}, {side}: {rates[side][-1]:,.0f} environment steps/s", flush=True)
  ratios = [after / before for before, after in zip(rates["before"], rates["after"], strict=True)]
  print(
    f"after / before: mean of the ratios {statistics.mean(ratios):.3f}, "
    f"from {min(ratios):.3f} to {max(ratios):.3f}; load average {os.getloadavg()[0]:.2f}"
  )


def _steps_per_s(tree: Path, scratch: Path, name: str, config: str) -> float:
  """Trains through Ray with the commit's configuration; returns steps/s after the warm-up."""
  own = BREAKOUT if config == BREAKOUT_CONFIG else ()
  options = (*own, f"max_wall_s={SPEED_S}", "evaluation.final_episodes=1", "logging.progress=none")
  _train(tree, config, *options, f"run.dir={scratch}", f"run.name={name}")
  ticks = [json.loads(line) for line in (scratch / name / "metrics.jsonl").read_text().splitlines()]
  ticks = [tick for tick in ticks if SPEED_WARMUP_S <= tick["wall_s"] <= SPEED_S]
  first, last = ticks[0], ticks[-1]
  return (last["env_steps"] - first["env_steps"]) / (last["wall_s"] - first["wall_s"])


def _same(a: np.ndarray | None, b: np.ndarray | None) -> bool:
  return a is not None and b is not None and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def _final_state(name: str, side: str, tree: Path, runs: Path) -> dict[str, np.ndarray]:
  config, overrides = RUNS[name]
  location = (f"run.dir={runs}", f"run.name={name}_{side}")
  _train(tree, config, *COMMON, *overrides, *location)
  checkpoints = (runs / f"{name}_{side}" / "checkpoints").glob("step_*.safetensors")
  return safetensors.numpy.load_file(max(checkpoints))


def _train(tree: Path, *arguments: str) -> None:
  command = [sys.executable, "-m", "moozi.cli", "train", *arguments]
  environment = os.environ | {"PYTHONPATH": str(tree), "JAX_PLATFORMS": "cpu"}
  done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
  if done.returncode:
    run = arguments[-1].removeprefix("run.name=")
    raise SystemExit(f"{run}, {tree.name}: status {done.returncode}: {done.stderr.strip()[-500:]}")


def _git(*arguments: str) -> None:
  done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)
  if done.returncode:
    raise SystemExit(done.stderr.strip())


if __name__ == "__main__":
  sys.exit(main())
