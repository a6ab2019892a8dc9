"""Loads the training state of a checkpoint that a new run starts from (`checkpoint.start_from`)."""

from pathlib import Path

from moozi.core.config import Config
from moozi.core.spec import EnvSpec
from moozi.io.checkpoints import CheckpointInfo, ResumeStore, find_checkpoint, read_checkpoint_info
from moozi.io.lineage import BEFORE, Joint, read_lineage
from moozi.io.run_directory import LINEAGE, RunDirectory
from moozi.io.zoo_files import ZOO_PREFIX
from moozi.run.state import RunState
from moozi.training.algorithms import complete_state
from moozi.training.resume import Resumed, load_training
from moozi.training.surgery import as_tree, check_operation


def load_start(config: Config, spec: EnvSpec, run: RunDirectory) -> Resumed:
  """Returns the start of a new run, with the training state (NumPy) of `checkpoint.start_from` if set.

  With `checkpoint.surgery`, the state is converted.
  """
  path = config.checkpoint.start_from
  store = ResumeStore(run.resume_path)
  if path is None:
    return Resumed(state=None, recorder=None, store=store)
  info = find_start(path)
  operation = check_operation(info, config, spec) if config.checkpoint.surgery else None
  if operation is not None:
    training = as_tree(operation.plan, operation.state)
  else:
    training = load_training(config, spec, info)
    training = complete_state(config, spec, training) if info.has_parameters_only else training
  joint = Joint(
    kind="start",
    run=path,
    checkpoint=info.name,
    digest=info.digest,
    env_steps=info.env_steps,
    learner_steps=info.learner_steps,
    at_env_steps=0,
    changes=() if operation is None else operation.changes,
    lost=() if operation is None else operation.lost,
  )
  # Those of the run that has the checkpoint; none if the file is in no run.
  before = read_lineage(info.path.parent.parent / LINEAGE)
  joints = (*(joint.model_copy(update={"at_env_steps": BEFORE}) for joint in before), joint)
  return Resumed(state=RunState(training=training), recorder=None, store=store, joints=joints)


def find_start(path: str) -> CheckpointInfo:
  """Finds a checkpoint: the file at `path`, or the last checkpoint of the run there.

  `path` may also be the name of a zoo agent, such as `zoo:minatar/breakout`.

  Raises: UserError: there is neither a checkpoint nor a run that has a checkpoint.
  """
  if path.startswith(ZOO_PREFIX) or (Path(path) / "checkpoints").is_dir():
    return find_checkpoint(RunDirectory.open(path).checkpoints_path)
  return read_checkpoint_info(Path(path))
