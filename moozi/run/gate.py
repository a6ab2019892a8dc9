"""The gate for new parameters: they act only once they score enough against those that act.

Source: Silver et al. 2017 (AlphaGo Zero), the evaluator. Departures: games have the number, simulations,
temperature and noise of the configuration, and parameters whose score equals the threshold act too.
"""

from typing import Any

from moozi.core.config import Config
from moozi.core.flat_state import State, check_state, counter, part, prefixed, tree_of_state, tree_state
from moozi.run.past_selves import finite_variables
from moozi.run.state import RunState

GATE = "gate"
"""Prefix of the gate's entries in `RunState.progress`."""


class Gate:
  """Keeps the parameters that act in training.

  Attributes:
    acting: (variables, version) in NumPy; None before the first parameters of the run.
  """

  def __init__(self, config: Config) -> None:
    score = config.evaluation.gate_score
    assert score is not None, "the run has no gate"
    self._score = score
    self.acting: tuple[Any, int] | None = None

  def begin(self, newest: tuple[Any, int]) -> tuple[Any, int]:
    """Returns the parameters that act; the first ones are `newest`."""
    if self.acting is None:
      self.acting = newest
    return self.acting

  def admits(self, score: float | None) -> bool:
    """Returns whether parameters with this score act from now on; None is no score."""
    return score is not None and score >= self._score

  def get_state(self) -> State:
    if self.acting is None:
      return {}
    variables, version = self.acting
    return {"version": version} | prefixed("variables", tree_state(variables))

  def set_state(self, state: State, template: Any) -> None:
    """Restores a state; an empty one is that of a run without a gate.

    Args:
      template: the variables of the same network.
    """
    if state:
      self.acting = tree_of_state(template, part(state, "variables")), int(state["version"])


def make_gate(config: Config, state: RunState | None) -> Gate | None:
  """Returns the gate of a run that starts with a state, if any; None without `evaluation.gate_score`."""
  if config.evaluation.gate_score is None:
    return None
  gate = Gate(config)
  if state is not None:
    gate.set_state(part(state.progress, GATE), state.training.variables)
  return gate


def check_gate(state: State, template: Any) -> None:
  """Checks a state that `Gate.get_state` may have returned; `template` is as in `Gate.set_state`.

  Raises: ValueError: an entry is missing, not expected or invalid; the message names it.
  """
  entries = {"version": counter()} | prefixed("variables", finite_variables(template))
  check_state(state, entries, f"{GATE}/")
