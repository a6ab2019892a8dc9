"""The finished games of an arena, in a file that later calls continue."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from moozi.core.errors import UserError
from moozi.evaluation.tournament import GameRecord, Pairing
from moozi.io.record_log import RecordLog
from moozi.io.run_lock import RunLock

GAMES_FILE = "games.jsonl"


class GameLog:
  """The finished games, kept in a folder's games.jsonl, or only in memory without a folder.

  Raises: UserError: the folder cannot be written, or its games were played under other conditions. RunError:
    another process plays in this folder, or its lock file cannot be created.
  """

  def __init__(self, folder: Path | None, header: dict[str, Any]) -> None:
    self.games: dict[Pairing, GameRecord] = {}
    self._agents: dict[str, dict[str, Any]] = {}
    self._log: RecordLog | None = None
    self._lock: RunLock | None = None
    if folder is None:
      return
    self._lock = RunLock(folder, "playing here")
    try:
      self._log = RecordLog(folder / GAMES_FILE, header)
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
    """Stores the facts of trained agents, by name; see `api.players.TrainedPlayer`.

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
      self._log.append(game.to_json() for game in new)
    self.games |= {game.pairing: game for game in new}

  def _keep(self, records: Sequence[dict[str, Any]]) -> None:
    for number, record in enumerate(records):
      if "agent" in record:
        self._agents[str(record["agent"])] = record
        continue
      try:
        game = GameRecord.from_json(record)
      except (KeyError, TypeError, ValueError, OverflowError):
        assert self._log is not None
        raise UserError(f"{self._log.path}: line {number + 2} is not a game; move the file away") from None
      self.games[game.pairing] = game
