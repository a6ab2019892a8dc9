"""The arena: games between players, with scores and ratings."""

import contextlib
import dataclasses
import functools
import importlib.util
import itertools
import json
import math
import os
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from moozi.api.players import TrainedPlayer, load_players, run_of_approach
from moozi.api.run_access import check_number, check_seed, open_run, writing
from moozi.core.config import EnvConfig
from moozi.core.errors import UserError
from moozi.core.plugins import ENVIRONMENTS, PLAYERS, describe_object
from moozi.core.spec import EnvSpec
from moozi.envs import registry
from moozi.evaluation import tournament
from moozi.evaluation.game_log import GAMES_FILE, GameLog
from moozi.evaluation.ratings import NUM_DRAWS, Standings, standings
from moozi.evaluation.tournament import GameRecord, Pairing
from moozi.io.atomic_write import write_text
from moozi.io.checkpoints import list_milestones

if TYPE_CHECKING:
  import pandas as pd
  from matplotlib.figure import Figure

FILES = {
  "games": GAMES_FILE,
  "results": "arena.json",
  "picture": "arena.png",
  "milestones": "milestones.png",
}
_FORMAT = 1
_MAX_MILESTONES = 10
# Number of positions that an agent searches at once. In a block of 16 openings, each agent is to move
# in about this number of games at a time.
_WIDTH = 16


