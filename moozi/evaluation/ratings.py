"""Scores and ratings of players from their games, with intervals over openings.

Games of one opening start from the same position, so they are not independent. The bootstrap therefore
resamples openings, each with all its games. There are two kinds of ratings: Bradley-Terry ratings on the
scale of Elo, by maximum likelihood with `VIRTUAL_DRAWS`, and those of Weng and Lin (2011, Plackett–Luce), by
the package openskill. See docs/decisions/0019.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float

from moozi.evaluation.tournament import GameRecord, openings_of

CONFIDENCE = 0.95
NUM_DRAWS = 1000
ELO = 400.0 / math.log(10.0)
"""Elo points per unit of log odds."""
VIRTUAL_DRAWS = 1.0
"""Number of drawn games added to each pair that met. The rating after only wins is then finite."""


@dataclasses.dataclass(frozen=True)
class Interval:
  """A statistic with its 95% bootstrap interval over openings, which is NaN with one opening."""

  value: float
  low: float
  high: float


@dataclasses.dataclass(frozen=True)
class Tally:
  """The scores of P players against each other, for each cluster of games with the same opening.

  Attributes:
    players: the players' names.
    wins: for each cluster, the sum of the scores of player i against player j.
    games: for each cluster, the number of games in which players i and j met.
    gains: for each cluster, the sum of player i's mean return in the games against player j.
  """

  players: tuple[str, ...]
  wins: Float[np.ndarray, "clusters P P"]
  games: Float[np.ndarray, "clusters P P"]
  gains: Float[np.ndarray, "clusters P P"]

  @property
  def num_openings(self) -> int:
    """Number of clusters."""
    return len(self.wins)


def tally(games: Sequence[GameRecord], players: Sequence[str], is_deterministic: bool) -> Tally:
  """Counts the games of `players`; see `Tally`.

  Args:
    is_deterministic: whether games with the same moves are the same; see `Table.is_deterministic`.
  """
  index = {name: i for i, name in enumerate(players)}
  clusters: dict[object, int] = {}
  found = []
  for game, opening in zip(games, openings_of(games, is_deterministic), strict=True):
    cluster = clusters.setdefault(opening, len(clusters))
    found += [(cluster, *row) for row in _comparisons(game, index)]
  wins, count, gains = (np.zeros((len(clusters), len(players), len(players))) for _ in range(3))
  for cluster, i, j, score, gain in found:
    wins[cluster, i, j] += score
    gains[cluster, i, j] += gain
    count[cluster, i, j] += 1
  return Tally(tuple(players), wins, count, gains)


def _comparisons(game: GameRecord, index: dict[str, int]) -> Iterator[tuple[int, int, float, float]]:
  """Yields (i, j, score of i against j, mean return of i) for each ordered pair of players of a game.

  The score is the mean over pairs of their seats: 1 for a higher return, ½ for an equal one.
  """
  for (first, own), (second, others) in itertools.permutations(_returns_of(game).items(), 2):
    score = 0.5 + 0.5 * float(np.sign(np.subtract.outer(own, others)).mean())
    yield index[first], index[second], score, float(np.mean(own))


def _returns_of(game: GameRecord) -> dict[str, list[float]]:
  """Returns the returns of each player's seats, by name."""
  returns: dict[str, list[float]] = {}
  for name, gained in zip(game.pairing.players, game.returns, strict=True):
    returns.setdefault(name, []).append(gained)
  return returns


@dataclasses.dataclass(frozen=True)
class Standings:
  """The results of P players.

  Attributes:
    players: the players' names.
    pinned: the player whose rating is 0.
    num_openings: number of clusters that the bootstrap resamples.
    games: number of games of each pair.
    scores: score of player i against player j; None if they have not met.
    gains: mean return of player i against player j; None if they have not met.
    overall: mean score of each player over all pairs of a game and another player in it.
    ratings: Bradley-Terry ratings on the scale of Elo.
    skills: (mu, sigma) of openskill.
  """

  players: tuple[str, ...]
  pinned: str
  num_openings: int
  games: tuple[tuple[int, ...], ...]
  scores: tuple[tuple[Interval | None, ...], ...]
  gains: tuple[tuple[Interval | None, ...], ...]
  overall: tuple[Interval, ...]
  ratings: tuple[Interval, ...]
  skills: tuple[tuple[float, float], ...]


def standings(
  games: Sequence[GameRecord], players: Sequence[str], pinned: str, is_deterministic: bool, seed: int = 0
) -> Standings:
  """Returns the scores and ratings of `players` from games in which no others took part."""
  counts = tally(games, players, is_deterministic)
  random = np.random.default_rng(seed)
  clusters = counts.num_openings
  # Row 0 is the sample itself. With one opening, the variance between openings cannot be estimated.
  draws = random.multinomial(clusters, np.full(clusters, 1 / clusters), NUM_DRAWS if clusters > 1 else 0)
  weights = np.concatenate([np.ones((1, clusters)), draws])
  wins, met, gains = (np.tensordot(weights, part, 1) for part in (counts.wins, counts.games, counts.gains))
  with np.errstate(invalid="ignore"):
    scores, mean_gains = wins / met, gains / met
    overall = wins.sum(axis=2) / met.sum(axis=2)
  ratings = bradley_terry(wins, list(players).index(pinned))
  size = range(len(players))

  def pairs(values: np.ndarray) -> tuple[tuple[Interval | None, ...], ...]:
    return tuple(tuple(_interval(values[:, i, j]) if met[0, i, j] else None for j in size) for i in size)

  return Standings(
    players=tuple(players),
    pinned=pinned,
    num_openings=clusters,
    games=tuple(tuple(int(n) for n in row) for row in met[0]),
    scores=pairs(scores),
    gains=pairs(mean_gains),
    overall=tuple(_interval(overall[:, i]) for i in size),
    ratings=tuple(_interval(ratings[:, i]) for i in size),
    skills=tuple(openskill_ratings(games, players)),
  )


