"""PPO's acting: fixed-length segments of vectorized environments.

Source: Huang et al. 2022, core detail 1.
"""

import jax
import numpy as np

from moozi.acting.lanes import ActingResult, Lanes
from moozi.baselines.ppo.network import PPONetwork, log_prob_of, make_ppo
from moozi.baselines.ppo.update import PPOState, Segment
from moozi.core.config import Config
from moozi.core.pytree import replace, stack
from moozi.envs.environment import VectorEnvironment
from moozi.ops.players import player_sign


class Collector(Lanes):
  """Acts in B environments (lanes) with PPO's policy. Environments, histories and random key persist.

  The metrics of a segment are the means `train/reward` and `train/last_share`, and the metrics that
  `Lanes.result` adds.
  """

  def __init__(self, network: PPONetwork, config: Config, env: VectorEnvironment, seed: int) -> None:
    agent = make_ppo(network, env.spec, config.ppo.history_length)
    super().__init__(env, agent.init(env.num_envs), seed)
    self._length = config.ppo.segment_length
    self._policy = jax.jit(agent.act)

  def run(self, state: PPOState) -> tuple[Segment, ActingResult]:
    """Acts for `segment_length` vector steps with the state's parameters; returns the segment and metrics."""
    rows = []
    self.begin_segment()
    self.rng_key, *keys = np.asarray(jax.random.split(self.rng_key, self._length + 2))
    for key in keys[:-1]:
      now = self.timestep
      self.carry, decision = self._policy(state.variables, self.carry, now, key, 1.0)
      output, extras = (decision := jax.device_get(decision)), decision.extras
      is_cut = self.step(output.action)
      after = self.timestep
      rows.append(
        Segment(
          frames=extras["frames"],
          legal_actions_mask=now.legal_actions_mask,
          action=output.action,
          log_prob=np.asarray(log_prob_of(extras["log_probs"], output.action)),
          value=extras["value"],
          is_live=~now.is_last,
          reward=after.last_reward,
          is_last=after.is_last,
          is_truncated=after.is_truncated,
          sign=player_sign(now.to_play, after.to_play),
        )
      )
      if is_cut.any():
        rows[-2:] = _cut_off(rows[-2:], is_cut)
    # Computes the value of the frame after the segment; its action is not used.
    _, decision = self._policy(state.variables, self.carry, self.timestep, keys[-1], 1.0)
    segment = stack(rows)
    segment = replace(
      segment, value=np.concatenate([segment.value, np.asarray(decision.extras["value"])[None]])
    )
    metrics = {
      "train/reward": float(segment.reward.mean()),
      "train/last_share": float(segment.is_last.mean()),
    }
    return segment, self.result(int(state.learner_step), metrics)

  def check(self, segment: Segment) -> None:
    """Validates the newest segment, from which all updates of a round learn.

    Raises: ValueError: a reward or a frame is not finite. The frame after the segment is checked too, because
      the bootstrap value is computed from it.
    """
    if not np.isfinite(segment.reward).all():
      raise ValueError("last_reward is not finite")
    frames = (segment.frames, self.timestep.frame)
    if any(np.asarray(f).dtype.kind == "f" and not np.isfinite(f).all() for f in frames):
      raise ValueError("frame is not finite")


def _cut_off(rows: list[Segment], is_cut: np.ndarray) -> list[Segment]:
  """Returns the newest two rows (or one), with the episodes of failed environments truncated.

  The newest action of a failed environment had no effect. Its frame becomes the truncated last frame of the
  episode. If this frame is the first of the segment, the row before belongs to the previous segment and stays
  unchanged: it keeps its bootstrap value.
  """
  *before, newest = rows
  newest = replace(newest, is_live=newest.is_live & ~is_cut, is_last=newest.is_last | is_cut)
  return [
    *(
      replace(r, is_last=r.is_last | is_cut, is_truncated=r.is_truncated | (is_cut & ~r.is_last))
      for r in before
    ),
    newest,
  ]
