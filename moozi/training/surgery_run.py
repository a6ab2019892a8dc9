"""Makes a run that continues another one in another form; `moozi train --resume` trains it."""

import contextlib
import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from moozi.core.config import Config, EnvConfig
from moozi.core.errors import RunError, UserError, one_line, reason_of
from moozi.core.flat_state import Snapshot, State, part, prefixed
from moozi.core.spec import EnvSpec
from moozi.envs import registry
from moozi.io.atomic_write import write_bytes, write_text
from moozi.io.checkpoints import (
  BEST,
  CheckpointInfo,
  ResumeStore,
  describe_run,
  expected_of,
  list_checkpoints,
  load_checkpoint,
  save_checkpoint,
)
from moozi.io.lineage import Joint, read_lineage, write_lineage
from moozi.io.metrics import MetricsSink
from moozi.io.run_directory import RunDirectory
from moozi.io.trajectory_file import encode_file, read_steps
from moozi.io.trajectory_folder import file_name, open_kept
from moozi.run import build
from moozi.run.gate import GATE
from moozi.run.pacing import without_replay
from moozi.run.saved_state import check_run_state
from moozi.run.state import RunState
from moozi.surgery.stored_steps import StepConverter
from moozi.surgery.transform import transform_variables
from moozi.training.algorithms import algorithm_of
from moozi.training.offline import load_stored
from moozi.training.resume import Resumed, load_saved
from moozi.training.surgery import Operation, as_tree, plan_operation

_PAST = "past_selves"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSurgery:
  """A planned surgery on a run.

  Attributes:
    directory: the old run.
    found: its newest state.
    operation: the surgery on the training state.
    replay: the converted replay; empty if it is left behind; None if the algorithm has none.
    left: what is left behind, one line each.
    kept: one line if stored steps are kept although the environment's options change; else empty.
    converter: of stored steps; None if they are left behind.
    begins_replay: whether replay is left behind, and the new run begins another one.
  """

  directory: RunDirectory
  found: Resumed
  operation: Operation
  replay: Snapshot | None
  left: tuple[str, ...]
  kept: tuple[str, ...]
  converter: StepConverter | None
  begins_replay: bool

  @property
  def state(self) -> RunState:
    assert self.found.state is not None
    return self.found.state

  def describe(self) -> list[str]:
    """Returns the plan as lines: each array, what is lost, what is left behind, and the differences."""
    arrays = self.operation.plan.arrays.values()
    width = max(len(array.path) for array in arrays)
    lines = []
    for array in sorted(arrays, key=lambda array: array.path):
      before = "–" if array.source_shape is None else _shape(array.source_shape)
      lines.append(f"{array.path:<{width}}  {before:>14} → {_shape(array.shape):<14}  {array.how}")
    lines.append(
      "optimizer: moments of what is kept are carried, in units of the new gradients; new first moments are "
      "0, and new second moments the mean of the carried ones"
    )
    if self.operation.plan.is_identity:
      lines.append("all arrays stay as they are")
    lines += [f"changes: {text}" for text in self.operation.changes]
    lines += [f"left behind: {text}" for text in self.left]
    lines += [f"kept: {text}" for text in self.kept]
    lines += [f"not preserved: {text}" for text in self.operation.lost]
    lines.append(f"largest difference of outputs on the same inputs: {self.operation.differences}")
    return lines


def _shape(shape: tuple[int, ...]) -> str:
  return "×".join(map(str, shape)) or "1"


