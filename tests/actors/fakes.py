"""Fakes for tests of the driver: pending calls, actors that record calls, their pool, and a run's context."""

import types

from moozi.actors.context import Context, RoundContext
from moozi.actors.ledger import Ledger
from moozi.actors.pool import ActorPool
from moozi.actors.round_ledger import RoundLedger
from moozi.core.actor_report import ActorId
from moozi.run.session import RunInputs, Session
from tests.actors.in_process_ray import RAY


class Calls:
  """Stands in for the driver's pending calls; the test supplies their results."""

  def __init__(self):
    self.pending, self.watched = {}, {}

  def __bool__(self):
    return bool(self.pending)

  def expect(self, reference, actor, on_result=lambda _: [], on_failure=lambda _: []):
    self.pending[reference] = (actor, on_result, on_failure)

  def watch(self, reference, on_failure):
    self.watched[reference] = on_failure

  def arrive(self, reference, value=None):
    return self.pending.pop(reference)[1](f"value of {reference}" if value is None else value)

  def lose(self, reference, error="lost"):
    return self.pending.pop(reference)[2](error)

  def discard(self, reference):
    del self.pending[reference]


class Method:
  """Stands in for an actor's method: `remote(…)` records its arguments and returns a new reference."""

  def __init__(self, name):
    self.name, self.asked, self.num_returns = name, [], 1

  def options(self, num_returns):
    self.num_returns = num_returns
    return self

  def remote(self, *args):
    self.asked.append(args)
    references = [f"{self.name}/{len(self.asked)}/{i}" for i in range(self.num_returns)]
    return references[0] if self.num_returns == 1 else references


def actor(name, *methods):
  return types.SimpleNamespace(**{method: Method(f"{name}.{method}") for method in methods})


class Pool(ActorPool):
  """The driver's pool, with the fakes that a test passes in place of started actors."""

  def __init__(self, handles):
    self.handles, self.waiting, self.leaving = handles, {}, set()


def make_context(config, handles, ray=RAY, parts=None, **inputs):
  """Returns a run's context with these actors; `handles` are by role, or by ActorId.

  With the `parts` of an algorithm, the run is on-policy.
  """
  handles = {ActorId(key) if isinstance(key, str) else key: handle for key, handle in handles.items()}
  make, ledger = (
    (Context, Ledger(config)) if parts is None else (RoundContext, RoundLedger(config, None, parts))
  )
  return make(ray, Pool(handles), Calls(), ledger, Session(RunInputs(config, None, **inputs), ledger))
