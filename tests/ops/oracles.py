"""Oracles: training targets and returns by their definitions, in plain Python."""

import dataclasses

import numpy as np


@dataclasses.dataclass
class Step:
  """One step of a lane."""

  reward: float
  value: float
  player: int
  is_first: bool
  is_last: bool
  is_truncated: bool
  action: int
  probs: list[float]
  frame: np.ndarray | None = None


def random_lane(
  rng: np.random.Generator, length: int, num_players: int, num_actions: int, end_probability: float
) -> list[Step]:
  """Returns a lane of random episodes in which the players alternate."""
  steps: list[Step] = []
  is_first, player = True, int(rng.integers(num_players))
  for _ in range(length):
    is_last = bool(rng.random() < end_probability)
    is_truncated = is_last and bool(rng.random() < 0.4)
    is_terminal = is_last and not is_truncated
    probs = np.append(0.0, rng.dirichlet(np.ones(num_actions - 1))).astype(np.float32).tolist()
    steps.append(
      Step(
        reward=0.0 if is_first else float(np.float32(rng.normal())),
        value=0.0 if is_terminal else float(np.float32(rng.normal())),
        player=player,
        is_first=is_first,
        is_last=is_last,
        is_truncated=is_truncated,
        action=0 if is_last else int(rng.integers(1, num_actions)),
        probs=[1.0] + [0.0] * (num_actions - 1) if is_terminal else probs,
      )
    )
    is_first = is_last
    player = int(rng.integers(num_players)) if is_last else (player + 1) % num_players
  return steps


def oracle_return(steps: list[Step], t: int, n_step: int, discount: float) -> float:
  """Returns the n-step return z_t, seen from the player to move at t."""
  total, weight = 0.0, 1.0
  for j in range(n_step):
    step = steps[t + j]
    sign = 1.0 if step.player == steps[t].player else -1.0
    if step.is_last:
      return total + (weight * sign * step.value if step.is_truncated else 0.0)
    total += weight * sign * steps[t + j + 1].reward
    weight *= discount
  step = steps[t + n_step]
  sign = 1.0 if step.player == steps[t].player else -1.0
  if step.is_last and not step.is_truncated:
    return total
  return total + weight * sign * step.value


def oracle_target(steps: list[Step], i: int, unroll_steps: int, n_step: int, discount: float) -> dict:
  """Returns the training target of start index i; entries after the first episode end are dummies."""
  num_actions = len(steps[0].probs)
  dummy = [1.0] + [0.0] * (num_actions - 1)
  out: dict = {
    name: []
    for name in ("actions", "rewards", "action_probs", "root_values", "n_step_returns", "unroll_mask")
  }
  ended, truncated = False, False
  for k in range(unroll_steps + 1):
    step = steps[i + k]
    if k > 0:
      out["rewards"].append(0.0 if ended else step.reward)
    if ended or (step.is_last and not step.is_truncated):
      if k < unroll_steps:
        out["actions"].append(0)
      out["action_probs"].append(dummy)
      out["root_values"].append(0.0)
      out["n_step_returns"].append(0.0)
    else:
      if k < unroll_steps:
        out["actions"].append(0 if step.is_last else step.action)
      out["action_probs"].append(step.probs)
      out["root_values"].append(step.value)
      out["n_step_returns"].append(oracle_return(steps, i + k, n_step, discount))
    out["unroll_mask"].append(0.0 if truncated else 1.0)
    if k == 0:
      out["consistency_mask"] = 0.0 if step.is_last else 1.0
    if step.is_last and not ended:
      ended, truncated = True, step.is_truncated
  return out


def oracle_history(
  steps: list[Step], i: int, history_length: int, ahead: int = 1
) -> tuple[list[int | None], list[int | None]]:
  """Returns lane indices of the L+F frames and L+F actions of start index i, F = `ahead`; None is a blank."""
  start = max(j for j in range(i + 1) if steps[j].is_first)
  frames: list[int | None] = [j if j >= start else None for j in range(i - history_length + 1, i + 1)]
  actions = [j if j >= start else None for j in range(i - history_length, i + 1)]
  for j in range(i, i + ahead):
    is_over = any(steps[e].is_last for e in range(i, j + 1))
    frames.append(None if is_over else j + 1)
    if j + 1 < i + ahead:
      actions.append(None if is_over else j + 1)
  return frames, actions
