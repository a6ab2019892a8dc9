"""A dry run with the user's functions: acts once and updates once, so that errors appear before a run."""

import contextlib

import numpy as np

from moozi.core.config import Config
from moozi.core.config.uses import uses
from moozi.core.errors import UserError, one_line
from moozi.core.plugins import SEARCHES
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.envs import registry
from moozi.envs.environment import stack_positions
from moozi.envs.vector import blank_step


def dry_run(config: Config, spec: EnvSpec) -> None:
  """Loads every plug-in of the configuration, and acts and updates once if one is a network, search or loss.

  Both are traced. Acting also runs if its search is a plug-in, with new parameters. Does not try the other
  kinds: the check of the environment's spec plays an episode with environment and wrappers, `check_opponent`
  plays against the opponent, and a run creates its callbacks at its start.

  Raises: UserError: a plug-in cannot be found, fails, or returns a value of the wrong form.
  """
  used = uses(config)
  for use in used:
    use.get()
  kinds = {use.registry.kind for use in used}
  if not config.searches or not kinds & {"network", "search", "loss"}:
    return
  import jax

  # On the CPU if JAX has one, because the driver must not allocate GPU memory.
  cpu = None
  with contextlib.suppress(RuntimeError):
    cpu = jax.local_devices(backend="cpu")[0]
  with jax.default_device(cpu):
    if kinds & {"network", "loss"}:
      _update(config, spec)
    for use in used:
      if use.registry is SEARCHES:
        try:
          with use.get().errors("the search failed"):
            _act(config, spec, use.key)
        except UserError as error:  # the search does not know which planner has it
          raise UserError(str(error).replace(SEARCHES.key, use.key)) from error


def _update(config: Config, spec: EnvSpec) -> None:
  """Traces an update of new parameters."""
  import jax

  from moozi.agent.update import make_update
  from moozi.learning.learner import zero_targets
  from moozi.run.build import build_model, initial_training_state

  update = make_update(build_model(config, spec), config, spec)
  targets = zero_targets(config, spec, (2,))
  jax.eval_shape(lambda batch: update(initial_training_state(config, spec), batch), targets)


def _act(config: Config, spec: EnvSpec, key: str) -> None:
  """Acts with the search of the planner that `key` names, from three roots.

  At the first root all actions but the dummy are legal, at the second only the last action, and at the third
  only the dummy.

  Raises: UserError: the search chooses an illegal action, or its weights are not probabilities.
  """
  import jax

  from moozi.agent.muzero import make_muzero
  from moozi.run.build import build_model, build_rules, initial_training_state

  section = getattr(config.planners, key.split(".")[1])
  where = f"{key}={section.algorithm}"
  planner = section.model_copy(update={"random_action_prob": 0.0})
  agent = make_muzero(build_model(config, spec), planner, config.targets, spec, rules=build_rules(config))
  step = blank_step(spec, 3)
  last, dummy = (np.arange(spec.num_actions) == a for a in (spec.num_actions - 1, DUMMY_ACTION))
  step.legal_actions_mask[:] = np.stack([~dummy, last, dummy])
  position = _positions(config, 3) if config.plans_with_rules else None

  def act(rng_key: jax.Array, step: BatchedTimeStep) -> tuple[jax.Array, jax.Array]:
    variables = initial_training_state(config, spec).variables
    _, decision = agent.act(variables, agent.init(3), step, rng_key, 1.0, position=position)
    return decision.action, decision.action_probs

  action, weights = (np.asarray(x) for x in jax.jit(act)(jax.random.PRNGKey(0), step))
  for row, (a, w, mask) in enumerate(zip(action, weights, step.legal_actions_mask, strict=True)):
    if not 0 <= a < spec.num_actions or not mask[a]:
      raise UserError(
        f"{where}: chooses action {a}, which is illegal; must be one of {np.flatnonzero(mask).tolist()}, "
        "which have invalid_actions 0"
      )
    if not (np.isfinite(w).all() and (w >= 0).all() and abs(w[mask].sum() - 1) < 1e-3):
      raise UserError(
        f"{where}: its action_weights of root {row} are {one_line(w.tolist(), 80)}; must be probabilities of "
        "the legal actions"
      )


def _positions(config: Config, num: int) -> object:
  """Returns the first position of the run's environment, `num` times."""
  with contextlib.closing(registry.make(config.env.name, 0, **config.env.arguments)) as env:
    env.reset()
    return stack_positions([env.position()] * num)
