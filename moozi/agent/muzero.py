"""MuZero and AlphaZero as agents: history stacking, root inference, search and choice as one function.

Source: thesis 4.3.4, 4.3.5. Departure: stacking is inside the compiled function.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from moozi.agent.agent import Decision, PureAgent, Temperature, make_agent
from moozi.agent.planner import RulesNode, plan
from moozi.agent.symmetry_average import averaged
from moozi.core.config import PlannerConfig, TargetsConfig
from moozi.core.pytree import fields_of
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import EnvSpec
from moozi.envs.true_rules import TrueRules
from moozi.nn.model import Model, NetState, Params
from moozi.ops.history import HistoryState, network_input, push_frame


def make_muzero(
  model: Model,
  planner: PlannerConfig,
  targets: TargetsConfig,
  spec: EnvSpec,
  with_tree: bool = False,
  rules: TrueRules | None = None,
) -> PureAgent:
  """Returns MuZero's agent, or with `rules` AlphaZero's. Its variables are (params, net_state).

  The extras of its decisions are the fields of the SearchOutput that a Decision does not have, without those
  that are None.
  """
  model = averaged(model, planner, targets, spec)

  def decide(
    variables: tuple[Params, NetState],
    history: HistoryState,
    timestep: BatchedTimeStep,
    rng_key: Array,
    temperature: Temperature,
    position: Any,
  ) -> Decision:
    is_terminal = timestep.is_last & ~timestep.is_truncated
    node = None if rules is None else RulesNode(position=position, history=history, is_over=is_terminal)
    output = plan(
      model,
      planner,
      targets.discount,
      spec.num_players,
      *variables,
      rng_key,
      network_input(history.frames, history.actions, spec),
      jnp.asarray(timestep.legal_actions_mask),
      temperature,
      with_tree=with_tree,
      rules=rules,
      node=node,
    )
    fields = {name: value for name, value in fields_of(output).items() if value is not None}
    return Decision(
      **{name: fields.pop(name) for name in ("action", "action_probs", "root_value")}, extras=fields
    )

  return make_agent(decide, spec, targets.history_length, plans_with_rules=rules is not None)


def input_of(carry: HistoryState, timestep: BatchedTimeStep, spec: EnvSpec) -> Float[Array, "B H W Ch"]:
  """Returns the network's input on the current frames, given a carry of `make_muzero`'s agent."""
  history = push_frame(carry, jnp.asarray(timestep.frame), jnp.asarray(timestep.is_first))
  return network_input(history.frames, history.actions, spec)
