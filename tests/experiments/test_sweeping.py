"""Sweeps with a stand-in for the program: what is done, what is not, and where it goes on."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.lib import sweeping
from experiments.lib.jobs import Evaluation, Job, progress_of
from experiments.lib.pieces import Piece
from experiments.lib.results import read_results
from experiments.lib.sweeping import Sweep, describe, is_done
from moozi.core.errors import RunError, UserError
from moozi.io.run_directory import RunDirectory
from tests.experiments.made import ROOT

FAKE = (sys.executable, Path(__file__).with_name("fake_moozi.py"))
TWICE = (Evaluation(checkpoint="100", episodes=3), Evaluation(checkpoint="last", episodes=3))


@pytest.fixture
def place(tmp_path):
  """Makes jobs, does them, and tells what was said."""
  return Place(tmp_path)


class Place:
  def __init__(self, path: Path) -> None:
    self.folder, self.results, self.said = path / "runs" / "some", path / "results", []
    self.folder.mkdir(parents=True)
    self.config = path / "config.yaml"
    self.config.write_text("env: {name: 'tiny:catch'}\n")

  def job(self, name: str = "one", steps: int = 100, *overrides: str, **kwargs) -> Job:
    kwargs = {"evaluations": TWICE} | kwargs
    return Job(name=name, config=self.config, overrides=(f"max_env_steps={steps}", *overrides), **kwargs)

  def sweep(self, *jobs: Job) -> bool:
    self.said.clear()
    with Piece(3600) as piece, Sweep(self.folder, piece, self.said.append, FAKE) as sweep:
      return sweep.run(jobs, self.results)

  def describe(self, job: Job) -> str:
    return describe(job, self.folder, self.results)


def test_a_job_is_trained_evaluated_and_kept_whole(place):
  job = place.job(seed=7)
  assert place.describe(job) == "not begun"
  assert place.sweep(job)
  assert place.said == [
    "one: begins",
    "one: step_000000100, its own simulations: 1.00 over 3 episodes",
    "one: done",
    "all is done",
  ]
  assert place.describe(job) == "done"
  folder = place.results / "one"
  files = {"config.yaml", "evaluations.json", "job.json", "machine.json", "metrics.jsonl", "summary.json"}
  assert {path.name for path in folder.iterdir()} == files
  assert [path.name for path in place.results.iterdir()] == ["one"]
  assert json.loads((folder / "job.json").read_text())["commit"] == "abc", "of the code that trained"
  assert str(place.folder) not in (folder / "config.yaml").read_text()
  (result,) = read_results(place.results)
  assert (result.agent, result.game, result.config.seed, result.cores > 0) == ("MooZi", "catch", 7, True)
  # Both evaluations are of one checkpoint: one is enough.
  (figures,) = result.evaluations
  assert (figures["wanted"], figures["simulations"], figures["wall_s"]) == ("100", None, 6000.0)
  assert figures["returns"] == [0.0, 1.0, 2.0]
  assert result.ticks[-1]["test/return_mean"] == 1.5


def test_what_is_done_is_not_done_again(place):
  job = place.job()
  place.sweep(job)
  (place.folder / "fail").touch()
  assert place.sweep(job)
  assert place.said == ["all is done"]


def test_a_run_that_was_stopped_is_not_done_and_goes_on(place):
  job, other = place.job(), place.job("other")
  (place.folder / "pause").touch()
  assert place.sweep(job, other)
  assert place.said == ["one: begins", "one: stopped at 50 steps", "not done yet: one, other"]
  assert not place.results.exists()
  assert (place.describe(job), place.describe(other)) == ("at 50 steps", "not begun")
  (place.folder / "pause").unlink()
  assert place.sweep(job)
  assert place.said[0] == "one: goes on from 50 steps"
  assert place.describe(job) == "done"


def test_a_run_that_was_killed_with_all_its_steps_is_not_done_and_goes_on(place):
  """It may lack updates, which a driver makes after the last steps, and has no summary."""
  job = place.job()
  (place.folder / "die").touch()
  place.sweep(job)
  assert "one: stopped at 100 steps" in place.said
  assert not place.results.exists()
  (place.folder / "die").unlink()
  assert place.sweep(job)
  assert place.said[0] == "one: goes on from 100 steps"
  assert place.describe(job) == "done"


@pytest.mark.parametrize(
  "summary",
  [
    "[]",
    "not JSON",
    '{"env_steps": 100, "learner_steps": 100}',
    '{"env_steps": 100, "learner_steps": 100, "reason": "max_env_steps", "training_s": "abc"}',
    '{"env_steps": 100, "learner_steps": 100, "reason": "max_env_steps", "training_s": null}',
    '{"env_steps": 100, "learner_steps": 100, "reason": "stopped", "training_s": 6.0}',
    '{"env_steps": 100, "learner_steps": 99, "reason": "max_env_steps", "training_s": 6.0}',
    '{"env_steps": 100, "learner_steps": 100, "reason": ["max_env_steps"], "training_s": 6.0}',
  ],
)
def test_a_run_whose_summary_does_not_say_so_is_not_done(place, summary):
  job = place.job()
  (place.folder / "die").touch()
  place.sweep(job)
  path = place.folder / "one" / "summary.json"
  path.write_text(summary)
  assert place.describe(job) == "at 100 steps"
  path.write_text('{"env_steps": 100, "learner_steps": 100, "reason": "max_wall_s", "training_s": 6}')
  assert place.describe(job) == "trained, 0 of 1 evaluations"


def test_a_piece_that_is_nearly_over_begins_no_training(place):
  piece = Piece(sweeping.LEAST_TRAINING_S / 2)
  with piece, Sweep(place.folder, piece, place.said.append, FAKE) as sweep:
    assert sweep.run([place.job()], place.results)
  assert place.said == ["not done yet: one"]
  assert not (place.folder / "one").exists()


def test_evaluations_wait_for_each_other_and_one_that_fails_costs_its_job_alone(place):
  job = place.job(evaluations=(Evaluation(checkpoint="last", episodes=2), *TWICE))
  other = place.job("other")
  (place.folder / "fail").touch()
  assert not place.sweep(job)
  (said,) = [line for line in place.said if "status" in line]
  assert said.startswith("one: evaluate ended with status 2: moozi: error: it broke (")
  assert place.describe(job) == "trained, 0 of 2 evaluations"
  assert not place.results.exists()
  (place.folder / "fail").unlink()
  assert place.sweep(job, other)
  assert place.said[:2] == [
    "one: step_000000100, its own simulations: 0.50 over 2 episodes",
    "one: step_000000100, its own simulations: 1.00 over 3 episodes",
  ]
  assert len(read_results(place.results)) == 2


def test_jobs_share_a_run_and_one_of_them_has_its_curve(place):
  train = place.job()
  counts = [Evaluation(checkpoint="100", episodes=2, simulations=n) for n in (1, 64)]
  never = Evaluation(checkpoint="90000", episodes=2)
  strength = place.job("strength", run="one", evaluations=(*counts, never))
  assert place.sweep(strength, train)
  assert sorted(path.name for path in place.folder.glob("*/config.yaml")) == ["config.yaml"]
  one, other = read_results(place.results)
  assert (one.has_curve, other.has_curve) == (True, False)
  assert [e["simulations"] for e in other.evaluations] == [1, 64]
  assert [e["returns"] for e in other.evaluations] == [[1.0, 2.0], [64.0, 65.0]]


def test_a_job_may_grow_and_its_run_goes_on(place):
  place.sweep(place.job(steps=100))
  longer = place.job(steps=200)
  assert place.describe(longer) == "at 100 steps"
  assert progress_of(longer, place.folder).grown == ("max_env_steps=200",)
  assert place.sweep(longer)
  assert place.said[0] == "one: goes on from 100 steps"
  (result,) = read_results(place.results)
  assert result.config.max_env_steps == 200
  # The milestone near 100 is there still; the last is another one now.
  assert [e["env_steps"] for e in result.evaluations] == [100, 200]
  assert is_done(place.job(steps=100), place.folder, place.results), "more than was asked for"


def test_a_run_is_complete_when_its_time_is_over(place):
  job = place.job("one", 100, "max_wall_s=3000")
  (place.folder / "pause").touch()
  place.sweep(job)
  assert place.describe(job) == "trained, 0 of 1 evaluations"


def test_more_time_is_used_and_what_has_made_its_steps_needs_none(place):
  (place.folder / "pause").touch()
  place.sweep(place.job("one", 100, "max_wall_s=3000"))
  (place.folder / "pause").unlink()
  assert place.sweep(place.job("one", 100, "max_wall_s=3000"))
  (result,) = read_results(place.results)
  assert [e["env_steps"] for e in result.evaluations] == [50]
  assert place.describe(place.job("one", 200, "max_wall_s=3000")) == "done, with another max_env_steps"
  longer = place.job("one", 100, "max_wall_s=7200")
  assert not is_done(longer, place.folder, place.results)
  assert place.describe(longer) == "at 50 steps"
  assert place.sweep(longer)
  assert place.said[0] == "one: goes on from 50 steps"
  (result,) = read_results(place.results)
  assert [e["env_steps"] for e in result.evaluations] == [100]
  for wall in ("9000", "null", "60"):
    assert is_done(place.job("one", 100, f"max_wall_s={wall}"), place.folder, place.results)


@pytest.mark.parametrize(
  "more",
  [
    Evaluation(checkpoint="100", episodes=4),
    Evaluation(checkpoint="100", episodes=3, simulations=2),
    Evaluation(checkpoint="98", episodes=3),
  ],
)
def test_an_evaluation_that_is_added_later_is_made(place, more):
  never = Evaluation(checkpoint="90000", episodes=3)
  assert place.sweep(place.job(evaluations=TWICE[1:]))
  job = place.job(evaluations=(*TWICE, never))
  assert place.sweep(job)
  assert is_done(job, place.folder, place.results), "what there is no checkpoint for is not asked for again"
  fewer, grown = place.job(evaluations=TWICE), place.job(evaluations=(*TWICE, never, more))
  assert is_done(fewer, place.folder, place.results)
  assert place.describe(grown).startswith("trained, ")
  assert place.sweep(grown)
  assert place.said[-2:] == ["one: done", "all is done"]
  assert is_done(grown, place.folder, place.results)
  (result,) = read_results(place.results)
  assert result.evaluations[0]["wanted"] == "100", "as it is asked for now"


def test_a_run_with_other_settings_is_not_gone_on_with(place):
  (place.folder / "pause").touch()
  place.sweep(place.job())
  changed = place.job("one", 100, "learner.batch_size=32")
  with pytest.raises(UserError, match=r"was begun with another learner\.batch_size than the job one has now"):
    progress_of(changed, place.folder)
  (place.folder / "pause").unlink()
  assert not place.sweep(changed, place.job("other"))
  assert place.said[0].startswith("one: ")
  assert "was begun with another learner.batch_size" in place.said[0]
  assert place.said[-2:] == ["other: done", "not done yet: one"], "it costs the others nothing"
  assert place.describe(place.job("one", 100, "logging.period_s=1")) == "at 50 steps"


def test_a_result_with_other_settings_is_told_and_is_not_the_job_s(place):
  place.sweep(place.job())
  changed = place.job("one", 100, "learner.batch_size=32")
  assert place.describe(changed) == "done, with another learner.batch_size"
  assert not place.sweep(changed, place.job("other"))
  assert "was made with another learner.batch_size; move it and its run away" in place.said[0]
  assert place.said[-2:] == ["other: done", "not done yet: one"]


def test_what_is_made_anew_has_evaluations_of_its_own(place):
  """Checkpoints of two runs may have one name; the figures of the one are not the other's."""
  place.sweep(place.job())
  shutil.rmtree(place.results)
  (place.folder / "one").rename(place.folder / "old")
  (place.folder / "fail").touch()
  assert not place.sweep(place.job())
  assert place.describe(place.job()) == "trained, 0 of 1 evaluations"


