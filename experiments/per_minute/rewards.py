"""Measures where an agent's model of Space Invaders mispredicts rewards.

    python -m experiments.per_minute.rewards    # an agent of the zoo plays; writes results/rewards.json

The aliens move once in as many frames as there are aliens, and at most in 12. Frames do not show this timer,
and four of them show the last move only if it was one of the last three. The model unrolls from each state of
an episode with the actions that were played, and its rewards are compared with the game's.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float

import moozi
from experiments.lib.command import command, positive_int
from experiments.lib.random_start import random_start
from moozi.io.atomic_write import write_text

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "rewards.json"
ALIENS = 1
"""The channel of the aliens in MinAtar's frames of Space Invaders."""
NUM_STEPS = 8
"""Number of steps that the model unrolls."""
GROUPS = ((1, 3), (4, 8), (9, 16), (17, 24))
"""Numbers of aliens, first and last."""


def aliens_move(before: Float[np.ndarray, "10 10 C"], after: Float[np.ndarray, "10 10 C"]) -> bool:
  """Returns whether the aliens of one frame have moved in the next: some alien is where none was."""
  return bool((after[..., ALIENS] > before[..., ALIENS]).any())


def play(agent: moozi.Agent, seed: int, max_steps: int) -> dict[str, np.ndarray]:
  """Plays an episode of at most `max_steps` steps, the first of which may be random (`random_start`).

  Returns, for each of N states with a whole history before and `NUM_STEPS` steps after it: `predicted` and
    `rewards` [N, NUM_STEPS]; `aliens` [N], the number of aliens; and `moves` [N], whether they move in the
    next step.
  """
  env = agent.make_env(seed=seed)
  step, _ = random_start(env, seed)
  frames, actions, rewards = [np.asarray(step.observation.frame)], list[int](), list[float]()
  while not step.last() and len(actions) < max_steps:
    action = agent.act(step)
    step = env.step(action)
    frames.append(np.asarray(step.observation.frame))
    actions.append(int(action) + 1)  # the network's action 0 is the dummy
    rewards.append(float(step.reward))
  network = agent.network
  length = network.history_length
  at = np.arange(length, len(actions) - NUM_STEPS)
  played, gained = np.array(actions, np.int32), np.array(rewards)
  seen = np.stack([[frames[i - length + 1 + j] for j in range(length)] for i in at])
  taken = np.stack([played[i - length : i] for i in at])
  state = jax.jit(network.root)(network.parameters, seen, taken).hidden_state
  assert network.recurrent is not None, "MuZero's network has a model"
  recurrent, predicted = jax.jit(network.recurrent), []
  for k in range(NUM_STEPS):
    output = recurrent(network.parameters, state, played[at + k])
    state = output.hidden_state
    predicted.append(np.asarray(output.reward))
  return {
    "predicted": np.stack(predicted, axis=1),
    "rewards": np.stack([gained[at + k] for k in range(NUM_STEPS)], axis=1),
    "aliens": np.array([frames[i][..., ALIENS].sum() for i in at]),
    "moves": np.array([aliens_move(frames[i], frames[i + 1]) for i in at]),
  }


def rows_of(found: dict[str, np.ndarray]) -> list[dict[str, Any]]:
  """Returns the figures of each group of numbers of aliens: shares of states, None without a state.

  The model is wrong where it predicts more than half a reward and none comes, or less and one comes.
  """
  wrong = (found["predicted"] > 0.5) != (found["rewards"] > 0.5)
  rows = []
  for first, last in GROUPS:
    inside = (found["aliens"] >= first) & (found["aliens"] <= last)
    still, moving = inside & ~found["moves"], inside & found["moves"]
    rows.append(
      {
        "aliens": [first, last],
        "states": int(inside.sum()),
        "reward": _share(found["rewards"][inside, 0] > 0.5),
        "moves": _share(found["moves"][inside]),
        "wrong": [_share(wrong[inside, k]) for k in range(wrong.shape[1])],
        "wrong_still": _share(wrong[still, 0]),
        "wrong_moving": _share(wrong[moving, 0]),
      }
    )
  return rows


def _share(flags: Bool[np.ndarray, " N"]) -> float | None:
  return float(flags.mean()) if flags.size else None


@command
def main(arguments: Sequence[str] | None = None) -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument(
    "--agent", default="zoo:minatar/space_invaders", help="run directory or zoo: name (%(default)s)"
  )
  parser.add_argument("--episodes", type=positive_int, default=10, help="number of episodes (%(default)s)")
  parser.add_argument(
    "--steps", type=positive_int, default=1000, help="maximum steps of an episode (%(default)s)"
  )
  parser.add_argument("--out", type=Path, default=RESULTS, help="file to write")
  options = parser.parse_args(arguments)
  agent = moozi.load(options.agent)
  played = [play(agent, seed, options.steps) for seed in range(options.episodes)]
  found = {key: np.concatenate([episode[key] for episode in played]) for key in played[0]}
  content = {"agent": options.agent, "episodes": options.episodes, "rows": rows_of(found)}
  write_text(options.out, json.dumps(content) + "\n")
  return 0


if __name__ == "__main__":
  sys.exit(main())
