"""Evaluations: at most one in flight at the testing worker."""

import functools
from typing import Any

import numpy as np

from moozi.actors import cluster, updates
from moozi.actors.context import RunContext
from moozi.core.actor_report import TESTING_WORKER, ActorId
from moozi.core.errors import EnvError
from moozi.core.pytree import replace
from moozi.run.events import Event

# Time between two checks for actors that hang, while the driver waits for the evaluated parameters.
_CHECK_S = 1.0


def request_due(context: RunContext) -> None:
  """Requests an evaluation if one is due, none is pending, and the testing worker is started."""
  is_idle = context.pool.testing_worker is not None and context.ledger.evaluation is None
  if is_idle and context.session.evaluations.is_due(context.ledger.env_steps):
    _request(context, context.config.evaluation.episodes, is_final=False)


def request_final(context: RunContext) -> None:
  """Requests the evaluation at the end of the run if it is due."""
  if context.ledger.is_final_evaluation_due:
    context.ledger.is_final_evaluation_due = False
    _request(context, context.config.evaluation.final_episodes, is_final=True)


def _request(context: RunContext, num_episodes: int, is_final: bool) -> None:
  ledger, pool, network = context.ledger, context.pool, context.config.evaluation.network
  parameters = ledger.parameters
  newest: Any = None
  if ledger.gate is not None:
    parameters = newest = updates.newest(context)
  if network != context.config.workers.network:
    parameters = pool.server.parameters.remote(network)
  rivals = () if newest is None else (newest, ledger.parameters)
  ledger.evaluation = pool.testing_worker.run.remote(parameters, ledger.env_steps, num_episodes, *rivals)
  # This state is saved with the evaluated parameters if the result is the best so far. Its optimizer state
  # may be newer than the parameters.
  state = pool.server.get_state.remote()
  context.calls.expect(
    ledger.evaluation,
    ActorId(TESTING_WORKER),
    functools.partial(_on_evaluated, context, parameters, newest, state, ledger.parameter_epoch, is_final),
    lambda _: _on_lost(context, is_final),
  )


def _on_evaluated(
  context: RunContext, parameters: Any, newest: Any, state: Any, epoch: int, is_final: bool, result: Any
) -> list[Event]:
  context.ledger.evaluation = None
  # Parameters from before a rollback must not replace the restored parameters.
  is_current = epoch == context.ledger.parameter_epoch
  if newest is not None and is_current and not isinstance(result, EnvError):
    _pass_gate(context, newest, result.gate_score)
  return context.session.evaluations.record(
    result, is_final, functools.partial(_training, context, parameters, state)
  )


def _pass_gate(context: RunContext, newest: Any, score: float | None) -> None:
  """Acts with the newest parameters from now on if the gate admits them and they are not lost."""
  ledger = context.ledger
  assert ledger.gate is not None, "the games were played for the gate"
  if not ledger.gate.admits(score):
    return
  try:
    ledger.gate.acting = context.ray.get(newest)
  except cluster.lost_errors(context.ray):
    return
  updates.publish_now(context)
  if ledger.past is not None:
    ledger.past.offer(*ledger.gate.acting)


def _training(context: RunContext, parameters: Any, state: Any) -> Any:
  """Returns the training state with the evaluated parameters; None if either was lost with its process.

  The loss is not reported here: other calls of the parameter server report it.
  """
  both = [parameters, state]
  # `ray.get` would wait forever for a parameter server that hangs.
  while len(context.ray.wait(both, num_returns=2, timeout=_CHECK_S)[0]) < 2:
    context.pool.end_hung()
  try:
    ((params, net_state), version), training = context.ray.get(both)
  except cluster.lost_errors(context.ray):
    return None
  field = "target_params" if context.config.evaluation.network == "target" else "params"
  evaluated: dict[str, Any] = {field: params}
  return replace(training, **evaluated, net_state=net_state, learner_step=np.int32(version))


def _on_lost(context: RunContext, is_final: bool) -> list[Event]:
  context.ledger.evaluation = None
  if is_final:
    context.ledger.is_final_evaluation_due = True
  else:
    context.session.evaluations.repeat()
  return []
