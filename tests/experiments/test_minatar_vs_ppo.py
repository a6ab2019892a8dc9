"""Tests of the comparison of MooZi and PPO on MinAtar, with synthetic results."""

import json
import shutil

import pytest

from experiments.lib.results import read_results
from experiments.minatar_vs_ppo import analysis, random_play, sweep
from moozi.experiments.jobs import differences
from moozi.io.config import load_config
from moozi.io.config_files import read_chain
from moozi.io.plain_data import read_yaml
from tests.experiments.sample_results import ROOT, evaluation, make_result

HUNDRED = [0.0, 10.0] * 50
PPO = ("algorithm=ppo",)


@pytest.fixture(scope="module")
def jobs():
  """Returns the sweep's jobs by name, without those whose configurations are not there yet."""
  return {job.name: job for job in sweep.jobs() if job.config.exists()}


def test_jobs_have_one_name_each():
  names = [job.name for job in sweep.jobs()]
  assert len(set(names)) == len(names)
  assert {"muzero_a_breakout_seed4", "ppo_tuned_a_long_freeway_seed1", "ppo_replica_b_asterix_seed1"} <= {
    *names
  }


@pytest.mark.parametrize("game", sweep.GAMES)
def test_a_protocol_is_the_same_for_each_agent(jobs, tmp_path, game):
  for protocol in sweep.PROTOCOLS:
    names = {f"{agent}_{protocol}_{game}_seed0" for agent in sweep.AGENTS}
    found = [jobs[name] for name in names & jobs.keys()]
    configs = {job.name: job.load_config(tmp_path) for job in found}
    assert {config.algorithm for config in configs.values()} == {"muzero", "ppo"}
    for config in configs.values():
      assert config.env.name == f"minatar:{game}"
      assert config.env.kwargs["sticky_action_prob"] == {"a": 0.0, "b": 0.1}[protocol]
      caps = {"a": 2500 if game == "freeway" else 1000, "b": None}
      assert config.env.kwargs["max_episode_steps"] == caps[protocol]
      assert config.env.kwargs.get("difficulty_ramping", True)
      assert config.max_env_steps == {"a": 3_000_000, "b": 5_000_000}[protocol]
      assert config.checkpoint.milestones_env_steps == config.evaluation.period_env_steps == 100_000
      assert (config.max_wall_s, config.evaluation.max_episode_steps) == (None, 10_000)
    for job in found:
      assert [e.checkpoint for e in job.evaluations] == [f"-{k}" for k in range(10, 0, -1)]


def test_games_differ_in_their_environment_only(tmp_path):
  """One configuration for all five games, and the suite's own protocol changes only environment and steps."""
  for folder, may_differ in (("minatar", ("env.",)), ("minatar/sticky", ("env.", "max_env_steps"))):
    for game in sweep.GAMES:
      config = load_config(ROOT / "config" / folder / f"{game}.yaml")
      changed = differences(load_config(ROOT / "config" / "minatar" / "asterix.yaml"), config)
      assert all(key.startswith(may_differ) for key in changed), (folder, game)
      (*_, own) = read_chain(ROOT / "config" / folder / f"{game}.yaml")
      assert own.keys() == {"env"}
  config = load_config(ROOT / "config" / "minatar" / "breakout.yaml")
  assert config.decay_steps == config.num_updates


