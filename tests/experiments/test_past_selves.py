"""Tests of experiments/past_selves."""

import json

from experiments.past_selves import ratings


def test_table_and_picture():
  def row(variant: str, seed: int, steps: int, rating: float) -> dict:
    own = {"variant": variant, "seed": seed, "env_steps": steps, "minutes": steps / 20_000}
    return own | {"rating": rating, "low": rating - 9, "high": rating + 9, "score": 0.5}

  rows = [
    row("self_play", 0, 200_000, 500),
    row("self_play", 0, 400_000, 700),
    row("past_selves", 1, 200_000, 600),
    row("past_selves", 1, 333_312, 620),
  ]
  rows.append({"variant": "mcts:100", "rating": 650.0, "low": 640.0, "high": 660.0, "score": 0.5})
  assert ratings.table(rows).splitlines() == [
    "| run | seed | 200,000 steps | 400,000 steps | at the end | trained |",
    "|---|---|---|---|---|---|",
    "| self_play | 0 | 500 [491, 509] | 700 [691, 709] | 700 [691, 709] | 20 min, 400,000 steps |",
    "| past_selves | 1 | 600 [591, 609] | – | 620 [611, 629] | 17 min, 333,312 steps |",
  ]
  (axis,) = ratings.draw(rows).axes
  points = [line.get_xydata().tolist() for line in axis.lines if line.get_linestyle() != "None"]
  assert points[:2] == [[[10.0, 500.0], [20.0, 700.0]], [[10.0, 600.0], [16.6656, 620.0]]]


def test_readme_has_the_committed_ratings():
  rows = json.loads((ratings.HERE / "results" / "ratings.json").read_text())
  readme = (ratings.HERE / "README.md").read_text()
  last = {}
  for row in rows[:-2]:
    last[row["variant"], row["seed"]] = row["rating"]  # rows are in order of steps
  differences = [round(last["self_play", seed] - last["past_selves", seed]) for seed in (0, 1)]
  words = " ".join(readme.split())
  assert f"by {differences[0]} with seed 0 and by {differences[1]} with seed 1" in words


def test_readme_has_the_scores_of_the_last_checkpoints():
  text = (ratings.HERE / "README.md").read_text()
  for variant, label in (("self_play", "without past selves"), ("past_selves", "with past selves")):
    for seed in (0, 1):
      cells = [f"{read(f'{variant}_seed{seed}') + 1e-9:.2f}" for read in (mcts_1000, mcts_100)]
      assert f"| {label} | {seed} | {' | '.join(cells)} |" in text


def mcts_1000(job: str) -> float:
  (evaluation,) = json.loads((ratings.HERE / "results" / job / "evaluations.json").read_text())
  return evaluation["score"]


def mcts_100(job: str) -> float:
  return json.loads((ratings.HERE / "results" / job / "summary.json").read_text())["test_score"]


def test_without_runs(tmp_path, capsys):
  assert ratings.main([], tmp_path, tmp_path / "results") == 2
  assert "no complete run" in capsys.readouterr().err