def test_a_run_that_another_result_is_of_is_not_made_anew(place):
  """Strength by simulations of another run than the one whose curve is shown would be nobody's."""
  one, strength = place.job(), place.job("strength", run="one", evaluations=TWICE[1:])
  place.sweep(one)
  shutil.rmtree(place.folder / "one")
  assert not place.sweep(one, strength)
  (said,) = [line for line in place.said if line.startswith("strength: ")]
  assert said.startswith("strength: its run, ")
  assert "another one would not be the same" in said
  assert not place.sweep(place.job(evaluations=(*TWICE, Evaluation(checkpoint="100", episodes=9))))
  assert "another one would not be the same" in place.said[0], "nor where the one whose it is asks for more"
  assert not (place.folder / "one").exists()
  shutil.rmtree(place.results)
  assert place.sweep(strength, one), "where nothing is of it either may begin"


def test_a_run_without_a_checkpoint_begins_anew_unless_somebody_writes_there(place):
  job = place.job()
  run = RunDirectory.create(job.load_config(place.folder))
  (run.path / "mark").touch()
  with run.claim(), pytest.raises(RunError, match="is writing into this run"):
    place.sweep(job)
  assert (run.path / "mark").exists()
  assert place.sweep(job)
  assert not (run.path / "mark").exists()


