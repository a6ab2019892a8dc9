"""Tests of the thesis's figures, with synthetic results."""

import importlib
import json
import shutil
import subprocess
import sys

import numpy as np
import PIL.Image
import pytest

from tests.experiments.sample_results import ROOT, evaluation, make_result, make_run
from thesis_figures import drawing, figure_5_3

PPO = "PPO, gymnax's settings"
FIGURES = ("figure_5_1", "figure_5_2", "figure_5_3")
GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")


def make_results(folder) -> None:
  """Writes results: one seed of each agent and game under protocol a, and a few others."""
  random = np.random.default_rng(0)

  def make(agent: str, game: str, seed: int = 0, protocol: str = "a") -> None:
    level, minutes = {"muzero": (60.0, 20.0), "ppo_replica": (25.0, 8.0)}[agent]
    level *= (0.5 if protocol == "b" else 1.0) * (1 + GAMES.index(game) / 4)
    rise = level * (1 - np.exp(-np.arange(1, 31) / 12)) + random.normal(0, 0.05 * level, 30)
    returns = [float(max(x, 0)) for x in rise]
    make_run(folder, agent, game, seed, returns[-10:], protocol, minutes, returns=returns)

  for game in GAMES:
    for agent in ("muzero", "ppo_replica"):
      make(agent, game)
  make("muzero", "breakout", seed=1)
  for agent in ("muzero", "ppo_replica"):
    make(agent, "breakout", protocol="b")
  strength = [
    evaluation(
      steps, random.normal(steps / 3e4 * (1 + np.log2(count) / 10), 15, 30).clip(0), simulations=count
    )
    for steps in range(250_000, 3_000_001, 250_000)
    for count in (1, 2, 4, 8, 16, 32, 64)
  ]
  make_result(folder, "simulations_a_space_invaders_seed0", strength, None, "minatar:space_invaders")


@pytest.fixture(autouse=True)
def _no_first_runs(tmp_path, monkeypatch):
  monkeypatch.setattr(figure_5_3, "ONE_SEED", tmp_path / "none")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
  folder = tmp_path_factory.mktemp("drawn") / "results"
  make_results(folder)
  return folder


def main(name: str, *arguments: object) -> int:
  module = importlib.import_module(f"thesis_figures.{name}")
  return drawing.main(module.draw, name, module.__doc__, [*map(str, arguments)])


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_figure_is_drawn(results, tmp_path, name):
  out = tmp_path / "out.png"
  assert main(name, "--results", results, "--out", out) == 0
  picture = np.asarray(PIL.Image.open(out).convert("RGB"))
  assert picture.shape[0] > 400
  assert picture.shape[1] > 800
  # The figure has colored lines on a white background.
  coloured = np.ptp(picture.astype(int), axis=-1) > 60
  assert coloured.mean() > 0.001
  assert (picture == 255).all(axis=-1).mean() > 0.5


@pytest.fixture
def drawn(results):
  """Returns a function that draws a figure and returns (title, {label: points}) of each of its axes."""
  import matplotlib.pyplot as plt

  def draw(name: str) -> list[tuple[str, dict[str, list[tuple[float, float]]]]]:
    figure = importlib.import_module(f"thesis_figures.{name}").draw(results)
    shown = [
      (axis.get_title(), {line.get_label(): list(map(tuple, line.get_xydata())) for line in axis.lines})
      for axis in figure.axes
    ]
    plt.close(figure)
    return shown

  return draw


