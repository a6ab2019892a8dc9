"""Names of actions, as pictures, pages and the terminal show them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from moozi.core.factors import Factors
from moozi.core.search_record import SearchTree
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.vis.render_spec import render_spec_of


def is_dummy(action: Any) -> bool:
  """Returns whether a shown action is the dummy: 0, or a row of NaN in the place of a continuous action."""
  return bool(np.isnan(action).any()) if np.ndim(action) else bool(action == DUMMY_ACTION)


def action_name(spec: EnvSpec, action: Any) -> str:
  """Returns the name of a shown action; that of the dummy is "end"."""
  if is_dummy(action):
    return "end"
  if spec.is_factored:
    assert spec.factors is not None
    return spec.factors.name(spec.to_env(action))
  names = _own_action_names(spec)
  return names[action - 1] if action <= len(names) else f"action {action - 1}"


def names_of(spec: EnvSpec, actions: Iterable[int]) -> list[str]:
  """Returns the `action_name` of each of these actions."""
  if spec.is_factored:
    return [action_name(spec, action) for action in actions]
  names = action_names(spec)
  return [names[action] for action in actions]


def action_label(spec: EnvSpec, action: int) -> str:
  """Returns a short name of an action: of a joint action, only the values, such as `+0.67 0`.

  The label of every other action is its name. `dimensions_text` names a joint action's dimensions in order.
  """
  if not isinstance(spec.factors, Factors) or action == DUMMY_ACTION:
    return action_name(spec, action)
  return " ".join(spec.factors.texts(action - 1))


def dimensions_text(spec: EnvSpec) -> str:
  """Returns the names of the dimensions whose values an `action_label` has; "" if the label is a name."""
  return ", ".join(spec.factors.names) if isinstance(spec.factors, Factors) else ""


def edge_labels(spec: EnvSpec, tree: SearchTree) -> Sequence[str] | Mapping[int, str]:
  """Returns the labels of the actions in a tree, by action in the agent's action space."""
  if not isinstance(spec.factors, Factors):
    return action_names(spec)
  return {action: action_label(spec, action) for action in np.unique(tree.action[1:]).tolist()}


def action_names(spec: EnvSpec) -> tuple[str, ...]:
  """Returns the names of all actions in the agent's action space, the dummy first.

  Do not call this function if `EnvSpec.is_factored`: there may be millions of joint actions.
  """
  names = _own_action_names(spec)
  numbers = range(len(names), spec.num_env_actions)
  return ("end", *names[: spec.num_env_actions], *(f"action {i}" for i in numbers))


def _own_action_names(spec: EnvSpec) -> tuple[str, ...]:
  """Returns the known names of the environment's actions, which may be fewer than its actions."""
  names = render_spec_of(spec).action_names
  if len(names) == spec.num_env_actions:
    return names
  if not spec.action_names and isinstance(spec.factors, Factors):
    return tuple(map(spec.factors.name, range(spec.num_env_actions)))
  return spec.action_names
