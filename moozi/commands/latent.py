"""`moozi latent`."""

import contextlib
import itertools
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from moozi.commands.agent import Agent, agent_of
from moozi.commands.common import AllowCode, Checkpoint, Run, count_of, open_run, stdout_on_stderr
from moozi.commands.episode import place_in_run
from moozi.core.errors import UserError

if TYPE_CHECKING:
  from moozi.analysis.latent_paths import LatentPaths

_MAX_STEPS = 1000
_MAX_STARTS = 25
# With a residual network's thousands of numbers a state, the projector's file would have a hundred megabytes.
_MOST_NUMBERS = 256
_POINT_SIZE = 48


def latent(
  run: Run,
  checkpoint: Checkpoint = None,
  episode: Annotated[
    str, typer.Option(metavar="I", help="Which of the evaluation episodes, from 0 on.")
  ] = "0",
  steps: Annotated[
    str | None,
    typer.Option(metavar="N", help=f"Only so many of its first steps; {_MAX_STEPS:,} if not given."),
  ] = None,
  unroll: Annotated[
    str | None,
    typer.Option(metavar="K", help="Steps of the model's unrolls; twice the trained ones if not given."),
  ] = None,
  out: Annotated[
    Path | None, typer.Option(metavar="DIR", help="Where to; if not given RUN/latent/CHECKPOINT_episode_I…")
  ] = None,
  allow_code: AllowCode = False,
) -> int:
  """Draw an episode's path through the network's hidden space, and the model's own beside it."""
  if not (episode.isascii() and episode.isdigit() and len(episode) <= 5):
    raise UserError(f"--episode={episode}: must be a whole number from 0 to 99999")
  index, unroll_steps = int(episode), count_of("--unroll", unroll)
  num_steps = count_of("--steps", steps)
  for option, given in (("--unroll", unroll_steps), ("--steps", num_steps)):
    if given is not None and given > _MAX_STEPS:
      raise UserError(f"{option}={given}: must be at most {_MAX_STEPS}")
  if num_steps == 1:
    raise UserError("--steps=1: must be at least 2, or there is nothing to unroll to")
  from moozi.training.algorithms import algorithm_of

  directory, config = open_run(run, allow_code)
  if not algorithm_of(config).has_model:
    raise UserError(
      f"{run}: its algorithm is {config.algorithm}, which has no model to unroll; `moozi watch` shows it play"
    )
  with stdout_on_stderr():
    agent = agent_of(directory, config, checkpoint)
    folder = out or _place(agent, index, num_steps)
    # An episode without end would never be drawn.
    paths = _paths(agent, index, num_steps or _MAX_STEPS, unroll_steps or 2 * config.targets.unroll_steps)
  name = f"evaluation episode {index}"
  if not paths.steps[-1].is_last:
    name += f", its first {len(paths.steps):,} steps"
  try:
    num_written, share = _write(agent, paths, name, folder)
  except OSError as error:
    raise UserError(f"--out={folder}: cannot be written: {error.strerror or error}") from None
  drift, num_numbers = paths.drift()[:, 1], paths.encoded.shape[1]
  print(f"of:                  {name}")
  print(f"picture:             {folder / 'latent.png'}")
  print(f"drift after a step:  {np.nanmean(drift):.3f} spreads, over {len(paths.starts)} unrolls")
  if num_written < num_numbers:
    print(
      f"for the projector:   {num_written} principal components of {num_numbers:,} numbers a state, "
      f"{share:.0%} of the variance"
    )
  print(
    f"embedding projector: {Path(sys.executable).with_name('tensorboard')} --logdir {folder / 'projector'}"
  )
  return 0


def _place(agent: Agent, episode: int, num_steps: int | None) -> Path:
  """The default folder. Raises UserError: a link is on the way to something that will be written."""
  cut = "" if num_steps is None else f"_first_{num_steps}"
  names = ("latent", f"{agent.checkpoint.name}_episode_{episode}{cut}")
  place_in_run(agent.directory, *names, "projector")
  return place_in_run(agent.directory, *names)


def _paths(agent: Agent, episode: int, num_steps: int, unroll_steps: int) -> "LatentPaths":
  from moozi.analysis.latent_paths import latent_paths
  from moozi.run.build import build_model

  state, config = agent.state, agent.config
  with contextlib.closing(agent.evaluator().play(state.params, state.net_state, episode)) as steps:
    return latent_paths(
      build_model(config, agent.spec),
      state.params,
      state.net_state,
      itertools.islice(steps, num_steps),
      agent.spec,
      config.targets.history_length,
      unroll_steps,
      _MAX_STARTS,
    )


def _write(agent: Agent, paths: "LatentPaths", name: str, folder: Path) -> tuple[int, float]:
  """Writes the picture and the projector's files; returns how many numbers of a state these have, and their
  share of the variance."""
  from moozi.vis.latent_space import latent_picture, reduced_states, write_latent_picture
  from moozi.vis.projector import write_projector

  title = f"{agent.spec.name}, {agent.checkpoint.name}, {name}"
  if agent.config.learner.consistency_coef == 0:
    title += "; consistency_coef=0: nothing trains unrolled states to meet encoded ones"
  picture = latent_picture(
    paths.encoded,
    paths.starts,
    paths.unrolled,
    paths.drift(),
    paths.rest(),
    title,
    agent.config.targets.unroll_steps,
  )
  write_latent_picture(folder / "latent.png", picture)
  vectors, metadata, pictures = _points(agent, paths)
  vectors, share = reduced_states(vectors, _MOST_NUMBERS)
  write_projector(folder / "projector", vectors, metadata, pictures)
  return vectors.shape[1], share


def _points(agent: Agent, paths: "LatentPaths") -> tuple[np.ndarray, dict[str, list[Any]], list[np.ndarray]]:
  """The encoded states and then the unrolled ones, with what is to be known of each."""
  from moozi.vis.pictures import draw_frame
  from moozi.vis.render_spec import action_name

  spec = agent.spec
  drawn = [draw_frame(s.frame, spec, _POINT_SIZE, s.to_play, s.picture) for s in paths.steps]
  points = [(t, "encoded", t, 0) for t in range(len(paths.steps))]
  vectors = [paths.encoded]
  for start, path in zip(paths.starts.tolist(), paths.unrolled, strict=True):
    num_known = int((~np.isnan(path[:, 0])).sum())
    points += [(start + k, "unrolled", start, k) for k in range(1, num_known)]
    vectors.append(path[1:num_known])
  steps = [paths.steps[t] for t, *_ in points]
  metadata: dict[str, list[Any]] = {
    "label": [f"{kind} {t}" + (f" from {start}" if k else "") for t, kind, start, k in points],
    "kind": [kind for _, kind, _, _ in points],
    "step": [t for t, *_ in points],
    "start": [start for *_, start, _ in points],
    "k": [k for *_, k in points],
    "action": [action_name(spec, s.action) for s in steps],
    "reward": [f"{s.reward:g}" for s in steps],
    # Nothing, where nothing was searched: one word would keep the projector from coloring by the others.
    "value": ["" if math.isnan(s.root_value) else f"{s.root_value:.4g}" for s in steps],
    "to_play": [s.to_play for s in steps],
  }
  return np.concatenate(vectors), metadata, [drawn[t] for t, *_ in points]
