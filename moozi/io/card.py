"""The card of a run: what was trained, under which conditions, and how well it plays.

Its values are from the run's files; the author may state the name, the hardware and the license. A value that
is not known is None.
"""

import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pydantic

from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.core.text import one_cell, shell_command
from moozi.io.bounded_read import read_bounded
from moozi.io.checkpoints import CheckpointInfo, list_checkpoints
from moozi.io.config import config_to_dict, load_config
from moozi.io.config_files import config_root, find_config, list_configs
from moozi.io.metrics import read_metrics
from moozi.io.plain_data import MAX_BYTES, number_in, parse_yaml
from moozi.io.run_directory import MACHINE, RANDOM_RETURN, RunDirectory, flatten_settings
from moozi.io.trajectory_file import parse_spec
from moozi.io.zoo_files import ZOO_PREFIX, agent_names, label_of, resolve_run

CARD = "card.json"
_MARGIN = 1.96  # standard errors: half of a 95% confidence interval, as in `opponents.score_figures`
_NOT_COMPARED = ("run.name", "run.dir")
_TEST = "test/"


class _Part(pydantic.BaseModel):
  model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)


class Evaluation(_Part):
  """The evaluation that the card reports.

  Attributes:
    low, high: 95% confidence interval, over episodes, of this agent's mean return; None for one episode.
    distinct_episodes: number of different episodes; None if it is not recorded.
    seed: `evaluation.seed`, from which the seed of each episode is derived.
    at_env_steps: environment steps of the run at the evaluation.
    score: with two players, the mean of 1 for a win, ½ for a draw and 0 for a loss; else None.
    opponent: with two players, the player in the other seat; else None.
    human_normalized: the human-normalized score, 0 for random play and 1 for a human; None if the run has not
      recorded it.
  """

  return_mean: float
  return_std: float
  low: float | None
  high: float | None
  episodes: int
  distinct_episodes: int | None
  seed: int
  at_env_steps: int
  score: float | None = None
  opponent: str | None = None
  human_normalized: float | None = None


class Card(_Part):
  """The card of a run or of a zoo agent.

  Attributes:
    name: the agent's name in the zoo, or the run's name.
    actions: the action space as text; None if it is not recorded.
    conditions: sticky actions, episode limit, random starts, evaluation protocol and, with two players, the
      opponent, as text by name.
    config_name: the named configuration with which the run's is compared: by default the one with the fewest
      differences. None if none has the run's environment and algorithm.
    differences: by key, (value in that configuration, value in the run) where they differ.
    seeds: the run's seed, as a tuple of one.
    hardware: the machine on which the run was trained, with the learner's number of GPUs; None if unknown.
    hardware_source: "recorded" by the run, or "stated" by the author of the zoo agent.
    ended_by: why the run ended, such as max_env_steps.
    curve: (environment steps, mean return) of each evaluation in the run's metrics.
    is_offline: whether no worker acted, because all training was on trajectories from disk. The environment
      steps are then those that workers would have made.
    random_return: mean return of random play in as many episodes as the evaluation; None if it is not
      recorded.
    command: a command that plays the same evaluation again; None without an evaluation, or if its checkpoint
      was not kept.
    train_command: a command that trains with the same settings; None if `config_name` is None or there are
      more than 12 differences.
    license: license of the agent's files; None if it is not stated.
  """

  name: str
  env: str
  env_kwargs: dict[str, Any]
  num_players: int
  actions: str | None
  algorithm: str
  conditions: dict[str, str]
  config_name: str | None
  differences: dict[str, tuple[Any, Any]]
  seeds: tuple[int, ...]
  env_steps: int | None
  learner_steps: int | None
  minutes: float | None
  ended_by: str | None
  hardware: str | None
  hardware_source: str | None
  moozi: str | None
  commit: str | None
  checkpoint: str | None
  evaluation: Evaluation | None
  curve: tuple[tuple[float, float], ...]
  command: str | None
  train_command: str | None
  license: str | None
  limits: tuple[str, ...]
  is_offline: bool
  random_return: float | None


