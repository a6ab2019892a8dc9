"""pgx: MinAtar, 2048, two-player board games and Kuhn poker, written in JAX.

Source: Koyamada et al. 2023, pgx. docs/jax_environments.md lists how its MinAtar differs from the package
`minatar`; tests/envs/jax/test_minatar.py compares the two. Departures:
  - Freeway's clock truncates; pgx treats it as terminal, as the package `minatar` does.
  - Player 0 moves first in every episode. pgx draws the first player, which changes only the players' names.
  - At a terminal frame only the dummy is legal (docs/rules.md, "Ends"); in pgx every action is legal.
  - In Kuhn poker the frame ends with the player to move, 0 or 1. pgx's frame has only card and chips, so
    "bet" and "pass, bet" lead to the same frame.
"""

import importlib
from typing import Any, Literal

from pydantic import Field

from moozi.core.config import PositiveInt, Probability, Section
from moozi.core.spec import EnvSpec
from moozi.core.symmetry import SQUARE, board_symmetries
from moozi.envs.jax.suite_parts import (
  MAX_EPISODE_STEPS,
  MINATAR_ACTION_NAMES,
  MINIMAL_ACTIONS,
  STICKY_ACTION_PROB,
  check_package,
  make_suite,
)

_MINATAR = {
  "minatar-asterix": ("asterix", "MinAtarAsterix", "collect treasure, avoid enemies"),
  "minatar-breakout": ("breakout", "MinAtarBreakout", "break bricks with a ball"),
  "minatar-freeway": ("freeway", "MinAtarFreeway", "cross eight lanes of cars; truncated by its clock"),
  "minatar-seaquest": ("seaquest", "MinAtarSeaquest", "shoot, rescue divers, surface for air"),
  "minatar-space_invaders": ("space_invaders", "MinAtarSpaceInvaders", "shoot aliens before they land"),
}
_OTHERS = {
  "2048": "slide and merge numbers; one player",
  "animal_shogi": "shogi on 3 × 4 squares; two players",
  "chess": "two players; a draw after 512 moves",
  "connect_four": "four in a row; two players",
  "gardner_chess": "chess on 5 × 5 squares; two players; a draw after 256 moves",
  "go_19x19": "komi 7.5; two players; counted after 722 moves",
  "go_9x9": "komi 7.5; two players; counted after 162 moves",
  "hex": "connect two sides of an 11 × 11 board; two players, with the swap rule",
  "kuhn_poker": "three cards, one bet; two players, each of whom sees one card",
  "othello": "turn the other's stones; two players",
  "shogi": "two players; a draw after 512 moves",
  "tic_tac_toe": "three in a row; two players",
}
# Two-player games with hidden cards. Their frames also show the player to move.
_HIDDEN_CARDS = frozenset({"kuhn_poker"})
# Games with chance. In the others, chance only chooses who moves first, which `Departures` describes.
_WITH_CHANCE = frozenset({"2048", "kuhn_poker", *_MINATAR})
GAMES = {game: summary for game, (_, _, summary) in _MINATAR.items()} | _OTHERS

REFUSED = {
  "backgammon": "a player may move several times in a row; only two who alternate strictly are supported",
  "bridge_bidding": "it has four players; only one or two are supported",
  "leduc_holdem": "a player may move twice in a row; only two who alternate strictly are supported",
  "mahjong": "it has four players; only one or two are supported",
  "sparrow_mahjong": "it has three players; only one or two are supported",
}
"""pgx's other environments, each with the reason it is not offered."""

_ACTION_NAMES = {
  "2048": ("left", "up", "right", "down"),
  "kuhn_poker": ("bet", "pass"),
}
_TURNS = {
  "connect_four": ("mirror",),
  "go_9x9": SQUARE,
  "go_19x19": SQUARE,
  "hex": ("rotate_180",),
  "othello": ("rotate_180", "transpose", "antitranspose"),
  "tic_tac_toe": SQUARE,
}
# docs/jax_environments.md describes the rules of this version, and the tests check them.
_OLDEST = "2.6"