def test_simulations_are_evaluated_on_the_run_of_the_first_seed(jobs, tmp_path):
  strength = jobs["simulations_a_space_invaders_seed0"]
  assert strength.run_name == "muzero_a_space_invaders_seed0"
  assert len(strength.evaluations) == 10 * 7
  settings = jobs[strength.run_name].load_config(tmp_path), strength.load_config(tmp_path)
  assert settings[0] == settings[1]


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
  """Returns a folder with two results of MooZi and one of PPO on Breakout, and one for each special case."""
  folder = tmp_path_factory.mktemp("sample") / "results"
  at_1m = [(1_000_448, 0.0), (1_001_472, 10.0)]
  for seed, (steps, level) in enumerate(at_1m):
    far = evaluation(2_000_000, [99.0] * 100)
    own = evaluation(steps, [level] * 100, wall_s=600.0 + 120 * seed)
    make_result(folder, f"muzero_{seed}", [own, far], overrides=(f"seed={seed}",))
  late = evaluation(3_000_320, [8.0] * 100, wall_s=3000.0)
  too_soon = evaluation(4_990_000, [90.0] * 100)  # must not count as 5M steps
  # Before the first checkpoint, training waits for ten evaluations of six seconds each.
  curve = [(100_000 * n, 60.0 * n - 1, 1.0) for n in range(1, 11)]
  first = evaluation(1_007_616, HUNDRED)
  make_result(folder, "ppo_0", [first, late, too_soon], curve, overrides=PPO, test_seconds=6.0)
  ended = evaluation(2_400_000, [4.0] * 100, wall_s=3600.0) | {"wanted": "last"}
  make_result(folder, "slow", [ended], game="minatar:seaquest", overrides=("learner.consistency_coef=0",))
  make_result(
    folder,
    "sticky",
    [evaluation(1_000_000, [3.0] * 100)],
    overrides=("env.kwargs.sticky_action_prob=0.1",),
  )
  make_result(
    folder,
    "freeway",
    [evaluation(1_000_000, [50.0] * 100)],
    game="minatar:freeway",
    overrides=("env.kwargs.max_episode_steps=2500",),
  )
  few = [evaluation(1_000_000, [500.0] * 100, simulations=64), evaluation(1_000_000, [700.0] * 30)]
  make_result(folder, "strength", few, curve=None)
  make_result(folder, "another_suite", [evaluation(1_000_000, [1.0] * 100)], game="tiny:catch")
  return folder


@pytest.fixture
def results(sample, tmp_path):
  return shutil.copytree(sample, tmp_path / "results")


def rows(results) -> dict:
  found = analysis.rows_of(read_results(results))
  return {(r["agent"], r["game"], r["sticky_action_prob"], r["at_env_steps"]): r for r in found}


def test_rows_use_checkpoints_at_a_step_and_the_runs_search(sample):
  found = rows(sample)
  assert set(found) == {
    ("MooZi", "breakout", 0.0, 1_000_000),
    ("MooZi", "breakout", 0.1, 1_000_000),
    ("MooZi", "freeway", 0.0, 1_000_000),
    ("PPO", "breakout", 0.0, 1_000_000),
    ("PPO", "breakout", 0.0, 3_000_000),
    ("MooZi", "seaquest", 0.0, None),
  }
  two = found["MooZi", "breakout", 0.0, 1_000_000]
  assert (two["seeds"], two["env_steps"], two["wall_min"]) == ([0, 1], [1_000_448, 1_001_472], 11.0)
  assert (two["mean"], two["low"], two["high"], two["iqm"]) == (5.0, 0.0, 10.0, None)
  one = found["PPO", "breakout", 0.0, 1_000_000]
  assert one["wall_min"] == 9.0  # excludes one minute of evaluations
  assert found["MooZi", "seaquest", 0.0, None]["env_steps"] == [2_400_000]
  assert one["mean"] == 5.0
  assert (one["low"], one["high"]) == (pytest.approx(4.0, abs=0.1), pytest.approx(6.0, abs=0.1))


@pytest.mark.parametrize(
  ("overrides", "message"),
  [
    (("seed=0",), "both have seed 0"),
    pytest.param(("seed=2", "targets.n_step=5"), "differ in targets.n_step", marks=pytest.mark.slow),
    pytest.param(
      ("seed=3", *PPO, "evaluation.noise_free=false", "env.kwargs.sticky_action_prob=0.1"),
      "evaluated with",
      marks=pytest.mark.slow,
    ),
  ],
)
def test_refuses_mixed_results(results, capsys, overrides, message):
  make_result(results, "other", [evaluation(1_000_000, HUNDRED)], overrides=overrides)
  assert analysis.main(["--results", str(results)]) == 2
  assert message in capsys.readouterr().err
  assert not (results / "table.md").exists()