def plan_run(
  directory: RunDirectory,
  old: tuple[Config, EnvSpec],
  new: tuple[Config, EnvSpec],
  mapping: Path | None,
  keeps_steps: bool = False,
) -> RunSurgery:
  """Plans the surgery on the newest state of a run.

  Replay and trajectories are left behind if they cannot be converted, or if the environment has another
  `env.name`, other options or wrappers, because the rules may differ.

  Args:
    keeps_steps: keep replay and trajectories of an environment of the same EnvSpec.name anyway.

  Raises: UserError: the run has no state that can be resumed, `keeps_steps` is set and the steps cannot be
    converted, or as `plan_operation`.
  """
  found = load_saved(*old, directory)
  state = found.state
  assert state is not None
  operation = plan_operation(state.training, old, new, mapping)
  left, kept, converter, replay = [], [], None, None
  has_steps = state.replay is not None or directory.trajectories_path.is_dir()
  what = "trajectories" if new[0].is_on_policy else "replay and trajectories"
  options = changed_options(old[0].env, new[0].env)
  try:
    steps = StepConverter(old[1], new[1], operation.plan.pairs)
    if options and not keeps_steps:
      raise UserError(f"{', '.join(options)}: the rules may differ; --keep-replay keeps them")
    converter = steps
    replay = None if state.replay is None else converter.snapshot(state.replay)
    if options and has_steps:
      kept.append(f"{what} of the environment before {', '.join(options)}")
  except UserError as error:
    if keeps_steps:
      raise UserError(f"--keep-replay: {error}") from None
    if has_steps:
      left.append(f"{what if converter is None else 'replay'}: {error}")
  begins_replay = replay is None and not new[0].is_on_policy
  if begins_replay:
    replay = build.build_replay(*new, load_stored(*new)).snapshot()
  if state.collectors:
    left.append("environments: their episodes are not continued; they are reset")
  return RunSurgery(
    directory=directory,
    found=found,
    operation=operation,
    replay=replay,
    left=tuple(left),
    kept=tuple(kept),
    converter=converter,
    begins_replay=begins_replay,
  )


def changed_options(old: EnvConfig, new: EnvConfig) -> list[str]:
  """Returns where the name, options and wrappers of an environment differ, such as `env.kwargs.x: 0 → 1`.

  An option that is not set has the value of the suite, or else the word `unset`, which is not null.
  """
  sides = [
    {"name": env.name}
    | {f"kwargs.{key}": x for key, x in registry.options_of(env.name, env.kwargs).items()}
    | {"wrappers": list(env.wrappers)}
    for env in (old, new)
  ]
  before, after = ({f"env.{key}": x for key, x in side.items()} for side in sides)
  return [
    f"{key}: {' → '.join(one_line(side.get(key, 'unset'), 60) for side in (before, after))}"
    for key in {**before, **after}
    if (key in before) != (key in after) or before.get(key) != after.get(key)
  ]


def write_run(surgery: RunSurgery, config: Config, spec: EnvSpec) -> RunDirectory:
  """Creates the directory of the new run, `run.dir`/`run.name`, from which it can be resumed.

  It has the converted checkpoints, replay and trajectories, the counters and schedules, the metrics so far,
  and the lineage.

  Raises: UserError: the run exists, or cannot be written. An error while the files are written removes the
    new directory.
  """
  head = _progress(surgery)
  replay = surgery.replay
  converted = RunState(
    training=as_tree(surgery.operation.plan, surgery.operation.state),
    progress=part(head, "progress"),
    replay=None if replay is None else dataclasses.replace(replay, head=dict(replay.head)),
  )
  check_run_state(converted, config, spec)
  out = RunDirectory.create(config)
  try:
    with out.claim():
      _write(surgery, converted, head, out, config, spec)
  except BaseException as error:
    shutil.rmtree(out.path, ignore_errors=True)
    if isinstance(error, OSError):
      raise UserError(f"{out.path}: cannot be written: {reason_of(error)}") from None
    raise
  return out


def _write(
  surgery: RunSurgery, state: RunState, head: State, out: RunDirectory, config: Config, spec: EnvSpec
) -> None:
  old, counters = surgery.directory, {"env_steps": state.env_steps, "learner_steps": state.learner_steps}
  meta = describe_run(config, spec) | counters
  replay = surgery.replay or Snapshot(head={})
  rest = dataclasses.replace(replay, head=head | prefixed("replay", replay.head))
  ResumeStore(out.resume_path).save(surgery.found.name, rest, meta)
  source = _write_checkpoints(surgery, state, out, config, spec)
  joint = Joint(
    kind="surgery",
    run=str(old.path),
    checkpoint=source.name,
    digest=source.digest,
    **counters,
    at_env_steps=state.env_steps,
    changes=(*surgery.operation.changes, *(f"kept: {text}" for text in surgery.kept)),
    lost=surgery.operation.lost,
    left=surgery.left,
  )
  write_lineage(out.lineage_path, [*read_lineage(old.lineage_path), joint])
  _write_trajectories(surgery, head, out, spec)
  _copy_records(old, out, state.env_steps)
  with contextlib.closing(
    MetricsSink(out.metrics_path, out.path if config.logging.tensorboard else None)
  ) as metrics:
    metrics.write_text("lineage", joint.text(), state.env_steps)


