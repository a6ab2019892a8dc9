"""Makes random search trees and inspected episodes for tests."""

import numpy as np

from moozi.core.search_record import InspectedEpisode, SearchTree
from moozi.core.spec import EnvSpec


def make_tree(num_simulations: int, num_actions: int = 4, seed: int = 0) -> SearchTree:
  """Returns a tree grown by random descents; visits are consistent, and values are random."""
  random = np.random.default_rng(seed)
  parent, action, depth, visits = [-1], [-1], [0], [1]
  child: dict[tuple[int, int], int] = {}
  for _ in range(num_simulations):
    path, node = [0], 0
    while True:
      a = min(1 + int(random.exponential(0.8)), num_actions - 1)
      is_new = (node, a) not in child
      if is_new:
        child[node, a] = len(parent)
        parent.append(node)
        action.append(a)
        depth.append(depth[node] + 1)
        visits.append(0)
      node = child[node, a]
      path.append(node)
      if is_new:
        break
    for i in path:
      visits[i] += 1
  num = len(parent)
  value = random.normal(size=num).astype(np.float32)
  reward = random.normal(size=num).astype(np.float32)
  reward[0] = 0
  prior = random.uniform(size=num).astype(np.float32)
  return SearchTree(
    parent=np.asarray(parent, np.int32),
    action=np.asarray(action, np.int32),
    depth=np.asarray(depth, np.int32),
    visits=np.asarray(visits, np.int32),
    value=value,
    raw_value=(value / 2).astype(np.float32),
    reward=reward,
    prior=prior,
    is_chance=np.zeros(num, bool),
  )


def make_episode(
  spec: EnvSpec, num_frames: int = 12, num_simulations: int = 16, unroll: int = 3, **changes
) -> InspectedEpisode:
  """Returns an inspected episode with random frames and figures, which ends in a terminal frame."""
  random = np.random.default_rng(1)
  num_actions = spec.num_actions
  two = spec.num_players == 2
  to_play = (np.arange(num_frames) % 2 if two else np.zeros(num_frames)).astype(np.int32)
  actions = random.integers(1, num_actions, num_frames).astype(np.int32)
  actions[-1] = 0
  probs = random.dirichlet(np.ones(num_actions), num_frames).astype(np.float32)
  trees = [make_tree(num_simulations, num_actions, seed) for seed in range(num_frames - 1)]
  values = random.normal(size=num_frames).astype(np.float32)
  if spec.frame_dtype == "uint8":
    frames = random.integers(0, 256, (num_frames, *spec.frame_shape)).astype(np.uint8)
  else:
    frames = (random.uniform(size=(num_frames, *spec.frame_shape)) > 0.8).astype(spec.frame_dtype)
  episode = {
    "index": 0,
    "end": "terminal",
    "seat": 0,
    "length": num_frames - 1,
    "totals": np.linspace(0, 1.5, num_frames),
    "discount": 0.99,
    "signed_discount": -0.99 if two else 0.99,
    "num_simulations": num_simulations,
    "frames": frames,
    "pictures": None,
    "legal_actions_mask": np.ones((num_frames, num_actions), bool),
    "to_play": to_play,
    "seat_sign": np.where(to_play == 0, 1, -1).astype(np.float32),
    "actions": actions,
    "is_agents": np.ones(num_frames, bool),
    "rewards": random.integers(0, 2, num_frames).astype(np.float32),
    "root_values": values,
    "prior_values": values / 2,
    "returns": values + 1,
    "prior_probs": probs,
    "action_probs": probs[::-1].copy(),
    "q_values": random.normal(size=(num_frames, num_actions)).astype(np.float32),
    "network_q_values": random.normal(size=(num_frames, num_actions)).astype(np.float32),
    "imagined_rewards": random.normal(size=(num_frames, unroll)).astype(np.float32),
    "imagined_values": random.normal(size=(num_frames, unroll + 1)).astype(np.float32),
    "trees": (*trees, None),
  }
  return InspectedEpisode(**(episode | changes))
