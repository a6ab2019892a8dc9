"""Tests of the comparison of MuZero and PPO on MinAtar, with synthetic results."""

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest

from experiments.lib.results import conditions_of, sweep_of
from experiments.minatar_vs_ppo import analysis, random_play, runs
from experiments.minatar_vs_ppo.runs import GAMES, PROTOCOLS, RIVALS, read_runs
from moozi.core.errors import UserError
from moozi.experiments.jobs import GROWABLE, differences
from moozi.experiments.results import write_json
from moozi.experiments.statistics import interquartile_mean
from moozi.io.config import load_config
from moozi.io.config_files import read_chain
from moozi.io.plain_data import read_yaml
from tests.experiments.sample_results import ROOT, make_run

PLAYED = [{"protocol": p, "game": g, "mean": 0.0} for p in PROTOCOLS for g in GAMES]
READMES = {"own.md": analysis.README, "project.md": analysis.PROJECT_README}


@pytest.fixture(scope="module")
def jobs():
  """Returns the sweep's jobs by name."""
  return {job.name: job for job in sweep_of(runs.HERE).jobs}


@pytest.mark.parametrize("game", GAMES)
def test_a_protocol_is_the_same_for_each_agent(jobs, tmp_path, game):
  cost = json.loads((ROOT / "experiments/ppo_tuning/cost.json").read_text())[f"tuned, {game}"]
  for protocol in PROTOCOLS:
    names = {f"{agent}_{protocol}_{game}_seed0" for agent in ("muzero", *RIVALS)}
    found = [jobs[name] for name in names]
    configs = {job.name: job.load_config(tmp_path) for job in found}
    tuned = configs[f"ppo_tuned_{protocol}_{game}_seed0"]
    assert tuned.max_env_steps == round(25 * 60 / sum(cost.values()) * 1e6, -6)
    assert {config.algorithm for config in configs.values()} == {"muzero", "ppo"}
    for config in configs.values():
      assert config.env.name == f"minatar:{game}"
      assert config.env.kwargs["sticky_action_prob"] == {"a": 0.0, "b": 0.1}[protocol]
      caps = {"a": 2500 if game == "freeway" else 1000, "b": None}
      assert config.env.kwargs.get("max_episode_steps") == caps[protocol]
      assert config.env.kwargs.get("difficulty_ramping", True)
      period = config.max_env_steps // {"a": 30, "b": 50}[protocol]
      assert config.checkpoint.milestones_env_steps == config.evaluation.period_env_steps == period
      assert (config.max_wall_s, config.evaluation.max_episode_steps) == (None, 10_000)
    assert {config.max_env_steps for config in configs.values() if config is not tuned} == {
      {"a": 3_000_000, "b": 5_000_000}[protocol]
    }
    for job in found:
      assert [e.checkpoint for e in job.evaluations] == [f"-{k}" for k in range(10, 0, -1)]


def test_games_differ_in_their_environment_only(tmp_path):
  """All five games have one configuration. Protocol b changes only the environment and max_env_steps."""
  for folder, may_differ in (("minatar", ("env.",)), ("minatar/sticky", ("env.", "max_env_steps"))):
    for game in GAMES:
      config = load_config(ROOT / "config" / folder / f"{game}.yaml")
      changed = differences(load_config(ROOT / "config" / "minatar" / "asterix.yaml"), config)
      assert all(key.startswith(may_differ) for key in changed), (folder, game)
      (*_, own) = read_chain(ROOT / "config" / folder / f"{game}.yaml")
      assert own.keys() == {"env"}
  config = load_config(ROOT / "config" / "minatar" / "breakout.yaml")
  assert config.decay_steps == config.num_updates


@pytest.mark.parametrize(("agent", "longer"), [("muzero_short", "muzero"), ("ppo_short", "ppo_tuned")])
def test_short_runs_differ_in_their_steps_only(jobs, tmp_path, agent, longer):
  for game in ("freeway", "space_invaders"):
    long, short = (jobs[f"{name}_a_{game}_seed0"].load_config(tmp_path) for name in (longer, agent))
    assert short.max_env_steps < long.max_env_steps
    of_steps = (*GROWABLE, "run.", "checkpoint.milestones_env_steps", "evaluation.period_env_steps")
    assert not [key for key in differences(long, short) if not key.startswith(of_steps)]