@pytest.mark.slow
def test_a_run_that_somebody_else_goes_on_with_ends_the_sweep(place):
  """Its orphan has the machine: a job after it would be timed beside it."""
  job, other = place.job(), place.job("other")
  (place.folder / "pause").touch()
  place.sweep(job)
  (place.folder / "pause").unlink()
  run = RunDirectory.open(place.folder / "one")
  with run.claim(), pytest.raises(RunError, match="is writing into this run"):
    place.sweep(job, other)
  assert not (place.folder / "other").exists()
  assert place.sweep(job, other)


def test_one_experiment_at_a_time_is_at_work(place):
  with (
    Piece(3600) as piece,
    Sweep(place.folder, piece, place.said.append, FAKE),
    pytest.raises(RunError, match=rf"runs: process {os.getpid()} is at an experiment; one at a time"),
    Sweep(place.folder.with_name("another"), piece, moozi=FAKE),
  ):
    pass
  assert place.sweep(place.job())


KILLED = """
import sys
from pathlib import Path
from experiments.lib.jobs import Job
from experiments.lib.pieces import Piece
from experiments.lib.sweeping import Sweep
folder, config, fake = map(Path, sys.argv[1:])
with Piece(None) as piece, Sweep(folder, piece, moozi=(sys.executable, fake)) as sweep:
  sweep.run([Job(name="one", config=config, overrides=("max_env_steps=100",))], folder / "results")
"""


