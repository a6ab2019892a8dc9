"""The interface of agents: pure functions of variables. `make_agent` applies the rule of ends.

MuZero, AlphaZero, PPO, Q-learning and a user's algorithm each have a `Decide`, from which `make_agent` makes
a `PureAgent`. PPO with an LSTM has a `RecurrentDecide` (`agent.recurrent`) instead. Collectors, evaluation
and players depend only on the `PureAgent`, not on its carry or its algorithm. Wrappers, such as
`acting.holding`, take a `PureAgent` and return one.

Source of the rule of ends: thesis 4.3.1 (Algorithm 2) and 4.3.3.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float32, Int, Num, PyTree, UInt32

from moozi.core.pytree import record, replace
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.core.types import AnyArray
from moozi.ops.history import HistoryState, init_history, push_action, push_frame

Carry = Any
"""An agent's state for B lanes between two steps: a pytree whose leaves have the leading axis B."""
Temperature = Num[AnyArray, "*lanes"] | float


@record
class Decision:
  """An agent's decision on B frames.

  Attributes:
    action: in the agent's action space; legal on a live frame, the dummy on a last one. Continuous actions
      are float32 [B, D], within their bounds.
    action_probs: the policy; 0 on illegal actions. With MuZero and AlphaZero it is the policy target.
    root_value: for the player to move; 0 on a terminal frame. Env units, but with PPO the units of the
      rewards that it learns from.
    extras: arrays [B, …] by name, for the agent's own learner, metrics and displays. They do not follow the
      rule of ends. An agent for inspection has `tree`, a pytree.
  """

  action: Num[AnyArray, "B *D"]
  action_probs: Float32[AnyArray, "B A"]
  root_value: Float32[AnyArray, "B"]
  extras: dict[str, PyTree]

  def only(self, names: Iterable[str]) -> "Decision":
    """Returns the decision with those of the named extras that it has."""
    return replace(self, extras={name: self.extras[name] for name in names if name in self.extras})


Act = Callable[..., tuple[Carry, Decision]]
"""act(variables, carry, timestep, rng_key, temperature, forced=None, position=None) → (carry, decision).

Args:
  variables: the agent's parameters and whatever else the learner changes, as one pytree.
  carry: of B lanes, with the last frames and actions already in it.
  timestep: the current frames of the B lanes.
  rng_key: for noise and the choice of the action.
  temperature: a scalar, or one per lane; 0: greedy. The Gumbel searches do not read it.
  forced: [B] int, actions to take on live frames instead of the agent's; -1 where the agent chooses. They
    replace its actions in the decision and in the carry. None: all -1. Continuous actions cannot be forced.
  position: the positions of the B environments (`VectorEnvironment.positions`), for an agent that
    `plans_with_rules`.

Returns: the carry with these frames and the actions taken, and the decision.
"""


@dataclasses.dataclass(frozen=True)
class PureAgent:
  """An agent as pure functions, to be compiled by the caller.

  Attributes:
    init: B → the carry of B lanes in which no frame has been seen, in NumPy.
    act: see `Act`.
    observe: (variables, carry, timestep, action [B]) → the carry with these frames, and with these actions of
      another player. Runs on NumPy and JAX arrays.
    plans_with_rules: whether `act` needs positions.
  """

  init: Callable[[int], Carry]
  act: Act
  observe: Callable[[PyTree, Carry, BatchedTimeStep, Num[AnyArray, "B *D"]], Carry]
  plans_with_rules: bool = False


Decide = Callable[
  [PyTree, HistoryState, BatchedTimeStep, UInt32[Array, "2"], Temperature, Any],
  Decision,
]
"""decide(variables, history, timestep, rng_key, temperature, position) → Decision: an algorithm's own part.

`history` ends with the current frames and has the actions before them. Ends need no special case: on a last
frame the action is ignored, and on a terminal frame also the policy and the value.
"""


def make_agent(
  decide: Decide, spec: EnvSpec, history_length: int, plans_with_rules: bool = False
) -> PureAgent:
  """Returns an agent whose carry has the last `history_length` frames and actions.

  Its decisions follow the rule of ends (docs/rules.md, "Ends"): on a terminal frame the action is the dummy,
  `action_probs` is one-hot(dummy), and `root_value` is 0. On a truncated frame `action_probs` and
  `root_value` are those of `decide`; the action is the dummy, because the environment discards it.
  """

  def act(
    variables: PyTree,
    carry: HistoryState,
    timestep: BatchedTimeStep,
    rng_key: Array,
    temperature: Temperature,
    forced: Int[AnyArray, "B"] | None = None,
    position: Any = None,
  ) -> tuple[HistoryState, Decision]:
    history = push_frame(carry, jnp.asarray(timestep.frame), jnp.asarray(timestep.is_first))
    decision = decide(variables, history, timestep, rng_key, temperature, position)
    is_terminal = timestep.is_last & ~timestep.is_truncated
    dummy_probs = jax.nn.one_hot(DUMMY_ACTION, spec.policy_size)
    chosen = decision.action if forced is None else jnp.where(forced < 0, decision.action, forced)
    is_last = jnp.reshape(timestep.is_last, (-1, *(1 for _ in spec.action_shape)))
    decision = replace(
      decision,
      action=jnp.where(is_last, DUMMY_ACTION, chosen).astype(spec.action_dtype),
      action_probs=jnp.where(is_terminal[:, None], dummy_probs, decision.action_probs),
      root_value=jnp.where(is_terminal, 0.0, decision.root_value),
    )
    return push_action(history, decision.action), decision

  def observe(
    variables: PyTree, carry: HistoryState, timestep: BatchedTimeStep, action: Num[AnyArray, "B *D"]
  ) -> HistoryState:
    del variables
    return push_action(push_frame(carry, timestep.frame, timestep.is_first), action)

  def init(num_lanes: int) -> HistoryState:
    return init_history(num_lanes, history_length, spec)

  return PureAgent(init, act, observe, plans_with_rules)


def merge_forced(forced: Int[AnyArray, "B"] | None, others: Int[AnyArray, "B"]) -> Int[AnyArray, "B"]:
  """Returns the `forced` of a wrapper that forces `others` where its caller forces nothing."""
  return others if forced is None else jnp.where(forced < 0, others, forced)


KeyedAct = Callable[..., tuple[Array, Carry, Decision]]


def keyed(agent: PureAgent) -> KeyedAct:
  """Returns `agent.act` with the split of the key inside; its results are (next rng_key, carry, decision).

  A split outside the compiled function would be one more call of JAX in every step.
  """

  def act(
    variables: PyTree, carry: Carry, timestep: BatchedTimeStep, rng_key: Array, *args: Any, **kwargs: Any
  ) -> tuple[Array, Carry, Decision]:
    rng_key, key = jax.random.split(rng_key)
    return rng_key, *agent.act(variables, carry, timestep, key, *args, **kwargs)

  return act
