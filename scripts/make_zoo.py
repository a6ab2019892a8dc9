"""Makes a zoo agent from a run: python scripts/make_zoo.py RUN NAME [--episodes N].

    python scripts/make_zoo.py --cards   # compares all agents with their configurations again

NAME is the agent's name: that of its configuration, such as minatar/breakout, or another one. The agent is
written to zoo/NAME, and replaces an older one. It has the files that `moozi.io.zoo_files` lists, without
optimizer, replay and logs. The table in docs/zoo.md is written from the cards of all agents.
"""

import argparse
import dataclasses
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from moozi.agent.update import playing_state
from moozi.core.config import Config
from moozi.core.config.uses import code_keys
from moozi.core.errors import UserError
from moozi.core.pytree import fields_of
from moozi.core.search_record import PlayedEpisode
from moozi.core.spec import EnvSpec
from moozi.envs.registry import env_spec
from moozi.evaluation.episodes import EvaluationResult
from moozi.io.atomic_write import write_text
from moozi.io.card import (
  CARD,
  Evaluation,
  list_agents,
  make_card,
  read_card,
  with_current_configuration,
)
from moozi.io.checkpoints import (
  CheckpointInfo,
  expected_of,
  find_checkpoint,
  load_checkpoint,
  save_parameters,
)
from moozi.io.config import config_to_dict, save_config
from moozi.io.config_files import list_configs
from moozi.io.metrics import read_metrics, thin_ticks
from moozi.io.plain_data import to_plain_json
from moozi.io.run_directory import ENDS, RunDirectory, check_name
from moozi.io.zoo_files import ZOO_PREFIX, agent_names, resolve_run, size_of, write_files_list, zoo_root
from moozi.training.algorithms import algorithm_of
from moozi.vis.card_page import GIF, opponent_text, result_text, write_card_files
from moozi.vis.evaluation_gifs import write_episode

PAGE = Path(__file__).resolve().parents[1] / "docs" / "zoo.md"
_BEGIN, _END = "<!-- agents -->\n", "<!-- end of agents -->\n"
LICENSE = "Apache-2.0, as MooZi; the environment has its own license and is not included"
MAX_GIF_BYTES = 300_000
_LATER = "when the agent was made; the run was stopped before its final evaluation"
_MAX_TICKS = 60
# Metrics of the machine and of faults; the report's curves do not need them.
_DROPPED = ("faults/", "system/memory_mib", "system/busy_share")


def main() -> None:
  parser = argparse.ArgumentParser(description="Make a zoo agent from a run.")
  parser.add_argument("run", type=Path, nargs="?", metavar="RUN")
  parser.add_argument("name", nargs="?", metavar="NAME", help="such as minatar/breakout")
  parser.add_argument(
    "--cards", action="store_true", help="only compare the cards with the configurations again"
  )
  parser.add_argument("--hardware", help="of the training, if the run has not recorded it")
  parser.add_argument("--episodes", type=int, metavar="N", help="evaluate again with N episodes")
  parser.add_argument("--root", type=Path, help="the folder of the agents; default: zoo")
  arguments = parser.parse_args()
  if arguments.cards:
    for name in agent_names():
      compare_card(resolve_run(ZOO_PREFIX + name))
    return
  if arguments.name is None:
    parser.error("needs RUN and NAME, or --cards")
  try:
    run = RunDirectory.open(arguments.run)
    path = make_entry(
      run,
      arguments.name,
      root=arguments.root,
      hardware=arguments.hardware,
      episodes=arguments.episodes,
    )
  except UserError as error:
    sys.exit(f"make_zoo: error: {error}")
  for file in sorted(p for p in path.rglob("*") if p.is_file()):
    print(f"{file.stat().st_size:>10,}  {file}")
  print(f"{size_of(path):>10,}  in all; return {result_text(read_card(path / CARD).evaluation)}")
  if arguments.root is None:
    write_table()


def compare_card(path: Path) -> None:
  """Writes an agent's card with its differences from the named configuration as it is now."""
  card = with_current_configuration(read_card(path / CARD), RunDirectory.open(path).load_config())
  write_card_files(card, path, has_gif=True)
  write_files_list(path)


