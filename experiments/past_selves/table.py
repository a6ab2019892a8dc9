"""The table of ratings, from results/ratings.json."""

import json

from experiments.past_selves.ratings import HERE, table

TABLES = {"ratings": lambda: table(json.loads((HERE / "results" / "ratings.json").read_text("utf-8")))}
