"""Creates opponents for evaluation, assigns seats, computes two-player scores, and checks a run's settings.

The checks compare settings with the players, the history and the board of an environment. Imports no JAX.
"""

import contextlib
import math

import numpy as np
from jaxtyping import Float, Int

from moozi.core import plugins
from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.envs import registry
from moozi.envs.environment import Environment
from moozi.envs.players import CustomPlayer, Player, make_player, mcts_simulations

# Maximum number of steps in the trial episode of a user's player.
_TRIAL_STEPS = 50


def seat_of(episode: int) -> int:
  """Returns the agent's seat (its player number) in an episode: 0 in even episodes, 1 in odd ones."""
  return episode % 2


def has_opponent(config: Config, spec: EnvSpec) -> bool:
  """Returns whether an opponent plays one seat; false with one player and in self-play."""
  return spec.num_players == 2 and config.evaluation.opponent != "self"


def make_opponent(config: Config, spec: EnvSpec, env: Environment, seed: int) -> Player | None:
  """Creates the opponent of one episode in `env`; returns None if the episode has no opponent.

  Raises: UserError: the environment does not provide the opponent.
  """
  if not has_opponent(config, spec):
    return None
  return make_player(config.evaluation.opponent_name, env, spec, seed, "evaluation.opponent")


def check_opponent(config: Config, spec: EnvSpec) -> None:
  """Raises UserError if the run's environment does not provide the opponent `evaluation.opponent`.

  A user's player plays part of a trial episode. A trained agent is only loaded.
  """
  if spec.num_players == 2 and config.evaluation.opponent != "random":
    env = registry.make(config.env.name, config.evaluation.seed, is_testing=True, **config.env.arguments)
    with contextlib.closing(env):
      player = make_opponent(config, spec, env, config.evaluation.seed)
      if isinstance(player, CustomPlayer) and not plugins.PLAYERS.is_built_in(config.evaluation.opponent):
        step = env.reset()
        for _ in range(_TRIAL_STEPS):
          step = env.step(player.action(step.observation.frame, step.observation.legal_actions_mask))
          if step.last():
            break


def check_seats(config: Config, spec: EnvSpec) -> None:
  """Raises UserError if a player of the seats that the environment plays cannot be created."""
  if spec.num_seats:
    with contextlib.closing(registry.make_table(config.env.name, **config.env.arguments)) as table:
      for key, name in plugins.seat_players(config):
        make_player(name, table, spec, config.seed, key)


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


def check_symmetries(config: Config, spec: EnvSpec) -> None:
  """Raises UserError if a run uses symmetries of an environment that has none.

  Where other players play seats in training, they are part of the environment. Random play and MCTS play
  symmetric positions alike. A network or a user's player may not, and then the game has no symmetries.
  """
  planners = {"train": config.planners.train, "test": config.planners.test}
  if config.planners.reanalyze is not None:
    planners["reanalyze"] = config.planners.reanalyze
  averaged = {f"planners.{name}.average_symmetries": x.average_symmetries for name, x in planners.items()}
  for key, is_used in ({"learner.symmetries": config.learner.symmetries} | averaged).items():
    if is_used and not spec.symmetries:
      raise UserError(f"{key}=true: must be false with env.name={config.env.name}, which lists no symmetries")
    for option, name in plugins.seat_players(config) if is_used else ():
      is_symmetric = name == "random" or mcts_simulations(name) is not None
      if option.startswith("env.kwargs.others") and not is_symmetric:
        raise UserError(
          f"{key}=true: must be false with {option}={name}, which may play differently in symmetric "
          "positions; random and mcts:N do not"
        )


def check_mover_view(config: Config, spec: EnvSpec) -> None:
  """Raises UserError if `network.mover_view` is set and the environment lists no `player_planes`."""
  if config.network.mover_view and spec.player_planes is None:
    raise UserError(
      f"network.mover_view=true: must be false with env.name={config.env.name}, whose EnvSpec lists no "
      "player_planes; some frames, such as those of Othello, are from the view of the player to move anyway"
    )


def check_past_selves(config: Config, spec: EnvSpec) -> None:
  """Raises UserError if `opponents.past_share` is set and the environment is not self-play of two players."""
  share = config.opponents.past_share
  if share and spec.num_players != 2:
    raise UserError(
      f"opponents.past_share={share:g}: must be 0 with env.name={config.env.name}; past selves need "
      "self-play with two players"
    )


def check_holding(config: Config, spec: EnvSpec) -> None:
  """Raises UserError if `workers.num_holding_envs` is set where the last action is the other player's."""
  holding = config.workers.num_holding_envs
  if holding and spec.num_players == 2:
    raise UserError(
      f"workers.num_holding_envs={holding}: must be 0 with env.name={config.env.name}; in self-play of two "
      "players the last action is the other player's"
    )


def check_players(config: Config, spec: EnvSpec) -> None:
  """Raises UserError if a run's settings do not fit the players or the board of its environment."""
  check_history(config, spec)
  check_symmetries(config, spec)
  check_mover_view(config, spec)
  check_past_selves(config, spec)
  check_holding(config, spec)
  check_opponent(config, spec)
  check_seats(config, spec)


def score_figures(returns: Float[np.ndarray, "N"], seats: Int[np.ndarray, "N"]) -> dict[str, float | int]:
  """Computes the statistics of two-player episodes from the returns of the agent's seat.

  Returns: `score` (mean over episodes: 1 for a win, ½ for a draw, 0 for a loss), `wins`, `draws`, `losses`
    and `return_margin`. For each seat i that was played: `score_seat_<i>`, `return_mean_seat_<i>` and
    `return_margin_seat_<i>`. A margin is half the width of the mean's 95% confidence interval: 1.96 standard
    deviations over √N. It is left out with one episode.
  """
  out: dict[str, float | int] = {
    "score": _score(returns),
    "wins": int((returns > 0).sum()),
    "draws": int((returns == 0).sum()),
    "losses": int((returns < 0).sum()),
  }
  if len(returns) > 1:
    out["return_margin"] = margin(returns)
  for seat in (0, 1):
    own = returns[seats == seat]
    if len(own):
      out |= {
        f"score_seat_{seat}": _score(own),
        f"return_mean_seat_{seat}": float(own.mean()),
      }
    if len(own) > 1:
      out[f"return_margin_seat_{seat}"] = margin(own)
  return out


def _score(returns: np.ndarray) -> float:
  return float(0.5 + 0.5 * np.sign(returns).mean())


def margin(returns: Float[np.ndarray, "N"]) -> float:
  """Returns half the width of the 95% confidence interval of the mean return: 1.96 standard errors."""
  return 1.96 * float(returns.std()) / math.sqrt(len(returns))