def write_table() -> None:
  """Replaces the table of agents in docs/zoo.md."""
  table = "| agent | environment | return, 95% interval | opponent | episodes | steps | minutes | size |\n"
  table += "|---|---|---|---|---|---|---|---|\n"
  for card in list_agents():
    size = f"{size_of(resolve_run(ZOO_PREFIX + card.name)) / 2**20:.1f} MiB"
    result, opponent = result_text(card.evaluation), opponent_text(card.evaluation)
    agent = f"[`zoo:{card.name}`](../zoo/{card.name}/card.md)"
    cells = [agent, f"`{card.env}`", result, opponent, card.evaluation.episodes]
    table += "| " + " | ".join(map(str, [*cells, f"{card.env_steps:,}", f"{card.minutes:g}", size])) + " |\n"
  before, _, rest = PAGE.read_text("utf-8").partition(_BEGIN)
  write_text(PAGE, before + _BEGIN + table + _END + rest.partition(_END)[2])


def make_entry(
  run: RunDirectory,
  name: str,
  *,
  root: Path | None = None,
  hardware: str | None = None,
  episodes: int | None = None,
) -> Path:
  """Makes the agent `zoo:NAME` from a run, and returns the agent's folder; replaces an older agent.

  The agent has the parameters of the run's last checkpoint. The run's final evaluation is repeated with them;
  the mean return must be in the recorded interval. If the run was stopped before its final evaluation, the
  agent is evaluated now, and this result is recorded.

  Args:
    name: the agent's name: that of its configuration, such as `minatar/breakout`, or another one.
    root: the folder of all agents; None uses that of MooZi.
    hardware: the hardware of the training, if the run has not recorded it.
    episodes: number of episodes of the card's evaluation. If the run's final evaluation had another number,
      the agent is evaluated again, and this result is recorded.

  Raises: UserError: the name is not valid, the run has no checkpoint, its configuration names code to import
    or wrappers, or the mean return is outside the recorded interval.
  """
  config = run.load_config()
  for part in name.split("/"):
    check_name(part, "NAME")
  if keys := code_keys(config):
    raise UserError(f"{run.path}: {keys[0]} imports a module, which a zoo agent must not need")
  if config.env.wrappers:
    raise UserError(f"{run.path}: env.wrappers: a zoo agent must not need code outside of MooZi")
  whole = make_card(run)
  spec = env_spec(config.env.name, **config.env.kwargs)
  info = find_checkpoint(run.checkpoints_path)
  # Only the final evaluation is certain to be of the checkpoint's parameters. Earlier evaluations may be of
  # parameters that are a few updates older.
  recorded = whole.evaluation if whole.ended_by in ENDS and whole.checkpoint == info.name else None
  final = (root or zoo_root()) / name
  final.parent.mkdir(parents=True, exist_ok=True)
  with tempfile.TemporaryDirectory(dir=final.parent, prefix=".") as temporary:
    entry = RunDirectory(Path(temporary) / "entry")
    entry.path.mkdir(mode=0o755)
    _write_run(entry, run, config, spec, info, final.name)
    result = _evaluate(entry, config, spec, recorded, episodes)
    later = _LATER if recorded is None else None
    if recorded is not None and episodes not in (None, recorded.episodes):
      later = f"when the agent was made; the run's final evaluation had {recorded.episodes} episodes"
      result = _evaluate(entry, config, spec, None, episodes)
    if later:
      _record(entry, info, result)
    card = make_card(entry, name=name, config_name=_config_name(name), hardware=hardware, license=LICENSE)
    if later:
      card = card.model_copy(update={"conditions": card.conditions | {"evaluated": later}})
    _write_gif(entry.path / GIF, result.episode, spec)
    write_card_files(card, entry.path, has_gif=True)
    write_files_list(entry.path)
    if final.exists():
      os.rename(final, Path(temporary) / "old")
    os.rename(entry.path, final)
  return final


def _config_name(name: str) -> str | None:
  return name if name in {info.name for info in list_configs()} else None


