"""Checkpoints and resume states: folders with safetensors files and a JSON manifest, without pickle."""

from moozi.io.checkpoints.format import (
  ARRAYS,
  FORMAT,
  MANIFEST,
  CheckpointInfo,
  code_commit,
  describe_run,
  expected_of,
  load_checkpoint,
  load_flat,
  read_checkpoint_info,
  save_checkpoint,
  save_parameters,
)
from moozi.io.checkpoints.listing import (
  BEST,
  find_checkpoint,
  list_checkpoints,
  list_milestones,
  mend_checkpoints,
  read_best,
  scan_checkpoints,
)
from moozi.io.checkpoints.resume_store import ResumeStore, SavedState
from moozi.io.checkpoints.store import CheckpointStore, checkpoint_name, drop_later, steps_of
