"""A loss term of your own: a bonus for the entropy of the policy, shown as the metric `loss/loss.make`.

In this folder: `moozi train tiny/catch learner.extra_losses=loss:make`, or `python loss.py`.
"""

import jax
import jax.numpy as jnp

import moozi

COEFFICIENT = 0.01


@moozi.register_loss("entropy")
def make(config, model):
  """Returns a function that computes the term [B], which is added to the loss of each sample."""

  def loss(params, net_state, outputs, target):
    log_probs = jax.nn.log_softmax(outputs[0].policy_logits)
    return COEFFICIENT * jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)

  return loss


if __name__ == "__main__":
  moozi.train("tiny/catch", learner={"extra_losses": ["entropy"]})
