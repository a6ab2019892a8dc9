"""Checkpoints and resume states: files with arrays and JSON, without pickle."""

from moozi.io.checkpoints.format import (
  CheckpointInfo,
  code_commit,
  describe_run,
  expected_of,
  load_checkpoint,
  path_of,
  read_checkpoint_info,
  save_checkpoint,
  save_parameters,
)
from moozi.io.checkpoints.listing import (
  BEST,
  find_checkpoint,
  list_checkpoints,
  list_milestones,
  read_best,
  scan_checkpoints,
)
from moozi.io.checkpoints.resume_store import ResumeStore
from moozi.io.checkpoints.store import CheckpointStore, checkpoint_name, drop_later, steps_of
