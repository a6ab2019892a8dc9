"""Which checkpoint a figure of an environment step is from."""

import numpy as np
import pytest

from experiments.lib.jobs import Evaluation, Job, evaluations_of, find_checkpoint_of, may_stand_for
from moozi.io.checkpoints import save_checkpoint
from moozi.io.run_directory import RunDirectory


@pytest.fixture
def job(tmp_path) -> Job:
  (tmp_path / "config.yaml").write_text("env: {name: 'tiny:catch'}\n")
  evaluations = tuple(Evaluation(checkpoint=which) for which in ("1000", "3000", "last"))
  return Job(name="one", config=tmp_path / "config.yaml", evaluations=evaluations)


def make_run(job: Job, folder, *checkpoints: tuple[int, bool]) -> RunDirectory:
  run = RunDirectory.create(job.load_config(folder))
  for env_steps, is_milestone in checkpoints:
    meta = {"env_steps": env_steps, "learner_steps": 1, "is_milestone": is_milestone}
    save_checkpoint(run.checkpoints_path, f"step_{env_steps:09d}", {"x": np.zeros(1)}, meta)
  return run


@pytest.mark.parametrize(
  ("env_steps", "stands"), [(949, False), (999, False), (1000, True), (1050, True), (1051, False)]
)
def test_a_stated_step_is_never_one_that_was_not_made(env_steps, stands):
  assert may_stand_for(env_steps, 1000) == stands


@pytest.mark.parametrize(
  ("checkpoints", "found"),
  [
    ([(1000, False), (1020, True), (1040, True), (4000, False)], 1020),  # 1000: kept for its evaluation
    ([(990, True), (1049, True), (4000, False)], 1049),
    ([(990, True), (1051, True), (4000, False)], None),
    ([(990, True), (1001, False)], 1001),  # the run's end
    ([(990, False)], None),
  ],
)
def test_a_figure_is_from_the_first_milestone_at_its_step_or_from_the_last(job, tmp_path, checkpoints, found):
  run = make_run(job, tmp_path / "runs", *checkpoints)
  info = find_checkpoint_of(run, "1000")
  assert (info and info.env_steps) == found


def test_a_run_that_ended_too_soon_is_evaluated_at_its_end_and_not_as_if_it_had_come_further(job, tmp_path):
  folder = tmp_path / "runs"
  make_run(job, folder, (1010, True), (2950, False))
  assert [(e.checkpoint, found.env_steps) for e, found in evaluations_of(job, folder).values()] == [
    ("1000", 1010),
    ("last", 2950),
  ]
