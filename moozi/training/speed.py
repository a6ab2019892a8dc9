"""Measures a configuration's acting and update alone, so that minutes from different days can be compared.

    python -m moozi.training.speed act CONFIG [key=value …] [--seconds 3]      # prints one line of JSON
    python -m moozi.training.speed learn CONFIG [key=value …]

`act` calls the compiled policy for one worker's number of environments (PPO: ppo.num_envs), without stepping
them, and prints the seconds per environment step (t_act). `learn` calls the compiled update with the run's
batch, and prints the seconds per sample (t_learn). With r samples per step, a run in one process makes at
most 1 / (t_act + r · t_learn) environment steps per second.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moozi.acting.on_policy import Rollout
from moozi.agent.agent import PureAgent
from moozi.agent.devices import devices_of
from moozi.agent.muzero import make_muzero
from moozi.agent.update import TrainingState, init_training_state, make_update
from moozi.baselines.ppo import algorithm as ppo
from moozi.baselines.ppo.actor_critic import make_ppo
from moozi.baselines.ppo.lstm import IS_FIRST, LSTM_STATE
from moozi.baselines.ppo.optimization import make_round
from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.core.pytree import replace
from moozi.core.records import TrainTarget
from moozi.core.spec import EnvSpec
from moozi.envs.vector import blank_step
from moozi.io.config import load_config
from moozi.io.jax_process import reuse_freed_memory
from moozi.io.machine import describe_machine, num_cores
from moozi.io.output import say
from moozi.learning.learner import zero_targets
from moozi.nn.model import Model
from moozi.run import build


def call_seconds(
  call: Callable[[], Any],
  min_s: float = 5.0,
  min_calls: int = 5,
  clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, float]:
  """Returns the mean and minimum seconds of a call, after two calls for compilation and warm-up."""
  call()
  call()
  times: list[float] = []
  start = clock()
  while len(times) < min_calls or clock() - start < min_s:
    before = clock()
    call()
    times.append(clock() - before)
  return sum(times) / len(times), min(times)


def make_targets(config: Config, spec: EnvSpec, lead: tuple[int, ...]) -> TrainTarget:
  """Returns random targets with `lead` as their leading axes."""
  random = np.random.default_rng(0)
  zeros = zero_targets(config, spec, lead)
  probs = random.random(zeros.action_probs.shape, np.float32)
  frames = random.random(zeros.frames.shape) < 0.2
  return replace(
    zeros,
    frames=frames.astype(spec.frame_dtype),
    history_actions=random.integers(0, spec.num_actions, zeros.history_actions.shape, np.int32),
    actions=random.integers(0, spec.num_actions, zeros.actions.shape, np.int32),
    rewards=random.random(zeros.rewards.shape, np.float32),
    action_probs=probs / probs.sum(-1, keepdims=True),
    root_values=random.random(zeros.root_values.shape, np.float32),
    n_step_returns=random.random(zeros.n_step_returns.shape, np.float32),
    unroll_mask=np.ones_like(zeros.unroll_mask),
    consistency_mask=np.ones_like(zeros.consistency_mask),
    importance_ratio=np.ones_like(zeros.importance_ratio),
  )


def acting_call(agent: PureAgent, variables: Any, spec: EnvSpec, width: int) -> Any:
  """Returns a function that calls an agent for `width` random frames."""
  step = blank_step(spec, width)
  step.frame[:] = np.random.default_rng(0).random(step.frame.shape) < 0.2
  step.legal_actions_mask[:, 1:] = True
  carry, key, compiled = agent.init(width), jax.random.PRNGKey(1), jax.jit(agent.act)
  return lambda: jax.block_until_ready(compiled(variables, carry, step, key, 1.0))


def search_call(model: Model, state: TrainingState, config: Config, spec: EnvSpec, width: int) -> Any:
  """Returns a function that searches once for `width` environments, as training does."""
  agent = make_muzero(model, config.planners.train, config.targets, spec)
  return acting_call(agent, state.variables, spec, width)


def update_call(model: Model, state: TrainingState, config: Config, spec: EnvSpec, batch: int) -> Any:
  """Returns a function that makes one update of `batch` samples. Its first call donates `state`."""
  devices = devices_of(config.learner)
  update, state = devices.compile(make_update(model, config, spec)), devices.put(state)
  targets = devices.put_batch(make_targets(config, spec, (batch,)))

  def call() -> None:
    nonlocal state
    state, output = update(state, targets)
    jax.block_until_ready(output)

  return call


def seconds_of(part: str, config: Config, min_s: float) -> float:
  """Returns the mean seconds per environment step (`act`) or per sample (`learn`) of a configuration.

  Raises: UserError: the part cannot be measured for the configuration's algorithm.
  """
  if not config.searches and config.algorithm != "ppo":
    raise UserError(f"{part}: cannot be measured for algorithm={config.algorithm}")
  measure = _muzero_seconds if config.searches else _ppo_seconds
  return measure(part, config, build.env_spec(config), min_s)


def _muzero_seconds(part: str, config: Config, spec: EnvSpec, min_s: float) -> float:
  model = build.build_model(config, spec)
  state = init_training_state(model, config, spec, jax.random.PRNGKey(0))
  if part == "act":
    if config.algorithm == "alphazero":
      raise UserError("act: cannot be measured for algorithm=alphazero, because its search needs positions")
    width = config.workers.num_envs
    return call_seconds(search_call(model, state, config, spec, width), min_s)[0] / width
  batch = config.learner.batch_size
  return call_seconds(update_call(model, state, config, spec, batch), min_s)[0] / batch


def _ppo_seconds(part: str, config: Config, spec: EnvSpec, min_s: float) -> float:
  network, settings = ppo.network_of(config, spec), config.ppo
  state, width = ppo.initial_training_state(config, spec), settings.num_envs
  if part == "act":
    agent = make_ppo(network, spec, settings.history_length, settings.observation_clip)
    call = acting_call(agent, state.variables, spec, width)
    return call_seconds(call, min_s)[0] / width
  random, lead = np.random.default_rng(0), (settings.segment_length, width)
  mask = np.ones((*lead, spec.policy_size), bool)
  mask[..., 0] = False
  extras = _random_extras(random, mask, spec)
  if network.state_shape is not None:
    shape = (*lead, *network.state_shape)
    extras |= {LSTM_STATE: np.zeros(shape, np.float32), IS_FIRST: np.zeros(lead, bool)}
  segment = Rollout(
    frames=(random.random((*lead, settings.history_length, *spec.frame_shape)) < 0.2).astype(
      spec.frame_dtype
    ),
    legal_actions_mask=mask,
    action=_random_actions(random, lead, spec),
    value=random.random((lead[0] + 1, width), np.float32),
    is_first=np.zeros(lead, bool),
    is_live=np.ones(lead, bool),
    reward=random.random(lead, np.float32),
    is_last=np.zeros(lead, bool),
    is_truncated=np.zeros(lead, bool),
    sign=np.ones(lead, np.float32),
    extras=extras,
  )
  make, rate = make_round(network, settings), jnp.float32(settings.learning_rate)

  def learn() -> None:
    nonlocal state
    state, output = make(state, (segment, rate))
    jax.block_until_ready(output)

  return call_seconds(learn, min_s, min_calls=2)[0] / (segment.is_live.size * settings.num_epochs)


def _random_actions(random: np.random.Generator, lead: tuple[int, ...], spec: EnvSpec) -> np.ndarray:
  if spec.is_continuous:
    return np.zeros((*lead, *spec.action_shape), np.float32)
  return random.integers(1, spec.num_actions, lead, np.int32)


def _random_extras(random: np.random.Generator, mask: np.ndarray, spec: EnvSpec) -> dict[str, np.ndarray]:
  """Returns the extras of PPO's decisions, with masks [T, B, P]."""
  if spec.intervals is None:
    return {"log_probs": np.full(mask.shape, -np.log(spec.num_actions - 1), np.float32)}
  drawn = random.standard_normal((*mask.shape[:2], *spec.action_shape), np.float32)
  return {"drawn": drawn, "gaussian": np.zeros((*mask.shape[:2], 2 * len(spec.intervals.low)), np.float32)}


def main(arguments: Sequence[str] | None = None) -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("part", choices=("act", "learn"))
  parser.add_argument("config")
  parser.add_argument("overrides", nargs="*", metavar="key=value")
  parser.add_argument("--seconds", type=float, default=3.0, help="duration of the measurement (%(default)g)")
  options = parser.parse_intermixed_args(arguments)
  reuse_freed_memory()  # as in a run
  try:
    seconds = seconds_of(options.part, load_config(options.config, options.overrides), options.seconds)
  except UserError as error:
    raise SystemExit(f"error: {error}") from None
  threads = int(os.environ.get("NPROC") or num_cores())
  device = jax.devices()[0]
  name = describe_machine()["cpu"] if device.platform == "cpu" else device.device_kind
  say(json.dumps({"seconds": seconds, "threads": threads, "device": name}))


if __name__ == "__main__":
  main()