def test_simulations_are_evaluated_on_the_run_of_the_first_seed(jobs, tmp_path):
  strength = jobs["simulations_a_space_invaders_seed0"]
  assert strength.run_name == "muzero_a_space_invaders_seed0"
  assert len(strength.evaluations) == 10 * 7
  settings = jobs[strength.run_name].load_config(tmp_path), strength.load_config(tmp_path)
  assert settings[0] == settings[1]


def random_play_file(folder):
  played = [
    {
      "protocol": protocol,
      "game": game,
      "evaluation": conditions_of(load_config(None)),
      "mean": 0.0,
      "num_episodes": 100,
    }
    for protocol in PROTOCOLS
    for game in analysis.GAMES
  ]
  write_json(folder / "random_play.json", played)


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
  """Returns a folder of results: protocol a with two seeds of MuZero and one of ppo_replica; one run of b."""
  folder = tmp_path_factory.mktemp("sample") / "results"
  for number, game in enumerate(analysis.GAMES):
    for seed in (0, 1):
      level = 10.0 * (number + 1) + seed
      make_run(folder, "muzero", game, seed, [0.0] * 5 + [level - 1, level + 1, level, level, level])
    make_run(folder, "ppo_replica", game, 0, [level / 2] * 10, minutes=6.0)
  lengths = [10_000] * 3 + [9_999] * 97
  make_run(folder, "muzero", "breakout", 0, [20.0] * 10, "b", lengths=lengths)
  random_play_file(folder)
  return folder


@pytest.fixture(scope="module")
def groups(sample):
  return read_runs(sample)


@pytest.fixture
def results(sample, tmp_path):
  """Returns a folder with two results of `sample`."""
  for seed in (0, 1):
    name = f"muzero_a_asterix_seed{seed}"
    shutil.copytree(sample / name, tmp_path / "results" / name)
  shutil.copy(sample / "random_play.json", tmp_path / "results")
  return tmp_path / "results"


def test_a_figure_is_the_mean_of_five_milestones(groups):
  first, second = groups["muzero", "a", "freeway"]
  assert (first.seed, first.score, second.seed, second.score) == (0, 30.0, 1, 31.0)
  means = [0.0] * 5 + [29.0, 31.0, 30.0, 30.0, 30.0]
  assert first.swing == pytest.approx(np.std(means, ddof=1) / np.mean(means))
  assert groups["ppo_replica", "a", "freeway"][0].swing == 0.0
  assert (first.minutes, first.num_at_bound, first.acting_return) == (30.0, 0, None)
  (own,) = groups["muzero", "b", "breakout"]
  assert own.num_at_bound == 15  # 3 episodes in each of 5 milestones
  two_cores = dataclasses.replace(own.result, machine={**own.result.machine, "cores": 2})
  assert dataclasses.replace(own, result=two_cores).minutes is None


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (lambda path: path.rename(path.with_name("some_run")), "not a job of the sweep"),
    (
      lambda path: path.rename(path.with_name("muzero_a_asterix_seed9")),
      "has seed 1; rename it",
    ),
    (lambda path: path.rename(path.with_name("muzero_b_asterix_seed1")), "differs from protocol (b) in env."),
  ],
)
def test_refuses_results_that_are_of_no_job(results, capsys, change, message):
  change(results / "muzero_a_asterix_seed1")
  assert analysis.main(["--results", str(results)]) == 2
  assert message in capsys.readouterr().err
  assert not (results / "table.md").exists()


