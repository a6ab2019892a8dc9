"""Who plays the other seat in evaluation, and what its result comes to. Two players only; imports no JAX."""

import contextlib
import math

import numpy as np

from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.envs import registry
from moozi.envs.environment import Bot, Environment


def seat_of(episode: int) -> int:
  """The seat (player) that the agent has in an episode: both in turn."""
  return episode % 2


def make_opponent(config: Config, spec: EnvSpec, env: Environment, seed: int) -> Bot | None:
  """The rival of one episode in `env`; None with one player, and where the agent plays both seats.

  Raises: UserError: the environment has no such rival.
  """
  evaluation = config.evaluation
  if spec.num_players == 1 or evaluation.opponent == "self":
    return None
  return env.make_bot(evaluation.opponent, evaluation.opponent_simulations, seed)


def check_opponent(config: Config, spec: EnvSpec) -> None:
  """Raises UserError where the run's environment has no such rival as `evaluation.opponent`."""
  if spec.num_players == 2 and config.evaluation.opponent != "random":
    env = registry.make(config.env.name, config.evaluation.seed, is_testing=True, **config.env.kwargs)
    with contextlib.closing(env):
      make_opponent(config, spec, env, config.evaluation.seed)


def check_players(config: Config, spec: EnvSpec) -> None:
  """Raises UserError where a run's settings do not go with the players of its environment.

  Each frame is what the player to move may see: of two players who hide something from one another, the frame
  before the newest is the other's.
  """
  length = config.targets.history_length
  if spec.num_players == 2 and not spec.is_perfect_information and length > 1:
    raise UserError(
      f"targets.history_length={length}: must be 1 with env.name={config.env.name}, whose players hide "
      "something from one another: in a longer history each would see the other's frames"
    )
  check_opponent(config, spec)


def score_figures(returns: np.ndarray, seats: np.ndarray) -> dict[str, float | int]:
  """The figures that two players have beside one player's.

  Args:
    returns: [E], from the view of the agent's seat.
    seats: [E], the agent's seat.

  Returns: `score` (a win, a return above 0, is 1, a draw ½), `wins`, `draws`, `losses`, `return_margin`, and
    for each seat that was played `score_seat_0`, `return_mean_seat_0`, `return_margin_seat_0`. A margin is
    half the 95% interval of the mean, 1.96 standard deviations over √E.
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
