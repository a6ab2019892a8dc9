"""Tests of the runner: jobs that are trained, evaluated, resumed and refused."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from experiments.lib.results import ROOT, read_results
from moozi.core.errors import RunError, UserError
from moozi.experiments.jobs import Job, PlannedEvaluation, Sweep, progress_of
from moozi.experiments.results import has_result
from moozi.experiments.runner import MIN_TRAINING_S, Runner
from moozi.experiments.time_budget import TimeBudget
from moozi.io.run_directory import RunDirectory
from moozi.io.run_lock import RunLock
from tests.experiments.fake_budget import FakeBudget

TWICE = (PlannedEvaluation(checkpoint="100", episodes=3), PlannedEvaluation(checkpoint="last", episodes=3))


class Place:
  """Holds the folders, the configuration and the report of a sweep."""

  def __init__(self, path: Path) -> None:
    self.folder, self.results = path / "runs" / "some", path / "results"
    self.report: list[str] = []
    self.config = path / "config.yaml"
    self.config.write_text("env: {name: 'tiny:catch'}\n")

  def job(self, name: str = "one", steps: int = 100, *overrides: str, **kwargs) -> Job:
    kwargs = {"evaluations": TWICE} | kwargs
    return Job(name=name, config=self.config, overrides=(f"max_env_steps={steps}", *overrides), **kwargs)

  def plan(self, *jobs: Job, **more) -> Sweep:
    return Sweep(**{"folder": self.folder, "jobs": jobs, "results": self.results} | more)

  def sweep(self, *jobs: Job, more: dict | None = None, **kwargs) -> bool:
    self.report.clear()
    self.budget = FakeBudget(**kwargs)
    return Runner(self.plan(*jobs, **more or {}), self.budget, moozi=(), report=self.report.append).run()

  def describe(self, job: Job) -> str:
    return Runner(self.plan(job), FakeBudget()).state_of(job)[0]


@pytest.fixture
def place(tmp_path):
  return Place(tmp_path)


def test_job_is_trained_evaluated_and_copied(place):
  job = place.job(seed=7)
  assert place.describe(job) == "not started"
  assert place.sweep(job)
  assert place.report == [
    "one: started",
    "one: step_000000100: mean return 1.00",
    "one: done",
    "all jobs are done",
  ]
  assert place.describe(job) == "done"
  folder = place.results / "one"
  files = {"config.yaml", "evaluations.json", "job.json", "machine.json", "metrics.jsonl", "summary.json"}
  assert {path.name for path in folder.iterdir()} == files
  assert [path.name for path in place.results.iterdir()] == ["one"]
  assert json.loads((folder / "job.json").read_text())["commit"] == "abc"
  assert str(place.folder) not in (folder / "config.yaml").read_text()
  (result,) = read_results(place.results)
  assert (result.game, result.config.seed, result.cores > 0) == ("catch", 7, True)
  (figures,) = result.evaluations  # the two evaluations are of the same checkpoint
  assert (figures["wanted"], figures["simulations"], figures["wall_s"]) == ("100", None, 6000.0)
  assert figures["returns"] == [0.0, 1.0, 2.0]
  assert result.ticks[-1]["test/return_mean"] == 1.5


@pytest.mark.slow
def test_done_job_is_skipped(place):
  place.sweep(place.job())
  assert place.sweep(place.job())
  assert (place.report, place.budget.commands) == (["all jobs are done"], [])


def test_stopped_run_is_resumed(place):
  job, other = place.job(), place.job("other")
  assert place.sweep(job, other, pause=True)
  assert place.report == ["one: started", "one: stopped at 50 steps", "not done: one, other"]
  assert not place.results.exists()
  assert (place.describe(job), place.describe(other)) == ("stopped", "not started")
  assert place.sweep(job)
  assert place.report[0] == "one: resumed at 50 steps"
  assert place.describe(job) == "done"


@pytest.mark.slow
def test_killed_run_is_resumed_at_its_last_step(place):
  """A killed run without a summary may lack updates, even if it has made all of its steps."""
  place.sweep(place.job(), kill=True)
  assert "one: stopped at 100 steps" in place.report
  assert not place.results.exists()
  assert place.sweep(place.job())
  assert place.report[0] == "one: resumed at 100 steps"
  assert place.describe(place.job()) == "done"


@pytest.mark.slow
@pytest.mark.parametrize(
  "summary",
  [
    "not JSON",
    '{"env_steps": 100, "learner_steps": 100, "reason": "max_env_steps", "training_s": null}',
    '{"env_steps": 100, "learner_steps": 100, "reason": "stopped", "training_s": 6.0}',
    '{"env_steps": 100, "learner_steps": 99, "reason": "max_env_steps", "training_s": 6.0}',
  ],
)
def test_run_is_incomplete_without_valid_summary(place, summary):
  place.sweep(place.job(), kill=True)
  path = place.folder / "one" / "summary.json"
  path.write_text(summary)
  assert place.describe(place.job()) == "stopped"
  path.write_text('{"env_steps": 100, "learner_steps": 100, "reason": "max_wall_s", "training_s": 6}')
  assert place.describe(place.job()) == "trained, 0 of 1 evaluations"


def test_no_training_starts_near_the_end_of_the_budget(place):
  assert place.sweep(place.job(), seconds=MIN_TRAINING_S / 2)
  assert place.report == ["not done: one"]
  assert not (place.folder / "one").exists()


@pytest.mark.slow
def test_failed_evaluation_fails_its_job_only(place):
  job = place.job(evaluations=(PlannedEvaluation(checkpoint="last", episodes=2), *TWICE))
  assert not place.sweep(job, fail=True)
  (message,) = [line for line in place.report if "status" in line]
  assert message.startswith("one: evaluate: exit status 2: moozi: error: it broke (")
  assert place.describe(job) == "trained, 0 of 2 evaluations"
  assert not place.results.exists()
  assert place.sweep(job, place.job("other"))
  returns = [line.rpartition(" ")[2] for line in place.report if line.startswith("one: step")]
  assert returns == ["0.50", "1.00"]
  assert len(read_results(place.results)) == 2


@pytest.mark.slow
def test_finished_evaluations_are_kept(place):
  place.sweep(place.job(evaluations=TWICE[:1]))
  shutil.rmtree(place.results)
  shutil.rmtree(place.folder / "one" / "resume")  # a complete run needs no resume state
  assert place.sweep(place.job(evaluations=(*TWICE, PlannedEvaluation(checkpoint="last", episodes=5))))
  assert [command[0] for command in place.budget.commands] == ["evaluate"]
  (result,) = read_results(place.results)
  assert [e["episodes"] for e in result.evaluations] == [3, 5]


@pytest.mark.slow
def test_evaluations_against_several_opponents(place):
  opponents = [None, "mcts:100", "mcts:1000"]
  evaluations = tuple(
    PlannedEvaluation(checkpoint="last", episodes=3, opponent=player) for player in opponents
  )
  assert place.sweep(place.job(evaluations=evaluations))
  options = [dict(itertools.pairwise(command)) for command in place.budget.commands]
  assert [o.get("--opponent") for o in options if "--episodes" in o] == opponents
  (result,) = read_results(place.results)
  assert len(result.evaluations) == 3
  assert "one: step_000000100 against mcts:1000: mean return 1.00" in place.report
  assert place.describe(place.job(evaluations=evaluations[:2])) == "done"


@pytest.mark.slow
def test_jobs_share_a_run(place):
  counts = [PlannedEvaluation(checkpoint="100", episodes=2, simulations=n) for n in (1, 64)]
  missing = PlannedEvaluation(checkpoint="90000", episodes=2)
  strength = place.job("strength", run="one", evaluations=(*counts, missing))
  assert place.sweep(strength, place.job())
  assert len(list(place.folder.glob("*/config.yaml"))) == 1
  one, other = read_results(place.results)
  assert [(each.path / "metrics.jsonl").exists() for each in (one, other)] == [True, False]
  assert [e["simulations"] for e in other.evaluations] == [1, 64]
  assert [e["returns"] for e in other.evaluations] == [[1.0, 2.0], [64.0, 65.0]]


@pytest.mark.slow
def test_parallel_jobs_that_share_a_run_train_it_once(place):
  strength = place.job("strength", run="one", evaluations=TWICE[1:])
  assert place.sweep(strength, place.job(), more={"parallel": 2})
  assert [line.partition(": ")[2] for line in place.report].count("started") == 1
  assert len(read_results(place.results)) == 2


@pytest.mark.parametrize("pause", [True, False])
@pytest.mark.parametrize(
  "own",
  [
    ("learner.learning_rate.kind=cosine", "learner.learning_rate.decay_steps=budget"),
    ("algorithm=ppo", "ppo.anneal_learning_rate=true"),
  ],
)
def test_longer_job_with_a_falling_rate_needs_another_run(place, own, pause):
  """A longer run has another learning rate from its first step on."""
  place.sweep(place.job("one", 100, *own), pause=pause)
  place.report.clear()
  assert not place.sweep(place.job("one", 200, *own))
  assert "falls until max_env_steps=100, and the job has 200; move" in place.report[0]


@pytest.mark.parametrize(
  "own",
  [
    ("learner.learning_rate.kind=cosine", "learner.learning_rate.decay_steps=progress"),
    ("algorithm=ppo", "ppo.anneal_by=progress"),
  ],
)
@pytest.mark.parametrize(("limit", "text"), [(7200, "7200.0"), ("null", "null")])
def test_more_time_with_a_rate_by_time_needs_another_run(place, own, limit, text):
  place.sweep(place.job("one", 100, "max_wall_s=3000", *own), pause=True)
  assert not place.sweep(place.job("one", 100, f"max_wall_s={limit}", *own))
  assert f"falls until max_wall_s=3000.0, and the job has {text}; move" in place.report[0]


@pytest.mark.slow
def test_longer_job_extends_its_run(place):
  place.sweep(place.job(steps=100))
  longer = place.job(steps=200)
  assert place.describe(longer) == "stopped"
  assert place.sweep(longer)
  assert place.report[0] == "one: resumed at 100 steps"
  (result,) = read_results(place.results)
  assert result.config.max_env_steps == 200
  assert [e["env_steps"] for e in result.evaluations] == [100, 200]  # the milestone and the last checkpoint
  assert has_result(place.job(steps=100), place.results)


@pytest.mark.slow
def test_more_time_extends_a_timed_out_run(place):
  short = place.job("one", 100, "max_wall_s=3000")
  place.sweep(short, pause=True)
  assert place.describe(short) == "trained, 0 of 1 evaluations"
  assert place.sweep(short)
  (result,) = read_results(place.results)
  assert [e["env_steps"] for e in result.evaluations] == [50]
  longer = place.job("one", 100, "max_wall_s=7200")
  assert not has_result(longer, place.results)
  assert place.sweep(longer)
  assert place.report[0] == "one: resumed at 50 steps"
  (result,) = read_results(place.results)
  assert [e["env_steps"] for e in result.evaluations] == [100]
  for wall in ("9000", "null", "60"):
    assert has_result(place.job("one", 100, f"max_wall_s={wall}"), place.results)


@pytest.mark.slow
@pytest.mark.parametrize(
  "more",
  [
    PlannedEvaluation(checkpoint="100", episodes=4),
    PlannedEvaluation(checkpoint="100", episodes=3, simulations=2),
    PlannedEvaluation(checkpoint="98", episodes=3),
  ],
)
def test_added_evaluation_is_made(place, more):
  missing = PlannedEvaluation(checkpoint="90000", episodes=3)
  assert place.sweep(place.job(evaluations=TWICE[1:]))
  job = place.job(evaluations=(*TWICE, missing))
  assert place.sweep(job)
  assert has_result(job, place.results)
  grown = place.job(evaluations=(*TWICE, missing, more))
  assert has_result(place.job(evaluations=TWICE), place.results)
  assert place.describe(grown).startswith("trained, ")
  assert place.sweep(grown)
  assert has_result(grown, place.results)
  (result,) = read_results(place.results)
  assert result.evaluations[0]["wanted"] == "100"


def test_run_with_different_settings_is_refused(place):
  place.sweep(place.job(), pause=True)
  changed = place.job("one", 100, "learner.batch_size=32")
  with pytest.raises(UserError, match=r"one: .*learner\.batch_size"):
    progress_of(changed, place.folder)
  assert not place.sweep(changed, place.job("other"))
  assert "learner.batch_size" in place.report[0]
  assert place.report[-2:] == ["other: done", "not done: one"]
  assert place.describe(place.job("one", 100, "logging.period_s=1")) == "stopped"


@pytest.mark.slow
def test_result_with_different_settings_is_refused(place):
  place.sweep(place.job())
  changed = place.job("one", 100, "learner.batch_size=32")
  assert "learner.batch_size" in place.describe(changed)
  assert not place.sweep(changed, place.job("other"))
  assert "learner.batch_size" in place.report[0]
  assert place.report[-2:] == ["other: done", "not done: one"]


@pytest.mark.slow
def test_repeated_run_does_not_reuse_evaluations(place):
  place.sweep(place.job())
  shutil.rmtree(place.results)
  (place.folder / "one").rename(place.folder / "old")
  assert not place.sweep(place.job(), fail=True)
  assert place.describe(place.job()) == "trained, 0 of 1 evaluations"


@pytest.mark.slow
def test_missing_run_of_a_result_is_not_repeated(place):
  """If the run were repeated, the result would mix the evaluations of two runs."""
  one, strength = place.job(), place.job("strength", run="one", evaluations=TWICE[1:])
  place.sweep(one)
  shutil.rmtree(place.folder / "one")
  assert not place.sweep(one, strength)
  assert any(line.startswith("strength: ") and "not found" in line for line in place.report)
  assert not place.sweep(place.job(evaluations=(*TWICE, PlannedEvaluation(checkpoint="100", episodes=9))))
  assert "not found" in place.report[0]
  assert not (place.folder / "one").exists()
  shutil.rmtree(place.results)
  assert place.sweep(strength, one)


@pytest.mark.slow
def test_run_without_checkpoint_is_repeated_unless_claimed(place):
  run = RunDirectory.create(place.job().load_config(place.folder))
  (run.path / "mark").touch()
  (place.folder / "killed").mkdir()
  assert place.describe(place.job("killed")) == "not started"
  with run.claim(), pytest.raises(RunError, match=str(run.path)):
    place.sweep(place.job(), place.job("other"))
  assert (run.path / "mark").exists()
  assert not (place.folder / "other").exists()  # the first run is still being trained
  assert place.sweep(place.job(), place.job("killed"))
  assert not (run.path / "mark").exists()


def test_second_sweep_is_refused(place):
  place.folder.mkdir(parents=True)
  with RunLock(place.folder), pytest.raises(RunError, match=str(os.getpid())):
    place.sweep(place.job())
  assert place.sweep(place.job())


@pytest.mark.slow
def test_parallel_jobs_have_one_core_each(place):
  assert place.sweep(place.job(), place.job("other"), more={"cores": 1})
  one = {
    "NPROC": "1",
    "OMP_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
  }
  assert all(env == one for env in place.budget.envs)
  assert [result.cores for result in read_results(place.results)] == [1, 1]
  assert place.sweep(place.job("third"))
  assert place.budget.envs[0] == {}


def test_milestones_are_counted_from_the_end(place):
  wanted = tuple(PlannedEvaluation(checkpoint=f"-{k}", episodes=3) for k in (3, 2, 1))
  job = place.job(evaluations=wanted)
  place.sweep(job, pause=True)  # the run has milestones at 50 and 100 steps only
  assert place.sweep(job)
  (result,) = read_results(place.results)
  assert [(e["wanted"], e["env_steps"]) for e in result.evaluations] == [("-2", 50), ("-1", 100)]
  assert place.describe(job) == "done"


def test_result_has_the_machine_and_the_chosen_metrics(place):
  more = {"columns": ("env_steps", "test/return_mean"), "measures_speed": True, "cores": 3}
  assert place.sweep(place.job(), more=more)
  assert [name for name, *_ in place.budget.commands] == [sys.executable, sys.executable, "train", "evaluate"]
  assert {env["NPROC"] for env in place.budget.envs} == {"3", "1"}  # the training worker has one thread
  (result,) = read_results(place.results)
  assert result.ticks == [{"env_steps": 100, "test/return_mean": 1.5}]
  machine = result.machine
  assert (machine["t_act_s"], machine["t_learn_s"], machine["cores"]) == (1e-4, 2e-4, 3)
  assert machine["device"] == "some"
  assert place.sweep(place.job(steps=200), more=more)
  assert place.budget.commands[0][0] == "train"  # the speed is measured once per run


def test_a_result_from_another_machine_counts(place):
  elsewhere = place.job("one", 100, "runtime=local", "ray.num_cpus=1", "planners.test.num_simulations=3")
  assert place.sweep(elsewhere)
  assert "planners.test.num_simulations" in place.describe(place.job())
  assert place.describe(place.job(may_differ=("planners.test.",))) == "done"


def test_without_results_a_job_is_done_when_its_evaluations_are(place):
  more = {"results": None}
  assert place.sweep(place.job(evaluations=()), more=more)
  assert not place.results.exists()
  assert place.sweep(place.job(), more=more)
  assert [command[0] for command in place.budget.commands] == ["evaluate"]
  assert place.sweep(place.job(), more=more)
  assert place.budget.commands == []


REAL = """
import sys
from pathlib import Path
from moozi.experiments.jobs import Job, Sweep
from moozi.experiments.runner import Runner
from moozi.experiments.time_budget import TimeBudget
folder, config, *overrides = sys.argv[1:]
with TimeBudget(600) as budget:
  job = Job(name="one", config=Path(config), overrides=tuple(overrides))
  Runner(Sweep(folder=Path(folder), results=Path(folder), jobs=(job,)), budget).run()
