"""Published returns of random play and of a human game tester, from `scores.json`.

Source: Wang et al. 2016 (no-op starts, 57 games); Kaiser et al. 2020 (the list of the games of Atari 100k).
"""

import functools
import json
from pathlib import Path
from typing import Any

from moozi.envs.suite import ReferenceScores
from moozi.envs.suites.atari.rom import listed_name

_FILE = Path(__file__).with_name("scores.json")


def reference_scores(game: str) -> ReferenceScores | None:
  """Returns the scores of a game by its listed name, such as `SpaceInvaders`; None if it has none."""
  row = _rows().get(game)
  return None if row is None else ReferenceScores(random=row["random"], human=row["human"])


@functools.cache
def _rows() -> dict[str, Any]:
  games = json.loads(_FILE.read_text("utf-8"))["games"]
  return {listed_name(rom): row for rom, row in games.items()}
