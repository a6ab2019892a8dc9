"""Measures the speed of a run, and the limit that this machine sets; part of `make bench`.

    python scripts/bench.py [CONFIG] [key=value …] [--seconds 180] [--json FILE]

1. The floor is the best sustained rate (calls over seconds) of the compiled search alone and of the compiled
   update alone, over batch widths and thread counts. Each thread count has its own process. The limit from
   the fastest single calls is also printed.
2. The whole system runs through Ray with the same configuration and a testing worker. Its environment steps/s
   after the warm-up are compared with the limit 1 / (t_act + r · t_learn), where r is the achieved number of
   samples per step. The limit with the widths of the configuration is also printed.
3. The parts are the vectorized environment, sampling from replay, and updates in a scan.

Run it on an idle machine, and compare the ratios within one run.
"""

import argparse
import os
from collections.abc import Mapping
from typing import Any

from measuring import end_to_end, figures_of_process, make_parser, report

from moozi.io.machine import num_cores

ACT_WIDTHS = (32, 64, 128, 256)
LEARN_WIDTHS = (128, 256, 512, 1024)
FILLED_STEPS = 60_000


def floor(config: Any, with_scan: bool) -> dict[str, Any]:
  """Returns the rates of the compiled search and update, measured with this process's threads."""
  import jax

  from moozi.agent.update import init_training_state, make_update
  from moozi.io.jax_process import reuse_freed_memory
  from moozi.run import build
  from moozi.training.speed import call_seconds, make_targets, search_call, update_call

  reuse_freed_memory()  # as in a run
  spec = build.env_spec(config)
  model = build.build_model(config, spec)
  state = init_training_state(model, config, spec, jax.random.PRNGKey(0))
  out: dict[str, Any] = {"act": {}, "learn": {}, "act_fastest": {}, "learn_fastest": {}}
  for width in sorted({*ACT_WIDTHS, config.workers.num_envs}):
    seconds, fastest = call_seconds(search_call(model, state, config, spec, width))
    out["act"][width], out["act_fastest"][width] = width / seconds, width / fastest
  for width in sorted({*LEARN_WIDTHS, config.learner.batch_size}):
    own = jax.tree_util.tree_map(jax.numpy.copy, state)
    seconds, fastest = call_seconds(update_call(model, own, config, spec, width))
    out["learn"][width], out["learn_fastest"][width] = width / seconds, width / fastest
  if with_scan:
    many = make_targets(config, spec, (4, config.learner.batch_size))
    scan = jax.jit(lambda s, t: jax.lax.scan(make_update(model, config, spec), s, t))
    seconds, _ = call_seconds(lambda: jax.block_until_ready(scan(state, many)))
    out["scan"] = 4 * config.learner.batch_size / seconds
  return out


