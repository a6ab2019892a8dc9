"""Measures the parts of an Atari step, and a run's rate relative to its limits; part of `make bench`.

    python scripts/bench_atari.py [CONFIG] [key=value …] [--seconds 180] [--json FILE]

1. The processor time of the parts of one environment step, on one thread: the emulator, reading its screens,
   resizing, the rest of the environment, a new game (for games of 1,000 steps), search, copies in and out of
   replay, and learning at the configured samples per step. Processor time does not include waiting, so the
   shares are comparable on a machine that is not idle, except for effects of shared caches.
2. The rate of a run with Ray, on all cores, relative to the limit 1 / (t_act + r · t_learn) of search and
   learning (as in bench.py), to the limit that also has the environment and the copies, and to ale-py's
   vectorized environment alone. These figures need an idle machine. `--seconds 0` leaves them out.
"""

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

from measuring import end_to_end, figures_of_process, make_parser, rates_in_turn, report

from moozi.io.machine import describe_machine, num_cores

GAME_STEPS = 1000
GOAL = 0.85
"""The share of the limit of search and learning that a run should reach."""


def cpu_seconds(call: Callable[[], Any], min_s: float = 0.5) -> float:
  """Returns the mean processor seconds of a call, after two calls for compilation and warm-up."""
  from moozi.training.speed import call_seconds

  return call_seconds(call, min_s, min_calls=3, clock=time.process_time)[0]


def environment_parts(config: Any, min_s: float = 0.5) -> dict[str, float]:
  """Returns the processor seconds of the parts of one environment step, without the search."""
  import numpy as np

  from moozi.envs.registry import env_spec, options_of
  from moozi.envs.suites.atari.frames import AreaResize
  from moozi.envs.suites.atari.rom import AtariOptions, load_emulator, load_facts
  from moozi.envs.vector import make_vector

  game = config.env.name.partition(":")[2]
  options, facts = AtariOptions(**options_of(config.env.name, config.env.kwargs)), load_facts(game)
  spec = env_spec(config.env.name, **config.env.kwargs)
  ale, random = load_emulator(facts.rom), np.random.default_rng(0)
  ale.reset_game()
  saved = ale.cloneState()
  screens = np.zeros((2, facts.height, facts.width, spec.frame_shape[2]), np.uint8)
  resize = AreaResize(facts.height, facts.width, spec.frame_shape[0])
  actions = random.choice(facts.actions(options), 4096).tolist()

  def play() -> None:
    for _ in range(options.frame_skip):
      ale.act(actions[0])
      actions.append(actions.pop(0))
      if ale.game_over():
        new_game()

  def new_game() -> None:
    ale.reset_game()
    ale.restoreState(saved)

  def read() -> None:
    for screen in screens:
      ale.getScreenRGB(screen) if options.colour else ale.getScreenGrayscale(screen[..., 0])
    np.maximum(screens[0], screens[1], out=screens[1])

  num_envs = config.workers.num_envs
  vector = make_vector(config.env.name, config.env.kwargs, num_envs, 0)
  vector.reset()
  whole = (
    cpu_seconds(lambda: vector.step(random.integers(1, spec.num_actions, num_envs)), 2 * min_s) / num_envs
  )
  vector.close()
  noops = options.max_noops / 2 * cpu_seconds(lambda: ale.act(0), min_s)
  parts = {
    "emulator": cpu_seconds(play, min_s),
    "screens": cpu_seconds(read, min_s),
    "resizing": cpu_seconds(lambda: resize(screens[1]), min_s),
    "new game": (cpu_seconds(new_game, min_s) + noops) / GAME_STEPS,
  }
  return parts | {
    "rest of the environment": max(0.0, whole - sum(parts.values())),
    "reload of the ROM, per game (not in a step)": cpu_seconds(lambda: load_emulator(facts.rom), min_s),
  }


def agent_parts(config: Any, min_s: float = 0.5) -> dict[str, float]:
  """Returns the processor seconds per environment step of search, learning and copies."""
  import jax
  from random_segments import RandomSegments

  from moozi.agent.update import init_training_state
  from moozi.run import build
  from moozi.training.speed import search_call, update_call

  spec = build.env_spec(config)
  model = build.build_model(config, spec)
  state = init_training_state(model, config, spec, jax.random.PRNGKey(0))
  num_envs, batch, reuse = config.workers.num_envs, config.learner.batch_size, config.learner.samples_per_step
  search = cpu_seconds(search_call(model, state, config, spec, num_envs), min_s) / num_envs
  learning = cpu_seconds(update_call(model, state, config, spec, batch), min_s) / batch
  # The second segment of random play is added again and again: it continues another one.
  play, length = RandomSegments(config.env.name, config.env.kwargs, num_envs), config.workers.segment_length
  replay, size = build.build_replay(config, spec), num_envs * length
  replay.add(play.next(length), 0)
  segment = play.next(length)
  play.close()
  while not replay.can_sample(batch):
    replay.add(segment, 0)
  adding = cpu_seconds(lambda: replay.add(segment, 0), min_s) / size
  drawing = cpu_seconds(lambda: replay.sample_many(1, batch), min_s) / batch
  return {"search": search, "copies": adding + reuse * drawing, "learning": reuse * learning}


