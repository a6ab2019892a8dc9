"""Tries the user functions that a configuration names, so that their errors appear before a run starts."""

from moozi.core import plugins
from moozi.core.config import Config
from moozi.core.records import TrainTarget
from moozi.core.spec import EnvSpec


def check_plugins(config: Config, spec: EnvSpec) -> None:
  """Loads every plug-in of the configuration, and tries its network, searches and losses once.

  Imports JAX only if a network, search or loss is a plug-in. Does not try the other kinds: the check of the
  environment's spec tries environments and wrappers, `check_players` tries players, and a run creates its
  callbacks at its start.

  Raises: UserError: a plug-in cannot be found, fails, or returns a value of the wrong form.
  """
  uses = plugins.uses(config)
  for use in uses:
    use.get()
  kinds = {use.registry.kind for use in uses}
  if not config.searches or not kinds & {"network", "search", "loss"}:
    return
  import jax

  from moozi.agent.loss import make_extra_losses, make_loss
  from moozi.agent.planner import check_search
  from moozi.agent.update import init_training_state
  from moozi.learning.learner import zero_targets
  from moozi.run.build import build_model

  model = build_model(config, spec)
  for use in uses:
    if use.registry is plugins.SEARCHES:
      section = getattr(config.planners, use.key.split(".")[1])
      check_search(section, spec.num_actions, use.key)
  if kinds & {"network", "loss"}:
    extra = make_extra_losses(config, model)
    loss = make_loss(model, config.learner, config.targets, spec.frame_dtype, extra, config.chance)

    def trace(key: jax.Array, target: TrainTarget) -> None:
      state = init_training_state(model, config, spec, key)
      loss(state.params, state.target_params, state.net_state, target, 0, key)

    jax.eval_shape(trace, jax.ShapeDtypeStruct((2,), "uint32"), zero_targets(config, spec, (2,)))
