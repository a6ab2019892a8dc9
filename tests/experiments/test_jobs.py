"""Tests of the choice of a checkpoint for an evaluation."""

import numpy as np
import pytest

from moozi.experiments.jobs import Job, PlannedEvaluation, evaluations_of, find_evaluated, matches_step
from moozi.io.checkpoints import save_checkpoint
from moozi.io.run_directory import RunDirectory


@pytest.fixture
def job(tmp_path) -> Job:
  (tmp_path / "config.yaml").write_text("env: {name: 'tiny:catch'}\n")
  evaluations = tuple(PlannedEvaluation(checkpoint=which) for which in ("1000", "3000", "last"))
  return Job(name="one", config=tmp_path / "config.yaml", evaluations=evaluations)


def make_run(job: Job, folder, *checkpoints: tuple[int, bool]) -> RunDirectory:
  run = RunDirectory.create(job.load_config(folder))
  for env_steps, is_milestone in checkpoints:
    meta = {"env_steps": env_steps, "learner_steps": 1, "is_milestone": is_milestone}
    save_checkpoint(run.checkpoints_path, f"step_{env_steps:09d}", {"x": np.zeros(1)}, meta)
  return run


@pytest.mark.parametrize(
  ("env_steps", "matches"), [(949, False), (999, False), (1000, True), (1050, True), (1051, False)]
)
def test_checkpoint_before_the_step_does_not_match(env_steps, matches):
  assert matches_step(env_steps, 1000) == matches


@pytest.mark.parametrize(
  ("checkpoints", "found"),
  [
    ([(1000, False), (1020, True), (1040, True), (4000, False)], 1020),  # 1000 is the best checkpoint
    ([(990, True), (1049, True), (4000, False)], 1049),
    ([(990, True), (1051, True), (4000, False)], None),
    ([(990, True), (1001, False)], 1001),  # 1001 is the last checkpoint
    ([(990, False)], None),
  ],
)
def test_finds_first_milestone_or_last(job, tmp_path, checkpoints, found):
  run = make_run(job, tmp_path / "runs", *checkpoints)
  info = find_evaluated(run, "1000")
  assert (info and info.env_steps) == found


def test_short_run_is_evaluated_at_its_end_only(job, tmp_path):
  folder = tmp_path / "runs"
  run = make_run(job, folder, (1010, True), (2950, False))
  assert [(e.checkpoint, found.env_steps) for e, found in evaluations_of(job, run).values()] == [
    ("1000", 1010),
    ("last", 2950),
  ]