@pytest.mark.parametrize(
  ("override", "is_refused"),
  [("targets.n_step=5", True), ("runtime=local", False), ("ray.num_cpus=3", False)],
)
def test_seeds_may_differ_in_the_machine_only(results, override, is_refused):
  make_run(results, "muzero", "asterix", 2, [1.0] * 10, overrides=(override,))
  if is_refused:
    with pytest.raises(UserError, match="differ in targets"):
      read_runs(results)
  else:
    assert len(read_runs(results)["muzero", "a", "asterix"]) == 3


def test_aggregates_are_normalized_and_over_games(groups):
  published = analysis.read_published()
  references = analysis.references_of(published)
  assert references == {
    "asterix": 25,
    "breakout": 50,
    "freeway": 63.6,
    "seaquest": 54,
    "space_invaders": 187,
  }
  scales = analysis.scales_of(published, PLAYED)
  moozi, ppo = analysis.aggregates_of(groups, scales)
  scores = [run.score / references[game] for game in analysis.GAMES for run in groups["muzero", "a", game]]
  assert moozi["iqm"][0] == pytest.approx(interquartile_mean(scores))
  assert moozi["iqm"][1] <= moozi["iqm"][0] <= moozi["iqm"][2]
  assert (moozi["seeds"], moozi["improvement"], ppo["improvement"]) == (2, None, [1.0, None, None])
  table = analysis._aggregate_table([ppo])
  assert "| (a) | PPO, gymnax's settings | 1 |" in table
  assert "Brackets" not in table
  assert "Brackets have 95% intervals" in analysis._aggregate_table([moozi, ppo])


def test_minutes_to_the_rivals_return(groups):
  found = {row["game"]: row for row in analysis.minutes_of(groups)}
  row = found["seaquest"]
  # PPO's curve rises to 20.5 in 6 minutes, MuZero's to 20.25 in 30; each is the mean of five evaluations.
  rival = 20.5 * np.mean([step / 30 for step in range(26, 31)])
  assert (row["rival"], row["rival_minutes"]) == ("ppo_replica", 6.0)
  assert row["rival_score"] == pytest.approx(rival)
  assert row["moozi_minutes"] is None
  assert row["moozi_then"] < row["rival_then"]
  assert row["rival_at_double"] == row["rival_then"]
  assert row["moozi_processors"] == row["rival_processors"] == ["AMD EPYC"]
  assert set(found) == set(analysis.GAMES)


def test_a_seed_that_has_ended_keeps_its_return_in_the_mean(tmp_path):
  for seed, minutes in enumerate((6.0, 3.0)):
    make_run(tmp_path, "ppo_replica", "seaquest", seed, [20.0] * 10, minutes=minutes)
  slow, fast = read_runs(tmp_path)["ppo_replica", "a", "seaquest"]
  minutes, returns = analysis._minutes_curve([slow, fast])
  of_slow = analysis._minutes_curve([slow])
  np.testing.assert_array_equal(minutes, of_slow[0])
  assert returns[-1] == pytest.approx(of_slow[1][-1])
  middle = len(minutes) // 2
  assert of_slow[1][middle] < returns[middle] < returns[-1]


def test_minutes_are_compared_on_one_core(groups):
  key = ("ppo_replica", "a", "seaquest")
  (own,) = groups[key]

  def rows(*numbers):
    results = [
      dataclasses.replace(own.result, machine=own.result.machine | {"cores": cores}) for cores in numbers
    ]
    runs = [dataclasses.replace(own, result=result) for result in results]
    return {row["game"]: row for row in analysis.minutes_of(groups | {key: runs})}

  assert rows(1, 2)["seaquest"] == rows(1)["seaquest"]
  assert "seaquest" not in rows(2)


