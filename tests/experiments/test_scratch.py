"""Short runs side by side: files there are not made again; a run that ended too soon counts for nothing."""

import functools
import json
import sys
from pathlib import Path

import pytest

from experiments.lib import scratch
from experiments.lib.pieces import lock_experiments
from experiments.lib.sweeping import Sweep
from moozi.core.errors import RunError, UserError
from moozi.io.config import load_config
from tests.experiments.made import load_script

STAND_IN = """
import json, os, pathlib, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
given = dict(x.split("=", 1) for x in sys.argv[3:])
if given["seed"] == "7":
  sys.exit(3)
run = pathlib.Path(given["run.dir"]) / given["run.name"]
run.mkdir()
if given["seed"] == "6":
  os.kill(os.getppid(), signal.SIGTERM)
  signal.sigwait({signal.SIGTERM})
  given["seed"] = "9"
reason = {"9": "stopped", "8": "max_wall_s"}.get(given["seed"], "max_env_steps")
tested = {"test_at_env_steps": 5 if given["seed"] == "5" else 7, "test_episodes": 100}
summary = {"reason": reason, "env_steps": 7, "seed": int(given["seed"]), **tested}
(run / "summary.json").write_text(json.dumps(summary))
(run / "metrics.jsonl").write_text('{"env_steps": 5, "a": 1, "b": 2}\\n{"env_steps": 7, "b": 3}\\n')
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
  path = tmp_path / "stand_in.py"
  path.write_text(STAND_IN)
  (tmp_path / "x.yaml").write_text("env: {name: 'tiny:catch'}\n")
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(scratch, "MOOZI", (sys.executable, str(path)))


def job(seed: int) -> scratch.Work:
  return functools.partial(
    scratch.run_whole, config=Path("x.yaml"), overrides=(f"seed={seed}",), keys=("env_steps", "a")
  )


def test_a_run_leaves_its_summary_and_some_of_its_metrics(program, tmp_path):
  scratch.make_missing({tmp_path / "4.json": job(4)}, 1, tmp_path / "runs")
  figures = json.loads((tmp_path / "4.json").read_text())
  assert figures["summary"]["seed"] == 4
  assert (figures["settings"]["seed"], figures["settings"]["env.name"]) == (4, "tiny:catch")
  assert figures["machine"]["cores"] >= 1
  assert figures["curve"] == [{"env_steps": 5, "a": 1}, {"env_steps": 7}]


@pytest.mark.parametrize(
  ("bad_seed", "said"),
  [
    (9, "ended at 7 steps, before max_env_steps: stopped"),
    (8, "ended at 7 steps, before max_env_steps: max_wall_s"),
    (7, "ended with status 3: seed=7"),
    (5, "was not evaluated at its end: seed=5"),
  ],
)
def test_a_run_that_did_not_make_all_its_steps_leaves_nothing(program, tmp_path, bad_seed, said):
  work = {tmp_path / f"out/{seed}.json": job(seed) for seed in (1, bad_seed, 2)}
  with pytest.raises(RunError, match=rf"a run of x\.yaml {said}"):
    scratch.make_missing(work, 1, tmp_path / "runs")
  assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["1.json", "2.json"]


def test_a_result_of_other_settings_is_refused(program, tmp_path):
  path, overrides = tmp_path / "4.json", ("seed=4", "max_env_steps=7")
  work = functools.partial(scratch.run_whole, config=Path("x.yaml"), overrides=overrides, keys=())
  scratch.make_missing({path: work}, 1, tmp_path / "runs")
  figures = json.loads(path.read_text())
  scratch.check_settings(path, figures, scratch.config_of(Path("x.yaml"), ("seed=5", "max_env_steps=9")))
  other = scratch.config_of(Path("x.yaml"), (*overrides, "targets.n_step=4", "network.latent_size=7"))
  with pytest.raises(
    UserError, match=r"4\.json: made with another network\.latent_size, targets\.n_step; move"
  ):
    scratch.check_settings(path, figures, other)
  scratch.check_settings(path, {"summary": {}}, other)  # of before settings were kept
  del figures["settings"]["targets.n_step"]  # of a version that had none
  with pytest.raises(UserError, match=r"made with another network\.latent_size; move"):
    scratch.check_settings(path, figures, other)


def test_a_signal_ends_the_runs_and_begins_no_other(program, tmp_path):
  work = {tmp_path / f"out/{seed}.json": job(seed) for seed in (1, 6, 2)}
  with pytest.raises(RunError, match="before max_env_steps: stopped"):
    scratch.make_missing(work, 1, tmp_path / "runs")
  assert [path.name for path in (tmp_path / "out").iterdir()] == ["1.json"]


def test_no_other_experiment_is_at_work_meanwhile(program, tmp_path):
  work = {tmp_path / "out/1.json": job(1)}
  with (
    lock_experiments(tmp_path / "runs"),
    pytest.raises(RunError, match="is at an experiment; only one process at a time can"),
  ):
    scratch.make_missing(work, 1, tmp_path / "runs")
  scratch.make_missing(work, 1, tmp_path / "runs")
  with lock_experiments(tmp_path / "runs"):
    scratch.make_missing(work, 1, tmp_path / "runs")  # there is nothing to do


def test_what_is_there_is_not_made_again(tmp_path):
  made = []
  work = {
    tmp_path / name: lambda together, name=name: made.append(name) or {"is": name} for name in ("a", "b", "c")
  }
  (tmp_path / "b").write_text("old")
  scratch.make_missing(work, 2, tmp_path / "runs")
  assert sorted(made) == ["a", "c"]
  assert (tmp_path / "b").read_text() == "old"
  assert json.loads((tmp_path / "c").read_text()) == {"is": "c"}


def test_the_reanalyze_experiment_begins_runs_with_settings_that_are_allowed(monkeypatch):
  module, seen = load_script("experiments", "reanalyze_sample_efficiency", "sweep.py"), []
  monkeypatch.setattr(module, "run_whole", lambda *given: seen.append(given) or {"summary": 1, "curve": 2})
  figures = module.run(None, "space_invaders", "reanalyze", 1, 1000, 0.8)
  assert (figures["summary"], figures["curve"]) == (1, 2)
  ((_, config, overrides, _),) = seen
  settings = load_config(config, overrides)
  assert (settings.seed, settings.max_env_steps) == (1, 1000)


def test_the_offline_experiments_jobs_follow_one_another(tmp_path):
  import argparse

  module = load_script("experiments", "offline", "sweep.py")
  args = argparse.Namespace(steps=1000, offline_steps=600, ratio=0.8, episodes=5)
  online, offline = module.jobs(args, tmp_path)
  first, second = (job.load_config(tmp_path) for job in (online, offline))
  assert first.trajectories.save
  assert first.checkpoint.milestones_env_steps == 500
  assert second.offline.trajectories == str(tmp_path / "online")
  assert (second.offline.max_env_steps, second.max_env_steps, second.reanalyze.ratio) == (500, 600, 0.8)
  assert [e.checkpoint for job in (online, offline) for e in job.evaluations] == ["500", "last"]


def test_the_reanalyze_experiments_committed_results_are_of_its_settings(capsys):
  module = load_script("experiments", "reanalyze_sample_efficiency", "sweep.py")
  module.table(250_000, 0.8)
  made = {path.stem.rpartition("_seed")[0] for path in module.RESULTS.glob("*_seed*.json")}
  assert capsys.readouterr().out.count("\n") == 2 + len(made)
  for steps, ratio, said in ((500_000, 0.8, "decay_steps=3906"), (250_000, 0.5, "reanalyze.ratio=0.8")):
    with pytest.raises(UserError, match=rf"made with .*{said}.*; move it away"):
      module.table(steps, ratio)


def test_the_offline_experiment_goes_through_its_jobs(tmp_path, monkeypatch):
  import argparse
  import types

  module = load_script("experiments", "offline", "sweep.py")

  class OneThatFinishes(Sweep):
    def finish(self, job):
      path = self._folder / job.run_name
      path.mkdir()
      (path / "summary.json").write_text('{"training_s": 60.0}')
      return [{"return_mean": {"online": 20.0, "offline": 18.0}[job.name]}]

  listed = types.SimpleNamespace(stdout=json.dumps({"bytes": 2**20, "steps": 500_000}))
  monkeypatch.setattr(module, "Sweep", OneThatFinishes)
  monkeypatch.setattr(module.subprocess, "run", lambda *args, **kwargs: listed)
  args = argparse.Namespace(
    steps=1000, offline_steps=600, ratio=0.8, episodes=5, folder=tmp_path / "runs" / "one"
  )
  figures = module.measure(args)
  assert (figures["share"], figures["mib_per_million_steps"]) == (0.9, 2.0)
