"""Creates opponents for evaluation, assigns seats, and computes two-player scores. Imports no JAX."""

import contextlib
import math
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.envs import registry
from moozi.envs.environment import Environment


@runtime_checkable
class Opponent(Protocol):
  """Plays one seat of an episode."""

  def action(self, observation: Shaped[np.ndarray, "H W C"], legal: Bool[np.ndarray, "E"]) -> int:
    """Returns one of the environment's E actions for the player to move.

    Args:
      observation: the frame that the player to move sees.
      legal: which of the environment's actions are legal.
    """


class BotOpponent:
  """Plays the actions of an environment's bot: random play, or OpenSpiel's MCTS, which reads the state."""

  def __init__(self, action: Callable[[np.ndarray], int]) -> None:
    self._action = action

  def action(self, observation: Shaped[np.ndarray, "H W C"], legal: Bool[np.ndarray, "E"]) -> int:
    return self._action(legal)


def seat_of(episode: int) -> int:
  """The agent's seat (player) in an episode: the two seats alternate."""
  return episode % 2


def has_opponent(config: Config, spec: EnvSpec) -> bool:
  """Whether an opponent plays one seat; false with one player and in self-play."""
  return spec.num_players == 2 and config.evaluation.opponent != "self"


def make_opponent(config: Config, spec: EnvSpec, env: Environment, seed: int) -> Opponent | None:
  """Creates the opponent of one episode in `env`; returns None if the episode has no opponent.

  Raises: UserError: the environment does not provide the opponent.
  """
  if not has_opponent(config, spec):
    return None
  evaluation = config.evaluation
  return BotOpponent(env.make_bot(evaluation.opponent, evaluation.opponent_simulations, seed).action)


def check_opponent(config: Config, spec: EnvSpec) -> None:
  """Raises UserError if the run's environment does not provide the opponent `evaluation.opponent`."""
  if spec.num_players == 2 and config.evaluation.opponent != "random":
    env = registry.make(config.env.name, config.evaluation.seed, is_testing=True, **config.env.kwargs)
    with contextlib.closing(env):
      make_opponent(config, spec, env, config.evaluation.seed)


def check_players(config: Config, spec: EnvSpec) -> None:
  """Raises UserError if a run's settings do not fit the players of its environment.

  A frame shows what the player to move may see. With hidden information, a history of several frames would
  reveal frames of the other player.
  """
  length = config.targets.history_length
  if spec.num_players == 2 and not spec.is_perfect_information and length > 1:
    raise UserError(
      f"targets.history_length={length}: must be 1 with env.name={config.env.name}, whose players have "
      "hidden information: a longer history would show each player the other's frames"
    )
  check_opponent(config, spec)


def score_figures(returns: Float[np.ndarray, "N"], seats: Int[np.ndarray, "N"]) -> dict[str, float | int]:
  """Computes the figures of two-player episodes from the returns of the agent's seat.

  Returns: `score` (1 for a return above 0, ½ for a draw), `wins`, `draws`, `losses`, `return_margin`, and for
    each seat that was played `score_seat_0`, `return_mean_seat_0`, `return_margin_seat_0`. A margin is half
    of the 95% interval of the mean: 1.96 standard deviations over √N.
  """
  out: dict[str, float | int] = {
    "score": _score(returns),
    "wins": int((returns > 0).sum()),
    "draws": int((returns == 0).sum()),
    "losses": int((returns < 0).sum()),
    "return_margin": _margin(returns),
  }
  for seat in (0, 1):
    own = returns[seats == seat]
    if len(own):
      out |= {
        f"score_seat_{seat}": _score(own),
        f"return_mean_seat_{seat}": float(own.mean()),
        f"return_margin_seat_{seat}": _margin(own),
      }
  return out


def _score(returns: np.ndarray) -> float:
  return float(0.5 + 0.5 * np.sign(returns).mean())


def _margin(returns: np.ndarray) -> float:
  return 1.96 * float(returns.std()) / math.sqrt(len(returns))