def test_what_a_killed_sweep_left_running_keeps_others_out(place):
  """Until it ends; by then both the killed one and what it started have let go."""
  (place.folder / "hang").touch()
  command = [sys.executable, "-c", KILLED, place.folder, place.config, FAKE[1]]
  environment = os.environ | {"PYTHONPATH": str(ROOT)}
  sweep = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
  while not (place.folder / "hanging").exists():
    assert sweep.poll() is None
    time.sleep(0.05)
  orphan = int((place.folder / "hanging").read_text())
  try:
    sweep.kill()
    sweep.wait()
    with pytest.raises(RunError, match=rf"process {sweep.pid} with its command {orphan} is at an experiment"):
      place.sweep(place.job("other"))
    end = os.pidfd_open(orphan)
  finally:
    os.kill(orphan, signal.SIGKILL)
  select.select([end], [], [])
  os.close(end)
  (place.folder / "hang").unlink()
  assert place.sweep(place.job("other"))


def test_the_command_line(place, capsys):
  jobs = [place.job(), place.job("other")]

  def main(*arguments: str) -> int:
    return sweeping.main(jobs, place.folder, place.results, "What it is.", arguments)

  assert main("--list") == 0
  assert capsys.readouterr().out == "one: not begun\nother: not begun\n"
  assert main("--only", "third") == 2
  assert capsys.readouterr().err == "error: --only third: no such job; there are one, other\n"
  assert main("--only", "other", "--piece-minutes", "0") == 0
  assert capsys.readouterr().out == "not done yet: other\n"
  RunDirectory.create(place.job("one", 100, "learner.batch_size=32").load_config(place.folder))
  assert main("--list") == 0
  listed = capsys.readouterr().out.splitlines()
  assert "was begun with another learner.batch_size" in listed[0]
  assert listed[1:] == ["other: not begun"]
  assert main("--only", "one") == 1


@pytest.mark.slow
def test_a_sweep_of_the_program_itself(tmp_path, monkeypatch):
  """Stopped as soon as it has acted, gone on with, and evaluated."""
  from tests.baselines.ppo.conftest import TINY

  monkeypatch.setattr(sweeping, "_TELL_S", 0.0)
  config = tmp_path / "config.yaml"
  config.write_text("algorithm: ppo\n")
  folder, results = tmp_path / "runs", tmp_path / "results"

  def job(steps: int) -> Job:
    rare = ("evaluation.period_env_steps=100000", "checkpoint.milestones_env_steps=100000")
    overrides = (*TINY, *rare, f"max_env_steps={steps}", "evaluation.gif=false", "logging.period_s=1e-9")
    return Job(name="one", config=config, overrides=overrides, evaluations=TWICE)

  piece = Piece(600)
  with piece, Sweep(folder, piece, lambda line: piece.end() if "steps/s" in line else None) as sweep:
    assert sweep.run([job(10**9)], results)
  assert not results.exists()
  stopped_at = progress_of(job(10**9), folder).env_steps
  assert stopped_at > 0
  with Piece(600) as piece, Sweep(folder, piece) as sweep:
    assert sweep.run([job(stopped_at + 64)], results)
  (result,) = read_results(results)
  assert result.evaluations[-1]["env_steps"] == stopped_at + 64
  assert len(result.evaluations[-1]["returns"]) == 3
  summary = json.loads((result.path / "summary.json").read_text())
  assert summary["reason"] == "max_env_steps"