def curve_of(results, name: str) -> list[dict]:
  return [json.loads(line) for line in (results / name / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_figure_5_1_has_curves_over_steps_and_minutes(drawn, results):
  shown = drawn("figure_5_1")
  assert [title for title, _ in shown[:5]] == [game.replace("_", " ") for game in GAMES]
  for column in (0, 4):
    for agent, name in (("MuZero", "muzero"), (PPO, "ppo_replica")):
      ticks = curve_of(results, f"{name}_a_{GAMES[column]}_seed0")
      returns = [t["test/return_mean"] for t in ticks]
      over_steps, over_time = (np.array(shown[row * 5 + column][1][agent]) for row in (0, 1))
      np.testing.assert_allclose(over_steps.T, [[t["env_steps"] / 1e6 for t in ticks], returns])
      np.testing.assert_allclose(over_time.T, [[t["wall_s"] / 60 for t in ticks], returns])


def test_figure_5_2_has_sticky_actions_on_the_right(drawn, results):
  (left_title, left), (right_title, right) = drawn("figure_5_2")
  assert (left_title, right_title) == (
    "no sticky actions",
    "sticky actions, probability 0.1, no cut-off",
  )
  for lines, name in ((left, "ppo_replica_a_breakout_seed0"), (right, "ppo_replica_b_breakout_seed0")):
    expected = [(t["env_steps"] / 1e6, t["test/return_mean"]) for t in curve_of(results, name)]
    np.testing.assert_allclose(lines[PPO], expected)
  assert "PPO of gymnax, published" in left
  assert "AC(λ) of MinAtar at 5M steps, published" in right


@pytest.mark.slow
def test_figure_5_3_has_a_line_for_each_number_of_simulations(drawn, results):
  evaluations = json.loads((results / "simulations_a_space_invaders_seed0" / "evaluations.json").read_text())
  (_, over_training), (_, over_simulations) = drawn("figure_5_3")
  for count, label in ((1, "1 simulation"), (64, "64 simulations")):
    expected = [(e["env_steps"] / 1e6, e["return_mean"]) for e in evaluations if e["simulations"] == count]
    np.testing.assert_allclose(over_training[label], expected)
  expected = [(e["simulations"], e["return_mean"]) for e in evaluations if e["env_steps"] == 3_000_000]
  np.testing.assert_allclose(over_simulations["3.00M steps"], expected)


@pytest.mark.slow
def test_refuses_two_runs_by_number_of_simulations(results, tmp_path, capsys):
  shutil.copytree(results, tmp_path / "some")
  second = [evaluation(250_000, [1.0] * 30, simulations=2)]
  make_result(tmp_path / "some", "second", second, None, "minatar:space_invaders", ("seed=1",))
  assert main("figure_5_3", "--results", tmp_path / "some", "--out", tmp_path / "out.png") == 2
  assert "two results by number of simulations" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
  ("name", "missing", "message"),
  [
    ("figure_5_1", "*", "no results; run"),
    ("figure_5_2", "*_b_breakout_*", "no result on breakout; run"),
    ("figure_5_3", "simulations_*", "no result by number of simulations on space_invaders"),
  ],
)
def test_missing_result_is_one_line(results, tmp_path, capsys, name, missing, message):
  shutil.copytree(results, tmp_path / "some", ignore=shutil.ignore_patterns(missing))
  out = tmp_path / "out.png"
  assert main(name, "--results", tmp_path / "some", "--out", out) == 2
  printed, error = capsys.readouterr()
  assert printed == ""
  assert error.splitlines()[-1].startswith(f"error: {name}: {message}")
  assert all(line.startswith("left out: ") for line in error.splitlines()[:-1])
  assert not out.exists()


@pytest.mark.slow
def test_figure_5_1_leaves_missing_runs_out(results, tmp_path, capsys):
  missing = shutil.ignore_patterns("ppo_replica_a_seaquest_seed0", "*_freeway_*", "*_b_*")
  shutil.copytree(results, tmp_path / "some", ignore=missing)
  assert main("figure_5_1", "--results", tmp_path / "some", "--out", tmp_path / "out.png") == 0
  reported = [line for line in capsys.readouterr().err.splitlines() if "tuned" not in line]
  assert reported == [
    "left out: no run of muzero on freeway under (a)",
    "left out: no run of ppo_replica on freeway under (a)",
    "left out: no run of ppo_replica on seaquest under (a)",
  ]
  assert (tmp_path / "out.png").exists()


def test_published_curve_ends_with_ours():
  import matplotlib.pyplot as plt

  figure, axis = plt.subplots()
  drawing.draw_gymnax(axis, "breakout", 1_000_000)
  drawing.draw_gymnax(axis, "seaquest", 1_000_000)
  (line,) = axis.lines
  assert [tuple(map(float, point)) for point in line.get_xydata()] == [
    (0.32, 10.7),
    (0.64, 19.2),
    (0.96, 20.3),
  ]
  plt.close(figure)


@pytest.mark.slow
@pytest.mark.parametrize(
  ("run", "override", "message"),
  [
    (("muzero", "breakout", 2), "learner.batch_size=32", "differ in learner.batch_size"),
    (("ppo_replica", "asterix", 2, "b"), "evaluation.seed=1", "evaluated with"),
  ],
)
def test_refuses_seeds_with_other_settings(results, tmp_path, capsys, run, override, message):
  shutil.copytree(results, tmp_path / "some")
  agent, game, seed, *protocol = run
  make_run(tmp_path / "some", agent, game, seed, [1.0] * 10, *protocol, overrides=(override,))
  assert main("figure_5_2", "--results", tmp_path / "some", "--out", tmp_path / "out.png") == 2
  assert message in capsys.readouterr().err


@pytest.mark.slow
def test_command_exits_with_status_2(tmp_path):
  command = [
    sys.executable,
    "-m",
    "thesis_figures.figure_5_2",
    *("--results", tmp_path, "--out", tmp_path / "x"),
  ]
  done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
  assert (done.returncode, done.stdout) == (2, "")
  assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
  "name",
  [
    "figure_5_2",
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("figure_5_1", "figure_5_3", "minutes")),
  ],
)
def test_committed_figures_show_the_committed_results(name, monkeypatch, capsys):
  """Draws each figure again and compares the digest of its points with that in the PNG."""
  monkeypatch.undo()  # the results are the project's own, with its first runs
  figure = importlib.import_module(f"thesis_figures.{name}").draw(drawing.RESULTS)
  with PIL.Image.open(drawing.HERE / f"{name}.png") as picture:
    assert picture.text[drawing.DATA] == drawing.digest_of(figure), f"run python -m thesis_figures.{name}"
  drawing.plt.close(figure)
