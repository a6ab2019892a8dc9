"""Tests of resume states that were altered and whose checksums are valid."""

import copy
import dataclasses
import time
import types
from pathlib import Path

import numpy as np
import pytest

from moozi.acting.lanes import Lanes
from moozi.core.errors import UserError
from moozi.core.flat_state import Snapshot, State, part, prefixed
from moozi.envs.vector import make_vector
from moozi.io.checkpoints import CheckpointInfo
from moozi.io.config import load_config
from moozi.io.run_directory import RunDirectory
from moozi.run import build
from moozi.run.evaluation_schedule import Evaluations
from moozi.run.events import StateReady
from moozi.run.gate import Gate, make_gate
from moozi.run.pacing import Pacer
from moozi.run.past_selves import PastSelves
from moozi.run.state import RunState
from moozi.training import resume
from moozi.training.recorder import Recorder
from tests.replay.replay_lanes import fill, make_buffer, make_spec, random_lanes
from tests.training.test_recorder import Display

ENV_STEPS, LEARNER_STEPS = 120, 9
SPEC = make_spec(num_players=2)
CONFIG = load_config(
  None,
  [
    *("env.name=tiny:tictactoe", "opponents.past_share=0.5", "workers.num_envs=2"),
    "evaluation.gate_score=0.5",
  ],
)
PARAMS = {"w": np.ones((2, 3), np.float32)}
TRAINING = types.SimpleNamespace(
  params=PARAMS, net_state={}, variables=(PARAMS, {}), learner_step=np.int32(LEARNER_STEPS)
)


def alterations(name, value):
  """Yields (what was altered, the altered value) of one entry of a state; None removes it."""
  yield "removed", None
  yield "text", "x"
  yield "truth", True
  if np.ndim(value) == 0:
    yield "nan", float("nan")
    yield "array", np.array([value, value])
    yield "negative", -7 if isinstance(value, int) else -7.0
    yield "huge", 10**30
    yield "infinite", float("inf")
    return
  value = np.asarray(value)
  yield "cut", value[..., :-1] if value.shape[-1] else value[..., None]
  yield "empty", value[:0]
  yield "deeper", value[None]
  yield "bytes", value.astype(np.uint8 if value.dtype != np.uint8 else np.int16)
  yield "scalar", 3
  for kind, number in (("high", 1e18), ("low", -1e18), ("nan", np.nan)):
    if value.size and value.dtype.kind in ("f" if kind == "nan" else "if"):
      limits = np.iinfo(value.dtype) if value.dtype.kind == "i" else np.finfo(value.dtype)
      other = value.copy()
      other.reshape(-1)[0] = np.clip(number, float(limits.min) / 2, float(limits.max) / 2)
      yield kind, other


class Store:
  """A ResumeStore of one state in memory."""

  def __init__(self, saved):
    self.saved = saved

  def load(self, name, with_replay=True):
    return self.saved


def make_replay(sampling: str):
  return make_buffer(SPEC, lanes=2, lane_capacity=40, sampling=sampling, rank_refresh_updates=50)


@pytest.fixture(scope="module")
def rest(tmp_path_factory) -> State:
  """Returns the progress and the recorder's part of a state, as a run saves them."""
  pacer, past = Pacer(CONFIG, slack_steps=0), PastSelves(CONFIG)
  pacer.request_act(ENV_STEPS)
  pacer.done_act(ENV_STEPS)
  for version in (0, 10_000):
    past.offer(TRAINING.variables, version)
  past.opponent(0)
  progress = {"wall_s": 3.5, "envs_began_at": 0}
  progress |= Evaluations(CONFIG, dict, {}).get_state()
  progress |= prefixed("pacer", pacer.get_state()) | prefixed("past_selves", past.get_state())
  gate = Gate(CONFIG)
  gate.begin((TRAINING.variables, 3))
  progress |= prefixed("gate", gate.get_state())
  progress |= {"reanalyze/rng_key": np.array([0, 7], np.uint32)}
  folder = tmp_path_factory.mktemp("altered")
  config = load_config(None, [f"run.dir={folder}", "run.name=one"])
  recorder = Recorder(config, SPEC, RunDirectory.create(config), Display(), time.monotonic())
  recorder._recent_returns.extend([1.0, 0.0])
  recorder._recent_lengths.extend([5.0, 6.0])
  recorder._last_test = {"return_mean": 0.5, "return_std": 0.1, "episodes": 4.0, "env_steps": 96.0}
  event = StateReady(env_steps=ENV_STEPS, learner_steps=LEARNER_STEPS, state=RunState(training=TRAINING))
  state = recorder._get_state(event)
  recorder.close()
  return prefixed("progress", progress) | prefixed("recorder", state)


