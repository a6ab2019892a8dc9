"""Checks a loaded state of a run before any part of it is restored."""

import math

from moozi.core.config import Config
from moozi.core.flat_state import Entry, State, check_state, counter, number, part
from moozi.core.spec import EnvSpec
from moozi.replay.saved_state import check_snapshot
from moozi.run.evaluation_schedule import BEST_BOUND, LAST_MEAN
from moozi.run.gate import GATE, check_gate
from moozi.run.pacing import PACER_STATE
from moozi.run.past_selves import check_past_selves
from moozi.run.state import RunState

_PAST_SELVES, _REANALYZE, _PACER = "past_selves", "reanalyze", "pacer"


def check_run_state(state: RunState, config: Config, spec: EnvSpec, with_replay: bool = True) -> None:
  """Checks a state's progress and replay; `run.build.restore_collectors` checks its collectors.

  Args:
    with_replay: whether the state was loaded with its replay.

  Raises: ValueError: an entry is missing, not expected or invalid; the message names it.
  """
  _check_progress(state, config)
  if state.replay is not None:
    check_snapshot(state.replay, spec)
  elif with_replay and not config.is_on_policy:
    raise ValueError("replay is missing")


def _check_progress(state: RunState, config: Config) -> None:
  progress: State = dict(state.progress)
  for name in (_PAST_SELVES, GATE, _REANALYZE, _PACER):
    for key in part(progress, name):
      del progress[f"{name}/{key}"]
  entries: dict[str, Entry] = {
    "wall_s": number(0, 1e12),
    "evaluations/next": number(-1),
    BEST_BOUND: number(-math.inf),
  }
  if config.is_on_policy:
    entries["env_steps"] = counter()
  else:
    check_state(part(state.progress, _PACER), PACER_STATE, f"{_PACER}/")
  # Another runtime may have saved the state; with Ray, it has no environments and no reanalyzer.
  if LAST_MEAN in progress:
    entries[LAST_MEAN] = number(-math.inf)
  if "envs_began_at" in progress:
    entries["envs_began_at"] = counter()
  check_state(progress, entries)
  if state.envs_began_at > state.env_steps:
    raise ValueError(f"envs_began_at is {state.envs_began_at}; must be at most {state.env_steps}")
  past = part(state.progress, _PAST_SELVES)
  if past:
    check_past_selves(past, state.training.variables)
  gate = part(state.progress, GATE)
  if gate:
    check_gate(gate, state.training.variables)
  reanalyze = part(state.progress, _REANALYZE)
  if reanalyze:
    check_state(reanalyze, {"rng_key": Entry("uint32", (2,))}, f"{_REANALYZE}/")
