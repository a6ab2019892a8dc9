"""What commands that look at an episode share: where they write, and an evaluation episode played again."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from moozi.commands.agent import Agent
from moozi.core.errors import UserError

if TYPE_CHECKING:
  from moozi.core.config import Config
  from moozi.core.search_record import InspectedEpisode
  from moozi.io.run_directory import RunDirectory


def check_searches(run: Path, config: "Config", command: str) -> None:
  """Raises UserError where the run's agent does not search."""
  if config.algorithm != "muzero":
    raise UserError(
      f"{run}: algorithm={config.algorithm} does not search; `moozi {command}` needs a run made with "
      "algorithm=muzero"
    )


def number_of(option: str, text: str) -> int:
  """A whole number from 0 on."""
  if not (text.isascii() and text.isdigit() and len(text) < 10):
    raise UserError(f"{option}={text}: must be a whole number from 0 on")
  return int(text)


def place_in_run(run: "RunDirectory", *names: str) -> Path:
  """A place in the run's folder, by the names that lead to it.

  Raises: UserError: one of them is a link; a run may come from anywhere, and a link in it leads anywhere.
  """
  path = run.path
  for name in names:
    path /= name
    if path.is_symlink():
      raise UserError(f"{path}: is a link, which is not followed for writing; --out names another place")
  return path


def play_episode(
  agent: Agent, *, index: int, max_steps: int | None, num_simulations: int | None
) -> "InspectedEpisode":
  """Plays one of the evaluation's episodes, and keeps what was thought.

  Args:
    agent: of the run.
    index: which episode.
    max_steps: leave it after so many steps; None plays it to its end.
    num_simulations: of each search; None leaves it to the testing planner.

  Raises: UserError: the checkpoint cannot be read, or the environment fails.
  """
  from moozi.analysis.inspection import inspect_episode

  is_shown = sys.stderr.isatty()

  def show(step: int) -> None:
    if is_shown:
      print(f"\r{step} steps of episode {index}", end="", file=sys.stderr, flush=True)

  episode = inspect_episode(
    agent.config,
    agent.spec,
    agent.state.params,
    agent.state.net_state,
    index=index,
    max_steps=max_steps,
    num_simulations=num_simulations,
    on_step=show,
  )
  if is_shown:
    print(file=sys.stderr)
  return episode