def test_the_table_of_minutes_says_who_has_ended_and_is_ahead():
  row = {
    "protocol": "a",
    "game": "breakout",
    "rival": "ppo_replica",
    "at_minutes": 25.0,
    "rival_score": 24.1,
    "rival_minutes": 5.0,
    "rival_then": 24.1,
    "rival_end": 5.2,
    "moozi_minutes": 9.2,
    "moozi_then": 58.7,
    "moozi_end": 35.0,
    "rival_at_double": 24.1,
    "moozi_processors": ["Intel Xeon"],
    "rival_processors": ["Intel Xeon"],
  }
  behind = row | {"game": "asterix", "moozi_then": 20.0, "moozi_end": 24.9, "moozi_minutes": None}
  lines = analysis._minutes_table([row, behind]).splitlines()
  assert lines[4].endswith("| 5 | 24.1 | 9.2 | 58.7 | 24.1 (ended at 5) |")
  assert lines[5].endswith("| – | 20.0 (ended at 25) | 24.1 (ended at 5) |")
  ended = "In 2 of 2 rows the rival had ended by minute 25; the table has its return at its end."
  assert lines[7].startswith(ended)
  assert cells(lines[-1])[1:3] == ["PPO, gymnax's settings", "1 of 5 (3 not compared)"]
  other = row | {"rival": "ppo_tuned", "rival_at_double": 60.0, "rival_processors": ["AMD EPYC"]}
  wins = other | {"game": "seaquest", "rival_at_double": 50.0}
  *_, last = analysis._minutes_table([row, other, wins]).splitlines()
  assert last == (
    "| (a) | PPO, tuned | 2 of 5 (3 not compared) | 1 of 5 (3 not compared) | Intel Xeon | AMD EPYC |"
  )


def test_a_row_of_published_returns_names_its_agent_if_there_is_one():
  one = {"agent": "A", "env_steps": 1_000_000, "comparable_with": ["a"], "is_read_off": False}
  best = one | {"agent": "B", "env_steps": 10_000_000, "returns": {"asterix": [2, 4], "breakout": 9}}
  less = one | {"returns": {"asterix": 3, "breakout": 1}}
  assert analysis._best_published([less, best], "a") == {
    "label": "published: B",
    "steps": "10M",
    "returns": {"asterix": ("", 4.0, "g"), "breakout": ("", 9.0, "g")},
  }
  more = one | {"returns": {"asterix": 5}, "is_read_off": True}
  mixed = analysis._best_published([more, best], "a")
  assert (mixed["label"], mixed["steps"]) == ("best published", "1M to 10M")
  assert mixed["returns"] == {"asterix": ("≈ ", 5.0, "g"), "breakout": ("", 9.0, "g")}
  assert analysis._best_published([best], "b") is None


def test_the_block_of_the_project_names_the_games_on_which_ppo_is_ahead():
  row = {"protocol": "a", "rival": "ppo_tuned", "game": "seaquest", "moozi_then": 2.0, "rival_then": 1.0}
  ahead = row | {"game": "space_invaders", "rival_then": 3.0}
  tables = {"measured": [], "published": [], "minutes": [row, ahead, row | {"protocol": "b"}]}
  text = " ".join(analysis.project_block(tables).split())
  assert "PPO is ahead of MuZero on Space Invaders, and behind it on one game (" in text


def test_short_runs_are_compared_by_their_figures(tmp_path):
  figures = (("freeway", 60.0, 61.0), ("seaquest", 40.0, None), ("space_invaders", 160.0, 150.0))
  for game, of_moozi, of_ppo in figures:
    make_run(tmp_path, "muzero_short", game, 0, [of_moozi] * 10, minutes=24.0)
    if of_ppo is not None:
      make_run(tmp_path, "ppo_short", game, 0, [of_ppo] * 10, minutes=25.0)
  groups = read_runs(tmp_path)
  lines = analysis._short_table(analysis.rows_of(groups)).splitlines()
  assert cells(lines[4])[:4] == ["freeway", "**60.0** (60.0)", "1.5M", "24 (100, 200 µs)"]
  assert cells(lines[5])[0] == "seaquest"
  assert cells(lines[5])[4:] == ["–", "–", "–"]
  assert cells(lines[6])[4:] == ["**150.0** (150.0)", "8M", "25 (100, 200 µs)"]
  assert lines[-1] == "In these runs MuZero is ahead on 1 of 2 games."
  assert analysis.minutes_of(groups) == analysis.aggregates_of(groups, {}) == []
  assert not analysis.headers_of(groups)


