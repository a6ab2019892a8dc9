"""Lets runs of the same networks share compiled functions, which take most of the time of a short run.

JAX compiles a function once for each function object, and each run makes its own. Here, the functions that
build them return the same object for equal settings.
"""

import functools
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest

from moozi.core import plugins
from moozi.core.config import Config
from moozi.core.config.budget import takes_time_share
from moozi.core.spec import EnvSpec

# The sections that compiled functions and initial parameters depend on; planners are arguments of their own.
_SECTIONS = {
  "algorithm",
  "env",
  "network",
  "chance",
  "scalar_transform",
  "targets",
  "learner",
  "ppo",
  "q_learning",
}

# Each compiled function has mappings of memory, and XLA ends a process with a segmentation fault at the limit
# of Linux, 65,530. A second of compiling makes about a hundred.
MANY_MAPPINGS = 25_000

_memories: list[dict[Any, Any]] = []


def _key(argument: Any) -> Any:
  """Returns the key of an argument: a function's identity, or the value of settings and specifications."""
  if isinstance(argument, Config):
    return argument.decay_steps, takes_time_share(argument), repr(argument.model_dump(include=_SECTIONS))
  if isinstance(argument, EnvSpec):  # its comparison leaves some fields out
    return tuple(map(repr, vars(argument).values()))
  return tuple(argument) if isinstance(argument, list) else argument


def _made_once(function: Callable[..., Any], is_kept: Callable[[Any], bool] = lambda made: True) -> Any:
  """Returns a function that calls `function` once for equal arguments, if the result may be kept."""
  made: dict[Any, Any] = {}
  _memories.append(made)

  @functools.wraps(function)
  def cached(*arguments: Any) -> Any:
    own = (plugins.NETWORKS, plugins.SEARCHES, plugins.LOSSES)
    registered = (item for registry in own for item in registry.registered.items())
    key = (*map(_key, arguments), *registered)
    if key in made:
      return made[key]
    out = function(*arguments)
    if is_kept(out):
      made[key] = out
    return out

  return cached


def _has_values(tree: Any) -> bool:
  return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree))


def _copied(function: Callable[..., Any]) -> Callable[..., Any]:
  """As `_made_once` for arrays; each caller has its own copies, because an update donates them.

  They are kept in NumPy, because JAX would compile a copy for each shape.
  """

  def drawn(config: Config, spec: EnvSpec, seed: int) -> Any:
    out = function(config, spec)
    return jax.device_get(out) if _has_values(out) else out

  cached = _made_once(drawn, _has_values)

  @functools.wraps(function)
  def copied(config: Config, spec: EnvSpec) -> Any:
    return jax.device_put(cached(config, spec, config.seed), may_alias=False)

  return copied


def share(patch: pytest.MonkeyPatch) -> None:
  """Replaces the functions that build models, agents and updates, and those that compare outputs."""
  from moozi.acting import collector, reanalyzer, rollout, served
  from moozi.agent import agent
  from moozi.analysis import inspection
  from moozi.baselines.ppo import algorithm as ppo
  from moozi.baselines.q_learning import algorithm as q_learning
  from moozi.evaluation import evaluator
  from moozi.run import build
  from moozi.surgery import baseline_outputs, check

  for module, names in (
    (build, ("build_model", "build_rules", "build_agent", "make_update_many")),
    (ppo, ("network_of", "build_agent", "make_round")),
    (q_learning, ("make_q_function", "build_agent", "without_values", "make_update_many")),
  ):
    for name in names:
      patch.setattr(module, name, _made_once(getattr(module, name)))
    patch.setattr(module, "initial_training_state", _copied(module.initial_training_state))
  keyed = _made_once(collector.keyed)
  for module in (agent, collector, reanalyzer, rollout, served, evaluator):
    patch.setattr(module, "keyed", keyed)
  patch.setattr(inspection, "make_searching_agent", _made_once(inspection.make_searching_agent))
  patch.setattr(rollout, "make_segment", _made_once(rollout.make_segment))
  patch.setattr(check, "make_outputs", _made_once(check.make_outputs))
  make_baseline_outputs = _made_once(baseline_outputs.make_baseline_outputs)
  patch.setattr(baseline_outputs, "make_baseline_outputs", make_baseline_outputs)


def forget_if_many() -> None:
  """Frees all compiled functions if their mappings are many; those that are used again compile again."""
  maps = Path("/proc/self/maps")
  if maps.exists() and maps.read_bytes().count(b"\n") > MANY_MAPPINGS:
    for made in _memories:
      made.clear()
    jax.clear_caches()
    gc.collect()