@dataclasses.dataclass(frozen=True)
class Arena:
  """The results of an arena.

  Attributes:
    task: name of the environment.
    conditions: `seed`, and `opening_plies`: the number of random moves at the start of each game.
    games: the games.
    standings: scores and ratings, with intervals over openings.
    is_deterministic: whether games with the same actions are the same; see `Table.is_deterministic`.
    steps: for each player that is a milestone, its environment steps, by name.
  """

  task: str
  conditions: dict[str, Any]
  games: tuple[GameRecord, ...]
  standings: Standings
  is_deterministic: bool = True
  steps: dict[str, int] = dataclasses.field(default_factory=dict)

  def ratings(self) -> "pd.DataFrame":
    """Returns a row for each player, the strongest first.

    `rating` is the Bradley-Terry rating on the scale of Elo, with the pinned player at 0. `score` is the
    player's mean score over its games. `*_low` and `*_high` bound the 95% intervals of both over openings.
    `skill` and `skill_sigma` are mu and sigma of the package openskill.
    """
    import pandas as pd

    columns = {"name": "player", "rating": "rating", "low": "rating_low", "high": "rating_high"}
    columns |= {name: name for name in ("score", "score_low", "score_high", "games", "skill", "skill_sigma")}
    return pd.DataFrame(self.to_json()["players"]).rename(columns=columns)[list(columns.values())]

  def pairs(self) -> "pd.DataFrame":
    """Returns a row for each pair that met: games, distinct games, and the results of `first`.

    The results are score, wins, draws, losses and mean return; score and mean return have intervals.
    """
    import pandas as pd

    data, rows = self.to_json(), []
    names = [player["name"] for player in data["players"]]
    for i, first in enumerate(names):
      for j, second in enumerate(names):
        if i < j and (pair := data["scores"][i][j]) is not None:
          rows.append({"first": first, "second": second, **pair})
    return pd.DataFrame(rows)

  def to_json(self) -> dict[str, Any]:
    """Returns the results as plain data, the content of arena.json. Players are sorted by rating.

    With one opening, the bounds of the intervals are None.
    """
    found = self.standings
    order = sorted(range(len(found.players)), key=lambda i: -found.ratings[i].value)
    results = self._results()

    def pair(i: int, j: int) -> dict[str, Any] | None:
      score, gain = found.scores[i][j], found.gains[i][j]
      if score is None or gain is None:
        return None
      counts, distinct = results[found.players[i], found.players[j]]
      return {
        "games": found.games[i][j],
        "distinct": len(distinct),
        "score": score.value,
        "low": _finite(score.low),
        "high": _finite(score.high),
        **dict(zip(("wins", "draws", "losses"), counts, strict=True)),
        "return_mean": gain.value,
        "return_low": _finite(gain.low),
        "return_high": _finite(gain.high),
      }

    return {
      "env": self.task,
      **self.conditions,
      "num_games": len(self.games),
      "num_distinct": len({self._key_of(game) for game in self.games}),
      "num_openings": found.num_openings,
      "pinned": found.pinned,
      "interval": f"95%, percentiles of {NUM_DRAWS} bootstrap draws of openings",
      "players": [
        {
          "name": found.players[i],
          "rating": found.ratings[i].value,
          "low": _finite(found.ratings[i].low),
          "high": _finite(found.ratings[i].high),
          "score": found.overall[i].value,
          "score_low": _finite(found.overall[i].low),
          "score_high": _finite(found.overall[i].high),
          "games": sum(found.players[i] in game.pairing.players for game in self.games),
          "skill": found.skills[i][0],
          "skill_sigma": found.skills[i][1],
          **({"env_steps": self.steps[found.players[i]]} if found.players[i] in self.steps else {}),
        }
        for i in order
      ],
      "scores": [[pair(i, j) for j in order] for i in order],
    }

  def _results(self) -> dict[tuple[str, str], tuple[list[int], set[Any]]]:
    """Returns ([wins, draws, losses], the set of distinct games) for each ordered pair of players.

    With more than two seats, each pair of seats of the two players adds one win, draw or loss.
    """
    out: dict[tuple[str, str], tuple[list[int], set[Any]]] = {}
    for game in self.games:
      for (i, first), (j, second) in itertools.permutations(enumerate(game.pairing.players), 2):
        if first != second:
          counts, distinct = out.setdefault((first, second), ([0, 0, 0], set()))
          counts[1 - int(np.sign(game.returns[i] - game.returns[j]))] += 1
          distinct.add((game.pairing.players, self._key_of(game)))
    return out

  def _key_of(self, game: GameRecord) -> object:
    """Returns the same key for games that are the same. With chance, the opening determines its outcomes."""
    return game.actions if self.is_deterministic else (game.pairing.opening, game.actions)

  def figure(self) -> "Figure":
    """Returns a figure of the cross-table with the ratings."""
    from moozi.vis.arena_figures import arena_figure

    return arena_figure(self.to_json())

  def milestones_figure(self) -> "Figure":
    """Returns a figure of ratings over environment steps. Raises UserError if no player is a milestone."""
    from moozi.vis.arena_figures import milestones_figure

    if not self.steps:
      raise UserError("milestones_figure: no player is a milestone; call arena(milestones=…)")
    return milestones_figure(self.to_json(), self.steps)

  def save(self, out: str | os.PathLike[str]) -> dict[str, Path]:
    """Writes arena.json, arena.png and, with milestones, milestones.png into a folder; returns their paths.

    Raises: UserError: a file cannot be written.
    """
    from moozi.vis.comparison import write_figure

    folder = Path(out)
    paths = {"results": folder / FILES["results"], "picture": folder / FILES["picture"]}
    with writing("--out", folder):
      folder.mkdir(parents=True, exist_ok=True)
      write_text(paths["results"], json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n")
      write_figure(paths["picture"], self.figure())
      if self.steps:
        paths["milestones"] = folder / FILES["milestones"]
        write_figure(paths["milestones"], self.milestones_figure())
    return paths

  def __str__(self) -> str:
    from moozi.vis.arena_figures import arena_text

    return arena_text(self.to_json(), len(self.games[0].pairing.players))


def _finite(bound: float) -> float | None:
  return bound if math.isfinite(bound) else None


def arena(
  task: str | None = None,
  players: Sequence[str] = (),
  *,
  games: int = 100,
  milestones: str | os.PathLike[str] | None = None,
  opening_plies: int | None = None,
  seed: int = 0,
  simulations: int | None = None,
  pinned: str | None = None,
  workers: int = 1,
  out: str | os.PathLike[str] | None = None,
  allow_code: bool = False,
  on_game: Callable[[int, int], None] = lambda done, total: None,
) -> Arena:
  """Plays games of every pair of players, or with S > 2 seats of every group of S, as `moozi arena` does.

  Each player of a group plays from every seat. With fewer than S players, all are one group.

  Args:
    task: an environment such as "open_spiel:connect_four", or a configuration. None takes the environment of
      the run `milestones`.
    players: names: "random", "mcts:100", "alpha_beta:4", "run:PATH[@checkpoint]", "zoo:NAME",
      "prior:PATH[@checkpoint]" (the network without search), "approach:NAME" (`api.players.run_of_approach`),
      "module:function", or a registered name. A player that is listed twice also plays against itself.
    games: number of games of each pair; with more than two seats, of each group of players who meet. It is
      rounded up so that each opening is played from every seat. If a group has fewer players than seats, two
      rotations of an opening can seat the players in the same order. Each order is played once, so there are
      fewer games.
    milestones: a run whose milestones play too, at most ten, evenly spaced.
    opening_plies: number of random moves at the start of each game. None takes a quarter of the mean length
      of random games, at most 4. If this gives fewer than ten distinct starts in 20 openings, None takes more
      moves, at most 4 and at most half of the mean length. It takes 0 if random games have fewer than four
      moves on average, or if the game has both chance and hidden information.
    seed: seed of the openings, chance and players. The games do not depend on `workers`.
    simulations: number of simulations per search of trained agents; None uses that of `planners.test`.
    pinned: the player whose rating is 0; None takes "random" if it plays, else the first player.
    workers: maximum number of Ray processes. With 1, without Ray, or if one block of games is left to play,
      the games are played in this process.
    out: a folder whose games.jsonl keeps the finished games; a later call plays only the missing ones.
    allow_code: whether runs may import the Python modules that they name.
    on_game: called with the number of finished games and the number of all games.

  Returns: the results.
  Raises: UserError: the task or a player does not exist, a player does not fit the task, a number is too low,
    there are fewer than two players, or `out` has games of other conditions, or of an agent that had other
    parameters. RunError: another process plays in `out`, the games cannot be written, or a player or an
    environment failed; finished games in `out` are kept.
  """
  for name, number, minimum in (
    ("games", games, 1),
    ("opening_plies", opening_plies, 0),
    ("simulations", simulations, 1),
    ("workers", workers, 1),
  ):
    check_number(name, number, minimum)
  check_seed(seed)
  # NumPy's integers are not written to JSON, and seeds are drawn from the text of these.
  seed, opening_plies = int(seed), None if opening_plies is None else int(opening_plies)
  if isinstance(players, str) or not all(isinstance(player, str) for player in players):
    raise UserError(f"players={players!r}: must be a list of names")
  for player in players:
    if ":" in player and ENVIRONMENTS.is_built_in(player.partition(":")[0]):
      raise UserError(f"{player}: is an environment; with milestones, the task is the run's environment")
  env, steps = _task_of(task, milestones, allow_code), {}
  make_table = functools.partial(registry.make_table, env.name, **env.arguments)
  if milestones is not None:
    steps = _milestones_of(milestones, allow_code)
  table = make_table()
  try:
    names = [*steps, *(run_of_approach(player, table.spec, allow_code) for player in players)]
    pinned = None if pinned is None else run_of_approach(pinned, table.spec, allow_code)
    loaded = load_players(names, table.spec, simulations, allow_code, _WIDTH)
    tournament.schedule(list(loaded), table.num_seats, 0, seed)  # raises the error of too few players
    for each in loaded.values():
      each.check(table)
    num_seats, spec, is_deterministic = table.num_seats, table.spec, table.is_deterministic
  finally:
    table.close()
  named = list(loaded)
  steps = dict(zip(named, steps.values(), strict=False))
  pinned = _pinned(pinned, named, names)
  plies = tournament.default_plies(make_table) if opening_plies is None else opening_plies
  tables = tournament.schedule(named, num_seats, -(-games // num_seats), seed)
  block_maker = functools.partial(
    _make_player_of_blocks,
    env,
    {
      full: each.source if isinstance(each, TrainedPlayer) else name
      for (full, each), name in zip(loaded.items(), names, strict=True)
    },
    spec,
    simulations,
    allow_code,
    seed,
    plies,
  )
  conditions = {"seed": seed, "opening_plies": plies}
  header = {"format": _FORMAT, "env": env.name, "arguments": env.arguments, **conditions}
  folder = None if out is None else Path(out)
  if folder is not None:
    with writing("--out", folder):
      folder.mkdir(parents=True, exist_ok=True)
  with contextlib.ExitStack() as stack:
    results = stack.enter_context(contextlib.closing(GameLog(folder, header)))
    results.check({name: each.facts for name, each in loaded.items() if isinstance(each, TrainedPlayer)})
    wanted = {pairing for pairings in tables for pairing in pairings}
    todo = tournament.blocks(tables, wanted & set(results.games))
    on_game(len(wanted & set(results.games)), len(wanted))
    own = functools.partial(
      tournament.play, make_table=make_table, players=loaded, seed=seed, num_random=plies
    )
    # Closed at once after an error, not when the traceback is freed: Ray's processes end with it.
    played_blocks = stack.enter_context(contextlib.closing(_play_all(todo, own, block_maker, workers)))
    for block in played_blocks:
      results.add(block)
      on_game(len(wanted & set(results.games)), len(wanted))
    played = tuple(results.games[pairing] for pairings in tables for pairing in pairings)
  found = standings(played, named, pinned, is_deterministic)
  return Arena(spec.name, conditions, played, found, is_deterministic, steps)


def _task_of(task: str | None, milestones: Any, allow_code: bool) -> EnvConfig:
  """Returns a task's environment.

  Raises: UserError: there is no such environment or configuration, or the task is the name of a player.
  """
  from moozi.io.config import load_config

  if task is None:
    if milestones is None:
      raise UserError("arena: needs a task, such as open_spiel:connect_four, or milestones")
    return open_run(milestones, allow_code)[1].env
  if not isinstance(task, str | os.PathLike):
    raise UserError(f"arena: {describe_object('env.name', task)}")
  is_file = os.path.isfile(task)
  if PLAYERS.is_built_in(task) and not is_file:
    raise UserError(
      f"arena: {task} is a player; the first argument is the task, such as open_spiel:connect_four"
    )
  if is_file or ":" not in task:
    return load_config(Path(task), []).env
  return load_config(None, [f"env.name={task}"]).env


def _milestones_of(run: Any, allow_code: bool) -> dict[str, int]:
  """Returns {player name: environment steps} of at most ten milestones of a run, in order of steps.

  Raises: UserError: the run has no milestones.
  """
  directory, _ = open_run(run, allow_code)
  found = list_milestones(directory.checkpoints_path)
  if not found:
    raise UserError(
      f"{os.fspath(run)}: has no milestones; training keeps one every checkpoint.milestones_env_steps steps"
    )
  chosen = np.unique(np.linspace(0, len(found) - 1, min(len(found), _MAX_MILESTONES)).round().astype(int))
  return {f"run:{os.fspath(run)}@{found[i].lasting_name}": found[i].env_steps for i in chosen.tolist()}


def _pinned(pinned: str | None, players: Sequence[str], names: Sequence[str]) -> str:
  if pinned is None:
    return "random" if "random" in players else players[0]
  found = dict(zip(names, players, strict=True)) | {player: player for player in players}
  if pinned not in found:
    raise UserError(f"pinned={pinned}: does not play; must be one of {', '.join(players)}")
  return found[pinned]


# --- playing the blocks, in this process or in workers


def _make_player_of_blocks(
  env: EnvConfig,
  sources: dict[str, str],
  spec: EnvSpec,
  simulations: int | None,
  allow_code: bool,
  seed: int,
  plies: int,
) -> Callable[[list[Pairing]], list[GameRecord]]:
  """Returns the function that plays blocks. Called in each worker process, where it loads the players.

  Args:
    sources: {the player's full name: the name that loads it}.
  """
  make_table = functools.partial(registry.make_table, env.name, **env.arguments)
  loaded = load_players(list(sources.values()), spec, simulations, allow_code, _WIDTH)
  players = dict(zip(sources, loaded.values(), strict=True))
  return functools.partial(
    tournament.play, make_table=make_table, players=players, seed=seed, num_random=plies
  )


def _play_all(
  blocks: list[list[Pairing]],
  own: Callable[[list[Pairing]], list[GameRecord]],
  make: Callable[[], Callable[[list[Pairing]], list[GameRecord]]],
  workers: int,
) -> Generator[list[GameRecord], None, None]:
  """Yields the games of each block, in any order."""
  workers = min(workers, len(blocks))
  if workers > 1 and importlib.util.find_spec("ray") is not None:
    from moozi.actors.parallel import map_unordered

    yield from map_unordered(make, blocks, workers)
  else:
    yield from map(own, blocks)
