"""Measures an Atari run on a machine with one GPU, and prints where its time goes.

    python scripts/bench_gpu.py parts --json parts.json
    python scripts/bench_gpu.py modes --json modes.json
    python scripts/bench_gpu.py learning --json learning.json

CONFIG and key=value may follow, as in the other benchmarks; by default CONFIG is `atari/gpu/pong`.

  parts     the time per environment step of the parts of a run in one process, and their shares: search,
            environments, replay, and updates, of which the transfer of samples is a part
  modes     acting with one training worker, and with two training workers and an inference server, which
            share the GPU
  learning  two runs at the same time, each in one process: the configuration as it is, and the same without
            augmentation

`learning` takes `--seconds` after the start of the runs. No figure of this script has been measured on a GPU
yet.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from measuring import make_parser, print_rates, rates_in_turn, report

RUNS = {
  "as configured": (),
  "without augmentation": ("learner.max_shift=0", "learner.intensity_jitter=0"),
}
SETTINGS = (
  *("runtime=local", "evaluation.period_env_steps=1_000_000_000", "evaluation.gif=false"),
  *("evaluation.num_envs=8", "evaluation.final_episodes=8", "evaluation.max_episode_steps=3_000"),
  *("checkpoint.period_s=1e6", "checkpoint.first_s=null", "checkpoint.milestones_env_steps=null"),
  *("logging.progress=none", "logging.period_s=5", "logging.tensorboard=false"),
)
SERVED_WORKERS = 2
KEPT = (
  *("wall_s", "env_steps", "learner_steps", "train/return_mean", "search/root_value", "error/value"),
  *("error/reward", "loss/total", "system/env_steps_per_s", "train/env_share"),
)
"""Metrics of a tick that are kept, with the busy shares of all parts."""


# --- parts --------------------------------------------------------------------------------------------------


def parts(config: Any, min_s: float) -> tuple[dict[str, float], float]:
  """Returns the seconds of each part for one environment step, and those of the transfer of samples.

  Each part runs alone. The transfer is a part of the update.
  """
  import jax
  import numpy as np
  from random_segments import RandomSegments

  from moozi.agent.update import init_training_state
  from moozi.envs.vector import make_vector
  from moozi.replay.frame_rows import packed
  from moozi.replay.mixture import make_replay
  from moozi.run import build
  from moozi.training.speed import call_seconds, search_call, update_call

  def seconds(call: Callable[[], Any]) -> float:
    return call_seconds(call, min_s, min_calls=3)[0]

  spec, learner, num_envs = build.env_spec(config), config.learner, config.workers.num_envs
  model = build.build_model(config, spec)
  state = init_training_state(model, config, spec, jax.random.PRNGKey(0))
  out = {"search": seconds(search_call(model, state, config, spec, num_envs)) / num_envs}
  env, random = make_vector(config.env.name, config.env.kwargs, num_envs, 0), np.random.default_rng(0)
  env.reset()
  actions = random.integers(1, spec.num_actions, (64, num_envs)).astype(np.int32)
  turns = iter(range(10**9))
  out["environments"] = seconds(lambda: env.step(actions[next(turns) % len(actions)])) / num_envs
  env.close()
  play, length = RandomSegments(config.env.name, config.env.kwargs, num_envs), config.workers.segment_length
  replay, num_steps = make_replay(config, spec, None), num_envs * length
  # The second segment is added again and again: it continues another one.
  first, segment = (packed(play.next(length), spec) for _ in range(2))
  play.close()
  replay.add(first, 0)
  while not replay.can_sample(learner.batch_size):
    replay.add(segment, 0)
  calls, batches = learner.updates_per_call, learner.samples_per_step / learner.batch_size
  targets = jax.tree_util.tree_map(lambda x: x[0], replay.sample_many(1, learner.batch_size))
  out["replay: add"] = seconds(lambda: replay.add(segment, 0)) / num_steps
  draw_s = seconds(lambda: replay.sample_many(calls, learner.batch_size)) / calls
  out["replay: draw"] = batches * draw_s
  transfer_s = seconds(lambda: jax.block_until_ready(jax.device_put(targets)))
  out["update"] = batches * seconds(update_call(model, state, config, spec, learner.batch_size))
  return out, batches * transfer_s


def measure_parts(config: Any, min_s: float) -> dict[str, Any]:
  """Measures and prints the parts; returns them with the rate of a run whose parts take turns."""
  found, transfer_s = parts(config, min_s)
  whole = sum(found.values())
  for name, value in found.items():
    print(f"{name:<24} {1e6 * value:>9.1f} µs for a step, {value / whole:>6.1%}", flush=True)
  print(f"of the update, the transfer of samples: {1e6 * transfer_s:.1f} µs for a step")
  print(f"parts that take turns allow {1 / whole:,.0f} environment steps/s")
  return {"seconds_per_step": found, "transfer_s_per_step": transfer_s, "steps_per_s": 1 / whole}


# --- modes --------------------------------------------------------------------------------------------------


def acting_config(config: Any, num_workers: int) -> Any:
  """Returns the configuration of a mode: several workers have an inference server, which uses the GPU."""
  from bench_inference import settings

  made = settings(config, num_workers)
  gpu = config.workers.resources.num_gpus
  if num_workers == 1:
    return made
  resources = made.workers.resources.model_copy(update={"num_gpus": 0.0})
  server = made.acting.resources.model_copy(update={"num_gpus": gpu})
  workers = made.workers.model_copy(update={"resources": resources})
  return made.model_copy(
    update={"workers": workers, "acting": made.acting.model_copy(update={"resources": server})}
  )


def measure_modes(ray: Any, config: Any, rounds: int, num_segments: int) -> dict[str, list[float]]:
  """Returns the environment steps/s of each mode in each round."""
  from bench_inference import start

  cases = {"worker": 1, f"server, {SERVED_WORKERS} workers": SERVED_WORKERS}
  calls = {name: start(ray, acting_config(config, count), num_segments) for name, count in cases.items()}
  rates = rates_in_turn(calls, rounds)
  print_rates(rates, "steps/s")
  return rates


# --- learning -----------------------------------------------------------------------------------------------


def learning(config: str, overrides: Sequence[str], seconds: float, share: float) -> dict[str, Any]:
  """Trains the runs of `RUNS` at the same time; returns what each learned, and the shares of its time.

  Args:
    share: share of the GPU's memory that each run reserves.
  """
  environment = os.environ | {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{share:g}"}
  with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
    started = {}
    for number, (name, own) in enumerate(RUNS.items()):
      command = [sys.executable, "-m", "moozi.cli", "train", config, *SETTINGS, *own, *overrides]
      command += [f"max_wall_s={seconds:g}", f"run.dir={folder}", f"run.name=run{number}"]
      process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
      stack.callback(process.kill)  # does nothing after its end
      started[name] = process, Path(folder) / f"run{number}"
    return {name: result_of(process, run) for name, (process, run) in started.items()}


def result_of(process: subprocess.Popen, run: Path) -> dict[str, Any]:
  """Waits for a run, and returns its ticks, its last evaluation and the median shares of its parts."""
  status = process.wait()
  if status:
    raise SystemExit(f"{run.name}: ended with status {status}")
  ticks = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
  summary = json.loads((run / "summary.json").read_text("utf-8"))
  names = sorted({name for tick in ticks for name in tick if name.startswith("system/busy_share/")})
  with_all = [tick for tick in ticks if all(name in tick for name in names) and tick["learner_steps"]]
  kept = [{name: tick[name] for name in (*KEPT, *names) if name in tick} for tick in ticks]
  return {
    "evaluation": {name: summary[name] for name in summary if name.startswith("test_")},
    "shares": {name: statistics.median(tick[name] for tick in with_all) for name in names}
    if with_all
    else {},
    "ticks": kept,
  }


def print_learning(results: dict[str, Any]) -> None:
  for name, result in results.items():
    last = result["ticks"][-1]
    returns = [tick["train/return_mean"] for tick in result["ticks"] if "train/return_mean" in tick]
    acting = f"{returns[-1]:.1f}" if returns else "none"
    print(f"{name}: {last['env_steps']:,} steps, training return {acting}, {result['evaluation']}")
    shares = ", ".join(f"{part.rpartition('/')[2]} {share:.0%}" for part, share in result["shares"].items())
    print(f"  shares of the time: {shares}", flush=True)


def measure(args: argparse.Namespace) -> dict[str, Any]:
  """Makes the measurement of `args.what`; prints and returns its figures with the machine."""
  from moozi.io.config import load_config
  from moozi.io.machine import describe_machine

  begin_s = time.monotonic()
  if args.what == "learning":
    figures = learning(args.config, args.overrides, args.seconds, share=0.4)
    print_learning(figures)
  elif args.what == "parts":
    from moozi.io.jax_process import reuse_freed_memory

    reuse_freed_memory()  # as in a run
    figures = measure_parts(load_config(args.config, args.overrides), min_s=3.0)
  else:
    from moozi.actors import cluster

    config = load_config(args.config, args.overrides)
    with cluster.started(config.ray) as ray:
      figures = measure_modes(ray, config, args.rounds, num_segments=4)
  conditions = {"what": args.what, "config": args.config, "overrides": args.overrides}
  return {**conditions, **describe_machine(), "wall_s": time.monotonic() - begin_s, "figures": figures}


def main() -> None:
  parser = make_parser(__doc__)
  parser.add_argument("what", choices=("parts", "modes", "learning"))
  parser.add_argument("config", nargs="?", default="atari/gpu/pong")
  parser.add_argument("overrides", nargs="*")
  parser.add_argument("--seconds", type=float, default=300.0, help="length of the runs (%(default)g)")
  parser.add_argument("--rounds", type=int, default=5)
  report(parser, measure)


if __name__ == "__main__":
  main()