def test_bare_times_of_several_days_are_a_range():
  costs = {"t_act": [165.2, 62.1], "t_learn": [100.0, 100.4]}
  row = {"minutes": 45.0, "minutes_by_seed": [35.0, 55.0], "microseconds": costs}
  assert analysis._minutes(row) == "35, 55 (62 to 165, 100 µs)"


def cells(line: str) -> list[str]:
  return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.slow
def test_tables_and_readmes_are_written(sample, tmp_path, capsys):
  results = shutil.copytree(sample, tmp_path / "all")
  readmes = [tmp_path / name for name in ("own.md", "project.md")]
  for path in readmes:
    path.write_text("before\n<!-- minatar_vs_ppo: begin -->\nold\n<!-- minatar_vs_ppo: end -->\nafter\n")
  assert analysis.main(["--results", str(results), "--readme", *map(str, readmes)]) == 0
  table = (results / "table.md").read_text()
  assert capsys.readouterr().out == table
  assert table in readmes[0].read_text()
  assert (
    readmes[1]
    .read_text()
    .startswith("before\n<!-- minatar_vs_ppo: begin -->\n\n| agent | steps | minutes | seeds | Asterix |")
  )
  lines = {cells(line)[0]: cells(line)[1:] for line in table.splitlines() if line.startswith("|")}
  assert lines["**MuZero**"][0] == "–"  # the dictionary keeps the last row of a name, that of protocol b
  assert lines["**MuZero**"][1] == "**20.0** (20.0); 15 of 500 at the bound"
  assert lines["PPO, gymnax's settings"][4] == "**25.5** (25.5)"
  assert lines["PPO, gymnax's settings: minutes"][0] == "6 (100, 200 µs)"
  assert lines["PPO of pgx: pgx, step cap none, 20M steps"][0] == "≈ 22–25"
  scores = json.loads((results / "scores.json").read_text())
  assert scores["returns"]["a"]["muzero"]["asterix"] == [10.0, 11.0]
  assert scores["normalized"]["a"]["muzero"]["asterix"] == [0.4, 0.44]  # the best published return is 25
  assert scores["returns"]["b"] == {"muzero": {"breakout": [20.0]}}


def test_scores_have_the_shape_that_rliable_reads(groups):
  """The lines of the README give arrays [seeds, games], with the seeds that all games of the agent have."""
  scales = analysis.scales_of(analysis.read_published(), PLAYED)
  (text,) = re.findall(r"```python\n(scores = .*?)```", analysis.README.read_text("utf-8"), re.DOTALL)
  scores = analysis.scores_of(groups, scales)
  own = {"np": np, "scores": scores["normalized"]["a"]}
  exec(text.partition("\n")[2], own)
  assert {agent: array.shape for agent, array in own["score_dict"].items()} == {
    "muzero": (2, 5),
    "ppo_replica": (1, 5),
  }


@pytest.mark.parametrize(
  ("damage", "message"),
  [
    (lambda path: path.unlink(), "run `python -m experiments.minatar_vs_ppo.random_play`"),
    (lambda path: path.write_text('[{"game": "breakout"}]'), "not a file of random_play.py: KeyError"),
    (lambda path: path.write_text("[]"), "needs 100 episodes of each game"),
    (
      lambda path: path.write_text(
        path.read_text().replace('"max_random_starts": 8', '"max_random_starts": 0')
      ),
      "evaluated under other conditions",
    ),
  ],
)
def test_refuses_damaged_random_play(results, capsys, damage, message):
  damage(results / "random_play.json")
  assert analysis.main(["--results", str(results)]) == 2
  assert message in capsys.readouterr().err


def test_refuses_missing_results_and_markers(results, tmp_path, capsys):
  readme = tmp_path / "README.md"
  readme.write_text("no markers\n")
  none = str(tmp_path / "none")
  for arguments, message in (
    (["--results", none], "no results; run"),
    (["--results", str(results), "--readme", str(readme), str(readme)], "needs one line <!-- minatar"),
    (["--results", str(results), "--readme", str(readme)], "--readme: takes no file or two"),
  ):
    assert analysis.main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
  assert readme.read_text() == "no markers\n"