def _write_run(
  entry: RunDirectory, run: RunDirectory, config: Config, spec: EnvSpec, info: CheckpointInfo, name: str
) -> None:
  """Writes the configuration, the summary, the thinned metrics and the parameters of a run into the entry."""
  # Leaves out `run.dir`, which has a meaning only on the machine of the training.
  config = config.model_copy(update={"run": type(config.run)(name=name)})
  save_config(config, entry.config_path)
  if run.summary_path.exists():
    summary = json.dumps(to_plain_json(run.read_summary()), indent=1, allow_nan=False)
    write_text(entry.summary_path, summary + "\n")
  ticks = read_metrics(run.metrics_path) if run.metrics_path.exists() else []
  ticks = [{name: value for name, value in tick.items() if not name.startswith(_DROPPED)} for tick in ticks]
  lines = [json.dumps(tick) + "\n" for tick in thin_ticks(ticks, _MAX_TICKS, digits=4)]
  write_text(entry.metrics_path, "".join(lines))
  expected = expected_of(config, spec)
  template = algorithm_of(config).training_state_template(config, spec)
  state = playing_state(load_checkpoint(info.path, template, expected), config)
  kept = ("env_steps", "learner_steps", "wall_s", "commit")
  meta = {key: info.meta[key] for key in kept if key in info.meta} | expected
  plain = info.lasting_name.removesuffix("_best")
  save_parameters(entry.checkpoints_path, plain, state, meta | {"config": config_to_dict(config)})


def _evaluate(
  entry: RunDirectory,
  config: Config,
  spec: EnvSpec,
  recorded: Evaluation | None,
  episodes: int | None = None,
) -> EvaluationResult:
  """Evaluates the entry. Raises UserError if the mean return is outside the recorded interval.

  Plays as many episodes as `recorded`; without it `episodes`, by default those of the final evaluation.
  """
  info = find_checkpoint(entry.checkpoints_path)
  algorithm = algorithm_of(config)
  template = algorithm.training_state_template(config, spec)
  state = load_checkpoint(info.path, template, expected_of(config, spec))
  evaluator = algorithm.build_evaluator(config, spec, None)
  if recorded is not None:
    episodes = recorded.episodes
  result = evaluator.run(
    state.variables,
    num_episodes=config.evaluation.final_episodes if episodes is None else episodes,
    version=info.learner_steps,
    record=True,
  )
  assert result is not None, "no stop was requested"
  mean = float(result.returns.mean())
  if recorded is not None and not is_reproduced(mean, recorded):
    raise UserError(
      f"{entry.path}: mean return {mean:.2f} over {recorded.episodes} episodes; the run recorded "
      f"{result_text(recorded)}"
    )
  return result


def _record(entry: RunDirectory, info: CheckpointInfo, result: EvaluationResult) -> None:
  """Adds an evaluation to the metrics and the summary of an entry."""
  figures = result.summary() | {"at_env_steps": info.env_steps}
  tick = {
    "env_steps": info.env_steps,
    "learner_steps": info.learner_steps,
    "wall_s": info.meta.get("wall_s", 0.0),
  }
  tick |= {f"test/{name}": value for name, value in figures.items()}
  write_text(entry.metrics_path, entry.metrics_path.read_text("utf-8") + json.dumps(tick) + "\n")
  if entry.summary_path.exists():
    kept = ("return_mean", "return_std", "episodes", "at_env_steps", "score")
    tested = {f"test_{name}": figures[name] for name in kept if name in figures}
    summary = json.dumps(to_plain_json(entry.read_summary() | tested), indent=1, allow_nan=False)
    write_text(entry.summary_path, summary + "\n")


def is_reproduced(mean: float, recorded: Evaluation, episodes: int | None = None) -> bool:
  """Returns whether a mean return is in the interval of a recorded evaluation, with a margin for rounding.

  `episodes` is the number of episodes of `mean`. With fewer than those of `recorded`, the interval is wider.
  """
  num = recorded.episodes if episodes is None else min(episodes, recorded.episodes)
  half_width = 0.0 if recorded.high is None else recorded.high - recorded.return_mean  # one episode: equality
  margin = half_width * (recorded.episodes / num) ** 0.5
  return abs(mean - recorded.return_mean) <= margin + 1e-3


def _write_gif(path: Path, episode: PlayedEpisode | None, spec: EnvSpec) -> None:
  """Draws as much of the beginning of an episode as fits in a GIF of MAX_GIF_BYTES."""
  assert episode is not None, "the evaluation was recorded"
  num_frames = len(episode.frames)
  while True:
    arrays = {k: v for k, v in fields_of(episode).items() if isinstance(v, np.ndarray)}
    first: dict[str, Any] = {name: array[:num_frames] for name, array in arrays.items()}
    write_episode(path, dataclasses.replace(episode, **first), spec)
    size = path.stat().st_size
    if size <= MAX_GIF_BYTES or num_frames == 1:
      return
    num_frames = max(1, min(num_frames - 1, int(num_frames * 0.95 * MAX_GIF_BYTES / size)))


if __name__ == "__main__":
  main()