class PgxOptions(Section):
  """Options of `pgx:*` other than MinAtar."""

  max_episode_steps: PositiveInt | None = Field(None, description=MAX_EPISODE_STEPS)


class PgxMinAtarOptions(Section):
  """Options of `pgx:minatar-*`; defaults are pgx's."""

  sticky_action_prob: Probability = Field(0.1, description=STICKY_ACTION_PROB)
  minimal_actions: bool = Field(True, description=MINIMAL_ACTIONS)
  max_episode_steps: PositiveInt | None = Field(None, description=MAX_EPISODE_STEPS)


def make_env(game: str, options: Any) -> Any:
  check_package("pgx", game, _OLDEST)
  import jax

  from moozi.envs.jax.rules import JaxEnvironment

  is_minatar = game in _MINATAR
  if is_minatar:
    module, name, _ = _MINATAR[game]
    make = getattr(importlib.import_module(f"pgx.minatar.{module}"), name)
    env = make(use_minimal_action_set=options.minimal_actions, sticky_action_prob=options.sticky_action_prob)
  else:
    env = importlib.import_module("pgx").make(game)
  state = jax.eval_shape(env.init, jax.random.PRNGKey(0))
  num_actions = state.legal_action_mask.shape[0]
  shape = state.observation.shape
  if is_minatar:
    minimal: list[int] = env.minimal_action_set.tolist()
    own = minimal if len(minimal) == num_actions else range(num_actions)
    names = tuple(MINATAR_ACTION_NAMES[a] for a in own)
  else:
    names = _ACTION_NAMES.get(game, tuple(str(a) for a in range(num_actions)))
  shows_player = game in _HIDDEN_CARDS
  frame_shape = shape if len(shape) == 3 else (1, 1, shape[0] + shows_player)
  places: Literal["cells", "columns"] = "columns" if game == "connect_four" else "cells"
  spec = EnvSpec(
    name=f"pgx:{game}",
    frame_shape=frame_shape,
    frame_dtype="bool" if state.observation.dtype == bool else "float32",
    num_env_actions=num_actions,
    num_players=int(env.num_players),
    action_names=names,
    is_perfect_information=game not in _HIDDEN_CARDS,
    action_places=places if game in _TURNS else "none",
    symmetries=board_symmetries(_TURNS.get(game, ()), frame_shape, num_actions, places),
  )
  rules = _make_rules(env, spec, ends_by_clock=game == "minatar-freeway", shows_player=shows_player)
  return JaxEnvironment(spec=spec, rules=rules, max_episode_steps=options.max_episode_steps)


def _make_rules(env: Any, spec: EnvSpec, ends_by_clock: bool, shows_player: bool) -> Any:
  """Makes JaxRules whose state is pgx's."""
  import jax.numpy as jnp

  from moozi.envs.jax.rules import JaxRules

  def step(state: Any, action: Any, rng_key: Any) -> Any:
    mover = state.current_player
    state = env.step(state, action, rng_key)
    never = jnp.zeros((), bool)
    is_terminal, is_cut = (never, state.terminated) if ends_by_clock else (state.terminated, never)
    return state, state.rewards[mover], is_terminal, is_cut | state.truncated

  def frame(state: Any) -> Any:
    observation = state.observation
    if shows_player:
      # In `JaxEnvironment` player 0 moves first; pgx draws its first player.
      observation = jnp.append(observation, (state._step_count % 2).astype(observation.dtype))
    return jnp.reshape(observation, spec.frame_shape)

  return JaxRules(
    init=env.init,
    step=step,
    frame=frame,
    legal_actions_mask=lambda state: state.legal_action_mask,
    is_deterministic=spec.name.partition(":")[2] not in _WITH_CHANCE,
  )


SUITE = make_suite(
  name="pgx",
  summary="board games and MinAtar, in JAX",
  games=GAMES,
  refused=REFUSED,
  options=lambda game: PgxMinAtarOptions if game in _MINATAR else PgxOptions,
  make_env=make_env,
)