@pytest.mark.slow
def test_committed_tables_match_committed_results(tmp_path):
  results = tmp_path / "results"
  shutil.copytree(analysis.RESULTS, results, ignore=shutil.ignore_patterns("table.*", "scores.json"))
  readmes = [shutil.copy(path, tmp_path / name) for name, path in READMES.items()]
  assert analysis.main(["--results", str(results), "--readme", *map(str, readmes)]) == 0
  for path, committed in zip(readmes, READMES.values(), strict=True):
    assert path.read_text() == committed.read_text()
  for name in ("table.md", "table.json", "scores.json"):
    assert (results / name).read_text() == (analysis.RESULTS / name).read_text()


@pytest.mark.slow
def test_headers_of_configurations_match_committed_results():
  for path, lines in analysis.headers_of(read_runs()).items():
    found = [line for line in path.read_text().splitlines() if line.startswith(analysis.HEADER)]
    assert found == lines, "run `python -m experiments.minatar_vs_ppo.analysis --readme`"


def test_headers_have_the_mean_return_and_the_range_of_minutes(groups, tmp_path, monkeypatch):
  monkeypatch.setattr(analysis, "ROOT", groups["muzero", "a", "freeway"][0].result.path.parent.resolve())
  headers = analysis.headers_of(groups)
  folder = ROOT / "config"
  assert headers[folder / "minatar" / "freeway.yaml"] == [
    "# Time: 30 min on one core (runtime=local)",
    "# Reached: 30.5 at 3M steps, 2 seeds",
    "# Measured: muzero_a_freeway_seed0, muzero_a_freeway_seed1",
  ]
  assert (
    headers[folder / "minatar" / "sticky" / "breakout.yaml"][1] == "# Reached: ≥ 20.0 at 5M steps, 1 seed"
  )
  slow, fast = groups["muzero", "a", "freeway"][0], groups["ppo_replica", "a", "freeway"][0]
  assert analysis.header_of([slow, fast], 3_000_000)[0] == "# Time: 6 to 30 min on one core (runtime=local)"
  path = tmp_path / "some.yaml"
  path.write_text("# What it is.\n# Time: 2 min\n# Needs: a GPU\n# Reached: 1 at\nbase: base.yaml\n")
  analysis.write_headers({path: ["# Reached: 3.0 at 3M steps, 2 seeds", "# Measured: some"]})
  assert path.read_text() == (
    "# What it is.\n# Reached: 3.0 at 3M steps, 2 seeds\n# Measured: some\n# Needs: a GPU\nbase: base.yaml\n"
  )


@pytest.mark.slow
def test_random_play_has_an_entry_for_each_game_and_protocol(tmp_path):
  assert random_play.main(["--episodes", "2", "--results", str(tmp_path)]) == 0
  played = json.loads((tmp_path / "random_play.json").read_text())
  assert {(entry["protocol"], entry["game"]) for entry in played} == {
    (protocol, game) for protocol in PROTOCOLS for game in GAMES
  }
  assert {entry["num_episodes"] for entry in played} == {2}


def test_published_results_have_sources_and_conditions():
  published = analysis.read_published()
  keys = {
    *("agent", "source", "environment", "sticky_action_prob", "step_cap", "env_steps", "evaluation"),
    *("comparable_with", "is_read_off", "returns"),
  }
  for entry in published:
    assert set(entry) == keys, entry["agent"]
    assert set(entry["returns"]) <= set(analysis.GAMES)
    # A row is comparable with the protocol that has its sticky actions and, like it, a step cap or none.
    conditions = entry["sticky_action_prob"], entry["step_cap"].startswith("none")
    comparable = {(0, False): ["a"], (0.1, True): ["b"]}.get(conditions, [])
    assert entry["comparable_with"] == comparable
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