def make_card(
  run: RunDirectory,
  *,
  name: str | None = None,
  config_name: str | None = None,
  hardware: str | None = None,
  license: str | None = None,
) -> Card:
  """Makes the card of a run from its files.

  Args:
    name: the agent's name in the zoo; None takes the run's name.
    config_name: the configuration to compare with; None takes the one with the fewest differences.
    hardware: the hardware as its author states it, for a run that did not record it.
    license: license of the agent's files.

  Raises: UserError: a file of the run cannot be read, or the configuration does not exist.
  """
  config = run.load_config()
  try:
    summary = run.read_summary()
  except UserError:
    if run.summary_path.exists():
      raise
    summary = {}
  ticks = read_metrics(run.metrics_path) if run.metrics_path.exists() else []
  checkpoints = list_checkpoints(run.checkpoints_path)
  last = checkpoints[-1] if checkpoints else None
  num_players = number_in(_of(last, "spec").get("num_players")) or 1
  evaluation = _evaluation(config, summary, ticks, int(num_players))
  tested = None if evaluation is None else _checkpoint_at(checkpoints, evaluation.at_env_steps)
  config_name, differences = _compare(config, config_name)
  counters: Mapping[str, Any] = {**(ticks[-1] if ticks else {}), **summary}
  if last is not None and (last.has_parameters_only or not counters):
    # A zoo agent's checkpoint may be earlier than the run's last metrics.
    counters = {"env_steps": last.env_steps, "learner_steps": last.learner_steps, **last.meta}
    # The checkpoint may have been saved before an evaluation that is part of the training ended.
    trained_s = run.trained_s_at_end(last.env_steps, last.learner_steps)
    counters = {**counters, **({} if trained_s is None else {"wall_s": trained_s})}
  wall_s = number_in(counters.get("wall_s"))
  machine = _describe(summary.get(MACHINE), config)
  return Card(
    name=name or one_cell(run.path.resolve().name),
    env=config.env.name,
    env_kwargs=config_to_dict(config)["env"]["kwargs"],
    num_players=int(num_players),
    actions=_actions(last),
    algorithm=config.algorithm,
    conditions=_conditions(config, int(num_players)),
    config_name=config_name,
    differences=differences,
    seeds=(config.seed,),
    env_steps=_integer(counters.get("env_steps")),
    learner_steps=_integer(counters.get("learner_steps")),
    minutes=None if wall_s is None else round(wall_s / 60, 1),
    ended_by=summary.get("reason") if isinstance(summary.get("reason"), str) else None,
    hardware=machine or hardware,
    hardware_source="recorded" if machine else "stated" if hardware else None,
    moozi=None if last is None else last.version,
    commit=last.meta.get("commit") if last is not None and isinstance(last.meta.get("commit"), str) else None,
    checkpoint=None if tested is None else tested.name,
    evaluation=evaluation,
    curve=_curve(ticks),
    command=_command(run, name, tested, last, evaluation),
    train_command=_train_command(config_name, differences),
    license=license,
    limits=_limits(config, int(num_players), evaluation),
    is_offline=config.num_acting_workers == 0,
    random_return=number_in(summary.get(RANDOM_RETURN)),
  )


def with_current_configuration(card: Card, config: Config) -> Card:
  """Returns a card whose differences are those from the named configuration as it is now.

  Args:
    config: the run's configuration.
  """
  _, differences = _compare(config, card.config_name)
  command = _train_command(card.config_name, differences)
  return card.model_copy(update={"differences": differences, "train_command": command})


def card_of(run: RunDirectory) -> Card:
  """Returns the card of a run, as `make_card` does; a zoo agent's card is read from its card.json."""
  return read_card(run.path / CARD) if run.is_zoo_agent else make_card(run)


def read_card(path: Path) -> Card:
  """Reads a card.json. Raises UserError if the file is not a card."""
  try:
    if not path.is_file():
      raise UserError(f"{path}: no card; `moozi card` writes one")
    return Card.model_validate_json(read_bounded(path, MAX_BYTES), strict=True)
  except (OSError, ValueError, RecursionError) as e:
    raise UserError(f"{path}: not a card: {str(e).partition(chr(10))[0]}") from None


def list_agents() -> list[Card]:
  """Returns the cards of the zoo's agents, sorted by name. Raises UserError if one is damaged."""
  return [read_card(resolve_run(ZOO_PREFIX + name) / CARD) for name in agent_names()]