@pytest.fixture(scope="module")
def saved(rest) -> dict[str, Snapshot]:
  """Returns a whole state by sampling."""
  out = {}
  for sampling in ("uniform", "proportional", "rank"):
    buffer = make_replay(sampling)
    fill(buffer, random_lanes(3, 2, ENV_STEPS // 2, SPEC), SPEC, [*range(5, 60, 5), 60])
    buffer.sample_many(2, 4)
    buffer.reanalyze_queue.choose(4, "oldest", 100)
    taken = buffer.snapshot()
    state = copy.deepcopy(rest) | prefixed("replay", taken.head)
    out[sampling] = Snapshot(head=state, generations=taken.generations, blocks=taken.blocks)
  return out


def read(saved: Snapshot) -> tuple[RunState, State]:
  info = CheckpointInfo(
    path=Path("step_000000120.safetensors"),
    meta={"env_steps": ENV_STEPS, "learner_steps": LEARNER_STEPS},
    version="",
    digest="",
    num_bytes=0,
    names=frozenset(),
  )
  return resume._read_resume_state(CONFIG, SPEC, Store(saved), info, TRAINING, True)


def try_read(saved: Snapshot) -> tuple[RunState | None, State, str]:
  """Returns the state and why it was refused; raises any error that a resume does not turn into a message."""
  try:
    return *read(saved), ""
  except (UserError, ValueError) as error:
    return None, {}, str(error)


def restore(state: RunState, sampling: str, with_replay: bool = True) -> None:
  """Restores a state that was accepted, and works with it, into a buffer of the same and of another size."""
  Pacer(CONFIG, slack_steps=0).set_state(part(state.progress, "pacer"))
  past = PastSelves(CONFIG)
  past.set_state(part(state.progress, "past_selves"), TRAINING.variables)
  past.opponent(0)
  gate = make_gate(CONFIG, state)
  assert gate.acting[1] >= 0
  Evaluations(CONFIG, dict, state.progress)
  other = make_buffer(SPEC, lanes=1, lane_capacity=30, sampling=sampling)
  for buffer in (make_replay(sampling), other) if with_replay else ():
    buffer.restore(state.replay)
    if buffer.can_sample(4):
      batch = buffer.sample_many(2, 4)
      buffer.update_priorities(batch.slot, batch.sequence, np.ones(batch.slot.shape))
      buffer.sample_many(60, 4)
    buffer.reanalyze_queue.choose(4, "oldest", 100)
    fill(buffer, random_lanes(4, buffer.num_lanes, 20, SPEC), SPEC, [20])
    buffer.stats()


@pytest.mark.parametrize("sampling", ["uniform", "proportional", "rank"])
def test_unaltered_state_is_restored(saved, sampling):
  state, recorder = read(saved[sampling])
  assert (state.env_steps, recorder["env_steps"]) == (ENV_STEPS, ENV_STEPS)
  restore(state, sampling)


@pytest.mark.parametrize("sampling", ["proportional", "rank"])
def test_altered_entry_is_refused_or_can_be_restored(saved, sampling):
  whole, num_refused = saved[sampling], 0
  names = [name for name in whole.head if sampling == "rank" or "sampler" in name]
  for name in names:
    for kind, value in alterations(name, whole.head[name]):
      state = whole.head | {name: value}
      if value is None:
        del state[name]
      altered = dataclasses.replace(whole, head=state)
      loaded, recorder, refused = try_read(altered)
      if loaded is None:
        assert "\n" not in refused
        num_refused += 1
        continue
      assert kind not in ("text", "truth", "deeper", "bytes"), name
      assert kind != "cut" or name == "replay/roots/pool", name  # a queue of any length
      # A runtime without environments or a reanalyzer of its own saves neither.
      optional = {"progress/envs_began_at", "progress/reanalyze/rng_key"}
      assert kind != "removed" or name in optional, name
      restore(loaded, sampling, with_replay=name.startswith("replay/"))
      Recorder._set_state(fresh_recorder(), recorder)
  assert num_refused > 5 * len(names)


def fresh_recorder():
  recorder = Recorder.__new__(Recorder)
  recorder._recent_returns, recorder._recent_lengths = [], []
  recorder._staleness, recorder._faults = types.SimpleNamespace(), {}
  recorder._guard = types.SimpleNamespace()
  return recorder


def test_unknown_entry_is_refused(saved):
  whole = saved["uniform"]
  for name in ("extra", "extra/x", "replay", "progress/x", "progress/pacer/x", "progress/past_selves/2/0/w"):
    altered = dataclasses.replace(whole, head=whole.head | {name: 1})
    with pytest.raises((UserError, ValueError), match="is not expected"):
      read(altered)


def test_altered_block_is_refused(saved):
  whole = saved["uniform"]
  number = next(iter(whole.blocks))
  for name, value in whole.blocks[number].items():
    for kind, other in alterations(name, value):
      block = whole.blocks[number] | {name: other}
      if other is None:
        del block[name]
      blocks = whole.blocks | {number: block}
      altered = dataclasses.replace(whole, blocks=blocks)
      loaded, _, refused = try_read(altered)
      if loaded is None:
        assert "replay block" in refused
        continue
      # A version and a finite reward or value may be any.
      assert kind in ("high", "low"), name
      assert name in ("last_reward", "root_value", "acted_version", "searched_version"), name
      restore(loaded, "uniform")


def test_missing_block_and_blocks_that_were_swapped_are_refused(saved):
  whole = saved["uniform"]
  first, second, *_ = whole.blocks
  swapped = whole.blocks | {first: whole.blocks[second], second: whole.blocks[first]}
  missing = {number: block for number, block in whole.blocks.items() if number != first}
  for blocks in (swapped, missing, {}):
    with pytest.raises(ValueError, match="replay block"):
      read(dataclasses.replace(whole, blocks=blocks))
  with pytest.raises(ValueError, match="replay has no blocks"):
    read(Snapshot(head=whole.head))


def test_state_of_another_checkpoint_is_refused(saved):
  whole = saved["uniform"]
  for name in ("recorder/env_steps", "recorder/learner_steps", "progress/pacer/env_steps"):
    state = whole.head | {name: whole.head[name] + 1}
    with pytest.raises(UserError, match="belongs to another checkpoint"):
      read(dataclasses.replace(whole, head=state))


def make_lanes(num_envs: int, began_at: int) -> Lanes:
  """Returns the lanes of a worker after some steps."""
  lanes = Lanes(make_vector("tiny:catch", {}, num_envs, 5 + began_at), 2, 5)
  for _ in range(12):
    lanes.step(np.where(lanes.timestep.is_last, 0, 1))
  return lanes


def restored(collectors, num_workers: int = 1, num_envs: int = 2) -> build.Collectors:
  progress = {"pacer/env_steps": ENV_STEPS, "envs_began_at": 0}
  state = RunState(training=TRAINING, progress=progress, collectors=tuple(collectors))
  return build.restore_collectors(lambda at: [make_lanes(num_envs, at) for _ in range(num_workers)], state)


def test_altered_environments_are_refused_or_replayed():
  saved = make_lanes(2, 0).get_state()
  assert restored([saved]).message == ""
  for name, value in saved.items():
    for kind, other in alterations(name, value):
      state = saved | {name: other}
      if other is None:
        del state[name]
      try:
        found = restored([state])
      except UserError as error:
        refused = str(error)
        assert name in refused
        continue
      assert kind in ("high", "low", "empty"), name
      assert "environments are reset" in found.message or name.startswith(("lanes/", "env/games")), name
      found.workers[0].step(np.where(found.workers[0].timestep.is_last, 0, 1))


def test_environments_of_other_settings_are_reset():
  saved = make_lanes(2, 0).get_state()
  compiled = {"envs/game/x": np.zeros(2), "episode_return": np.zeros(2), "rng_key": np.zeros(2, np.uint32)}
  vectorized = {name: x for name, x in saved.items() if not name.startswith("env/")}
  vectorized["env/num_seeds"] = np.zeros(2, np.int64)
  for collectors, options in (
    ([saved], {"num_workers": 2}),
    ([saved], {"num_envs": 3}),
    ([make_lanes(3, 0).get_state()], {}),
    ([compiled], {}),
    ([vectorized], {}),
  ):
    found = restored(collectors, **options)
    assert found.message == "; all environments are reset"
    assert found.began_at == ENV_STEPS
  assert restored([saved | {"past/status": np.zeros(1, np.int8)}]).message == ""
