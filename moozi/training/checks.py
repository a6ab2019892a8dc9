"""Checks whether a run may start: whether its settings fit its environment, players, plug-ins and files.

`core.config` checks the settings alone. `check_start` makes checks that need no cluster, before the directory
of a new run is created, so a run that it refuses leaves nothing behind.
"""

import contextlib
import math

from moozi.baselines.ppo.reward_scaling import RETURNS
from moozi.core import plugins
from moozi.core.config import Config, uses
from moozi.core.config.planner import CHANCE_SEARCHES
from moozi.core.errors import UserError
from moozi.core.spec import MAX_ENUMERATED, EnvSpec, check_multi_input
from moozi.envs import registry
from moozi.envs.players import Seats, bot_of, make_player
from moozi.envs.table import view_of
from moozi.evaluation.opponents import make_opponent
from moozi.io.checkpoints import CheckpointInfo, expected_of, read_checkpoint_info
from moozi.io.trackers import check_trackers
from moozi.nn.horizon import DISCOUNT
from moozi.run.memory import check_memory
from moozi.training.algorithms import ALGORITHMS, find_algorithm
from moozi.training.dry_run import dry_run
from moozi.training.offline import load_stored
from moozi.training.start_from import find_start
from moozi.training.surgery import check_operation, operate_on

# Maximum number of steps in the trial episode of a user's player.
_TRIAL_STEPS = 50


def check_start(config: Config, spec: EnvSpec, *, is_new: bool) -> None:
  """Refuses a run that cannot start. Sizes are checked before anything large is made.

  Args:
    is_new: whether the run is new; a resumed run has its own files.

  Raises: UserError: a setting does not fit the environment, the players or the machine, a plug-in fails, or a
    file that a setting names cannot be used.
  """
  check_memory(config, spec)
  if is_new:
    check_learns(config)
  check_trackers(config)
  _check_devices(config)
  check_players(config, spec)
  find_algorithm(config).check(config, spec)
  if config.plans_with_rules:
    registry.true_rules(config.env.name, **config.env.arguments)  # raises UserError without usable rules
  if is_new:
    _check_start_from(config, spec)
    load_stored(config, spec)
  dry_run(config, spec)


def _check_start_from(config: Config, spec: EnvSpec) -> None:
  """Raises UserError if the run cannot start from the checkpoint that it names."""
  path, surgery = config.checkpoint.start_from, config.checkpoint.surgery
  if path is None:
    return
  info = find_start(path)
  if not surgery:
    try:
      read_checkpoint_info(info.path, expected_of(config, spec))
      _check_parts(info, config)
    except UserError as error:
      raise UserError(f"{error}{_surgery_hint(info, config, spec)}") from None
    return
  check_operation(info, config, spec)


def _surgery_hint(info: CheckpointInfo, config: Config, spec: EnvSpec) -> str:
  """Returns which value of `checkpoint.surgery` converts a checkpoint, for an error; empty if none does."""
  if config.algorithm not in ALGORITHMS or info.meta.get("algorithm") != config.algorithm_name:
    return ""
  try:
    lost = operate_on(info, config, spec).lost
  except UserError:
    return ""
  return (
    "; checkpoint.surgery=lossy converts it, with losses" if lost else "; checkpoint.surgery=true converts it"
  )


def _check_parts(info: CheckpointInfo, config: Config) -> None:
  """Raises UserError if a checkpoint and the configuration differ in a setting that adds arrays.

  Also raises it if both have running returns, and their numbers of environments differ.
  """
  ppo, learner, algorithm = config.ppo, config.learner, config.algorithm
  clipping = ppo.max_grad_rms if algorithm == "ppo" else learner.max_grad_rms
  section = "ppo" if algorithm == "ppo" else "learner"
  # The start of the names of the arrays, and the key that adds them.
  parts = []
  if config.searches:
    parts.append(
      (f"net_state/{DISCOUNT}", "targets.discount_schedule", bool(config.targets.discount_schedule))
    )
  if algorithm == "ppo":
    parts.append((f"net_state/{RETURNS}/", "ppo.normalize_rewards", ppo.normalize_rewards))
  if algorithm in ALGORITHMS and any(name.startswith("opt_state/") for name in info.names):
    parts.append(("opt_state/0/0/nu/", f"{section}.max_grad_rms", clipping is not None))
  for prefix, key, is_set in parts:
    has = any(name.startswith(prefix) for name in info.names)
    if has != is_set:
      raise UserError(
        f"{info.path}: was saved {'with' if has else 'without'} {key}, which must be set in both runs or in "
        "neither"
      )
  if algorithm == "ppo" and ppo.normalize_rewards:
    # Each environment has a running return. The header is text of anyone.
    saved = info.meta.get("config")
    saved = saved.get("ppo") if isinstance(saved, dict) else None
    num_envs = saved.get("num_envs") if isinstance(saved, dict) else None
    if type(num_envs) is int and num_envs != ppo.num_envs:
      raise UserError(
        f"{info.path}: was saved with ppo.num_envs={num_envs}; must be {ppo.num_envs} with "
        "ppo.normalize_rewards=true"
      )