def _interval(values: Float[np.ndarray, "draws"]) -> Interval:
  """Returns values[0] with the bounds of the 95% interval of the other finite values."""
  tail = 50.0 * (1.0 - CONFIDENCE)
  drawn = values[1:][np.isfinite(values[1:])]
  low, high = np.percentile(drawn, [tail, 100.0 - tail]) if drawn.size else (math.nan, math.nan)
  return Interval(float(values[0]), float(low), float(high))


def bradley_terry(wins: Float[np.ndarray, "draws P P"], pinned: int) -> Float[np.ndarray, "draws P"]:
  """Returns Elo ratings that maximize the likelihood of the wins, with the player `pinned` at 0.

  The probability that i beats j is 1 / (1 + 10^((R_j − R_i) / 400)); a draw is half a win for each. One
  virtual draw is added to each pair that met.

  Args:
    wins: for each bootstrap draw, the sum of the scores of i against j; entries are not negative.
  """
  from scipy.optimize import minimize
  from scipy.special import expit

  has_met = (wins + np.swapaxes(wins, 1, 2)).sum(axis=0) > 0
  won = wins + 0.5 * VIRTUAL_DRAWS * has_met
  shape, is_free = wins.shape[:2], np.arange(wins.shape[1]) != pinned

  # The loss is the sum of the draws' convex losses, which share no variables, so one call fits all draws.
  def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
    theta = np.zeros(shape)
    theta[:, is_free] = flat.reshape(shape[0], -1)
    gap = theta[:, :, None] - theta[:, None, :]
    surprise = won * expit(-gap)
    gradient = np.swapaxes(surprise, 1, 2).sum(axis=2) - surprise.sum(axis=2)
    return float((won * np.logaddexp(0.0, -gap)).sum()), gradient[:, is_free].ravel()

  start = np.zeros(shape[0] * int(is_free.sum()))
  options = {"maxiter": 1000, "maxfun": 2000, "ftol": 1e-12, "gtol": 1e-4}
  found = minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
  out = np.zeros(shape)
  out[:, is_free] = ELO * found.x.reshape(shape[0], -1)
  return out


def rating_against(
  scores: Float[np.ndarray, "games players"], ratings: Float[np.ndarray, "players"], seed: int = 0
) -> Interval:
  """Returns the rating of a player from its games against players whose ratings are known.

  The rating maximizes the likelihood as in `bradley_terry`, with the other ratings fixed. The interval
  resamples openings: game i starts from the same position against each player.

  Args:
    scores: of the rated player: 1, ½ or 0.
    ratings: of the other players, on the scale of Elo.
  """
  count = len(scores)
  draws = np.random.default_rng(seed).multinomial(
    count, np.full(count, 1 / count), NUM_DRAWS if count > 1 else 0
  )
  weights = np.concatenate([np.ones((1, count)), draws])
  won = weights @ scores + 0.5 * VIRTUAL_DRAWS  # [draws, players]
  games = count + VIRTUAL_DRAWS
  # The gradient of the log likelihood falls with the rating. It is 0 at most this far from the others' range.
  reach = ELO * math.log(2 * games / VIRTUAL_DRAWS)
  low, high = np.full(len(won), ratings.min() - reach), np.full(len(won), ratings.max() + reach)
  for _ in range(60):
    middle = (low + high) / 2
    expected = games / (1.0 + np.exp((ratings - middle[:, None]) / ELO))
    is_above = (won - expected).sum(axis=1) > 0
    low, high = np.where(is_above, middle, low), np.where(is_above, high, middle)
  return _interval((low + high) / 2)


def openskill_ratings(games: Sequence[GameRecord], players: Sequence[str]) -> Iterator[tuple[float, float]]:
  """Yields (mu, sigma) for each of `players` after all games, which are rated in order of openings.

  For a player in several seats of a game, the mean return of these seats counts.

  Source: Weng & Lin 2011, by the package openskill. Departures: none.
  """
  from openskill.models import PlackettLuce

  model = PlackettLuce()
  ratings = {name: model.rating(name=name) for name in players}
  for game in sorted(games, key=lambda game: (game.pairing.opening, game.pairing.players)):
    returns = _returns_of(game)
    names = list(returns)
    scores = [float(np.mean(returns[name])) for name in names]
    for name, (rating,) in zip(names, model.rate([[ratings[n]] for n in names], scores=scores), strict=True):
      ratings[name] = rating
  for name in players:
    yield ratings[name].mu, ratings[name].sigma
