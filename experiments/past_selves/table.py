"""The table and the picture of ratings, from results/ratings.json."""

import json
from typing import Any

from experiments.past_selves.ratings import HERE, draw, table


def read() -> list[dict[str, Any]]:
  """Returns the rows of the committed ratings."""
  found: list[dict[str, Any]] = json.loads((HERE / "results" / "ratings.json").read_text("utf-8"))
  return found


TABLES = {"ratings": lambda: table(read())}
PICTURES = {"results/ratings.png": lambda: draw(read())}
