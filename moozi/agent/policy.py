"""The policy to compile: history stacking, root inference, search and action selection as one function.

Source: thesis 4.3.4, 4.3.5 and Algorithm 2. Departure: stacking is inside the jitted function.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Num

from moozi.agent.planner import RulesNode, SearchOutput, plan
from moozi.agent.symmetry import averaged
from moozi.core.config import PlannerConfig, TargetsConfig
from moozi.core.pytree import replace
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.core.types import AnyArray
from moozi.envs.true_rules import TrueRules
from moozi.nn.model import Model, NetState, Params
from moozi.ops.history import HistoryState, normalize_frame, push_action, push_frame, stack_history

Policy = Callable[..., tuple[HistoryState, SearchOutput]]


def observe(
  history: HistoryState, timestep: BatchedTimeStep, spec: EnvSpec
) -> tuple[HistoryState, Float[Array, "B H W Ch"]]:
  """Pushes the current frames of B environments to a history that already contains the last actions.

  Returns: the new history, and the network's input, which has Ch = L·(C + A) channels.
  """
  history = push_frame(history, jnp.asarray(timestep.frame), jnp.asarray(timestep.is_first))
  frames = normalize_frame(history.frames, spec.frame_dtype)
  return history, stack_history(frames, history.actions, spec.num_actions)


def make_policy(
  model: Model,
  planner: PlannerConfig,
  targets: TargetsConfig,
  spec: EnvSpec,
  with_tree: bool = False,
  rules: TrueRules | None = None,
) -> Policy:
  """Returns policy(params, net_state, history, timestep, rng_key, temperature, forced, position) -> (history,
  output).

  Args of the policy:
    history: of B lanes, with the last actions already pushed.
    rng_key: for the search's noise and the choice of the action.
    forced: actions to take instead of the search's (another player's moves, random starts); -1 where the
      policy chooses. They replace the search's actions in the output and in the history. None means all -1.
    position: with `rules`, the positions of the B environments (`VectorEnvironment.positions`).

  The output follows the rules for ends (docs/rules.md, "Ends"). On a terminal frame the action is the dummy,
  action_probs is one-hot(dummy), and root_value is 0. On a truncated frame action_probs and root_value are
  those of the search. The action is the dummy, because the environment discards it.
  """
  model = averaged(model, planner, targets, spec)

  def policy(
    params: Params,
    net_state: NetState,
    history: HistoryState,
    timestep: BatchedTimeStep,
    rng_key: Array,
    temperature: Num[AnyArray, "*lanes"] | float,
    forced: Int[AnyArray, "B"] | None = None,
    position: Any = None,
  ) -> tuple[HistoryState, SearchOutput]:
    history, stacked = observe(history, timestep, spec)
    is_terminal = timestep.is_last & ~timestep.is_truncated
    node = None if rules is None else RulesNode(position=position, history=history, is_over=is_terminal)
    output = plan(
      model,
      planner,
      targets.discount,
      spec.num_players,
      params,
      net_state,
      rng_key,
      stacked,
      jnp.asarray(timestep.legal_actions_mask),
      temperature,
      with_tree=with_tree,
      rules=rules,
      node=node,
    )
    dummy_probs = jax.nn.one_hot(DUMMY_ACTION, spec.num_actions)
    chosen = output.action if forced is None else jnp.where(forced < 0, output.action, forced)
    output = replace(
      output,
      action=jnp.where(timestep.is_last, DUMMY_ACTION, chosen).astype(jnp.int32),
      action_probs=jnp.where(is_terminal[:, None], dummy_probs, output.action_probs),
      root_value=jnp.where(is_terminal, 0.0, output.root_value),
    )
    return push_action(history, output.action), output

  return policy
