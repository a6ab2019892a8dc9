"""What the driver's functions work on."""

import dataclasses
from typing import Any

from moozi.actors.calls import Calls
from moozi.actors.ledger import Ledger
from moozi.actors.pool import ActorPool
from moozi.core.config import Config
from moozi.run.session import Session


@dataclasses.dataclass(frozen=True)
class Context:
  """One run with actors.

  Attributes:
    ray: the module, connected.
    pool: the actors.
    calls: the calls in flight.
    ledger: counters, versions, epochs, and the amount of work in flight.
    session: clock, schedules, evaluations, rollback.
  """

  ray: Any
  pool: ActorPool
  calls: Calls
  ledger: Ledger
  session: Session

  @property
  def config(self) -> Config:
    """The run's configuration."""
    return self.ledger.config

  def should_stop(self) -> bool:
    """The run is to be stopped."""
    return self.session.inputs.should_stop()

  def counters(self) -> dict[str, Any]:
    """The counters of an event."""
    return self.session.counters()
