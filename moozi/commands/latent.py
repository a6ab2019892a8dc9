"""The command `moozi latent`."""

import contextlib
import itertools
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from moozi.commands import common
from moozi.core.text import shell_command
from moozi.io.output import say

if TYPE_CHECKING:
  from moozi.analysis.latent_paths import LatentPaths
  from moozi.api.agent import Agent

_MAX_STEPS = 1000
_MAX_STARTS = 25
# A residual network's state has thousands of numbers; a projector file with whole states takes a hundred MB.
_MAX_STATE_SIZE = 256
_POINT_SIZE = 48


def latent(
  run: common.Run,
  checkpoint: common.Checkpoint = None,
  episode: common.Episode = 0,
  steps: Annotated[
    int | None,
    # At least two steps, because an unroll needs a next step.
    common.integer(f"Use the first N steps. Default: {_MAX_STEPS:,}.", minimum=2, maximum=_MAX_STEPS),
  ] = None,
  unroll: Annotated[
    int | None,
    common.integer("Unroll steps. Default: twice targets.unroll_steps.", maximum=_MAX_STEPS, metavar="K"),
  ] = None,
  out: Annotated[Path | None, common.output("latent/CHECKPOINT_episode_I")] = None,
  allow_code: common.AllowCode = False,
) -> int:
  """Draw an episode's hidden states and the model's unrolls, and export them to TensorBoard's projector."""
  from moozi.api.loading import agent_of
  from moozi.api.run_access import check_has_model, open_run, place_in_run, writing
  from moozi.vis.latent_space import reduced_states, write_latent_picture, write_projector

  directory, config = open_run(run, allow_code)
  check_has_model(run, config, "`moozi latent`")
  with common.stdout_to_stderr():
    agent = agent_of(directory, config, checkpoint, allow_code=allow_code)
    folder = out
    if folder is None:
      suffix = "" if steps is None else f"_first_{steps}"
      name = f"{agent.checkpoint.name}_episode_{episode}{suffix}"
      folder = place_in_run(directory, "latent", name, "projector").parent
    # The number of steps is limited, because an episode may never end.
    paths = _paths(agent, episode, steps or _MAX_STEPS, unroll or 2 * config.targets.unroll_steps)
  name = f"evaluation episode {episode}"
  if not paths.steps[-1].is_last:
    name += f", first {len(paths.steps):,} steps"
  title = f"{agent.spec.name}, {agent.checkpoint.name}, {name}"
  if config.learner.consistency_coef == 0:
    title += "; learner.consistency_coef=0 does not train unrolled states to match encoded ones"
  vectors, metadata, pictures = _points(agent, paths)
  vectors, share = reduced_states(vectors, _MAX_STATE_SIZE)
  states, drifts = (paths.encoded, paths.starts, paths.unrolled), (paths.drift(), paths.still_drift())
  with writing("--out", folder):
    write_latent_picture(folder / "latent.png", *states, *drifts, title, config.targets.unroll_steps)
    write_projector(folder / "projector", vectors, metadata, pictures)
  drift, state_size = np.nanmean(drifts[0][:, 1]), paths.encoded.shape[1]
  say(f"episode:            {name}")
  say(f"picture:            {folder / 'latent.png'}")
  say(f"drift after 1 step: {drift:.3f} times the states' RMS distance from their mean")
  say(f"unrolls:            {len(paths.starts)}")
  if vectors.shape[1] < state_size:
    say(
      f"projector data:     {vectors.shape[1]} principal components of {state_size:,} numbers per state, "
      f"{share:.0%} of the variance"
    )
  program = Path(sys.executable).with_name("tensorboard")
  say(f"projector:          {shell_command(program, '--logdir', folder / 'projector')}")
  return 0


def _paths(agent: "Agent", episode: int, num_steps: int, unroll_steps: int) -> "LatentPaths":
  from moozi.analysis.latent_paths import latent_paths
  from moozi.run.build import build_model

  state, config = agent.state, agent.config
  with contextlib.closing(agent.evaluator().play(state.variables, episode)) as steps:
    return latent_paths(
      build_model(config, agent.spec),
      state.variables,
      itertools.islice(steps, num_steps),
      agent.spec,
      config.targets.history_length,
      unroll_steps,
      _MAX_STARTS,
    )


def _points(
  agent: "Agent", paths: "LatentPaths"
) -> tuple[np.ndarray, dict[str, list[Any]], list[np.ndarray]]:
  """Returns vectors, metadata and pictures, first of the encoded states and then of the unrolled states."""
  from moozi.vis.action_names import action_name
  from moozi.vis.frames import draw_frame
  from moozi.vis.lettering import rounded

  spec = agent.spec
  drawn = [draw_frame(s.frame, spec, _POINT_SIZE, s.to_play, s.picture) for s in paths.steps]
  points = [(t, "encoded", t, 0) for t in range(len(paths.steps))]
  vectors = [paths.encoded]
  for start, path in zip(paths.starts.tolist(), paths.unrolled, strict=True):
    length = int((~np.isnan(path[:, 0])).sum())
    points += [(start + k, "unrolled", start, k) for k in range(1, length)]
    vectors.append(path[1:length])
  steps = [paths.steps[t] for t, *_ in points]
  metadata: dict[str, list[Any]] = {
    "label": [f"{kind} {t}" + (f" from {start}" if k else "") for t, kind, start, k in points],
    "kind": [kind for _, kind, _, _ in points],
    "step": [t for t, *_ in points],
    "start": [start for *_, start, _ in points],
    "k": [k for *_, k in points],
    "action": [action_name(spec, s.action) for s in steps],
    "reward": [f"{rounded(s.reward):g}" for s in steps],
    # The value is empty without a search. With a word here, the projector could not color points by number.
    "value": ["" if math.isnan(s.root_value) else f"{s.root_value:.4g}" for s in steps],
    "to_play": [s.to_play for s in steps],
  }
  return np.concatenate(vectors), metadata, [drawn[t] for t, *_ in points]
