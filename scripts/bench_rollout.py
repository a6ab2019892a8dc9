"""Measures acting: environments in Python, environments in JAX step by step, and the compiled rollout.

    python scripts/bench_rollout.py [CONFIG] [key=value …] [--jax-env NAME] [--widths 64,128,512] [--json
    FILE]

Compares the environment steps/s of three collectors, once with the configuration's search and once with the
network's prior alone. All use the same network:

  python  the configuration's environments in a loop, then the compiled search    (SyncVectorEnvironment)
  step    the environment in JAX, then the compiled search                         (JaxVectorEnvironment)
  scan    the whole segment as one compiled scan                                   (RolloutCollector)

The collectors take turns for several rounds, and the best round of each counts. Compare the ratios of one
run, not the rates of several runs.
"""

import argparse
import functools
import json
import os
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moozi.acting.collector import TrajectoryCollector
from moozi.acting.rollout import RolloutCollector
from moozi.agent.agent import Decision, PureAgent, make_agent
from moozi.core.config import Config
from moozi.core.spec import EnvSpec
from moozi.envs import registry
from moozi.envs.vector import make_vector
from moozi.io.config import load_config
from moozi.io.machine import num_cores
from moozi.nn.model import Model
from moozi.ops.history import network_input
from moozi.ops.schedules import temperature_at
from moozi.run import build

KINDS = ("python", "step", "scan")


def make_prior_agent(model: Model, config: Config, spec: EnvSpec) -> PureAgent:
  """Returns an agent like that of `make_muzero` that samples from the prior without search."""

  def decide(
    variables: Any, history: Any, timestep: Any, rng_key: Any, temperature: Any, position: Any
  ) -> Decision:
    stacked = network_input(history.frames, history.actions, spec)
    output, _ = model.root_inference(*variables, stacked, False)
    legal = jnp.asarray(timestep.legal_actions_mask)
    return Decision(
      action=jax.random.categorical(rng_key, jnp.where(legal, output.policy_logits, -jnp.inf)),
      action_probs=jax.nn.softmax(output.policy_logits, where=legal),
      root_value=model.transform.to_scalar(output.value_logits),
      extras={},
    )

  return make_agent(decide, spec, config.targets.history_length)


def make_collector(kind: str, config: Config, jax_name: str, with_search: bool) -> Any:
  """Creates a collector of one kind, with random parameters.

  The environment in JAX must accept the configuration's options.
  """
  name = config.env.name if kind == "python" else jax_name
  kwargs = dict(config.env.kwargs)
  spec = registry.env_spec(name, **kwargs)
  planner, num_envs = config.planners.train, config.workers.num_envs
  agent = build.build_agent(config, spec, planner)
  if not with_search:
    agent = make_prior_agent(build.build_model(config, spec), config, spec)
  make: Any = RolloutCollector if kind == "scan" else TrajectoryCollector
  env, temperature = (
    make_vector(name, kwargs, num_envs, 0),
    functools.partial(temperature_at, planner.temperature),
  )
  collector = make(agent, env, config.workers.segment_length, temperature, 0)
  (params, net_state), _ = build.build_learner(config, spec).parameters()
  random = np.random.default_rng(0)
  params = jax.tree.map(lambda x: x + 0.01 * random.standard_normal(x.shape).astype(x.dtype), params)
  collector.set_parameters((params, net_state), 0)
  return collector


def measure(config: Config, jax_name: str, with_search: bool, seconds: float) -> dict[str, float]:
  """Returns the environment steps/s of each kind at the configuration's number of environments."""
  collectors = {kind: make_collector(kind, config, jax_name, with_search) for kind in KINDS}
  for collector in collectors.values():
    for _ in range(2):  # compilation and warm-up
      collector.run(0)
  best = dict.fromkeys(KINDS, 0.0)
  end = time.perf_counter() + seconds
  num_rounds = 0
  while num_rounds < 3 or time.perf_counter() < end:
    num_rounds += 1
    for kind, collector in collectors.items():
      start = time.perf_counter()
      _, result = collector.run(0)
      best[kind] = max(best[kind], result.num_steps / (time.perf_counter() - start))
  return best


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("config", nargs="?", default="config/minatar/breakout.yaml")
  parser.add_argument("overrides", nargs="*")
  parser.add_argument("--jax-env", default="gymnax:Breakout-MinAtar", help="the same game written in JAX")
  parser.add_argument("--widths", default="64,128,512", help="numbers of environments")
  parser.add_argument("--seconds", type=float, default=8.0, help="minimum duration of each row")
  parser.add_argument("--no-search-only", action="store_true", help="omit the rows with search")
  parser.add_argument("--json", type=Path, help="also write the figures to this file")
  args = parser.parse_args()
  config = load_config(Path(args.config), args.overrides)
  device = jax.devices()[0]
  print(
    f"# {device.platform} {device.device_kind}, {num_cores()} cores, "
    f"load average before: {os.getloadavg()[0]:.2f}; {config.env.name} and {args.jax_env}, "
    f"{config.planners.train.num_simulations} simulations, segments of {config.workers.segment_length}"
  )
  print("environment steps/s      " + "".join(f"{kind:>12}" for kind in KINDS) + "   scan/python   scan/step")
  figures = []
  for with_search in (False,) if args.no_search_only else (False, True):
    for width in (int(w) for w in args.widths.split(",")):
      workers = config.workers.model_copy(update={"num_envs": width})
      own = config.model_copy(update={"workers": workers})
      rates = measure(own, args.jax_env, with_search, args.seconds)
      title = "search" if with_search else "prior only"
      row = "".join(f"{rates[kind]:>12,.0f}" for kind in KINDS)
      ratios = f"{rates['scan'] / rates['python']:>14.2f}{rates['scan'] / rates['step']:>12.2f}"
      print(f"{title:<11} width {width:>5}  {row}{ratios}", flush=True)
      figures.append({"search": with_search, "width": width, "steps_per_s": rates})
  if args.json:
    args.json.write_text(json.dumps({"device": device.device_kind, "rows": figures}, indent=2) + "\n")


if __name__ == "__main__":
  main()
