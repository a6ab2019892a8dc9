"""A dry run with the user's functions, so that their errors appear before a run."""

import contextlib

import numpy as np

from moozi.agent.agent import Decision
from moozi.core.config import Config
from moozi.core.config.uses import uses
from moozi.core.errors import UserError, one_line
from moozi.core.plugins import SEARCHES
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.envs import registry
from moozi.envs.environment import stack_positions
from moozi.envs.vector import blank_step
from moozi.io import jax_process
from moozi.ops.actions import group_sums

_NUM_ROOTS = 3


def dry_run(config: Config, spec: EnvSpec) -> None:
  """Loads every plug-in that the configuration names; tries algorithms, networks, searches and loss terms.

  An algorithm and a search act with new parameters. An update with an algorithm, a network or a loss term is
  traced. Does not try the other kinds: `registry.env_spec` plays a trial episode in a user's environment or
  wrapper, `check_opponent` tries the players of evaluations, and a run creates its callbacks at its start.

  Raises: UserError: a plug-in cannot be found, fails, or returns a value of the wrong form.
  """
  used = uses(config)
  for use in used:
    use.get()
  kinds = {use.registry.kind for use in used}
  if "algorithm" not in kinds and not (config.searches and kinds & {"network", "search", "loss"}):
    return
  with jax_process.on_cpu():
    if "algorithm" in kinds:
      _try_algorithm(config, spec)
      return
    if kinds & {"network", "loss"}:
      _update(config, spec)
    for use in used:
      if use.registry is SEARCHES:
        try:
          with use.get().errors("the search failed"):
            _act(config, spec, use.key)
        except UserError as error:  # the search does not know which planner has it
          raise UserError(str(error).replace(SEARCHES.key, use.key)) from error


def _try_algorithm(config: Config, spec: EnvSpec) -> None:
  """Acts with a new state of a user's algorithm, at temperatures 1 and 0; traces an update.

  Raises: UserError: the algorithm chooses an illegal action, its policy is no distribution, or its value is
    not finite.
  """
  import jax

  from moozi.baselines import custom

  algorithm = custom.make_algorithm(config, spec)
  agent, step = custom.build_agent(config, spec), _roots(spec)

  def act(rng_key: jax.Array, step: BatchedTimeStep, temperature: float) -> Decision:
    variables = custom.initial_training_state(config, spec).variables
    return agent.act(variables, agent.init(_NUM_ROOTS), step, rng_key, temperature)[1]

  compiled = jax.jit(act)
  for temperature in (1.0, 0.0):
    decision = jax.device_get(compiled(jax.random.PRNGKey(0), step, temperature))
    where = f"{algorithm.plugin.where}: decide at temperature {temperature:g}"
    # Not of the third frame: only a terminal frame has no legal action, and there decisions are not used.
    for row, mask in enumerate(step.legal_actions_mask[:2]):
      choice = decision.action[row], decision.action_probs[row]
      _check_choice(where, spec, *choice, mask, f"action_probs of frame {row}", "legal_actions_mask true")
      if not np.isfinite(decision.root_value[row]):
        raise UserError(
          f"{where}: its root_value of frame {row} is {decision.root_value[row]}; must be finite"
        )
  state = jax.eval_shape(lambda: custom.initial_training_state(config, spec))
  jax.eval_shape(custom.make_update(algorithm), state, custom.rollout_shapes(config, spec))


def _update(config: Config, spec: EnvSpec) -> None:
  """Traces an update of new parameters."""
  import jax

  from moozi.agent.update import make_update
  from moozi.learning.learner import zero_targets
  from moozi.run.build import build_model, initial_training_state

  update = make_update(build_model(config, spec), config, spec)
  targets = zero_targets(config, spec, (2 * config.learner.accumulate,))
  jax.eval_shape(lambda batch: update(initial_training_state(config, spec), batch), targets)


def _act(config: Config, spec: EnvSpec, key: str) -> None:
  """Acts with the search of the planner that `key` names, from the roots of `_roots`.

  Raises: UserError: the search chooses an illegal action, or its weights are not probabilities.
  """
  import jax

  from moozi.agent.muzero import make_muzero
  from moozi.run.build import build_model, build_rules, initial_training_state

  section = getattr(config.planners, key.split(".")[1])
  where = f"{key}={section.algorithm}"
  planner = section.model_copy(update={"random_action_prob": 0.0})
  agent = make_muzero(build_model(config, spec), planner, config.targets, spec, rules=build_rules(config))
  step = _roots(spec)
  position = _positions(config, _NUM_ROOTS) if config.plans_with_rules else None

  def act(rng_key: jax.Array, step: BatchedTimeStep) -> tuple[jax.Array, jax.Array]:
    variables = initial_training_state(config, spec).variables
    _, decision = agent.act(variables, agent.init(_NUM_ROOTS), step, rng_key, 1.0, position=position)
    return decision.action, decision.action_probs

  action, weights = (np.asarray(x) for x in jax.jit(act)(jax.random.PRNGKey(0), step))
  for row, mask in enumerate(step.legal_actions_mask):
    _check_choice(
      where, spec, action[row], weights[row], mask, f"action_weights of root {row}", "invalid_actions 0"
    )


def _check_choice(
  where: str, spec: EnvSpec, action: np.ndarray, probs: np.ndarray, mask: np.ndarray, name: str, legal: str
) -> None:
  """Raises UserError unless an action is legal and `probs`, which are called `name`, are of legal actions."""
  if not 0 <= action < spec.num_actions or not (spec.is_factored or mask[action]):
    raise UserError(
      f"{where}: chooses action {action}, which is illegal; must be one of {np.flatnonzero(mask).tolist()}, "
      f"which have {legal}"
    )
  sums = np.array(group_sums(np.where(mask, probs, 0), spec.policy_groups))
  if not (np.isfinite(probs).all() and (probs >= 0).all() and (np.abs(sums - 1) < 1e-3).all()):
    raise UserError(
      f"{where}: its {name} are {one_line(probs.tolist(), 80)}; must be probabilities of the legal actions"
    )


def _roots(spec: EnvSpec) -> BatchedTimeStep:
  """Returns three frames of zeros.

  At the first all actions but the dummy are legal, at the second only the last one (of joint actions without
  entries of their own, again all), at the third the dummy.
  """
  step = blank_step(spec, _NUM_ROOTS)
  last, dummy = (np.arange(spec.policy_size) == a for a in (spec.policy_size - 1, DUMMY_ACTION))
  last = ~dummy if spec.is_factored else last
  step.legal_actions_mask[:] = np.stack([~dummy, last, dummy])
  return step


def _positions(config: Config, num: int) -> object:
  """Returns the first position of the run's environment, `num` times."""
  with contextlib.closing(registry.make(config.env.name, 0, **config.env.arguments)) as env:
    env.reset()
    return stack_positions([env.position()] * num)
