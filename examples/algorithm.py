"""An algorithm of your own: REINFORCE (Williams 1992) with a value baseline and an entropy bonus.

In this folder: `moozi train tiny/catch algorithm=algorithm:PolicyGradient`, or `python algorithm.py`.
"""

import dataclasses

import haiku as hk
import jax
import jax.numpy as jnp
import optax

import moozi
from moozi.agent.agent import Decision
from moozi.ops.policy import draw_action, log_prob_of, masked_log_probs


@moozi.register_algorithm("policy_gradient")
@dataclasses.dataclass(frozen=True)
class PolicyGradient:
  spec: moozi.EnvSpec
  learning_rate: float = 0.01
  discount: float = 0.97
  entropy_coef: float = 0.02

  def network(self):
    def forward(frames):
      hidden = jnp.tanh(hk.Linear(64)(hk.Flatten()(frames.astype(jnp.float32))))
      return hk.Linear(self.spec.num_actions)(hidden), hk.Linear(1)(hidden)[:, 0]

    return hk.without_apply_rng(hk.transform(forward))

  def init(self, rng_key, frames):
    """Returns the state: the network's parameters and the optimizer's state."""
    params = self.network().init(rng_key, frames)
    return {"params": params, "optimizer": optax.adam(self.learning_rate).init(params)}

  def decide(self, state, history, timestep, rng_key, temperature):
    """Draws an action on each of B frames; at temperature 0, takes the most probable."""
    logits, value = self.network().apply(state["params"], history.frames)
    action, log_probs = draw_action(logits, timestep.legal_actions_mask, rng_key, temperature)
    return Decision(action=action, action_probs=jnp.exp(log_probs), root_value=value, extras={})

  def update(self, state, rollout, rng_key):
    """Returns the state after one update on a segment, and metrics."""
    gradient, metrics = jax.grad(self.loss, has_aux=True)(state["params"], rollout)
    steps, optimizer = optax.adam(self.learning_rate).update(gradient, state["optimizer"])
    return {"params": optax.apply_updates(state["params"], steps), "optimizer": optimizer}, metrics

  def loss(self, params, rollout):
    def flat(x):
      return x.reshape(-1, *x.shape[2:])

    live, mask = flat(rollout.is_live), flat(rollout.legal_actions_mask)
    logits, value = self.network().apply(params, flat(rollout.frames))
    log_probs = masked_log_probs(logits, mask)
    # On a last frame the action is not played, and its log probability is -inf.
    log_prob = jnp.where(live, log_prob_of(log_probs, flat(rollout.action)), 0.0)
    advantage = jnp.where(live, flat(self.returns(rollout)) - value, 0.0)
    policy_loss = -jnp.mean(log_prob * jax.lax.stop_gradient(advantage))
    value_loss = jnp.mean(advantage**2)
    entropy = -jnp.mean(jnp.sum(jnp.exp(log_probs) * jnp.where(mask, log_probs, 0.0), axis=-1))
    metrics = {"loss/policy": policy_loss, "loss/value": value_loss, "loss/entropy": entropy}
    return policy_loss + value_loss - self.entropy_coef * entropy, metrics

  def returns(self, rollout):
    """Returns G_t = r_{t+1} + γ s G_{t+1} [T, B]; where an episode is cut off, the value replaces G_{t+1}."""

    def step(later, row):
      reward, sign, is_last, is_truncated, value = row
      later = jnp.where(is_last, jnp.where(is_truncated, value, 0.0), later)
      here = reward + self.discount * sign * later
      return here, here

    rows = rollout.reward, rollout.sign, rollout.is_last, rollout.is_truncated, rollout.value[1:]
    return jax.lax.scan(step, rollout.value[-1], rows, reverse=True)[1]


if __name__ == "__main__":
  moozi.train("tiny/catch", algorithm="policy_gradient(discount=0.9)")
