"""The arena: games between players, with scores and ratings."""

import contextlib
import dataclasses
import functools
import importlib.util
import itertools
import json
import math
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from moozi.api.players import TrainedPlayer, run_of_approach
from moozi.api.run_access import check_number, check_seed, open_run, writing
from moozi.core.config import EnvConfig
from moozi.core.errors import UserError
from moozi.core.plugins import ENVIRONMENTS, OTHER_PLAYERS, PLAYERS, describe_object
from moozi.envs import registry
from moozi.envs.table import Table
from moozi.envs.vector import live_steps
from moozi.evaluation import arena as play
from moozi.evaluation.arena import Entrant, GameRecord, Pairing, Seated, View
from moozi.evaluation.ratings import NUM_DRAWS, Standings, standings
from moozi.io.atomic_write import write_text
from moozi.io.checkpoints import list_milestones
from moozi.io.record_log import RecordLog
from moozi.io.run_lock import RunLock

if TYPE_CHECKING:
  import pandas as pd
  from matplotlib.figure import Figure

FILES = {
  "games": "games.jsonl",
  "results": "arena.json",
  "picture": "arena.png",
  "milestones": "milestones.png",
}
_FORMAT = 1
_MAX_MILESTONES = 10
_TRAINED = ("run", "zoo", "prior")
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

    `rating` is the Bradley-Terry rating on the scale of Elo, with the pinned player at 0. `score` is the mean
    score over all games. `*_low` and `*_high` bound their 95% intervals over openings. `skill` and
    `skill_sigma` are mu and sigma of the package openskill.
    """
    import pandas as pd

    columns = {"name": "player", "rating": "rating", "low": "rating_low", "high": "rating_high"}
    columns |= {name: name for name in ("score", "score_low", "score_high", "games", "skill", "skill_sigma")}
    return pd.DataFrame(self.to_json()["players"]).rename(columns=columns)[list(columns.values())]

  def pairs(self) -> "pd.DataFrame":
    """Returns a row for each pair: score, wins, draws, losses and mean return of `first`, with intervals."""
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
    """Returns the same key for games that are the same; with chance, the opening determines the outcomes."""
    return game.actions if self.is_deterministic else (game.pairing.opening, game.actions)

  def figure(self) -> "Figure":
    """Returns a figure of the cross-table with the ratings."""
    from moozi.vis.arena import arena_figure

    return arena_figure(self.to_json())

  def milestones_figure(self) -> "Figure":
    """Returns a figure of ratings over environment steps. Raises UserError if no player is a milestone."""
    from moozi.vis.arena import milestones_figure

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
    data = self.to_json()
    width = max(len(player["name"]) for player in data["players"])
    title = (
      f"{data['env']}: {data['num_games']} games ({data['num_distinct']} distinct), {data['num_openings']} "
      f"openings, random moves at the start: {data['opening_plies']}, seed {data['seed']}"
    )
    lines = [title, f"{'':{width}}  rating  95% interval    score  95% interval   openskill"]
    for player in data["players"]:
      lines.append(
        f"{player['name']:{width}}  {player['rating']:z6.0f}  {_bound(player['low'], 'z6.0f')} … "
        f"{_bound(player['high'], '<z6.0f')}  {player['score']:.3f}  {_bound(player['score_low'])} … "
        f"{_bound(player['score_high'])}"
        f"  {player['skill']:.1f} ± {player['skill_sigma']:.1f}"
      )
    lines.append(f"rating: Elo, {data['pinned']} is 0")
    unit = ", pairs of seats" if len(self.games[0].pairing.players) > 2 else ""
    for row in self.pairs().to_dict("records"):
      lines.append(
        f"{row['first']} against {row['second']}: {row['score']:.3f} "
        f"[{_bound(row['low'])}, {_bound(row['high'])}] ({row['wins']} won, {row['draws']} drawn, "
        f"{row['losses']} lost{unit}), return {row['return_mean']:z.3f}"
      )
    return "\n".join(lines)


def _finite(bound: float) -> float | None:
  return bound if math.isfinite(bound) else None


def _bound(bound: float | None, form: str = ".3f") -> str:
  return "–" if bound is None or math.isnan(bound) else format(bound, form)


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
  """Plays every pair of players from every seat, as `moozi arena` does.

  Args:
    task: an environment such as "open_spiel:connect_four", or a configuration. None takes the environment of
      the run `milestones`.
    players: names: "random", "mcts:100", "run:PATH[@checkpoint]", "zoo:NAME", "prior:PATH[@checkpoint]" (the
      network without search), "approach:NAME" (`api.players.run_of_approach`), "module:function", or a
      registered name. A player that is listed twice plays against itself.
    games: number of games of each pair; with more than two seats, of each group of players who meet. It is
      rounded up so that each opening is played from every seat. If a group has fewer players than seats, two
      rotations of an opening can have the same order of seats. This order is played once, so there are fewer
      games.
    milestones: a run whose milestones play too, at most ten, evenly spaced.
    opening_plies: number of random moves at the start of each game. None takes a quarter of the mean length
      of random games; if that gives fewer than ten distinct starts, more, up to half of the mean length. The
      maximum is 4. It is 0 if the game has both chance and hidden information.
    seed: seed of the openings, chance and players. The games do not depend on `workers`, unless a run has
      evaluation.noise_free=false.
    simulations: number of simulations per search of trained agents; None uses that of `planners.test`.
    pinned: the player whose rating is 0; None takes "random" if it plays, else the first player.
    workers: number of Ray processes. With 1, or without Ray, the games are played in this process.
    out: a folder whose games.jsonl keeps the finished games; a later call plays only the missing ones.
    allow_code: whether runs may import the Python modules that they name.
    on_game: called with the number of finished games and the number of all games.

  Returns: the results.
  Raises: UserError: the task or a player does not exist, a player does not fit the task, a number is too low,
    there are fewer than two players, or `out` has games of other conditions, or of an agent that had other
    parameters. RunError: another process plays in `out`, or the games cannot be written; finished games are
    kept.
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
    entrants = entrants_of(names, simulations, allow_code)
    play.schedule(list(entrants), table.num_seats, 0, seed)  # raises the error of too few players
    for entrant in entrants.values():
      entrant.check(table)
    num_seats, spec, is_deterministic = table.num_seats, table.spec, table.is_deterministic
  finally:
    table.close()
  named = list(entrants)
  steps = dict(zip(named, steps.values(), strict=False))
  pinned = _pinned(pinned, named, names)
  plies = play.default_plies(make_table) if opening_plies is None else opening_plies
  tables = play.schedule(named, num_seats, -(-games // num_seats), seed)
  block_maker = functools.partial(
    _make_player_of_blocks,
    env,
    {
      full: each.player.source if isinstance(each, TrainedEntrant) else name
      for (full, each), name in zip(entrants.items(), names, strict=True)
    },
    simulations,
    allow_code,
    seed,
    plies,
  )
  conditions = {"seed": seed, "opening_plies": plies}
  header = {"format": _FORMAT, "env": env.name, "arguments": env.arguments, **conditions}
  with contextlib.ExitStack() as stack:
    results = stack.enter_context(contextlib.closing(_Results(out, header)))
    trained = {name: each for name, each in entrants.items() if isinstance(each, TrainedEntrant)}
    results.check({name: each.facts for name, each in trained.items()})
    wanted = {pairing for pairings in tables for pairing in pairings}
    todo = play.blocks(tables, wanted & set(results.games))
    on_game(len(wanted & set(results.games)), len(wanted))
    own = functools.partial(play.play, make_table=make_table, entrants=entrants, seed=seed, num_random=plies)
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


def entrants_of(names: Sequence[str], simulations: int | None, allow_code: bool) -> dict[str, Entrant]:
  """Returns the players by their full names. A repeated name gets a suffix such as ` #2`.

  Raises: UserError: a player does not exist or cannot be loaded.
  """
  out: dict[str, Entrant] = {}
  for name in names:
    entrant = _entrant(name, simulations, allow_code)
    full, count = entrant.name, 1
    while entrant.name in out:
      count += 1
      entrant.name = f"{full} #{count}"
    out[entrant.name] = entrant
  return out


def _entrant(name: str, simulations: int | None, allow_code: bool) -> Entrant:
  if name in ("human", "self"):
    raise UserError(f"{name}: cannot play in an arena; `moozi play` is for people")
  if not OTHER_PLAYERS.accepts(name):
    raise UserError(f"{name}: no such player; must be {OTHER_PLAYERS.allowed(name)}")
  if OTHER_PLAYERS.is_built_in(name) and name.partition(":")[0] in _TRAINED:
    return TrainedEntrant(TrainedPlayer(name, simulations, allow_code))
  return play.SimpleEntrant(name)


def _pinned(pinned: str | None, players: Sequence[str], names: Sequence[str]) -> str:
  if pinned is None:
    return "random" if "random" in players else players[0]
  found = dict(zip(names, players, strict=True)) | {player: player for player in players}
  if pinned not in found:
    raise UserError(f"pinned={pinned}: does not play; must be one of {', '.join(players)}")
  return found[pinned]


class TrainedEntrant:
  """A trained agent in the arena, which searches `width` positions at once."""

  def __init__(self, player: TrainedPlayer) -> None:
    self.player, self.name, self.width = player, player.name, _WIDTH

  @property
  def facts(self) -> dict[str, Any]:
    """What decides the agent's play, as plain data: `parameters` and `TrainedPlayer.settings`."""
    return {"parameters": self.player.agent.checkpoint.digest, **self.player.settings}

  def check(self, table: Table) -> None:
    self.player.check(table.spec, self.name)

  def sit(self, tables: Sequence[Table], seeds: Sequence[int]) -> Seated:
    return _SeatedAgent(self.player, tables, self.width, seeds[0])


class _SeatedAgent:
  def __init__(self, player: TrainedPlayer, tables: Sequence[Table], width: int, seed: int) -> None:
    self._player, self._tables = player, tables
    self._group = player.group(len(tables), width, seed)

  def choose(self, lanes: Sequence[int], views: Sequence[View]) -> list[int]:
    positions = [self._tables[i].position() for i in lanes] if self._group.plans_with_rules else []
    return (self._group.choose(np.array(lanes), self._step(views), positions) - 1).tolist()

  def observe(self, lanes: Sequence[int], views: Sequence[View], actions: Sequence[int]) -> None:
    if self._player.sees_others:
      played = np.array(actions, np.int32) + 1
      self._group.observe(np.array(lanes), self._step(views), played)

  def _step(self, views: Sequence[View]) -> Any:
    frames, legal = [view.frame for view in views], [view.legal for view in views]
    return live_steps(self._player.agent.spec, frames, legal)


# --- playing the blocks, in this process or in workers


def _make_player_of_blocks(
  env: EnvConfig, sources: dict[str, str], simulations: int | None, allow_code: bool, seed: int, plies: int
) -> Callable[[list[Pairing]], list[GameRecord]]:
  """Returns the function that plays blocks. Called in each worker process, where it loads the players.

  Args:
    sources: {the player's full name: the name that loads it}.
  """
  make_table = functools.partial(registry.make_table, env.name, **env.arguments)
  loaded = entrants_of(list(sources.values()), simulations, allow_code)
  entrants = dict(zip(sources, loaded.values(), strict=True))
  return functools.partial(play.play, make_table=make_table, entrants=entrants, seed=seed, num_random=plies)


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


class _Results:
  """The finished games, kept in a folder's games.jsonl, or only in memory without a folder.

  Raises: UserError: the folder cannot be written, or its games were played under other conditions. RunError:
    another process plays in this folder, or its lock file cannot be created.
  """

  def __init__(self, folder: str | os.PathLike[str] | None, header: dict[str, Any]) -> None:
    self.games: dict[Pairing, GameRecord] = {}
    self._agents: dict[str, dict[str, Any]] = {}
    self._log: RecordLog | None = None
    self._lock: RunLock | None = None
    if folder is None:
      return
    path = Path(folder)
    with writing("--out", path):
      path.mkdir(parents=True, exist_ok=True)
    self._lock = RunLock(path, "playing here")
    try:
      self._log = RecordLog(path / FILES["games"], header)
      self._keep(self._log.records)
    except BaseException:
      self.close()
      raise

  def close(self) -> None:
    """Closes the file and releases the lock on the folder."""
    if self._log is not None:
      self._log.close()
    if self._lock is not None:
      self._lock.close()

  def check(self, agents: Mapping[str, Mapping[str, Any]]) -> None:
    """Stores the facts of trained agents, by name; see `TrainedEntrant.facts`.

    Raises: UserError: another agent has played under one of the names, such as a run that was trained again,
      or resumed with another search.
    """
    if self._log is None:
      return
    new = []
    for name, facts in agents.items():
      stored = self._agents.get(name)
      if stored is None:
        new.append({"agent": name, **facts})
      elif differing := [key for key, value in facts.items() if stored.get(key) != value]:
        raise UserError(
          f"{self._log.path}: {name} had other {' and '.join(differing)} in the stored games; choose another "
          "folder"
        )
    if new:
      self._log.append(new)

  def add(self, games: Sequence[GameRecord]) -> None:
    """Adds the games that are not stored yet."""
    new = [game for game in games if game.pairing not in self.games]
    if self._log is not None:
      self._log.append(_to_record(game) for game in new)
    self.games |= {game.pairing: game for game in new}

  def _keep(self, records: Sequence[dict[str, Any]]) -> None:
    for number, record in enumerate(records):
      if "agent" in record:
        self._agents[str(record["agent"])] = record
        continue
      try:
        game = _from_record(record)
      except (KeyError, TypeError, ValueError, OverflowError):
        assert self._log is not None
        raise UserError(f"{self._log.path}: line {number + 2} is not a game; move the file away") from None
      self.games[game.pairing] = game


def _to_record(game: GameRecord) -> dict[str, Any]:
  return {
    "players": game.pairing.players,
    "opening": game.pairing.opening,
    "returns": game.returns,
    "num_random": game.num_random,
    "actions": game.actions,
  }


def _from_record(record: dict[str, Any]) -> GameRecord:
  pairing = Pairing(tuple(str(name) for name in record["players"]), int(record["opening"]))
  returns = tuple(float(x) for x in record["returns"])
  if len(returns) != len(pairing.players) or not np.isfinite(returns).all():
    raise ValueError("returns")
  return GameRecord(pairing, int(record["num_random"]), tuple(int(a) for a in record["actions"]), returns)
