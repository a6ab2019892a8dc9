"""Draws the pictures of the environments' pages: `python scripts/make_environment_pictures.py [NAME]...`

A picture shows several environments, each in a state after random legal actions from a fixed seed, as `moozi
watch` and the report draw it. Needs the packages of the environments (`make setup` installs them), and OpenGL
for tasks of the Control Suite.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from moozi.envs import registry
from moozi.envs.environment import random_action
from moozi.vis.frames import draw_frame, legend_of
from moozi.vis.lettering import INK, fit, paper, write

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
_SIZE, _MARGIN, _TITLE = 150, 8, 20


class State(NamedTuple):
  """A state of an environment: its name, the number of random actions, and its options."""

  env: str
  num_actions: int
  options: dict[str, Any] | None = None


_COLOUR = {"colour": True, "frame_size": 160}
PICTURES: dict[str, tuple[State, ...]] = {
  "environments": (
    State("minatar:space_invaders", 20),
    State("atari:Pong", 70, _COLOUR),
    State("open_spiel:connect_four", 14),
    State("gymnasium:CartPole-v1", 8),
    State("pgx:chess", 12),
  ),
  "minatar": tuple(
    State(f"minatar:{game}", 40) for game in ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
  ),
  "atari": tuple(
    State(f"atari:{game}", 90, _COLOUR) for game in ("Breakout", "Boxing", "Freeway", "MsPacman", "Qbert")
  ),
  "boards": (
    State("open_spiel:othello", 24),
    State("open_spiel:go(board_size=9)", 40),
    State("open_spiel:hex(board_size=5)", 10),
    State("open_spiel:stratego", 40, {"seat": 0}),
    State("open_spiel:uno", 6, {"seat": 0}),
  ),
  "gymnasium": (
    State("gymnasium:CartPole-v1", 8),
    State("gymnasium:Acrobot-v1", 40),
    State("gymnasium:Blackjack-v1", 0),
    State("gymnasium:FrozenLake-v1", 3),
  ),
  "jax_environments": (
    State("gymnax:SpaceInvaders-MinAtar", 20),
    State("gymnax:FourRooms-misc", 5),
    State("pgx:2048", 30),
    State("pgx:go_9x9", 40),
    State("pgx:hex", 30),
  ),
  "control": tuple(
    State(f"dm_control:{task}", 25, {"pictures": True})
    for task in ("cartpole-swingup", "reacher-easy", "finger-spin", "cheetah-run", "walker-walk")
  ),
  "tiny": (State("tiny:catch", 5), State("tiny:corridor", 3), State("tiny:coin", 1)),
}
"""The states of each picture, whose file has the same name."""


def tile(state: State) -> np.ndarray:
  """Plays the random actions of a state, and draws the last frame below the environment's name."""
  options = state.options or {}
  env, spec = registry.make(state.env, 0, **options), registry.env_spec(state.env, **options)
  random = np.random.default_rng(0)
  step = env.reset()
  for _ in range(state.num_actions):
    step = env.reset() if step.last() else env.step(random_action(spec, _legal(step), random))
  while step.last():
    step = env.reset()
  picture = draw_frame(np.asarray(step.observation.frame), spec, _SIZE, int(step.observation.to_play))
  if options.get("pictures"):
    own = env.render()
    assert own is not None, "OpenGL is missing"
    picture = np.asarray(Image.fromarray(own).resize((_SIZE, _SIZE * len(own) // own.shape[1])))
  env.close()
  height, width = picture.shape[:2]
  left = (_SIZE - width) // 2
  out = paper(_TITLE + height + 4, _SIZE)
  write(out, fit(state.env, _SIZE, 12), 0, 2, INK, 12)
  out[_TITLE : _TITLE + height, left : left + width] = picture
  legend = legend_of(spec, _SIZE)
  return out if legend is None else np.concatenate([out, legend])


def _legal(step: Any) -> np.ndarray:
  return np.asarray(step.observation.legal_actions_mask)


def draw(states: Sequence[State]) -> np.ndarray:
  """Returns the tiles of states in a row."""
  tiles = [tile(state) for state in states]
  out = paper(max(map(len, tiles)) + 2 * _MARGIN, len(tiles) * (_SIZE + _MARGIN) + _MARGIN)
  for i, each in enumerate(tiles):
    left = _MARGIN + i * (_SIZE + _MARGIN)
    out[_MARGIN : _MARGIN + len(each), left : left + _SIZE] = each
  return out


def main() -> None:
  """Draws pictures into docs/images; without names, all of them."""
  parser = argparse.ArgumentParser(description=main.__doc__)
  parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PICTURES)}")
  for name in parser.parse_args().names or PICTURES:
    picture = Image.fromarray(draw(PICTURES[name])).quantize(128, method=Image.Quantize.MEDIANCUT)
    picture.save(IMAGES / f"env_{name}.png", optimize=True)


if __name__ == "__main__":
  main()