def cells(line: str) -> list[str]:
  return [cell.strip() for cell in line.strip("|").split("|")]


def test_table_lists_conditions_and_published_results(sample):
  table = analysis.table_of(analysis.rows_of(read_results(sample)), analysis.read_published())
  lines = table.splitlines()
  assert cells(lines[0])[1:] == ["asterix", "breakout", "freeway", "seaquest", "space invaders"]
  ours = [cells(line) for line in lines[2:7]]
  assert [line[0] for line in ours] == [
    "**MooZi**, package minatar, no sticky actions, 1M steps",
    "**MooZi**, package minatar, no sticky actions, where its time ended",
    "**PPO**, package minatar, no sticky actions, 1M steps",
    "**PPO**, package minatar, no sticky actions, 3M steps",
    "**MooZi**, package minatar, sticky 0.1, 1M steps",
  ]
  distinct = "1 of 100 distinct"
  two_seeds = "**5.0** [0.0, 10.0]; 2 of 200 distinct; 11 min, 2 seeds"
  freeway = f"**50.0** [50.0, 50.0]; {distinct}; 10 min, 1 seed"
  assert ours[0][1:] == ["–", two_seeds, freeway, "–", "–"]
  assert ours[1][4] == f"**4.0** [4.0, 4.0] at 2.40M; {distinct}; 60 min, 1 seed"
  assert ours[2][2].startswith("**5.0** [4.")
  assert ours[3][1:] == ["–", f"**8.0** [8.0, 8.0]; {distinct}; 49 min, 1 seed", "–", "–", "–"]
  assert ours[4][2] == f"**3.0** [3.0, 3.0]; {distinct}; 10 min, 1 seed"
  published = {line[0]: line[1:] for line in map(cells, lines[7:-2])}
  conditions = "gymnax, no sticky actions, step cap 1,000 (Freeway 2,500), 10M steps"
  gymnax = published[f"PPO of gymnax, best learning rate of each game: {conditions}"]
  assert gymnax == ["14.7–17.8", "26.2–43.4", "58.3–58.8", "–", "131.6–136.5"]
  baseline = published[
    "AC(λ) of MinAtar: package minatar, sticky 0.1, step cap none (Freeway 2,500), 5M steps"
  ]
  assert baseline[1] == "≈ 17.5"
  assert "Episodes are cut off after 1,000 steps (freeway 2,500)." in lines[-1]
  assert (
    "100 evaluation episodes per seed, noise-free. Episodes begin with up to 8 random actions." in lines[-1]
  )
  assert "PPO waits for its evaluations, and their time is subtracted" in lines[-1]
  assert " MooZi learned seaquest without the consistency loss. " in lines[-1]


@pytest.mark.slow
def test_random_play_has_a_line_for_each_stickiness(results, capsys):
  assert random_play.main(["--episodes", "3", "--results", str(results)]) == 0
  assert analysis.main(["--results", str(results)]) == 2
  assert "fewer than 100 episodes" in capsys.readouterr().err
  played = json.loads((results / "random_play.json").read_text())
  assert {entry["num_episodes"] for entry in played} == {3}
  (results / "random_play.json").write_text(json.dumps([entry | {"num_episodes": 100} for entry in played]))
  assert analysis.main(["--results", str(results)]) == 0
  lines = [cells(line) for line in (results / "table.md").read_text().splitlines()]
  plain, sticky = [line for line in lines if line[0].startswith("random play")]
  assert plain[0] == "random play, package minatar, no sticky actions"
  assert "–" not in plain
  assert sticky[0] == "random play, package minatar, sticky 0.1"
  assert sticky[2] != "–"
  assert sticky.count("–") == 4
  breakout = next(p for p in played if p["game"] == "breakout")
  assert breakout["sticky_action_prob"] == 0.0
  assert plain[2] == f"{breakout['mean']:.1f} [{breakout['low']:.1f}, {breakout['high']:.1f}]"
  breakout["evaluation"]["max_random_starts"] = 0
  (results / "random_play.json").write_text(json.dumps(played))
  assert analysis.main(["--results", str(results)]) == 2
  assert "breakout evaluated under other conditions" in capsys.readouterr().err
  (results / "random_play.json").write_text('[{"game": "breakout"}]')
  assert analysis.main(["--results", str(results)]) == 2
  assert "not a file of random_play.py: KeyError" in capsys.readouterr().err