def _check_devices(config: Config) -> None:
  """Raises UserError if the learner's process has fewer devices than `learner.num_devices`.

  The GPUs of a learner in an actor are checked by the configuration and by `actors.resources`. Its CPU has as
  many devices as in this process, unless it is on another machine; the actor then checks them.
  """
  learner = config.learner
  if learner.num_devices == 1:
    return
  from moozi.agent.devices import check_num_devices, devices_of

  if config.has_one_process:
    devices_of(learner)
  elif not config.ray.learner.num_gpus and config.ray.address is None:
    import jax

    check_num_devices(learner, len(jax.devices()), "cpu")


def check_players(config: Config, spec: EnvSpec) -> None:
  """Raises UserError if a run's settings do not fit its environment or its opponents."""
  check_history(config, spec)
  _check_actions(config, spec)
  check_symmetries(config, spec)
  _check_mover_view(config, spec)
  if config.searches and config.network.kind == "multi_input":
    check_multi_input("network.kind", spec, "conv_latent or resnet")
  _check_normalization(config, spec)
  _check_past_selves(config, spec)
  _check_gate(config, spec)
  _check_holding(config, spec)
  check_opponent(config, spec)
  _check_seats(config, spec)


def check_opponent(config: Config, spec: EnvSpec) -> None:
  """Raises UserError if `evaluation.opponent` cannot play the run's environment.

  A user's player plays up to 50 steps of a trial episode. A trained agent is only loaded. The players of
  `evaluation.pool` are checked too.
  """
  evaluation = config.evaluation
  if evaluation.pool and spec.num_players != 2:
    raise UserError(f"evaluation.pool: must be empty with env.name={config.env.name}, which has one player")
  for rated in evaluation.pool:
    own = evaluation.against(rated.player).model_copy(update={"pool": ()})
    check_opponent(config.model_copy(update={"evaluation": own}), spec)
  player = make_opponent(config, spec)
  if player is None or config.evaluation.opponent == "random":
    return
  env = registry.make(config.env.name, config.evaluation.seed, is_testing=True, **config.env.arguments)
  with contextlib.closing(env):
    if plugins.PLAYERS.is_built_in(config.evaluation.opponent):
      player.check(env)
      return
    step, seats = env.reset(), Seats()
    seats.start({0: (env, dict.fromkeys((0, 1), (player, config.evaluation.seed)))})
    for _ in range(_TRIAL_STEPS):
      step = env.step(seats.act({0: view_of(step.observation)})[0])
      if step.last():
        break


def _check_seats(config: Config, spec: EnvSpec) -> None:
  """Raises UserError if a player of the seats that the environment plays cannot be created."""
  if spec.num_seats:
    with contextlib.closing(registry.make_table(config.env.name, **config.env.arguments)) as table:
      for key, name in uses.seat_players(config):
        make_player(name, table.spec, key, config.env.allows_code).check(table)


def check_history(config: Config, spec: EnvSpec) -> None:
  """Raises UserError if a history would show a player what is hidden from that player.

  A frame shows only what the player to move may see. In a game with hidden information, a history of several
  frames would reveal the other player's frames.
  """
  length = config.targets.history_length
  if spec.num_players == 2 and not spec.is_perfect_information and length > 1:
    raise UserError(
      f"targets.history_length={length}: must be 1 with env.name={config.env.name}, whose players have "
      "hidden information: a longer history would show each player the other's frames"
    )


def _check_actions(config: Config, spec: EnvSpec) -> None:
  """Raises UserError if a run's settings need an entry for each action, and the environment has too many."""
  if spec.is_continuous and config.algorithm != "ppo":
    raise UserError(
      f"algorithm={config.algorithm}: cannot be used with env.kwargs.action_bins=0; continuous actions need "
      "algorithm=ppo, other algorithms need bins, such as env.kwargs.action_bins=7"
    )
  if not spec.is_factored:
    return
  wrong = [f"algorithm={config.algorithm}"] if config.algorithm == "q_learning" else []
  if config.searches:
    searches = {"train": config.planners.train, "test": config.planners.test}
    if config.planners.reanalyze is not None:
      searches["reanalyze"] = config.planners.reanalyze
    wrong += [
      f"planners.{name}.algorithm={search.algorithm}"
      for name, search in searches.items()
      if search.algorithm in CHANCE_SEARCHES
    ]
  if wrong:
    raise UserError(
      f"{wrong[0]}: cannot be used with env.name={config.env.name}, which has {spec.num_env_actions:,} joint "
      f"actions; up to {MAX_ENUMERATED} are supported. Use muzero with gumbel or puct, or ppo"
      + ("; or fewer values, env.kwargs.action_bins" if _has_continuous(spec) else "")
    )


def _has_continuous(spec: EnvSpec) -> bool:
  """Returns whether an environment has continuous actions."""
  return spec.factors is not None and any(part.is_continuous for part in spec.factors.parts)


