"""Reads the trajectories that `offline.trajectories` names."""

from pathlib import Path

from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.io.trajectory_folder import open_trajectories
from moozi.replay.mixture import StoredTrajectories

# Each stored lane is allocated at the length of the longest lane. Without a limit, a small file could request
# any amount of memory.
_MAX_SLOTS_PER_STEP = 4
_FREE_SLOTS = 1 << 25  # up to this number of slots, lanes may have any lengths


def load_stored(config: Config, spec: EnvSpec) -> StoredTrajectories | None:
  """Returns the trajectories that `offline.trajectories` names; None if the key is not set.

  Raises: UserError: the trajectories cannot be read, belong to another environment, are too few to learn
    from, or have lanes whose lengths differ too much.
  """
  offline, targets = config.offline, config.targets
  if offline.trajectories is None:
    return None
  key = f"offline.trajectories={offline.trajectories}"
  store = open_trajectories(Path(offline.trajectories), spec, offline.max_env_steps)
  needed = targets.history_length + targets.unroll_steps + targets.n_step
  num_lanes, longest = len(store.lane_steps), max(store.lane_steps.values())
  if longest <= needed:
    raise UserError(f"{key}: no lane has more than {needed} steps (history + unroll + n_step)")
  if num_lanes * longest > max(_FREE_SLOTS, _MAX_SLOTS_PER_STEP * store.num_steps):
    raise UserError(
      f"{key}: {num_lanes:,} lanes hold {store.num_steps:,} steps, the longest {longest:,}; each lane is "
      "allocated at the length of the longest, so their lengths must be more equal"
    )
  return StoredTrajectories(
    where=str(offline.trajectories),
    lane_steps=store.lane_steps,
    read=lambda: ((part.span.lane, part.steps) for part in store.read()),
  )