@pytest.mark.slow
def test_tables_and_readme_are_written(results, tmp_path, capsys):
  readme = tmp_path / "README.md"
  readme.write_text(f"before\n{analysis.BEGIN}\nold\n{analysis.END}\nafter\n")
  assert analysis.main(["--results", str(results)]) == 0
  assert "old" in readme.read_text()
  assert analysis.main(["--results", str(results), "--readme", str(readme)]) == 0
  table = (results / "table.md").read_text()
  assert capsys.readouterr().out == table * 2
  assert readme.read_text() == f"before\n{analysis.BEGIN}\n\n{table}\n{analysis.END}\nafter\n"
  written = json.loads((results / "table.json").read_text())
  assert len(written["measured"]) == 6
  assert {entry["agent"] for entry in written["published"]} >= {"PPO of gymnax", "AC(λ) of MinAtar"}


@pytest.mark.slow
def test_refuses_missing_results_and_markers(sample, tmp_path, capsys):
  readme = tmp_path / "README.md"
  readme.write_text("no markers\n")
  results = shutil.copytree(sample, tmp_path / "results")
  for arguments, message in (
    (["--results", str(tmp_path / "none")], "no results; run"),
    (["--results", str(results), "--readme", str(readme)], "needs one line <!-- minatar_vs_ppo: begin -->"),
  ):
    assert analysis.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert message in error
  assert readme.read_text() == "no markers\n"


@pytest.mark.slow
def test_committed_tables_match_committed_results(tmp_path):
  committed, results, readme = analysis.HERE / "results", tmp_path / "results", tmp_path / "README.md"
  shutil.copytree(committed, results, ignore=shutil.ignore_patterns("table.*"))
  shutil.copy(analysis.README, readme)
  assert analysis.main(["--results", str(results), "--readme", str(readme)]) == 0
  assert readme.read_text() == analysis.README.read_text()
  for name in ("table.md", "table.json"):
    assert (results / name).read_text() == (committed / name).read_text()


def test_published_results_have_sources_and_conditions():
  published = analysis.read_published()
  keys = {
    *("agent", "source", "environment", "sticky_action_prob", "step_cap", "env_steps", "evaluation"),
    *("is_read_off", "returns"),
  }
  for entry in published:
    assert set(entry) == keys, entry["agent"]
    assert set(entry["returns"]) <= set(analysis.GAMES)
    assert entry["returns"]
  assert len({(entry["agent"], entry["env_steps"]) for entry in published}) == len(published)


def test_gymnax_results_match_its_curves():
  curves = read_yaml(ROOT / "experiments" / "ppo_check" / "gymnax.yaml")
  assert curves["period_env_steps"] == 320_000
  own = {
    entry["env_steps"]: entry["returns"] for entry in analysis.read_published() if "gymnax" in entry["agent"]
  }
  assert own.keys() == {1_000_000, 3_000_000, 10_000_000}
  for game, by_rate in curves["returns"].items():
    assert by_rate.keys() == {"1e-3", "5e-4"}
    assert all(len(returns) == 31 for returns in by_rate.values())
    rate = by_rate["1e-3"]
    assert own[1_000_000][game] == rate[2]
    assert own[3_000_000][game] == sorted(rate[8:10])
    assert own[10_000_000][game] in [sorted(returns[-2:]) for returns in by_rate.values()]