def check_symmetries(config: Config, spec: EnvSpec) -> None:
  """Raises UserError if a run uses symmetries of an environment that has none.

  Where other players play seats in training, they are part of the environment. Random play, MCTS and
  alpha-beta play symmetric positions alike. A network or a user's player may not; a run must then not use
  symmetries.
  """
  planners = {"train": config.planners.train, "test": config.planners.test}
  if config.planners.reanalyze is not None:
    planners["reanalyze"] = config.planners.reanalyze
  averaged = {f"planners.{name}.average_symmetries": x.average_symmetries for name, x in planners.items()}
  for key, is_used in ({"learner.symmetries": config.learner.symmetries} | averaged).items():
    if is_used and not spec.symmetries:
      raise UserError(f"{key}=true: must be false with env.name={config.env.name}, which lists no symmetries")
    for option, name in uses.seat_players(config) if is_used else ():
      is_symmetric = bot_of(name) is not None
      if option.startswith("env.kwargs.others") and not is_symmetric:
        raise UserError(
          f"{key}=true: must be false with {option}={name}, which may play differently in symmetric "
          "positions; random, mcts:N and alpha_beta:N do not"
        )


def _check_mover_view(config: Config, spec: EnvSpec) -> None:
  """Raises UserError if `network.mover_view` is set and the environment lists no `player_planes`."""
  if config.network.mover_view and spec.player_planes is None:
    raise UserError(
      f"network.mover_view=true: must be false with env.name={config.env.name}, whose EnvSpec lists no "
      "player_planes; some frames, such as those of Othello, are from the view of the player to move anyway"
    )


def _check_normalization(config: Config, spec: EnvSpec) -> None:
  """Raises UserError if a run normalizes observations that are not float32."""
  is_used = {
    "ppo": config.algorithm == "ppo" and config.ppo.normalize_observations,
    "q_learning": config.algorithm == "q_learning" and config.q_learning.normalize_observations,
    "network": config.network.normalize_observations,
  }
  for section in (name for name in is_used if is_used[name] and spec.frame_dtype != "float32"):
    raise UserError(
      f"{section}.normalize_observations=true: must be false with env.name={config.env.name}, whose frames "
      f"are {spec.frame_dtype}; only float32 observations are normalized"
    )


def _check_past_selves(config: Config, spec: EnvSpec) -> None:
  """Raises UserError if `opponents.past_share` is set and the environment is not self-play of two players."""
  share = config.opponents.past_share
  if share and spec.num_players != 2:
    raise UserError(
      f"opponents.past_share={share:g}: must be 0 with env.name={config.env.name}; past selves need "
      "self-play with two players"
    )


def _check_gate(config: Config, spec: EnvSpec) -> None:
  """Raises UserError if `evaluation.gate_score` is set and the gate cannot admit parameters that act.

  It needs self-play of two players, workers that act, and an evaluation before the last step.
  """
  score = config.evaluation.gate_score
  if score is not None and spec.num_players != 2:
    raise UserError(
      f"evaluation.gate_score={score:g}: must be null with env.name={config.env.name}; the gate needs "
      "self-play with two players"
    )
  if score is not None and not config.num_acting_workers:
    raise UserError(f"evaluation.gate_score={score:g}: no worker acts with offline.fraction=1")
  period = config.evaluation.period_env_steps
  if score is not None and period >= config.max_env_steps:
    raise UserError(
      f"evaluation.period_env_steps={period}: must be below max_env_steps={config.max_env_steps} with "
      f"evaluation.gate_score={score:g}, because only evaluations before the last step admit parameters"
    )


def _check_holding(config: Config, spec: EnvSpec) -> None:
  """Raises UserError if `workers.num_holding_envs` is set where the last action is the other player's."""
  holding = config.workers.num_holding_envs
  if holding and spec.num_players == 2:
    raise UserError(
      f"workers.num_holding_envs={holding}: must be 0 with env.name={config.env.name}; in self-play of two "
      "players the last action is the other player's"
    )


def check_learns(config: Config) -> None:
  """Raises UserError if the run would reach `max_env_steps` before its first update."""
  if config.is_on_policy or not config.num_acting_workers:
    return
  # One process acts a segment for every worker in turn.
  num_workers = config.num_acting_workers if config.has_one_process else 1
  round_steps = num_workers * config.workers.num_envs * config.workers.segment_length

  def in_rounds(num_steps: int) -> int:
    return math.ceil(num_steps / round_steps) * round_steps

  learner, targets = config.learner, config.targets
  # A target reads the steps after it, so the newest steps of each lane cannot be sampled.
  to_sample = 0
  if config.offline.trajectories is None:
    reach = targets.unroll_steps + targets.n_step
    to_sample = num_workers * config.workers.num_envs * reach + learner.batch_size
  call_steps = learner.batch_size * learner.updates_per_call / learner.samples_per_step
  least = in_rounds(max(config.replay.min_steps_to_learn, to_sample)) + call_steps
  if in_rounds(config.max_env_steps) < least:
    raise UserError(
      f"max_env_steps={config.max_env_steps}: the first update is after {math.ceil(least):,} steps; "
      "raise max_env_steps or learner.samples_per_step, or lower replay.min_steps_to_learn, "
      "learner.updates_per_call or learner.batch_size"
    )
