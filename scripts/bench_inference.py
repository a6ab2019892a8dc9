"""Measures acting with an inference server relative to one training worker that decides itself.

    python scripts/bench_inference.py [CONFIG] [key=value …] [--rounds 5] [--segments 32]
        [--learn-s SECONDS] [--json FILE]

Makes two comparisons of environment steps/s. Each case has `workers.num_envs` environments in all.

  first   the configuration's environment: one training worker; two training workers and an inference server
  slow    the same environment with 5 ms of waiting in each step: one training worker; eight training workers
          and an inference server

No learner runs. A turn has `--segments` segments of each training worker in the first comparison, and an
eighth of them in the second. With `--learn-s 150` there is only the first comparison, of whole runs of 150 s
after their first minute.

By default each training worker and the server has one thread. The cases of a comparison take turns for
several rounds, and ratios compare rates of one round. Run the script on an idle machine.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

from measuring import Rates, end_to_end, make_parser, print_rates, rates_in_turn, report

from moozi.actors import cluster
from moozi.actors.remote.process import Setup
from moozi.actors.roles import ROLES, actors_of
from moozi.core.actor_report import INFERENCE_SERVER, WORKER
from moozi.core.config import Config
from moozi.core.config.env import EnvConfig
from moozi.envs import registry
from moozi.envs.environment import Environment
from moozi.envs.wrappers import EnvironmentWrapper
from moozi.io.config import load_config
from moozi.run import build

STEP_S = 0.005
MINATAR = {"worker": 1, "server, 2 workers": 2}
NO_EVALUATIONS = ("evaluation.period_env_steps=1_000_000_000", "checkpoint.first_s=null")
SLOW = {"worker": 1, "server, 8 workers": 8}


class SlowEnvironment(EnvironmentWrapper):
  """Waits before each step, in place of a slow simulator."""

  def step(self, action: Any) -> Any:
    time.sleep(STEP_S)
    return self._env.step(action)


def make_slow(game: str, seed: int = 0) -> Environment:
  """Makes a slow environment; the option `game` names the environment, such as `minatar:breakout`."""
  return SlowEnvironment(registry.make(game, seed))


def settings(config: Config, num_workers: int) -> Config:
  """Returns the configuration with its environments divided among workers; several have a server."""
  num_envs, rest = divmod(config.workers.num_envs, num_workers)
  assert not rest, f"workers.num_envs={config.workers.num_envs}: must be a multiple of {num_workers}"
  changes = {"workers": {"num_workers": num_workers, "num_envs": num_envs, "rollout": "step"}}
  changes |= {"acting": {"mode": "server" if num_workers > 1 else "worker"}}
  sections = {name: getattr(config, name).model_dump() | values for name, values in changes.items()}
  return Config.model_validate(config.model_dump() | sections | {"runtime": "ray"}).allowing_code(True)


def with_envs(config: Config, num_envs: int) -> Config:
  """Returns the configuration with another number of environments in all."""
  return config.model_copy(update={"workers": config.workers.model_copy(update={"num_envs": num_envs})})


def slowed(config: Config) -> Config:
  """Returns the configuration with its environment made slow."""
  env = EnvConfig(name="bench_inference:make_slow", kwargs={"game": config.env.name})
  return config.model_copy(update={"env": env})


def start(ray: Any, config: Config, num_segments: int) -> Callable[[], int]:
  """Starts the actors of a case; returns a call that acts `num_segments` segments in each worker."""
  spec = build.env_spec(config)
  parameters = ray.put((build.initial_training_state(config, spec).variables, 0))
  handles: dict[str, list[Any]] = {}
  for role in (INFERENCE_SERVER, WORKER):
    handles[role] = []
    for actor in actors_of(role, config):
      make = ray.remote(**ROLES[role].options(config, actor) | {"num_cpus": 0})(ROLES[role].make)
      arguments = () if role == INFERENCE_SERVER else (actor.index, 0)
      setup = Setup(str(actor), ROLES[role].resources(config))
      handles[role].append(make.remote(config, spec, *arguments, setup=setup))
  servers, workers = handles[INFERENCE_SERVER], handles[WORKER]
  ray.get([server.set_parameters.remote(parameters) for server in servers])
  ray.get([worker.warm_up.remote() for worker in workers])

  def call() -> int:
    # This is also a reference to the servers: Ray ends an actor with its last handle.
    own = None if servers else parameters
    results = [
      worker.run.options(num_returns=2).remote(own, 0)[1] for _ in range(num_segments) for worker in workers
    ]
    return sum(acted.num_steps for acted in ray.get(results))

  return call


def measure(ray: Any, config: Config, cases: dict[str, int], rounds: int, num_segments: int) -> Rates:
  """Returns the environment steps/s of each case in each round; `cases` are numbers of workers by name."""
  calls = {name: start(ray, settings(config, count), num_segments) for name, count in cases.items()}
  return rates_in_turn(calls, rounds)


def learning(args: argparse.Namespace) -> Rates:
  """Returns the environment steps/s of whole runs in turn: with one worker, and with an inference server."""
  config = load_config(args.config, args.overrides)
  rates: Rates = {name: [] for name in MINATAR}
  for _ in range(args.rounds):
    for name, num_workers in MINATAR.items():
      own = settings(config, num_workers)
      changes = [f"workers.num_workers={num_workers}", f"workers.num_envs={own.workers.num_envs}"]
      changes += [f"acting.mode={own.acting.mode}", "workers.rollout=step", *NO_EVALUATIONS]
      found = end_to_end(args.config, [*args.overrides, *changes], args.learn_s, config.learner.batch_size)
      rates[name].append(found["env_steps_per_s"])
  return rates


def measure_all(args: argparse.Namespace) -> dict[str, Rates]:
  config = load_config(args.config, args.overrides)
  if args.learn_s:
    out = {"with a learner": learning(args)}
  else:
    out = {}
    few = max(args.segments // 8, 1)
    widths = args.num_envs or [config.workers.num_envs]
    comparisons = [
      (f"{config.env.name}, {width} environments", with_envs(config, width), MINATAR, args.segments)
      for width in widths
    ]
    if not args.no_slow:
      comparisons.append(("slow", slowed(config), SLOW, few))
    for title, case, cases, num_segments in comparisons:
      # A cluster for each comparison, because servers have names.
      with cluster.started(config.ray) as ray:
        out[title] = measure(ray, case, cases, args.rounds, num_segments)
  for title, rates in out.items():
    print_rates(rates, "steps/s", f"{title}: ")
  return out


def main() -> None:
  parser = make_parser(__doc__, "config/minatar/breakout.yaml")
  parser.add_argument("--num-envs", type=int, nargs="+", help="environments of each comparison in MinAtar")
  parser.add_argument("--no-slow", action="store_true", help="leave out the slow environment")
  parser.add_argument("--rounds", type=int, default=5)
  parser.add_argument("--segments", type=int, default=32, help="segments of each worker in a turn")
  parser.add_argument("--learn-s", type=float, default=0.0, help="compare runs of this many seconds instead")
  report(
    parser,
    lambda args: {"config": args.config, "overrides": args.overrides, "rates": measure_all(args)},
  )


if __name__ == "__main__":
  main()
