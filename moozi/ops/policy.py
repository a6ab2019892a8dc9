"""Policies as logits: their log probabilities, and the choice of an action."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Int32, Num

from moozi.core.types import AnyArray


def masked_log_probs(
  logits: Float[AnyArray, "B A"], legal_actions_mask: Bool[AnyArray, "B A"]
) -> Float[Array, "B A"]:
  """Returns log probabilities, -inf for illegal actions; each row must have at least one legal action."""
  return jax.nn.log_softmax(jnp.where(legal_actions_mask, logits, -jnp.inf), axis=-1)


def log_prob_of(log_probs: Float[AnyArray, "B A"], action: Int32[AnyArray, "B"]) -> Float[Array, "B"]:
  return jnp.take_along_axis(log_probs, action[:, None], axis=-1)[:, 0]


def draw_action(
  logits: Float[AnyArray, "B A"],
  legal_actions_mask: Bool[AnyArray, "B A"],
  rng_key: Array,
  temperature: Num[AnyArray, "*lanes"] | float,
) -> tuple[Int[Array, "B"], Float[Array, "B A"]]:
  """Draws legal actions with probabilities raised to the power 1/temperature; at 0, takes the most probable.

  No action can be drawn from logits that are not finite. All legal actions are then equally probable.

  Returns: the actions, and the log probabilities at temperature 1, -inf for illegal actions.
  """
  logits = jnp.where(jnp.isfinite(logits).all(axis=-1, keepdims=True), logits, 0.0)
  log_probs = masked_log_probs(logits, jnp.asarray(legal_actions_mask))
  drawn = jax.random.categorical(rng_key, log_probs / jnp.maximum(temperature, 1e-6))
  return jnp.where(jnp.asarray(temperature) == 0, jnp.argmax(log_probs, axis=-1), drawn), log_probs
