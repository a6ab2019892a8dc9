"""Measures reanalyze relative to the compiled search alone; part of `make bench`.

    python scripts/bench_reanalyze.py [CONFIG] [key=value …] [--rounds 8] [--seconds 1.5] [--json FILE]

1. The floor is the positions/s of the compiled search of one batch on the device.
2. Each mode of reanalyze is measured with the oldest positions first, and with the largest priority first. A
   call chooses positions in a full replay buffer, reads them with their histories, searches them, and writes
   the results back with the priorities that depend on them. The version of the target parameters increases as
   often as in a run of the configuration (with `reanalyze.ratio`, or 0.5 if that is 0).

The buffer is filled by random play with random values. Replay's part of a call runs in a thread, one call
ahead of the search; with `runtime=ray` it has its own process. Cases with `in turn` in their name run replay
and search in sequence, as `runtime=local` does. The target for `gather`, the default mode, is 0.9 of the
floor. Run it on an idle machine. All cases take turns. Each ratio is relative to the floor of the same round,
and the script prints the median, the minimum and the maximum of the rounds.
"""

import argparse
import collections
import concurrent.futures
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from measuring import Rates, make_parser, print_rates, rates_in_turn, report

NUM_STEPS = 65_536


def fill(config: Any, spec: Any) -> Any:
  """Fills a replay buffer with random play; returns it and the version of its newest parameters."""
  from random_segments import RandomSegments

  from moozi.run import build

  replay = build.build_replay(config, spec)
  play = RandomSegments(config.env.name, config.env.kwargs, config.workers.num_envs)
  number = 0
  while replay.num_steps < min(NUM_STEPS, replay.num_slots):
    replay.add(play.next(config.workers.segment_length, number), first_lane=0)
    number += 1
  return replay, number


def calls_between_copies(config: Any) -> int:
  """Returns the number of reanalyze calls between two copies of the target parameters in a run."""
  learner, ratio = config.learner, config.reanalyze.ratio or 0.5
  acted = learner.target_update_period * learner.batch_size / learner.samples_per_step
  return max(1, round(acted * ratio / (1 - ratio) / config.reanalyze.batch_size))


def measure(config: Any, rounds: int, seconds: float) -> Rates:
  """Returns the positions/s of each case by its name, one rate per round; the floor is first."""
  import jax

  from moozi.acting.reanalyzer import make_root_search
  from moozi.core.pytree import fields_of
  from moozi.run import build

  spec = build.env_spec(config)
  replay, version = fill(config, spec)
  variables, _ = build.build_learner(config, spec).parameters()
  reanalyzer = build.build_reanalyzer(config, spec, 0)
  settings = config.reanalyze
  roots = replay.positions(settings, version)
  search = jax.jit(
    make_root_search(build.build_model(config, spec), config.planners.for_reanalyze, config.targets, spec)
  )
  on_device = jax.device_put(
    (variables, roots.frames, roots.history_actions, roots.legal_actions_mask, jax.random.PRNGKey(0))
  )

  def bare() -> int:
    jax.block_until_ready(search(*on_device))
    return len(roots.slot)

  calls_a_version = calls_between_copies(config)

  def new_version(number: Iterator[int]) -> int:
    nonlocal version
    if next(number) % calls_a_version == 0:
      version += 1
    return version

  def in_turn(mode: str, order: str) -> Callable[[], int]:
    chosen, number = settings.model_copy(update={"mode": mode, "order": order}), itertools.count()

    def call() -> int:
      positions = replay.positions(chosen, new_version(number))
      reanalyzer.set_parameters(variables, version)
      searched, _ = reanalyzer.run(positions)
      return replay.write_back(**fields_of(searched))

    return call

  def concurrently(mode: str, order: str, pool: concurrent.futures.Executor) -> Callable[[], int]:
    chosen, number = settings.model_copy(update={"mode": mode, "order": order}), itertools.count()
    requested = collections.deque([pool.submit(replay.positions, chosen, new_version(number))])
    written: collections.deque[concurrent.futures.Future[int]] = collections.deque()

    def call() -> int:
      requested.append(pool.submit(replay.positions, chosen, new_version(number)))
      positions = requested.popleft().result()
      reanalyzer.set_parameters(variables, version)
      searched, _ = reanalyzer.run(positions)
      written.append(pool.submit(replay.write_back, **fields_of(searched)))
      return written.popleft().result() if len(written) > 1 else 0

    return call

  with concurrent.futures.ThreadPoolExecutor(1) as pool:
    calls = {"bare search": bare}
    for mode in ("gather", "replayed"):
      for order in ("oldest", "priority"):
        calls[f"{mode}, {order}"] = concurrently(mode, order, pool)
        calls[f"{mode}, {order}, in turn"] = in_turn(mode, order)
    return rates_in_turn(calls, rounds, seconds)


def measure_all(args: argparse.Namespace) -> dict[str, Rates]:
  from moozi.io.config import load_config

  config = load_config(args.config, args.overrides)
  print(
    f"{config.reanalyze.batch_size} positions per call, {config.planners.for_reanalyze.num_simulations} "
    f"simulations, {args.rounds} rounds"
  )
  rates = measure(config, args.rounds, args.seconds)
  print_rates(rates, "positions/s")
  return {"rates": rates}


def main() -> None:
  parser = make_parser(__doc__, "config/minatar/breakout.yaml")
  parser.add_argument("--rounds", type=int, default=8)
  parser.add_argument("--seconds", type=float, default=1.5, help="duration of each measurement in each round")
  report(parser, measure_all)


if __name__ == "__main__":
  main()
