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
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moozi.io.machine import describe_machine, num_cores

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for `experiments` and `scripts`

GAME_STEPS = 1000
THREAD = "1"
GOAL = 0.85
"""The share of the limit of search and learning that a run should reach."""


def cpu_seconds(call: Callable[[], Any], min_s: float = 0.5) -> float:
  """Returns the mean processor seconds of a call, after one call for compilation and warm-up."""
  call()
  start, count = time.process_time(), 0
  while time.process_time() - start < min_s or count < 3:
    call()
    count += 1
  return (time.process_time() - start) / count


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
  import numpy as np

  from moozi.agent.update import init_training_state
  from moozi.core.records import TrajectorySample
  from moozi.run import build
  from moozi.training.speed import search_call, update_call

  spec = build.env_spec(config)
  model = build.build_model(config, spec)
  state = init_training_state(model, config, spec, jax.random.PRNGKey(0))
  num_envs, batch, reuse = config.workers.num_envs, config.learner.batch_size, config.learner.samples_per_step
  search = cpu_seconds(search_call(model, state, config, spec, num_envs), min_s) / num_envs
  learning = cpu_seconds(update_call(model, state, config, spec, batch), min_s) / batch
  lead = config.workers.segment_length, num_envs
  mask = np.ones((*lead, spec.num_actions), bool)
  mask[..., 0] = False
  segment = TrajectorySample(
    frame=np.zeros((*lead, *spec.frame_shape), spec.frame_dtype),
    last_reward=np.zeros(lead, np.float32),
    is_first=np.zeros(lead, bool),
    is_last=np.zeros(lead, bool),
    is_truncated=np.zeros(lead, bool),
    to_play=np.zeros(lead, np.int32),
    legal_actions_mask=mask,
    root_value=np.zeros(lead, np.float32),
    action_probs=mask / mask.sum(-1, keepdims=True, dtype=np.float32),
    action=np.ones(lead, np.int32),
    acted_version=np.zeros(lead, np.int32),
    searched_version=np.zeros(lead, np.int32),
  )
  replay, size = build.build_replay(config, spec), num_envs * config.workers.segment_length
  segment.is_first[0] = True
  replay.add(segment, 0)
  segment.is_first[0] = False
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

  spec = env_spec(config.env.name, **config.env.kwargs)
  num_envs, rom = config.workers.num_envs, load_facts(config.env.name.partition(":")[2]).rom
  cores = num_cores()
  size = spec.frame_shape[0]
  bare = AtariVectorEnv(rom, num_envs, num_threads=cores, img_height=size, img_width=size)
  bare.reset(seed=0)
  random, num_actions = np.random.default_rng(0), bare.single_action_space.n
  start, count = time.perf_counter(), 0
  while time.perf_counter() - start < seconds:
    bare.step(random.integers(num_actions, size=num_envs))
    count += num_envs
  rate = count / (time.perf_counter() - start)
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


def report(config_path: str, overrides: list[str], seconds: float) -> dict[str, Any]:
  """Measures and prints all figures, and returns them."""
  load = os.getloadavg()[0]
  print(f"# load average before: {load:.2f}", flush=True)
  command = [sys.executable, __file__, config_path, *overrides, "--parts"]
  environment = os.environ | {"NPROC": THREAD, "OMP_NUM_THREADS": THREAD, "JAX_PLATFORMS": "cpu"}
  done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True)
  parts: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
  aside = {name: parts.pop(name) for name in list(parts) if "not in a step" in name}
  whole = sum(parts.values())
  for name, value in parts.items():
    print(f"{name:24s} {value * 1e6:8.1f} µs of processor time per step, {value / whole:6.1%}")
  print(f"{'sum':24s} {whole * 1e6:8.1f} µs: at most {1 / whole:,.0f} environment steps/s on each core")
  for name, value in aside.items():
    print(f"{name}: {value * 1e3:.0f} ms")
  conditions = {"config": config_path, "overrides": overrides, "load_average": load, **describe_machine()}
  figures: dict[str, Any] = {**conditions, "parts": parts | aside}
  if not seconds:
    return figures
  from moozi.io.config import load_config
  from scripts.bench import end_to_end

  config = load_config(config_path, overrides)
  run = end_to_end(config_path, overrides, seconds, config.learner.batch_size)
  rate, bare = run["env_steps_per_s"], bare_rate(config)
  cores = num_cores()
  limit, limit_whole = limits_of(parts, config.learner.samples_per_step, run["sample_reuse"], cores)
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
  return figures | {"end_to_end": run, "limit": limit, "limit_whole": limit_whole, "bare": bare}


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("config", nargs="?", default="config/atari/pong.yaml")
  parser.add_argument("overrides", nargs="*")
  parser.add_argument("--seconds", type=float, default=180.0, help="length of the run with Ray; 0: no run")
  parser.add_argument("--json", type=Path, help="also write the figures to this file")
  parser.add_argument("--parts", action="store_true", help=argparse.SUPPRESS)
  args = parser.parse_intermixed_args()
  if args.parts:
    from moozi.io.config import load_config
    from moozi.io.jax_process import reuse_freed_memory

    reuse_freed_memory()  # as in a run
    config = load_config(args.config, args.overrides)
    print(json.dumps(environment_parts(config) | agent_parts(config)))
    return
  figures = report(args.config, args.overrides, args.seconds)
  if args.json:
    args.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
  main()
