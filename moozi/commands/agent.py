"""The agent of a run, loaded from one of its checkpoints: for every command that has it play or search."""

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moozi.commands.common import open_run, stdout_on_stderr

if TYPE_CHECKING:
  from moozi.core.config import Config
  from moozi.core.spec import EnvSpec
  from moozi.io.checkpoints import CheckpointInfo
  from moozi.io.run_directory import RunDirectory


@dataclasses.dataclass(frozen=True)
class Agent:
  """A run's configuration and environment, and one of its checkpoints."""

  directory: "RunDirectory"
  config: "Config"
  spec: "EnvSpec"
  checkpoint: "CheckpointInfo"

  @functools.cached_property
  def state(self) -> Any:
    """The training state in the checkpoint. Raises UserError: it cannot be read, or is of another network."""
    from moozi.io.checkpoints import expected_of, load_checkpoint
    from moozi.training.algorithms import algorithm_of

    template = algorithm_of(self.config).training_state_template(self.config, self.spec)
    return load_checkpoint(self.checkpoint.path, template, expected_of(self.config, self.spec))

  def evaluator(self, simulations: int | None = None) -> Any:
    """What plays test episodes; `simulations` stands in for the testing planner's own."""
    from moozi.training.algorithms import algorithm_of

    return algorithm_of(self.config).build_evaluator(self.config, self.spec, simulations)


def load_agent(run: Path, checkpoint: str | None, allow_code: bool) -> Agent:
  """The agent of the run in a folder.

  Args:
    run: the run's folder.
    checkpoint: as `agent_of` takes it.
    allow_code: whether the run's own environment may be imported.

  Raises: UserError: no run, no such checkpoint, or one of another network or environment.
  """
  directory, config = open_run(run, allow_code)
  with stdout_on_stderr():
    agent = agent_of(directory, config, checkpoint)
    assert agent.state is not None, "read before anything takes the screen"
  return agent


def agent_of(directory: "RunDirectory", config: "Config", checkpoint: str | None) -> Agent:
  """The agent of a run.

  Args:
    directory: the run.
    config: its configuration.
    checkpoint: a name, a path, an environment step (the nearest one), best, or last; None is the last.

  Raises: UserError: no such checkpoint, or one of another network or environment.
  """
  from moozi.envs.registry import env_spec
  from moozi.evaluation.opponents import check_players
  from moozi.io.checkpoints import expected_of, find_checkpoint, read_checkpoint_info

  spec = env_spec(config.env.name, **config.env.kwargs)
  check_players(config, spec)
  found = find_checkpoint(directory.checkpoints_path, checkpoint)
  return Agent(directory, config, spec, read_checkpoint_info(found.path, expected_of(config, spec)))