def _progress(surgery: RunSurgery) -> State:
  """Returns the counters, schedules and figures of the run, for the resume state."""
  state, plan = surgery.state, surgery.operation.plan
  left = (f"{_PAST}/", f"{GATE}/")
  progress = {name: x for name, x in state.progress.items() if not name.startswith(left)}
  progress.pop("envs_began_at", None)  # of environments that are left behind
  if surgery.begins_replay:
    progress |= prefixed("pacer", without_replay(part(progress, "pacer")))
  past = part(state.progress, _PAST)
  if past and plan.new.config.num_past_lanes:
    progress |= prefixed(_PAST, _convert_past(past, surgery))
  gate = part(state.progress, GATE)
  if gate and plan.new.config.evaluation.gate_score is not None:
    acting = prefixed("variables", transform_variables(part(gate, "variables"), plan))
    progress |= prefixed(GATE, {"version": gate["version"]} | acting)
  recorder = dict(surgery.found.recorder or {})
  if surgery.converter is None:
    recorder = {name: x for name, x in recorder.items() if not name.startswith("trajectories/")}
  return prefixed("progress", progress) | prefixed("recorder", recorder)


def _convert_past(past: State, surgery: RunSurgery) -> State:
  """Converts the parameters of the past selves."""
  out = {name: x for name, x in past.items() if not name.partition("/")[0].isdigit()}
  for i in range(np.size(past["versions"])):
    out |= prefixed(str(i), transform_variables(part(past, str(i)), surgery.operation.plan))
  return out


def _write_checkpoints(
  surgery: RunSurgery, state: RunState, out: RunDirectory, config: Config, spec: EnvSpec
) -> CheckpointInfo:
  """Writes all checkpoints of the run in the new form; returns the one of the state."""
  old, plan = surgery.directory, surgery.operation.plan
  template = algorithm_of(plan.old.config).training_state_template(plan.old.config, plan.old.spec)
  expected, found = expected_of(plan.old.config, plan.old.spec), None
  for info in list_checkpoints(old.checkpoints_path):
    if info.env_steps > state.env_steps:
      continue  # later than the newest state that can be used
    is_newest = info.name == surgery.found.name
    found = info if is_newest else found
    training = state.training if is_newest else None
    if training is None:
      training = surgery.operation.convert(load_checkpoint(info.path, template, expected))
    kept = {key: info.meta[key] for key in ("wall_s", "is_milestone") if key in info.meta}
    counters = {"env_steps": info.env_steps, "learner_steps": info.learner_steps}
    save_checkpoint(out.checkpoints_path, info.name, training, describe_run(config, spec) | counters | kept)
  if found is None:
    raise RunError(f"{old.path}: the checkpoint {surgery.found.name} has gone; try again")
  best = old.checkpoints_path / BEST
  if best.exists() and plan.old.config.env == config.env and not surgery.operation.lost:
    write_bytes(out.checkpoints_path / BEST, best.read_bytes())
  return found


def _write_trajectories(surgery: RunSurgery, head: State, out: RunDirectory, spec: EnvSpec) -> None:
  """Writes the trajectories up to the state in the new form, if they can be converted."""
  converter, old = surgery.converter, surgery.directory
  if converter is None:
    return
  writer = part(head, "recorder/trajectories")
  stop = int(writer["stop"]) if writer else surgery.state.env_steps
  for info in open_kept(old.trajectories_path, converter.old, stop):
    out.trajectories_path.mkdir(exist_ok=True)
    path = out.trajectories_path / file_name(info.env_steps)
    if converter.is_identity:
      shutil.copyfile(info.path, path)
      continue
    parts = zip(info.spans, read_steps(info), strict=True)
    lanes = {span.lane: (span.start, converter.sample(steps)) for span, steps in parts}
    write_bytes(path, *encode_file(spec, info.env_steps, lanes))


def _copy_records(old: RunDirectory, out: RunDirectory, env_steps: int) -> None:
  """Copies the curves and the earlier configurations."""
  for path in _records(old):
    shutil.copyfile(path, out.path / path.name)
  kept = out.path / f"config_until_{env_steps:09d}.yaml"
  if not kept.exists():
    write_text(kept, old.config_path.read_text("utf-8"))


def _records(old: RunDirectory) -> Iterator[Path]:
  if old.metrics_path.exists():
    yield old.metrics_path
  for pattern in ("events.out.tfevents.*", "config_until_*.yaml"):
    yield from sorted(path for path in old.path.glob(pattern) if path.is_file() and not path.is_symlink())
