"""Evaluations: at most one in flight at the testing worker."""

import functools
from typing import Any

from moozi.actors.context import Context
from moozi.core.actor_report import TESTER
from moozi.run.events import Event


def ask_due(context: Context) -> None:
  """Requests an evaluation of the published parameters if one is due and none is pending."""
  is_idle = context.pool.tester is not None and context.ledger.evaluation is None
  if is_idle and context.session.evaluations.is_due(context.ledger.env_steps):
    _ask(context, context.config.evaluation.episodes, is_final=False)


def ask_final(context: Context) -> None:
  """Requests the evaluation at the end of the run if it is due."""
  if context.ledger.is_final_evaluation_due:
    context.ledger.is_final_evaluation_due = False
    _ask(context, context.config.evaluation.final_episodes, is_final=True)


def _ask(context: Context, num_episodes: int, is_final: bool) -> None:
  ledger, pool = context.ledger, context.pool
  ledger.evaluation = pool.tester.run.remote(ledger.parameters, ledger.env_steps, num_episodes)
  # This state is saved if the result is the best so far. It is at most one publication period newer than the
  # evaluated parameters.
  state = pool.server.get_state.remote()
  context.calls.expect(
    ledger.evaluation,
    TESTER,
    functools.partial(_on_evaluated, context, state, is_final),
    lambda _: _on_lost(context, is_final),
  )


def _on_evaluated(context: Context, state: Any, is_final: bool, result: Any) -> list[Event]:
  context.ledger.evaluation = None
  return context.session.evaluations.record(result, is_final, functools.partial(_training, context, state))


def _training(context: Context, state: Any) -> Any:
  """Returns the training state; None if it was lost with the parameter server or its node.

  The loss is not reported here: other calls of the parameter server report the failure.
  """
  exceptions = context.ray.exceptions
  try:
    return context.ray.get(state)
  except (exceptions.RayActorError, exceptions.ObjectLostError):
    return None


def _on_lost(context: Context, is_final: bool) -> list[Event]:
  context.ledger.evaluation = None
  if is_final:
    context.ledger.is_final_evaluation_due = True
  else:
    context.session.evaluations.repeat()
  return []
