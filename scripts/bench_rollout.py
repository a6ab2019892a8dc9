"""Measures acting: environments in Python, environments in JAX step by step, and the compiled rollout.

    python scripts/bench_rollout.py [CONFIG] [key=value …] [--jax-env NAME] [--widths 64,128,512] [--json
    FILE]

Compares the environment steps/s of three collectors, once with the configuration's search and once with the
network's prior alone. All use the same network:

  python  the configuration's environments in a loop, then the compiled search    (SyncVectorEnvironment)
  step    the environment in JAX, then the compiled search                         (JaxVectorEnvironment)
  scan    the whole segment as one compiled scan                                   (RolloutCollector)

The collectors take turns for several rounds, and ratios compare rates of one round. Compare the ratios of
one run, not the rates of several runs.
"""

import argparse
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from measuring import Rates, make_parser, print_rates, rates_in_turn, report

from moozi.acting.collector import TrajectoryCollector
from moozi.acting.rollout import RolloutCollector
from moozi.agent.agent import Decision, PureAgent, make_agent
from moozi.core.config import Config
from moozi.core.spec import EnvSpec
from moozi.envs import registry
from moozi.envs.vector import make_vector
from moozi.io.config import load_config
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


def measure(config: Config, jax_name: str, with_search: bool, seconds: float) -> Rates:
  """Returns the environment steps/s of each kind in each round, with the configuration's number of lanes."""

  def acting(kind: str) -> Callable[[], int]:
    collector = make_collector(kind, config, jax_name, with_search)
    return lambda: collector.run(0)[1].num_steps

  return rates_in_turn({kind: acting(kind) for kind in KINDS}, seconds=seconds)


def measure_all(args: argparse.Namespace) -> dict[str, Any]:
  config, device = load_config(args.config, args.overrides), jax.devices()[0]
  print(
    f"# {device.platform} {device.device_kind}; {config.env.name} and {args.jax_env}, "
    f"{config.planners.train.num_simulations} simulations, segments of {config.workers.segment_length}"
  )
  figures = []
  for with_search in (False,) if args.no_search_only else (False, True):
    for width in (int(w) for w in args.widths.split(",")):
      workers = config.workers.model_copy(update={"num_envs": width})
      own = config.model_copy(update={"workers": workers})
      rates = measure(own, args.jax_env, with_search, args.seconds)
      print_rates(rates, "steps/s", f"{'search' if with_search else 'prior only'}, {width}: ")
      figures.append({"search": with_search, "width": width, "steps_per_s": rates})
  return {"device": device.device_kind, "rows": figures}


def main() -> None:
  parser = make_parser(__doc__, "config/minatar/breakout.yaml")
  parser.add_argument("--jax-env", default="gymnax:Breakout-MinAtar", help="the same game written in JAX")
  parser.add_argument("--widths", default="64,128,512", help="numbers of environments")
  parser.add_argument("--seconds", type=float, default=8.0, help="minimum duration of each row")
  parser.add_argument("--no-search-only", action="store_true", help="omit the rows with search")
  report(parser, measure_all)


if __name__ == "__main__":
  main()
