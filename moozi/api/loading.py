"""Loads the agent of a run."""

import os

from moozi.api.agent import Agent
from moozi.api.run_access import check_number, check_seed, open_run
from moozi.core.config import Config
from moozi.io.checkpoints import expected_of, find_checkpoint
from moozi.io.run_directory import RunDirectory


def load(
  run: str | os.PathLike[str],
  checkpoint: str | os.PathLike[str] | int | None = None,
  *,
  simulations: int | None = None,
  allow_code: bool = False,
  seed: int | None = None,
) -> Agent:
  """Loads a run's agent.

  Args:
    run: a `moozi.Run`, its path, or an agent of the zoo such as `"zoo:minatar/breakout"`.
    checkpoint: a name, a path, an environment step (takes the nearest), "best", or "last". None takes the
      last one.
    simulations: number of simulations per search; None uses that of `planners.test`.
    allow_code: whether the run, and the runs that play against it, may import the Python modules that they
      name.
    seed: seeds the search and the choice of actions; None uses `evaluation.seed`. If `evaluation.noise_free`
      is true, the built-in algorithms use the seed only for ties in the searches puct and stochastic.

  Raises: UserError: the run or the checkpoint does not exist, the checkpoint is damaged or belongs to another
    network or environment, the run names Python modules without `allow_code`, or a number is out of range.
  """
  directory, config = open_run(run, allow_code)
  agent = agent_of(directory, config, checkpoint, simulations=simulations, seed=seed, allow_code=allow_code)
  assert agent.state is not None  # read now, so that a damaged checkpoint is reported here
  return agent


def agent_of(
  directory: RunDirectory,
  config: Config,
  checkpoint: str | os.PathLike[str] | int | None,
  *,
  simulations: int | None = None,
  seed: int | None = None,
  allow_code: bool = False,
) -> Agent:
  """Returns the agent of an open run. Its parameters are read on first use.

  `directory` and `config` are those of `open_run`. The other arguments and the errors are those of `load`.
  """
  from moozi.io.checkpoints import read_checkpoint_info
  from moozi.run.build import env_spec
  from moozi.training.checks import check_history

  check_number("simulations", simulations)
  check_seed(seed)
  if isinstance(checkpoint, int):
    check_number("checkpoint", checkpoint, 0, 10**18)
  spec = env_spec(config)
  check_history(config, spec)
  found = find_checkpoint(directory.checkpoints_path, None if checkpoint is None else str(checkpoint))
  info = read_checkpoint_info(found.path, expected_of(config, spec))
  return Agent(directory, config, spec, info, simulations=simulations, seed=seed, allow_code=allow_code)
