"""Where an episode goes in the network's hidden space, and where the model thinks that it goes."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from moozi.core.spec import EnvSpec
from moozi.evaluation.episodes import PlayedStep
from moozi.nn.model import Model
from moozi.ops.history import init_history, normalize_frame, push_action, push_frame, stack_history

_BATCH = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class LatentPaths:
  """T steps of an episode, encoded, and S unrolls of K steps along the actions that were really taken.

  Attributes:
    encoded: [T, D] float32, the hidden state that the representation gives each step, flattened.
    starts: [S] int64, the steps that the unrolls begin with.
    unrolled: [S, K+1, D] float32; k = 0 is the encoded state of the start; nan past the episode's last step.
    steps: the T steps.
    spread: the root mean square distance of the encoded states from their mean; 0 for a single state.
  """

  encoded: np.ndarray
  starts: np.ndarray
  unrolled: np.ndarray
  steps: tuple[PlayedStep, ...]
  spread: float

  def drift(self) -> np.ndarray:
    """[S, K+1]: how far the model is from the encoded state at each k, in spreads; nan past the episode."""
    return self._relative(self.unrolled)

  def rest(self) -> np.ndarray:
    """[S, K+1]: the same for a model that would stay where it began."""
    still = np.broadcast_to(self.encoded[self.starts][:, None], self.unrolled.shape)
    return self._relative(np.where(np.isnan(self.unrolled), np.nan, still))

  def _relative(self, paths: np.ndarray) -> np.ndarray:
    index = self.starts[:, None] + np.arange(paths.shape[1])
    real = self.encoded[np.minimum(index, len(self.encoded) - 1)]
    distance: np.ndarray = np.linalg.norm(paths - real, axis=-1)
    return distance / (self.spread or 1.0)


def latent_paths(
  model: Model,
  params: Any,
  net_state: Any,
  steps: Iterable[PlayedStep],
  spec: EnvSpec,
  history_length: int,
  unroll_steps: int,
  max_starts: int,
) -> LatentPaths:
  """Encodes an episode, and unrolls the model from some of its steps.

  Args:
    model, params, net_state: the network.
    steps: of one episode, in order, from its first one.
    spec: the environment's facts.
    history_length: frames that the network sees.
    unroll_steps: K; an unroll ends sooner at the last step.
    max_starts: the unrolls begin with at most so many steps, evenly spread over the episode.

  Raises: ValueError: no step, or K or max_starts below 1.
  """
  steps = tuple(steps)
  if not steps or unroll_steps < 1 or max_starts < 1:
    raise ValueError(
      f"{len(steps)} steps, unroll_steps={unroll_steps}, max_starts={max_starts}: each must be at least 1"
    )
  hidden = _encode(model, params, net_state, steps, spec, history_length)
  num_starts = min(max_starts, max(1, len(steps) - 1))
  starts = np.unique(np.linspace(0, max(0, len(steps) - 2), num_starts).round().astype(np.int64))
  actions = np.array([step.action for step in steps], np.int32)
  unrolled = _unroll(model, params, net_state, hidden, starts, actions, unroll_steps)
  encoded = hidden.reshape(len(hidden), -1)
  spread = float(np.sqrt(((encoded - encoded.mean(axis=0)) ** 2).sum(axis=1).mean()))
  return LatentPaths(encoded=encoded, starts=starts, unrolled=unrolled, steps=steps, spread=spread)


def _encode(
  model: Model,
  params: Any,
  net_state: Any,
  steps: tuple[PlayedStep, ...],
  spec: EnvSpec,
  history_length: int,
) -> np.ndarray:
  """[T, …] float32: the hidden state of every step."""
  represent = jax.jit(lambda stacked: model.represent(params, net_state, stacked, False)[0])
  history, stacked = init_history(1, history_length, spec), []
  for step in steps:
    history = push_frame(history, step.frame[None], np.array([step.is_first]))
    frames = normalize_frame(history.frames, spec.frame_dtype)
    stacked.append(stack_history(frames, history.actions, spec.num_actions)[0])
    history = push_action(history, np.array([step.action], np.int32))
  out = []
  for i in range(0, len(stacked), _BATCH):
    batch = np.stack(stacked[i : i + _BATCH])
    # Always the same number of rows, so that one compilation serves all.
    padded = np.concatenate([batch, np.zeros((_BATCH - len(batch), *batch.shape[1:]), batch.dtype)])
    out.append(np.asarray(represent(padded))[: len(batch)])
  return np.concatenate(out)


def _unroll(
  model: Model,
  params: Any,
  net_state: Any,
  hidden: np.ndarray,
  starts: np.ndarray,
  actions: np.ndarray,
  unroll_steps: int,
) -> np.ndarray:
  """[S, K+1, D] float32."""
  transit = jax.jit(
    lambda state, action: model.recurrent_inference(params, net_state, state, action, False)[0]
  )
  state: Any = hidden[starts]
  out = [state.reshape(len(starts), -1)]
  for k in range(unroll_steps):
    index = np.minimum(starts + k, len(actions) - 1)
    state = transit(state, actions[index]).hidden_state
    flat = np.array(state).reshape(len(starts), -1)
    flat[starts + k + 1 >= len(actions)] = np.nan
    out.append(flat)
  return np.stack(out, axis=1).astype(np.float32)