def _evaluation(
  config: Config, summary: Mapping[str, Any], ticks: Sequence[Mapping[str, Any]], num_players: int
) -> Evaluation | None:
  """Returns the evaluation in the summary, or else the last one in the metrics; None if there is none."""
  tests = [tick for tick in ticks if number_in(tick.get(f"{_TEST}at_env_steps")) is not None]
  keys = ("return_mean", "return_std", "episodes", "at_env_steps", "score")
  found = {key: summary.get(f"test_{key}") for key in keys}
  if not found["episodes"]:
    found = {key: tests[-1].get(_TEST + key) for key in found} if tests else {}
  mean, std, episodes, at = (
    number_in(found.get(key)) for key in ("return_mean", "return_std", "episodes", "at_env_steps")
  )
  if mean is None or std is None or not episodes or at is None:
    return None
  same = [t for t in tests if t[f"{_TEST}at_env_steps"] == at and t.get(f"{_TEST}episodes") == episodes]
  distinct = number_in(same[-1].get(f"{_TEST}distinct_episodes")) if same else None
  margin = _MARGIN * std / math.sqrt(episodes) if episodes > 1 else None
  return Evaluation(
    return_mean=mean,
    return_std=std,
    low=None if margin is None else mean - margin,
    high=None if margin is None else mean + margin,
    episodes=int(episodes),
    distinct_episodes=None if distinct is None else int(distinct),
    seed=config.evaluation.seed,
    at_env_steps=int(at),
    score=number_in(found.get("score")) if num_players == 2 else None,
    opponent=_opponent(config) if num_players == 2 else None,
    human_normalized=number_in(same[-1].get(f"{_TEST}human_normalized")) if same else None,
  )


def _compare(config: Config, name: str | None) -> tuple[str | None, dict[str, tuple[Any, Any]]]:
  """Returns the named configuration with the fewest differences from the run's, and the differences.

  If `name` is given, compares with that configuration only.
  """
  settings = _settings(config)
  root = config_root()
  paths = [find_config(name)] if name else [c.path for c in list_configs() if c.env == config.env.name]
  best: tuple[str | None, dict[str, tuple[Any, Any]]] = (None, {})
  for path in paths:
    other = load_config(path)
    if (other.env.name, other.algorithm) != (config.env.name, config.algorithm):
      continue
    named = _settings(other)
    keys = [key for key in settings | named if key not in _NOT_COMPARED]
    found = {k: (named.get(k), settings.get(k)) for k in keys if named.get(k) != settings.get(k)}
    if best[0] is None or len(found) < len(best[1]):
      best = path.relative_to(root).with_suffix("").as_posix(), found
  return best


def _settings(config: Config) -> dict[str, Any]:
  """Returns the settings by dotted key; replaces nulls in `planners` by the values that they default to.

  Leaves out `planners.reanalyze` if the run does not reanalyze.
  """
  data, planners = config_to_dict(config), config.planners
  for name, planner in (
    ("train", planners.train),
    ("test", planners.test),
    ("reanalyze", planners.for_reanalyze),
  ):
    root_value = "improved" if planner.has_improved_root_value else "mean"
    data["planners"][name] = planner.model_dump(mode="json") | {"root_value": root_value}
  if config.reanalyze.ratio == 0:
    del data["planners"]["reanalyze"]
  return flatten_settings(data)


def _conditions(config: Config, num_players: int) -> dict[str, str]:
  kwargs, tested = config.env.kwargs, config.evaluation
  limit = kwargs.get("max_episode_steps")
  own_limit = "the environment's own" if limit is None else f"max_episode_steps={limit}"
  sticky = [f"{key}={value}" for key, value in kwargs.items() if "sticky" in key or "repeat_action" in key]
  starts = [
    f"k ~ U{{0 … {most}}} random legal actions" if most else "none"
    for most in (tested.max_random_starts, config.workers.max_random_starts)
  ]
  search = f"{config.planners.test.num_simulations} simulations per search"
  without_search = {
    "ppo": "the network's most probable action, no search",
    "q_learning": "the action of the highest value, no search",
  }
  own = "the algorithm's action at temperature 0, no search"
  protocol = search if config.searches else without_search.get(config.algorithm, own)
  network = "the target network of " if tested.network == "target" else ""
  out = {
    "sticky actions": ", ".join(sticky) or "no such option is set",
    "episode limit": f"{own_limit}; in evaluation at most {tested.max_episode_steps:,} steps",
    "random starts": f"evaluation: {starts[0]}; training: {starts[1]}",
    "protocol": f"{protocol}; {'noise-free' if tested.noise_free else 'planners.test unchanged'}; "
    f"{network}the last checkpoint, not the best",
  }
  if num_players == 2:
    out["opponent"] = f"{_opponent(config)}; seats alternate"
  return out


