"""Creates opponents for evaluation, assigns seats, and computes two-player scores. Imports no JAX."""

import math

import numpy as np
from jaxtyping import Float, Int

from moozi.core.config import Config
from moozi.core.spec import EnvSpec
from moozi.envs.players import Player, make_player


def seat_of(episode: int) -> int:
  """Returns the agent's seat (its player number) in an episode: 0 in even episodes, 1 in odd ones."""
  return episode % 2


def has_opponent(config: Config, spec: EnvSpec) -> bool:
  """Returns whether an opponent plays one seat; false with one player and in self-play."""
  return spec.num_players == 2 and config.evaluation.opponent != "self"


def make_opponent(config: Config, spec: EnvSpec, num_games: int = 1) -> Player | None:
  """Creates the opponent, which plays up to `num_games` games at once; None if there is no opponent.

  Raises: UserError: there is no such player, or it plays another environment.
  """
  if not has_opponent(config, spec):
    return None
  evaluation = config.evaluation
  return make_player(evaluation.opponent_name, spec, "evaluation.opponent", evaluation.allows_code, num_games)


def score_figures(returns: Float[np.ndarray, "N"], seats: Int[np.ndarray, "N"]) -> dict[str, float | int]:
  """Computes the statistics of two-player episodes from the returns of the agent's seat.

  Returns: `score` (mean over episodes: 1 for a win, ½ for a draw, 0 for a loss), `wins`, `draws`, `losses`
    and `return_margin`. For each seat i that was played: `score_seat_<i>`, `return_mean_seat_<i>` and
    `return_margin_seat_<i>`. A margin is half the width of the mean's 95% confidence interval: 1.96 standard
    deviations over √N. It is left out if it is of one episode.
  """
  out: dict[str, float | int] = {
    "score": _score(returns),
    "wins": int((returns > 0).sum()),
    "draws": int((returns == 0).sum()),
    "losses": int((returns < 0).sum()),
  }
  if len(returns) > 1:
    out["return_margin"] = margin(returns)
  for seat in (0, 1):
    own = returns[seats == seat]
    if len(own):
      out |= {
        f"score_seat_{seat}": _score(own),
        f"return_mean_seat_{seat}": float(own.mean()),
      }
    if len(own) > 1:
      out[f"return_margin_seat_{seat}"] = margin(own)
  return out


def _score(returns: np.ndarray) -> float:
  return float(0.5 + 0.5 * np.sign(returns).mean())


def margin(returns: Float[np.ndarray, "N"]) -> float:
  """Returns half the width of the 95% confidence interval of the mean return: 1.96 standard errors."""
  return 1.96 * float(returns.std()) / math.sqrt(len(returns))
