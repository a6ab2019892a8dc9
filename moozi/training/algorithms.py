"""The algorithms by the value of the key `algorithm`: the built-in ones and the user's."""

import dataclasses
from collections.abc import Callable, Generator
from typing import Any

from moozi.core.config import Config
from moozi.core.spec import EnvSpec
from moozi.evaluation.evaluator import Evaluator
from moozi.io import jax_process
from moozi.run.events import Event
from moozi.run.session import RunInputs


@dataclasses.dataclass(frozen=True)
class Algorithm:
  """The parts of an algorithm that the commands and training use."""

  # Trains, and yields events; the last is Finished.
  run: Callable[[RunInputs], Generator[Event, None, None]]
  # Returns the training state with which a new run begins.
  initial_training_state: Callable[[Config, EnvSpec], Any]
  # Builds the evaluator; the last argument overrides the number of simulations of `planners.test`.
  build_evaluator: Callable[[Config, EnvSpec, int | None], Evaluator]
  # Raises UserError if the algorithm cannot play the environment. `training.checks` calls it.
  check: Callable[[Config, EnvSpec], None] = lambda config, spec: None

  def training_state_template(self, config: Config, spec: EnvSpec) -> Any:
    """Returns the shapes and dtypes of the training state; loading a checkpoint needs them."""
    import jax

    return jax.eval_shape(lambda: self.initial_training_state(config, spec))


# Each function imports its modules when it is called, so that unused networks and Ray are not loaded.
def _muzero() -> Algorithm:
  from moozi.run import build

  def run(inputs: RunInputs) -> Generator[Event, None, None]:
    if inputs.config.runtime == "local":
      from moozi.run import local

      return local.run(inputs)
    from moozi.actors import driver

    return driver.run(inputs)

  return Algorithm(run, build.initial_training_state, build.build_evaluator)


def _ppo() -> Algorithm:
  from moozi.baselines.ppo import algorithm as ppo

  def run(inputs: RunInputs) -> Generator[Event, None, None]:
    if inputs.config.runtime == "local":
      return ppo.run(inputs)
    from moozi.actors import driver

    return driver.run(inputs, ppo.PARTS)

  return Algorithm(run, ppo.initial_training_state, ppo.build_evaluator, ppo.check_env)


def _q_learning() -> Algorithm:
  from moozi.baselines.q_learning import algorithm as q

  return Algorithm(q.run, q.initial_training_state, q.build_evaluator, q.check_env)


ALGORITHMS: dict[str, Callable[[], Algorithm]] = {
  "muzero": _muzero,
  "alphazero": _muzero,  # `run.build` reads the key `algorithm` where the two algorithms differ
  "ppo": _ppo,
  "q_learning": _q_learning,
}


def _own() -> Algorithm:
  from moozi.baselines import custom

  return Algorithm(custom.run, custom.initial_training_state, custom.build_evaluator, custom.check_players)


def find_algorithm(config: Config) -> Algorithm:
  """Returns the algorithm that `config.algorithm` names; a user's own is not loaded yet."""
  return ALGORITHMS.get(config.algorithm, _own)()


def algorithm_of(config: Config) -> Algorithm:
  """Returns the algorithm that `config.algorithm` names, and sets up this process for JAX.

  Raises: UserError: JAX cannot start.
  """
  jax_process.set_up()
  jax_process.check()
  return find_algorithm(config)


def complete_state(config: Config, spec: EnvSpec, training: Any) -> Any:
  """Completes a state that has only `params` and `net_state`: the other fields are those of a new state.

  If the algorithm has target parameters, they are `params`.
  """
  import jax

  fresh = jax.device_get(algorithm_of(config).initial_training_state(config, spec))
  known = {"params": training.params, "net_state": training.net_state}
  if getattr(fresh, "target_params", None) is not None:
    known["target_params"] = training.params
  return dataclasses.replace(fresh, **known)
