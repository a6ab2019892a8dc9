"""Names of actions, as pictures, pages and the terminal show them."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from moozi.core.search_record import SearchTree
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.vis.render_spec import render_spec_of


def action_name(spec: EnvSpec, action: int) -> str:
  """Returns the name of an action in the agent's action space; the dummy, used only at an end, is "end"."""
  if action == DUMMY_ACTION:
    return "end"
  if spec.is_factored:
    assert spec.factors is not None
    return spec.factors.name(action - 1)
  names = _own_action_names(spec)
  return names[action - 1] if action <= len(names) else f"action {action - 1}"


def names_of(spec: EnvSpec, actions: Iterable[int]) -> list[str]:
  """Returns the `action_name` of each of these actions, in less time for many of them."""
  if spec.is_factored:
    return [action_name(spec, action) for action in actions]
  names = action_names(spec)
  return [names[action] for action in actions]


def action_label(spec: EnvSpec, action: int) -> str:
  """Returns a short name where space is scarce: of a sampled joint action, only the values, `+0.67 0`.

  Every other action has its name. `dimensions_text` names the dimensions in order.
  """
  if not spec.is_factored or action == DUMMY_ACTION:
    return action_name(spec, action)
  assert spec.factors is not None
  return " ".join(spec.factors.texts(action - 1))


def dimensions_text(spec: EnvSpec) -> str:
  """Returns the names of the dimensions whose values an `action_label` has; "" if the label is a name."""
  return ", ".join(spec.factors.names) if spec.is_factored and spec.factors is not None else ""


def edge_labels(spec: EnvSpec, tree: SearchTree) -> Sequence[str] | Mapping[int, str]:
  """Returns the labels of the actions in a tree, by action in the agent's action space."""
  if not spec.is_factored:
    return action_names(spec)
  return {action: action_label(spec, action) for action in np.unique(tree.action[1:]).tolist()}


def action_names(spec: EnvSpec) -> tuple[str, ...]:
  """Returns the names of all actions in the agent's action space, the dummy first.

  Joint actions that have no entries of their own (`EnvSpec.is_factored`) are too many for this.
  """
  names = _own_action_names(spec)
  numbers = range(len(names), spec.num_env_actions)
  return ("end", *names[: spec.num_env_actions], *(f"action {i}" for i in numbers))


def _own_action_names(spec: EnvSpec) -> tuple[str, ...]:
  """Returns the known names of the environment's actions, which may be fewer than its actions."""
  names = render_spec_of(spec).action_names
  if len(names) == spec.num_env_actions:
    return names
  if not spec.action_names and spec.factors is not None:
    return tuple(map(spec.factors.name, range(spec.num_env_actions)))
  return spec.action_names