def parts(config: Any) -> dict[str, float]:
  """Returns the rates of the vectorized environment and of replay, measured with one thread."""
  import numpy as np
  from random_segments import RandomSegments

  from moozi.envs.vector import make_vector
  from moozi.run import build
  from moozi.training.speed import call_seconds

  spec = build.env_spec(config)
  num_envs, length = config.workers.num_envs, config.workers.segment_length
  replay = build.build_replay(config, spec)
  play = RandomSegments(config.env.name, config.env.kwargs, num_envs)
  for _ in range(max(2, FILLED_STEPS // (num_envs * length))):
    segment = play.next(length)
    for first_lane in range(0, config.workers.num_workers * num_envs, num_envs):
      replay.add(segment, first_lane=first_lane)
  env, random = make_vector(config.env.name, config.env.kwargs, num_envs, 0), np.random.default_rng(0)
  env.reset()
  env_s, _ = call_seconds(lambda: env.step(random.integers(1, spec.num_actions, num_envs).astype(np.int32)))
  updates, batch = config.learner.updates_per_call, config.learner.batch_size
  sample_s, _ = call_seconds(lambda: replay.sample_many(updates, batch))
  return {
    "env_steps_per_s": num_envs / env_s,
    "replay_samples_per_s": updates * batch / sample_s,
    "num_envs": num_envs,
    "batch_size": batch,
  }


def whole(config_path: str, overrides: list[str], seconds: float) -> dict[str, Any]:
  """Measures everything, prints each figure when it is known, and returns all figures."""
  cores = num_cores()
  arguments = [config_path, *overrides, "--mode"]
  floors = {n: figures_of_process(__file__, n, [*arguments, "floor"]) for n in sorted({1, cores})}
  for threads, rates in floors.items():
    print(f"threads {threads}: search, steps/s by width:   {_row(rates['act'])}")
    print(f"threads {threads}: update, samples/s by width: {_row(rates['learn'])}", flush=True)
  t_act, t_learn = _least_seconds(floors, "act"), _least_seconds(floors, "learn")
  rates = figures_of_process(__file__, 1, [*arguments, "parts"])
  print(f"vectorized environment: {rates['env_steps_per_s']:,.0f} steps/s; replay: ", end="")
  print(f"{rates['replay_samples_per_s']:,.0f} samples/s", flush=True)
  print(f"updates in a scan: {floors[cores]['scan']:,.0f} samples/s")
  run = end_to_end(config_path, overrides, seconds, rates["batch_size"])
  limit = 1 / (t_act + run["sample_reuse"] * t_learn)
  ratio = run["env_steps_per_s"] / limit
  t_act_fastest, t_learn_fastest = (_least_seconds(floors, name) for name in ("act_fastest", "learn_fastest"))
  limit_fastest = 1 / (t_act_fastest + run["sample_reuse"] * t_learn_fastest)
  limit_own = limit_at(floors, run["sample_reuse"], rates["num_envs"], rates["batch_size"])
  print(
    f"t_act {t_act * 1e6:.1f} µs/step, t_learn {t_learn * 1e6:.1f} µs/sample, r {run['sample_reuse']:.3f}"
  )
  print(f"limit 1 / (t_act + r · t_learn): {limit:,.0f} environment steps/s")
  print(
    f"end to end over {run['window_s']:.0f} s with {run['evaluations']:.0f} evaluations: "
    f"{run['env_steps_per_s']:,.0f} environment steps/s = {ratio:.2f} of the limit"
  )
  print(
    f"limit with {rates['num_envs']} environments and batches of {rates['batch_size']}, as in the run: "
    f"{limit_own:,.0f} environment steps/s; end to end reaches {run['env_steps_per_s'] / limit_own:.2f} of it"
  )
  print(
    f"limit from the fastest single calls: {limit_fastest:,.0f} environment steps/s; end to end reaches "
    f"{run['env_steps_per_s'] / limit_fastest:.2f} of it"
  )
  return {
    "cores": cores,
    "floors": floors,
    "parts": rates,
    "end_to_end": run,
    "limit": limit,
    "ratio": ratio,
    "limit_own": limit_own,
    "ratio_own": run["env_steps_per_s"] / limit_own,
    "limit_fastest": limit_fastest,
    "ratio_fastest": run["env_steps_per_s"] / limit_fastest,
  }


def limit_at(floors: Mapping[int, Any], sample_reuse: float, num_envs: int, batch_size: int) -> float:
  """Returns the limit in environment steps/s at one width of the search and one of the update."""
  t_act, t_learn = _least_seconds(floors, "act", num_envs), _least_seconds(floors, "learn", batch_size)
  return 1 / (t_act + sample_reuse * t_learn)


def _least_seconds(floors: Mapping[int, Any], name: str, width: int | None = None) -> float:
  """Returns the seconds per step or sample at the best number of threads, at one width or the best one."""
  rates = (item for f in floors.values() for item in f[name].items())
  return 1 / max(rate for found, rate in rates if width is None or int(found) == width)


def _row(rates: dict[str, float]) -> str:
  return "  ".join(f"{width}: {rate:,.0f}" for width, rate in rates.items())


def measure(args: argparse.Namespace) -> dict[str, Any]:
  if args.mode == "whole":
    return whole(args.config, args.overrides, args.seconds)
  from moozi.io.config import load_config

  config = load_config(args.config, args.overrides)
  threads = int(os.environ["NPROC"])
  return floor(config, with_scan=threads == num_cores()) if args.mode == "floor" else parts(config)


def main() -> None:
  parser = make_parser(__doc__, "config/minatar/breakout.yaml")
  parser.add_argument("--seconds", type=float, default=180.0, help="length of the run through Ray")
  parser.add_argument("--mode", choices=("whole", "floor", "parts"), default="whole", help=argparse.SUPPRESS)
  report(parser, measure)


if __name__ == "__main__":
  main()