def _opponent(config: Config) -> str:
  name, _, simulations = config.evaluation.opponent_name.partition(":")
  if name == "mcts":
    return f"mcts with {simulations} simulations"
  known = {"self": "the agent itself", "random": "random play"}
  return known.get(config.evaluation.opponent, config.evaluation.opponent)


def _limits(config: Config, num_players: int, evaluation: Evaluation | None) -> tuple[str, ...]:
  out = ["One seed was trained. Another seed can reach another return; the interval covers episodes only."]
  out += [f"The agent was trained for {config.env.name} with the options in its config.yaml only."]
  if config.evaluation.max_random_starts:
    out += ["The return is a mean over the random starts of the evaluation."]
  if num_players == 2 and evaluation is not None:
    out += [f"Results against {evaluation.opponent} do not say how the agent plays against other opponents."]
  if config.has_model and not config.chance.codes:
    out += ["The learned model is deterministic, so the search plans as if outcomes of actions were certain."]
  return tuple(out)


def _command(
  run: RunDirectory,
  name: str | None,
  tested: CheckpointInfo | None,
  last: CheckpointInfo | None,
  evaluation: Evaluation | None,
) -> str | None:
  """Returns the command that plays the evaluation again; None if its parameters were not kept."""
  if tested is None or last is None or evaluation is None:
    return None
  target = label_of(run.path) if name is None else ZOO_PREFIX + name
  which = () if tested.name == last.name else ("--checkpoint", tested.name)
  return shell_command("moozi", "evaluate", target, *which, "--episodes", evaluation.episodes)


def _train_command(name: str | None, differences: Mapping[str, tuple[Any, Any]]) -> str | None:
  """Returns a command that trains with the same settings.

  Returns None if no named configuration differs in at most 12 settings.
  """
  if name is None or len(differences) > 12:
    return None
  overrides = (f"{key}={_override_text(value)}" for key, (_, value) in differences.items())
  return shell_command("moozi", "train", name, *overrides)


def _override_text(value: Any) -> str:
  """Returns a value as an override has it: text without quotes if possible, else JSON, which is YAML too."""
  if isinstance(value, str):
    with contextlib.suppress(UserError):
      if parse_yaml(value, "") == value:
        return value
  return json.dumps(value)


def _curve(ticks: Sequence[Mapping[str, Any]]) -> tuple[tuple[float, float], ...]:
  points = [
    (number_in(t.get(f"{_TEST}at_env_steps")), number_in(t.get(f"{_TEST}return_mean"))) for t in ticks
  ]
  return tuple((x, y) for x, y in points if x is not None and y is not None)


def _checkpoint_at(checkpoints: Sequence[CheckpointInfo], env_steps: int) -> CheckpointInfo | None:
  return next((c for c in reversed(checkpoints) if c.env_steps == env_steps), None)


def _describe(machine: Any, config: Config) -> str | None:
  if not isinstance(machine, Mapping) or not isinstance(machine.get("cpu"), str):
    return None
  gpus = config.ray.learner.num_gpus
  cores = machine.get("cores")
  return f"{machine['cpu']}, {cores} core{'s' * (cores != 1)}" + (f", {gpus:g} GPU" if gpus else "")


def _of(info: CheckpointInfo | None, key: str) -> Mapping[str, Any]:
  value = {} if info is None else info.meta.get(key)
  return value if isinstance(value, Mapping) else {}


def _actions(info: CheckpointInfo | None) -> str | None:
  """Returns the action space of a checkpoint's environment as text; None if it is not recorded."""
  try:
    return parse_spec(_of(info, "spec")).actions_text
  except (ValueError, TypeError, KeyError):
    return None


def _integer(value: Any) -> int | None:
  number = number_in(value)
  return None if number is None else int(number)