def bare_rate(config: Any, seconds: float = 5.0) -> float:
  """Returns the steps/s of ale-py's vectorized environment alone, on all cores."""
  import numpy as np
  from ale_py import AtariVectorEnv

  from moozi.envs.registry import env_spec
  from moozi.envs.suites.atari.rom import load_facts

  size = env_spec(config.env.name, **config.env.kwargs).frame_shape[0]
  num_envs, rom = config.workers.num_envs, load_facts(config.env.name.partition(":")[2]).rom
  bare = AtariVectorEnv(rom, num_envs, num_threads=num_cores(), img_height=size, img_width=size)
  bare.reset(seed=0)
  random, num_actions = np.random.default_rng(0), bare.single_action_space.n

  def play() -> int:
    bare.step(random.integers(num_actions, size=num_envs))
    return num_envs

  ((rate,),) = rates_in_turn({"bare": play}, 1, seconds).values()
  bare.close()
  return rate


def limits_of(
  parts: dict[str, float], samples_per_step: float, reuse: float, cores: int
) -> tuple[float, float]:
  """Returns the steps/s that `cores` allow, without the environment and copies, and with them.

  Args:
    parts: the seconds per step of each part on one core, with `samples_per_step` samples of learning.
    reuse: the samples per step that a run achieved.
  """
  learning = reuse * parts["learning"] / samples_per_step
  whole = sum(parts.values()) - parts["learning"] + learning
  return cores / (parts["search"] + learning), cores / whole


def measure(args: argparse.Namespace) -> dict[str, Any]:
  """Measures and prints all figures, and returns them."""
  if args.parts:
    from moozi.io.config import load_config
    from moozi.io.jax_process import reuse_freed_memory

    reuse_freed_memory()  # as in a run
    config = load_config(args.config, args.overrides)
    return environment_parts(config) | agent_parts(config)
  load = os.getloadavg()[0]
  parts: dict[str, float] = figures_of_process(__file__, 1, [args.config, *args.overrides, "--parts"])
  aside = {name: parts.pop(name) for name in list(parts) if "not in a step" in name}
  whole = sum(parts.values())
  for name, value in parts.items():
    print(f"{name:24s} {value * 1e6:8.1f} µs of processor time per step, {value / whole:6.1%}")
  print(f"{'sum':24s} {whole * 1e6:8.1f} µs: at most {1 / whole:,.0f} environment steps/s on each core")
  for name, value in aside.items():
    print(f"{name}: {value * 1e3:.0f} ms")
  conditions = {"config": args.config, "overrides": args.overrides, "load_average": load}
  figures: dict[str, Any] = {**conditions, **describe_machine(), "parts": parts | aside}
  return figures | compare_to_limits(args, parts) if args.seconds else figures


def compare_to_limits(args: argparse.Namespace, parts: dict[str, float]) -> dict[str, Any]:
  """Compares a run through Ray with the limits that the parts set; prints and returns the figures."""
  from moozi.io.config import load_config

  config = load_config(args.config, args.overrides)
  run = end_to_end(args.config, args.overrides, args.seconds, config.learner.batch_size)
  rate, bare = run["env_steps_per_s"], bare_rate(config)
  per_step = config.learner.samples_per_step
  limit, limit_whole = limits_of(parts, per_step, run["sample_reuse"], num_cores())
  print(f"end to end: {rate:,.0f} environment steps/s with r = {run['sample_reuse']:.2f}")
  print(
    f"limit of all cores, 1 / (t_act + r · t_learn): {limit:,.0f}; the run reaches {rate / limit:.2f} of it "
    f"(goal {GOAL})"
  )
  print(
    f"limit with the environment and the copies: {limit_whole:,.0f}; the run reaches "
    f"{rate / limit_whole:.2f} of it"
  )
  print(f"ale-py's bare environment: {bare:,.0f} steps/s; the run reaches {rate / bare:.2f} of it")
  return {"end_to_end": run, "limit": limit, "limit_whole": limit_whole, "bare": bare}


def main() -> None:
  parser = make_parser(__doc__, "config/atari/pong.yaml")
  parser.add_argument("--seconds", type=float, default=180.0, help="length of the run with Ray; 0: no run")
  parser.add_argument("--parts", action="store_true", help=argparse.SUPPRESS)
  report(parser, measure)


if __name__ == "__main__":
  main()
