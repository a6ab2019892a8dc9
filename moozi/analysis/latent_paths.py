"""Encodes the states of an episode, and unrolls the model to predict them."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from moozi.analysis.batches import in_batches
from moozi.core.search_record import PlayedStep
from moozi.core.spec import EnvSpec
from moozi.nn.model import Model
from moozi.ops.history import history_window, init_history, network_input

_BATCH = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class LatentPaths:
  """T encoded steps of an episode, and S unrolls of K steps along the actions of the episode.

  Attributes:
    encoded: the representation network's hidden state of each step, flattened.
    starts: the steps at which the unrolls start.
    unrolled: the states of the unrolls; index 0 is the start's encoded state; NaN after the last step.
    steps: the T steps.
    spread: root mean square distance of the encoded states to their mean; 0 for a single state.
  """

  encoded: Float[np.ndarray, "T D"]
  starts: Int[np.ndarray, " S"]
  unrolled: Float[np.ndarray, "S K+1 D"]
  steps: tuple[PlayedStep, ...]
  spread: float

  def drift(self) -> Float[np.ndarray, "S K+1"]:
    """Returns distances of unrolled to encoded states, divided by `spread` unless it is 0.

    NaN after the last step.
    """
    return self._distance(self.unrolled)

  def still_drift(self) -> Float[np.ndarray, "S K+1"]:
    """Returns the drift of a model that predicts no change: each unroll repeats its first state."""
    first = np.broadcast_to(self.encoded[self.starts][:, None], self.unrolled.shape)
    return self._distance(np.where(np.isnan(self.unrolled), np.nan, first))

  def _distance(self, paths: np.ndarray) -> np.ndarray:
    index = self.starts[:, None] + np.arange(paths.shape[1])
    real = self.encoded[np.minimum(index, len(self.encoded) - 1)]
    distance: np.ndarray = np.linalg.norm(paths - real, axis=-1)
    return distance / (self.spread or 1.0)


def latent_paths(
  model: Model,
  variables: Any,
  steps: Iterable[PlayedStep],
  spec: EnvSpec,
  history_length: int,
  unroll_steps: int,
  max_starts: int,
) -> LatentPaths:
  """Encodes the steps of an episode, and unrolls the model from some of them.

  Args:
    unroll_steps: K; unrolls stop early at the last step.
    max_starts: maximum number of unrolls, evenly spaced over the episode.

  Raises: ValueError: `steps` is empty, or K or max_starts is below 1.
  """
  steps = tuple(steps)
  if not steps or unroll_steps < 1 or max_starts < 1:
    raise ValueError(
      f"{len(steps)} steps, unroll_steps={unroll_steps}, max_starts={max_starts}: each must be at least 1"
    )
  hidden = _encode(model, variables, steps, spec, history_length)
  num_starts = min(max_starts, max(1, len(steps) - 1))
  starts = np.unique(np.linspace(0, max(0, len(steps) - 2), num_starts).round().astype(np.int64))
  transition = jax.jit(lambda *args: model.recurrent_inference(*variables, *args, False)[0])
  actions = np.array([step.action for step in steps], np.int32)
  state: Any = hidden[starts]
  unrolled = [state.reshape(len(starts), -1)]
  for k in range(unroll_steps):
    state = transition(state, actions[np.minimum(starts + k, len(steps) - 1)]).hidden_state
    flat = np.array(state).reshape(len(starts), -1)
    flat[starts + k + 1 >= len(steps)] = np.nan
    unrolled.append(flat)
  encoded = hidden.reshape(len(hidden), -1)
  return LatentPaths(
    encoded=encoded,
    starts=starts,
    unrolled=np.stack(unrolled, axis=1).astype(np.float32),
    steps=steps,
    spread=float(np.sqrt(((encoded - encoded.mean(axis=0)) ** 2).sum(axis=1).mean())),
  )


def _encode(
  model: Model,
  variables: Any,
  steps: tuple[PlayedStep, ...],
  spec: EnvSpec,
  history_length: int,
) -> Float[np.ndarray, "T ..."]:
  represent = jax.jit(lambda stacked: model.represent(*variables, stacked, False)[:1])
  blank, rows = (
    init_history(1, history_length, spec),
    np.arange(len(steps))[:, None] + np.arange(history_length),
  )
  frames = np.concatenate([blank.frames[0, 1:], [step.frame for step in steps]])
  actions = np.concatenate([blank.actions[0], np.array([step.action for step in steps], np.int32)])
  is_first = np.array([False] * (history_length - 1) + [step.is_first for step in steps])
  # Step t has index L - 1 + t among the frames, and action t - 1 has this index among the actions.
  no_next = np.zeros((len(steps), 0), bool)
  seen = history_window(frames=frames[rows], actions=actions[rows], is_first=is_first[rows], is_last=no_next)
  stacked = network_input(*seen, spec)
  (encoded,) = in_batches(represent, _BATCH, stacked)
  return encoded
