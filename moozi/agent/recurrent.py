"""An agent with a recurrent state in its carry, which each frame updates once, in order."""

from collections.abc import Callable
from typing import Any

from jaxtyping import Array, Int, Num, PyTree

from moozi.agent.agent import Decision, PureAgent, Temperature, make_agent
from moozi.core.pytree import replace
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import EnvSpec
from moozi.core.types import AnyArray
from moozi.ops.history import HistoryState, push_action, push_frame

RecurrentDecide = Callable[..., tuple[Decision, PyTree]]
"""decide(variables, state, history, timestep, rng_key, temperature, position) → (Decision, state after it).

As `agent.agent.Decide`, with the state [B, …] before the current frames. Where `timestep.is_first` is true,
`decide` starts from a state of zeros.
"""

Advance = Callable[[PyTree, PyTree, HistoryState, BatchedTimeStep], PyTree]
"""advance(variables, state, history, timestep) → the state after the current frames, as from `decide`."""

_AFTER = "state_after"


def make_recurrent_agent(
  decide: RecurrentDecide,
  advance: Advance,
  init_state: Callable[[int], PyTree],
  spec: EnvSpec,
  history_length: int,
) -> PureAgent:
  """Returns an agent as `make_agent` does, but with a recurrent state in its carry too.

  Its carry is {"history": HistoryState, "state": the state after the last frames}. A forced action changes
  only the history.

  Args:
    init_state: B → the state of B lanes at the start, zeros in NumPy with the leading axis B.
  """

  def decide_with(variables: tuple[PyTree, PyTree], *args: Any) -> Decision:
    decision, after = decide(*variables, *args)
    return replace(decision, extras=decision.extras | {_AFTER: after})

  plain = make_agent(decide_with, spec, history_length)

  def init(num_lanes: int) -> dict[str, PyTree]:
    return {"history": plain.init(num_lanes), "state": init_state(num_lanes)}

  def act(
    variables: PyTree,
    carry: dict[str, PyTree],
    timestep: BatchedTimeStep,
    rng_key: Array,
    temperature: Temperature,
    forced: Int[AnyArray, "B"] | None = None,
    position: Any = None,
  ) -> tuple[dict[str, PyTree], Decision]:
    known = variables, carry["state"]
    history, decision = plain.act(known, carry["history"], timestep, rng_key, temperature, forced, position)
    extras = dict(decision.extras)
    after = extras.pop(_AFTER)
    return {"history": history, "state": after}, replace(decision, extras=extras)

  def observe(
    variables: PyTree, carry: dict[str, PyTree], timestep: BatchedTimeStep, action: Num[AnyArray, "B *D"]
  ) -> dict[str, PyTree]:
    history = push_frame(carry["history"], timestep.frame, timestep.is_first)
    after = advance(variables, carry["state"], history, timestep)
    return {"history": push_action(history, action), "state": after}

  return PureAgent(init, act, observe)
