"""Measures what an acted step costs outside the search, in µs of processor time; part of `make bench`.

    python scripts/bench_acting.py [CONFIG] [key=value …] [--rounds 7] [--seconds 1] [--json FILE]

  package      random play of one game of the package `minatar`, with draws for sticky actions (MinAtar only)
  environment  random play of the environments of a training worker: `step` alone
  acting       a training worker's segments, with an agent that draws its actions without a network
  replay       adding these segments to replay

`acting` includes `environment`; acting and replay together are the time outside the search. The agent keeps
the history that MuZero's keeps, and its decisions have the same arrays. `python -m moozi.training.speed act
CONFIG` measures the search. The cases take turns. Run the script on one core (`taskset -c 1`), and compare
medians of one run.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from measuring import make_parser, rates_in_turn, report

from moozi.acting.collector import TrajectoryCollector
from moozi.agent.agent import Decision, PureAgent, make_agent
from moozi.core.config import Config
from moozi.core.records import TrajectorySample
from moozi.core.spec import EnvSpec
from moozi.envs.suites import minatar
from moozi.io.config import load_config
from moozi.io.jax_process import reuse_freed_memory
from moozi.run import build

STEPS = 512
"""Number of steps, or of vector steps, whose random numbers are drawn beforehand."""


def make_random_agent(spec: EnvSpec, history_length: int) -> PureAgent:
  """Returns an agent that draws legal actions, with the extras of MuZero's decisions."""

  def decide(
    variables: Any, history: Any, timestep: Any, rng_key: Any, temperature: Any, position: Any
  ) -> Decision:
    legal = jnp.asarray(timestep.legal_actions_mask)
    probs = legal / jnp.sum(legal, axis=-1, keepdims=True)
    value = jnp.zeros(len(legal), jnp.float32)
    action = jax.random.categorical(rng_key, jnp.where(legal, 0.0, -jnp.inf))
    extras = {
      "prior_probs": probs,
      "prior_action": action,
      "prior_value": value,
      "q_values": probs,
      "depth_mean": value,
      "depth_max": jnp.zeros(len(legal), jnp.int32),
    }
    return Decision(action=action, action_probs=probs, root_value=value, extras=extras)

  return make_agent(decide, spec, history_length)


def package_call(config: Config) -> Callable[[], int]:
  """Returns a function that plays `STEPS` steps of the package's game, without MooZi."""
  rules = minatar.load_game(config.env.name.removeprefix("minatar:")).Env(ramping=True)
  rules.random = random = np.random.RandomState(0)
  sticky_prob = config.env.kwargs.get("sticky_action_prob", 0.1)
  actions = np.random.default_rng(0).choice(rules.minimal_action_set(), STEPS).tolist()
  rules.reset()

  def call() -> int:
    last = 0
    for action in actions:
      last = last if random.rand() < sticky_prob else action
      _, is_over = rules.act(last)
      rules.state()
      if is_over:
        rules.reset()
    return STEPS

  return call


def environment_call(config: Config, spec: EnvSpec) -> Callable[[], int]:
  """Returns a function that makes one vector step of random play."""
  num_envs = config.workers.num_envs
  env = build.make_training_env(config, num_envs, worker=0, began_at=0)
  weights = itertools.cycle(np.random.default_rng(0).random((STEPS, num_envs, spec.policy_size), np.float32))
  step = env.reset()

  def call() -> int:
    nonlocal step
    step = env.step((next(weights) * step.legal_actions_mask).argmax(axis=1))
    return num_envs

  return call


def segments_of(config: Config, spec: EnvSpec) -> Iterator[TrajectorySample]:
  """Yields the segments of a training worker with `make_random_agent`."""
  num_envs, length = config.workers.num_envs, config.workers.segment_length
  env = build.make_training_env(config, num_envs, worker=0, began_at=0)
  agent = make_random_agent(spec, config.targets.history_length)
  collector = TrajectoryCollector(agent, env, length, lambda env_steps: 1.0, seed=0)
  collector.set_parameters(np.zeros(1, np.float32), 0)
  while True:
    yield collector.run(0)[0]


def measure(config: Config, rounds: int, seconds: float) -> dict[str, list[float]]:
  """Returns the µs of processor time per environment step of each case in each round."""
  spec = build.env_spec(config)
  num_envs, num_steps = config.workers.num_envs, config.workers.num_envs * config.workers.segment_length
  segments, replay = segments_of(config, spec), build.build_replay(config, spec)
  stored = [next(segments) for _ in range(8)]

  def act() -> int:
    next(segments)
    return num_steps

  def add() -> int:
    for segment in stored:
      replay.add_or_refuse(segment, 0, num_envs, num_steps)
    return num_steps * len(stored)

  calls = {"environment": environment_call(config, spec), "acting": act, "replay": add}
  if config.env.name.startswith("minatar:"):
    calls = {"package": package_call(config), **calls}
  rates = rates_in_turn(calls, rounds, seconds, clock=time.process_time)
  costs = {name: [1e6 / rate for rate in found] for name, found in rates.items()}
  costs["outside the search"] = [a + b for a, b in zip(costs["acting"], costs["replay"], strict=True)]
  return costs


def measure_all(args: argparse.Namespace) -> dict[str, Any]:
  reuse_freed_memory()  # as in a run
  config = load_config(args.config, args.overrides)
  workers = config.workers
  print(f"# {config.env.name}, {workers.num_envs} environments, segments of {workers.segment_length}")
  costs = measure(config, args.rounds, args.seconds)
  for name, found in costs.items():
    median = statistics.median(found)
    print(f"{name:<20} {median:6.2f} µs/step (from {min(found):.2f} to {max(found):.2f})", flush=True)
  return {"num_envs": workers.num_envs, "segment_length": workers.segment_length, "us_per_step": costs}


def main() -> None:
  parser = make_parser(__doc__, "config/minatar/breakout.yaml")
  parser.add_argument("--rounds", type=int, default=7, help="number of rounds")
  parser.add_argument("--seconds", type=float, default=1.0, help="duration of each case in a round")
  report(parser, measure_all)


if __name__ == "__main__":
  main()
