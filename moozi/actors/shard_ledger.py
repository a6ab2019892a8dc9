"""What the driver knows of replay's shards: what each can give, and the steps that each received and stored.

Replay without shards is one shard of all workers. The driver has no steps: it chooses the shard of each row
of a batch, and the parameter server joins the rows that the shards draw. The masses are those after the last
calls whose results have arrived. The shards of a batch are drawn with these masses, and importance ratios use
the same probabilities.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from moozi.core.config import Config
from moozi.core.seeds import child_seed
from moozi.replay.protocol import Supply
from moozi.replay.shards import (
  PLAN_SEED,
  DrawRequest,
  can_sample,
  choose_shard,
  merged_stats,
  plan_draws,
  workers_of,
)

_NOTHING = Supply(0, 0, 0.0)


class ShardReport(NamedTuple):
  """What a replay actor reports: whether it can draw a batch on its own, and its supply."""

  can_sample: bool
  supply: Supply


class ShardLedger:
  """The shards of one run.

  Args:
    config: the run's configuration.
    added: number of steps ever added to each shard when the run starts; None: 0.
    env_steps: environment steps of the run when it starts.

  Attributes:
    can_sample: whether a batch can be drawn.
    epochs: by shard, incremented when the shard is restarted. A segment requested in an older epoch is
      dropped, because the restarted shard lacks the beginning of its episodes.
    stats: the newest metrics of each shard that has reported some.
  """

  def __init__(self, config: Config, added: Sequence[int] | None, env_steps: int) -> None:
    self._config = config
    self._workers = workers_of(config)
    count = len(self._workers)
    self._added = [0] * count if added is None else list(added)
    # Only the differences between the counts of a shard matter, so the first shard has the rest.
    self._received = list(self._added)
    self._received[0] += env_steps - sum(self._added)
    self._supplies = [_NOTHING] * count
    self._rng = np.random.default_rng(child_seed(config.seed, "replay", PLAN_SEED, env_steps))
    self.can_sample = False
    self.epochs = [0] * count
    self.stats: dict[int, dict[str, float]] = {}

  def of(self, worker: int) -> int:
    """Returns the shard of a training worker."""
    return next(shard for shard, workers in enumerate(self._workers) if worker in workers)

  def workers(self, shard: int) -> range:
    """Returns the training workers of a shard."""
    return self._workers[shard]

  def hear(self, shard: int, report: ShardReport) -> None:
    """Takes a shard's newest report."""
    self._supplies[shard] = report.supply
    self.can_sample = report.can_sample if len(self._supplies) == 1 else self._can_sample()

  def _can_sample(self) -> bool:
    return can_sample(self._config, self._supplies, self._config.learner.batch_size)

  def plan(self) -> dict[int, DrawRequest | None]:
    """Returns what each shard draws for one call of the parameter server; without shards, no request."""
    if len(self._supplies) == 1:
      return {0: None}
    learner = self._config.learner
    return {**plan_draws(self._supplies, learner.updates_per_call * learner.batch_size, self._rng)}

  def choose(self) -> int:
    """Returns the shard of a reanalyze call, drawn in proportion to the stored steps."""
    if len(self._supplies) == 1:
      return 0
    return choose_shard([supply.num_steps for supply in self._supplies], self._rng)

  def store(self, shard: int, num_steps: int, num_lost: int) -> None:
    """Counts a segment that a shard has received; `num_lost` of its steps were not stored."""
    self._received[shard] += num_steps
    self._added[shard] += num_steps - num_lost

  def steps_ahead(self, shard: int) -> int:
    """Returns the steps ever added to a shard minus the environment steps sent to it; a loss decreases it.

    The sum over all shards is the number of steps ever added to replay minus the run's environment steps.
    """
    return self._added[shard] - self._received[shard]

  def restart(self, shard: int, num_added: int) -> int:
    """Starts a new epoch of a shard after its restart, and returns the number of steps lost.

    Nothing is drawn from it until it reports. `num_added` is the number of steps ever added to it.
    """
    lost, self._added[shard] = self._added[shard] - num_added, num_added
    self.epochs[shard] += 1
    self._supplies[shard] = _NOTHING
    self.can_sample = len(self._supplies) > 1 and self._can_sample()
    return lost

  def merged_stats(self) -> dict[str, float]:
    """Returns the metrics of replay; empty until a shard has reported."""
    if not self.stats:
      return {}
    return merged_stats(self._config, self.stats)
