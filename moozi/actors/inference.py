"""Inference servers: passes parameters to them, and notices when one fails.

Training workers call these servers for decisions. The driver does not, so it watches a call that ends only
with the server.
"""

from typing import Any

from moozi.actors.context import RunContext
from moozi.core.actor_report import INFERENCE_SERVER, ActorId
from moozi.run.events import Event


def server_of(context: RunContext, worker: int) -> ActorId | None:
  """Returns the inference server that a training worker asks; None if the worker decides itself."""
  num_servers = context.config.num_inference_servers
  return ActorId(INFERENCE_SERVER, worker % num_servers) if num_servers else None


def watch(context: RunContext, index: int) -> None:
  """Watches an inference server that was started. The error of its end makes the driver restart it."""

  def on_failure(error: Any) -> list[Event]:
    # The call can also be lost alone, with the connection to a node.
    if not isinstance(error, context.ray.exceptions.ActorDiedError):
      wait()
    return []

  def wait() -> None:
    context.calls.watch(context.pool.inference_servers[index].wait_for_end.remote(), on_failure)

  wait()


def pass_parameters(context: RunContext) -> None:
  """Passes the parameters that act to the inference servers, which use them from their next batch on."""
  for server in context.pool.inference_servers.values():
    # Not a result of the server's work, which would reset its count of failures.
    context.calls.expect(server.set_parameters.remote(context.ledger.parameters), None)
