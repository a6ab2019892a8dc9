"""The state that the driver's functions share: of any run, of a run with replay, of an on-policy run."""

import dataclasses
from typing import Any

from moozi.actors.calls import Calls
from moozi.actors.ledger import Ledger, RunLedger
from moozi.actors.pool import ActorPool
from moozi.actors.round_ledger import RoundLedger
from moozi.core.config import Config
from moozi.run.session import Session


@dataclasses.dataclass(frozen=True)
class RunContext:
  """The state of one run with actors, which the driver's functions share.

  Attributes:
    ray: the connected `ray` module.
    pool: the actors.
    calls: the calls in flight.
    ledger: counters, versions, epochs, and the work in flight.
    session: clock, schedules, evaluations, rollback.
  """

  ray: Any
  pool: ActorPool
  calls: Calls
  ledger: RunLedger
  session: Session

  @property
  def config(self) -> Config:
    """The run's configuration."""
    return self.ledger.config

  def should_stop(self) -> bool:
    """Returns whether a stop of the run was requested."""
    return self.session.inputs.should_stop()

  def counters(self) -> dict[str, Any]:
    """Returns `env_steps` and `learner_steps` for an event."""
    return self.session.counters()


@dataclasses.dataclass(frozen=True)
class Context(RunContext):
  """The state of a run that learns from replay."""

  ledger: Ledger


@dataclasses.dataclass(frozen=True)
class RoundContext(RunContext):
  """The state of an on-policy run."""

  ledger: RoundLedger