"""


@pytest.mark.slow
def test_real_runs_are_stopped_killed_and_resumed(tmp_path):
  from tests.baselines.ppo.conftest import TINY

  config = tmp_path / "config.yaml"
  config.write_text("algorithm: ppo\nppo: {anneal_learning_rate: false}\n")
  folder, results = tmp_path / "runs" / "some", tmp_path / "results"
  rare = ("evaluation.period_env_steps=100000", "checkpoint.milestones_env_steps=100000")
  common = (*TINY, *rare, "evaluation.gif=false", "logging.period_s=1e-9")

  def job(steps: int) -> Job:
    overrides = (*common, f"max_env_steps={steps}")
    return Job(name="one", config=config, overrides=overrides, evaluations=TWICE)

  def wait_for_metrics() -> None:
    metrics = folder / "one" / "metrics.jsonl"
    size = metrics.stat().st_size if metrics.exists() else 0
    while not (metrics.exists() and metrics.stat().st_size > size):
      time.sleep(0.05)

  def end(budget: TimeBudget) -> None:
    wait_for_metrics()
    budget.end()

  with TimeBudget(600) as budget:
    threading.Thread(target=end, args=(budget,)).start()
    assert Runner(Sweep(folder=folder, results=results, jobs=(job(10**9),)), budget).run()
  assert not results.exists()
  stopped_at, _ = progress_of(job(10**9), folder)
  assert stopped_at > 0
  # After the sweep is killed, its `moozi train` continues and keeps the run's lock.
  command = [sys.executable, "-c", REAL, folder, config, *common, "max_env_steps=1000000000"]
  killed = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL)
  wait_for_metrics()
  killed.kill()
  killed.wait()
  orphan = int((folder / "one" / "lock").read_text())
  with TimeBudget(600) as budget, pytest.raises(RunError, match=f"process {orphan}"):
    Runner(Sweep(folder=folder, results=results, jobs=(job(10**9),)), budget).run()
  os.kill(orphan, signal.SIGTERM)
  while Path(f"/proc/{orphan}").exists() and "Z" not in Path(f"/proc/{orphan}/stat").read_text().split()[2]:
    time.sleep(0.1)
  steps = progress_of(job(10**9), folder)[0] + 64
  with TimeBudget(600) as budget:
    assert Runner(Sweep(folder=folder, results=results, jobs=(job(steps),)), budget).run()
  (result,) = read_results(results)
  assert result.evaluations[-1]["env_steps"] == steps
  assert len(result.evaluations[-1]["returns"]) == 3
  assert json.loads((result.path / "summary.json").read_text())["reason"] == "max_env_steps"
