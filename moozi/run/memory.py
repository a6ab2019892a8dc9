"""Estimates the memory of a run before anything is allocated. Imports no JAX."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from moozi.core.config import Config
from moozi.core.config.ppo import BaselineNetworkConfig, PPONetworkConfig
from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.io.machine import memory_bytes
from moozi.replay.frame_rows import FrameRows

_FLOAT = 4
# Of a slot of replay: δ, weights, ranks, sequence numbers, and the fields of a step without an axis.
_SLOT_BYTES = 80
# Of an environment in Python: the object, its guard and its random state.
_ENV_BYTES = 2048
# Copies of the parameters: online, target, two moments, gradient.
_COPIES = 5
_RESULT_BYTES = 256
# Frames that a run has in memory whatever its settings are.
_ONE_ACTOR = 64

Sizes = Mapping[str, int]


def check_memory(config: Config, spec: EnvSpec, available: int | None = None) -> None:
  """Refuses a run that needs more memory than the machine has.

  Does not check a run with `runtime=ray` and `ray.address`, whose actors may be on other machines.

  The estimate is a sum of formulas for the large arrays of replay, search, acting, learning and evaluation.
  It leaves out temporary arrays of the compiler, and libraries.

  Args:
    available: memory in bytes; None: that of the machine, or the limit of the container.

  Raises: UserError: the estimate exceeds the memory. The message names a key of the largest part, and a value
    of this key with which the run fits, if one is found.
  """
  if config.ray.address is not None and not config.has_one_process:
    return  # the actors may be on other machines
  available = memory_bytes() if available is None else available
  sizes, parts = _sizes(config), _parts(config, spec)
  need = _total(parts, sizes)
  if need <= available:
    return
  name = max(parts, key=lambda part: parts[part](sizes))
  fresh = _sizes(Config())
  # Of the keys of the part, the one farthest from its default, among those that matter.
  keys = [key for key in sizes if parts[name](sizes) > 1.5 * parts[name]({**sizes, key: sizes[key] // 2})]
  key = max(keys, key=lambda k: sizes[k] / fresh[k]) if keys else "env.name"
  advice = "use a machine with more memory, or smaller sizes"
  value = sizes.get(key, 0)
  while value > 1:
    value //= 2
    if _total(parts, {**sizes, key: value}) <= available:
      advice = f"set {key} to at most {value:,}"
      break
  else:
    if _ONE_ACTOR * math.prod(spec.frame_shape) > available or key not in sizes:
      key, advice = "env.name", "choose a smaller environment"
  is_env = key not in sizes
  shape = "×".join(f"{n:,}" for n in spec.frame_shape)
  text = f"env.name={config.env.name} with frames of {shape}" if is_env else f"{key}={sizes[key]}"
  raise UserError(
    f"{text}: the run needs about {_gib(need)} of memory, of which {name} takes {_gib(parts[name](sizes))}; "
    f"the machine has {_gib(available)}; {advice}"
  )


def stored_bytes(config: Config, spec: EnvSpec) -> float:
  """Returns the estimated bytes of replay, filled as far as the run can; 0 if the algorithm has none."""
  parts = _parts(config, spec)
  return parts["replay"](_sizes(config)) if "replay" in parts else 0.0


def _total(parts: Mapping[str, Callable[[Sizes], float]], sizes: Sizes) -> float:
  return sum(part(sizes) for part in parts.values())


def _gib(num_bytes: float) -> str:
  return f"{num_bytes / (1 << 30):,.1f} GiB"


def _sizes(config: Config) -> dict[str, int]:
  """Returns the keys on which memory depends, with their values; the largest value of a list."""
  names = (
    "replay.capacity q_learning.capacity workers.num_workers workers.num_envs workers.segment_length "
    "planners.train.num_simulations planners.test.num_simulations planners.train.num_sampled_actions "
    "planners.test.num_sampled_actions evaluation.num_envs evaluation.episodes "
    "evaluation.final_episodes learner.batch_size learner.updates_per_call targets.history_length "
    "targets.unroll_steps scalar_transform.support_max network.latent_size network.head_size "
    "network.channels network.num_representation_blocks network.num_dynamics_blocks "
    "network.num_prediction_blocks reanalyze.batch_size reanalyze.num_workers opponents.pool_size "
    "ppo.num_envs ppo.segment_length ppo.history_length ppo.network.hidden_sizes ppo.network.lstm_size "
    "q_learning.network.hidden_sizes"
  )
  out = {}
  for name in names.split():
    value: Any = config
    for part in name.split("."):
      value = getattr(value, part)
    out[name] = max(1, max(value, default=1) if isinstance(value, tuple) else value)
  return out


def _parts(config: Config, spec: EnvSpec) -> dict[str, Callable[[Sizes], float]]:
  """Returns the bytes of each part of a run as functions of `_sizes`."""
  num_actions, num_cells = spec.policy_size, math.prod(spec.frame_shape)
  frame = num_cells / 8 if spec.frame_dtype == "bool" else num_cells * np.dtype(spec.frame_dtype).itemsize
  step = frame + num_actions * (_FLOAT + 1 / 8)
  rows = FrameRows(spec)
  stored_step = step - frame + rows.size * rows.dtype.itemsize

  def latent(s: Sizes) -> float:
    is_image = config.network.kind == "resnet"
    return (
      s["network.channels"] * math.prod(spec.frame_shape[:2]) / 36 if is_image else s["network.latent_size"]
    )

  def parameters(s: Sizes) -> float:
    blocks = sum(s[f"network.num_{name}_blocks"] for name in ("representation", "dynamics", "prediction"))
    if config.network.kind == "resnet":
      block = 18 * s["network.channels"] ** 2
    else:
      block = s["network.latent_size"] ** 2
    heads = s["network.head_size"] * (num_actions + 2 * s["scalar_transform.support_max"])
    return _FLOAT * (blocks * block + heads)

  def search(s: Sizes, num_roots: float, num_simulations: int, num_sampled: int) -> float:
    # mctx keeps five numbers, six arrays of edges and an embedding for each node. Of joint actions that are
    # sampled, the embedding also has their numbers and a random key.
    num_edges, more = num_actions, 0
    if spec.is_factored:
      num_edges = min(num_sampled, spec.num_env_actions)
      more = num_edges + 2
    return num_roots * (num_simulations + 1) * _FLOAT * (5 + 6 * num_edges + latent(s) + more)

  def baseline(s: Sizes, layers: BaselineNetworkConfig, section: str, history: str) -> float:
    # A convolution has few parameters; the first dense layer after it has many.
    size, image = s[f"{section}.network.hidden_sizes"], math.prod(spec.frame_shape[:2])
    channels = layers.channels[-1] if isinstance(layers.channels, tuple) else layers.channels
    inputs = {"mlp": num_cells * s[history], "conv": image * channels}.get(layers.kind, image)
    lstm = s["ppo.network.lstm_size"] if isinstance(layers, PPONetworkConfig) and layers.lstm_size else 0
    dense = size * inputs + max(0, len(layers.hidden_sizes) - 1) * size**2 if layers.hidden_sizes else 0
    count = 1 if layers.sharing == "shared" else 2
    return _COPIES * count * _FLOAT * (dense + 4 * lstm * (size + lstm))

  if config.is_on_policy:
    keys = ("ppo.num_envs", "ppo.segment_length", "ppo.history_length")
    own_keys = ("workers.num_envs", "workers.segment_length", "targets.history_length")
    num_envs, length, history = keys if config.algorithm == "ppo" else own_keys
    layers = config.ppo.network
    state = (2 if layers.sharing == "shared" else 4) * layers.lstm_size if config.algorithm == "ppo" else 0

    def rollout(s: Sizes) -> float:
      one = s[length] * (num_cells * s[history] + _FLOAT * (num_actions + state))
      return s[num_envs] * (_ENV_BYTES + one)

    found: dict[str, Callable[[Sizes], float]] = {"acting": rollout, "evaluation": _evaluation}
    if config.algorithm == "ppo":
      found["the network"] = lambda s: baseline(s, layers, "ppo", history)
    return found

  def replay(s: Sizes) -> float:
    # Pages of slots that are never written take no memory.
    filled = min(s["replay.capacity"], 2 * config.max_env_steps)
    return s["replay.capacity"] * _SLOT_BYTES + filled * stored_step

  def acting(s: Sizes) -> float:
    lanes = s["workers.num_workers"] * s["workers.num_envs"]
    history = frame * s["targets.history_length"]
    return lanes * (_ENV_BYTES + history + s["workers.segment_length"] * (step + 40))

  def batch(s: Sizes) -> float:
    frames = (
      num_cells * np.dtype(spec.frame_dtype).itemsize * (s["targets.history_length"] + config.frames_ahead)
    )
    unrolled = (
      (s["targets.unroll_steps"] + 1) * _FLOAT * (num_actions + 2 * s["scalar_transform.support_max"])
    )
    return s["learner.batch_size"] * (s["learner.updates_per_call"] * frames + unrolled + _FLOAT * latent(s))

  parts: dict[str, Callable[[Sizes], float]] = {
    "replay": replay,
    "acting": acting,
    "a batch": batch,
    "evaluation": _evaluation,
  }
  if config.algorithm == "q_learning" and config.q_learning.kind != "table":
    parts["the network"] = lambda s: baseline(
      s, config.q_learning.network, "q_learning", "targets.history_length"
    )
  if config.algorithm == "q_learning" and config.q_learning.kind == "table":

    def table(s: Sizes) -> float:
      return s["q_learning.capacity"] * (2 * _FLOAT * num_actions + 16)

    parts["the table"] = table
    if config.num_past_lanes:
      parts["the past selves"] = lambda s: s["opponents.pool_size"] * table(s)
  if config.searches:

    def search_of(s: Sizes, key: str, planner: str) -> float:
      numbers = (s[f"planners.{planner}.num_{name}"] for name in ("simulations", "sampled_actions"))
      return search(s, s[key], *numbers)

    parts["the search"] = lambda s: search_of(s, "workers.num_envs", "train")
    parts["the search of evaluations"] = lambda s: search_of(s, "evaluation.num_envs", "test")
    if config.reanalyze.ratio:
      again = config.planners.for_reanalyze
      parts["reanalyze"] = lambda s: search(
        s, s["reanalyze.batch_size"], again.num_simulations, again.num_sampled_actions
      )
    parts["the network"] = lambda s: config.learner.num_hosts * _COPIES * parameters(s)
    if config.num_past_lanes:
      parts["the past selves"] = lambda s: s["opponents.pool_size"] * parameters(s)
  return parts


def _evaluation(sizes: Sizes) -> float:
  episodes = sizes["evaluation.episodes"] + sizes["evaluation.final_episodes"]
  return episodes * _RESULT_BYTES + sizes["evaluation.num_envs"] * _ENV_BYTES
