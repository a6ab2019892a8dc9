"""Environment steps/s of acting: environments in Python, environments in JAX step by step, and the compiled
rollout.

    python scripts/bench_rollout.py [CONFIG] [key=value …] [--world NAME] [--widths 64,128,512] [--json FILE]

Three ways to make the same segments with the same network, each with the configuration's search and with the
network's prior alone (no search):

  python  the configuration's environment, one by one, and the compiled search in turn
  (SyncVectorEnvironment)
  step    the environment in JAX and the compiled search in turn                   (JaxVectorEnvironment)
  scan    the whole segment as one compiled scan                             (RolloutCollector)

For each width the ways take turns, several rounds, and the best round of each counts: what else the machine
does meets all of them alike. Read the ratios of one run, not the rates of several.
"""

import argparse
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
from moozi.agent.planner import SearchOutput
from moozi.agent.policy import observe
from moozi.core.config import Config
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.envs import registry
from moozi.envs.vector import env_seeds, make_vector
from moozi.io.config import load_config
from moozi.nn.model import Model
from moozi.ops.history import push_action
from moozi.run import build

WAYS = ("python", "step", "scan")


def make_prior_policy(model: Model, spec: EnvSpec) -> Any:
  """A policy of the same form as `agent.policy.make_policy`'s that draws from the prior without a search."""

  def policy(params: Any, net_state: Any, history: Any, timestep: Any, rng_key: Any, temperature: Any) -> Any:
    history, stacked = observe(history, timestep, spec)
    output, _ = model.root_inference(params, net_state, stacked, False)
    legal = jnp.asarray(timestep.legal_actions_mask)
    probs = jax.nn.softmax(output.policy_logits, where=legal)
    action = jax.random.categorical(rng_key, jnp.where(legal, output.policy_logits, -jnp.inf))
    value = model.transform.to_scalar(output.value_logits)
    chosen = SearchOutput(
      action=jnp.where(timestep.is_last, DUMMY_ACTION, action).astype(jnp.int32),
      action_probs=probs,
      root_value=value,
      prior_probs=probs,
      prior_value=value,
      q_values=jnp.zeros_like(probs),
      depth_mean=jnp.zeros_like(value),
      depth_max=jnp.zeros_like(value, jnp.int32),
    )
    return push_action(history, chosen.action), chosen

  return policy


def make_collector(way: str, config: Config, jax_name: str, with_search: bool) -> Any:
  """A collector that acts in this way, with fresh parameters that are not all zero.

  The configuration's options go to both environments: one that the environment in JAX lacks is refused.
  """
  name = config.env.name if way == "python" else jax_name
  kwargs = dict(config.env.kwargs)
  spec = registry.env_spec(name, **kwargs)
  model = build.build_model(config, spec)
  planner, num_envs = config.planners.train, config.workers.num_envs
  policy = None if with_search else make_prior_policy(model, spec)
  if way == "scan":
    world = registry.make_jax_env(name, **kwargs)
    collector: Any = RolloutCollector(model, config, planner, world, env_seeds(num_envs, 0), 0, policy)
  else:
    collector = TrajectoryCollector(model, config, planner, make_vector(name, kwargs, num_envs, 0), 0, policy)
  params, net_state, _ = build.build_learner(config, spec).parameters()
  random = np.random.default_rng(0)
  params = jax.tree.map(lambda x: x + 0.01 * random.standard_normal(x.shape).astype(x.dtype), params)
  collector.set_parameters(params, net_state, 0)
  return collector


def measure(config: Config, jax_name: str, with_search: bool, seconds: float) -> dict[str, float]:
  """Environment steps/s of each way at the configuration's width."""
  collectors = {way: make_collector(way, config, jax_name, with_search) for way in WAYS}
  for collector in collectors.values():
    for _ in range(2):  # compiles, and the first steps after
      collector.run(0)
  best = dict.fromkeys(WAYS, 0.0)
  end = time.perf_counter() + seconds
  num_rounds = 0
  while num_rounds < 3 or time.perf_counter() < end:
    num_rounds += 1
    for way, collector in collectors.items():
      start = time.perf_counter()
      _, result = collector.run(0)
      best[way] = max(best[way], result.num_steps / (time.perf_counter() - start))
  return best


def with_width(config: Config, width: int) -> Config:
  """The same configuration, so many environments wide."""
  return replace_section(config, "workers", num_envs=width)


def replace_section(config: Config, name: str, **changes: Any) -> Config:
  """A copy of the configuration with some keys of one section changed; not validated again."""
  section = getattr(config, name).model_copy(update=changes)
  return config.model_copy(update={name: section})


def main() -> None:
  """Reads the arguments, measures, prints a table."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("config", nargs="?", default="config/minatar/breakout.yaml")
  parser.add_argument("overrides", nargs="*")
  parser.add_argument("--world", default="gymnax:Breakout-MinAtar", help="the same game written in JAX")
  parser.add_argument("--widths", default="64,128,512", help="how many environments side by side")
  parser.add_argument("--seconds", type=float, default=8.0, help="time for each row of the table, at least")
  parser.add_argument("--no-search-only", action="store_true", help="leave the rows with search out")
  parser.add_argument("--json", type=Path, help="also write the figures there")
  args = parser.parse_args()
  config = load_config(Path(args.config), args.overrides)
  device = jax.devices()[0]
  print(
    f"# {device.platform} {device.device_kind}, {len(os.sched_getaffinity(0))} cores, "
    f"load average before: {os.getloadavg()[0]:.2f}; {config.env.name} and {args.world}, "
    f"{config.planners.train.num_simulations} simulations, segments of {config.workers.segment_length}"
  )
  print("environment steps/s      " + "".join(f"{way:>12}" for way in WAYS) + "   scan/python   scan/step")
  figures = []
  for with_search in (False,) if args.no_search_only else (False, True):
    for width in (int(w) for w in args.widths.split(",")):
      rates = measure(with_width(config, width), args.world, with_search, args.seconds)
      kind = "search" if with_search else "prior only"
      row = "".join(f"{rates[way]:>12,.0f}" for way in WAYS)
      ratios = f"{rates['scan'] / rates['python']:>14.2f}{rates['scan'] / rates['step']:>12.2f}"
      print(f"{kind:<11} width {width:>5}  {row}{ratios}", flush=True)
      figures.append({"search": with_search, "width": width, "steps_per_s": rates})
  if args.json:
    args.json.write_text(json.dumps({"device": device.device_kind, "rows": figures}, indent=2) + "\n")


if __name__ == "__main__":
  main()
