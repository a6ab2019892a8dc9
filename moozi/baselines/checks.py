"""Checks of settings, and the evaluator, for the baselines and users' algorithms."""

from moozi.agent.agent import PureAgent
from moozi.baselines.ppo.actor_critic import MIN_NATURE_FRAME
from moozi.core.config import Config
from moozi.core.config.ppo import BaselineNetworkConfig
from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec, check_multi_input
from moozi.evaluation.evaluator import Evaluator
from moozi.run import build


def check_players(config: Config, spec: EnvSpec) -> None:
  """Raises UserError if the environment is self-play of a game with hidden information."""
  if spec.num_players > 1 and not spec.is_perfect_information:
    name = config.env.name
    hint = "; env.kwargs.seat=random lets it play one seat" if name.startswith("open_spiel:") else ""
    raise UserError(
      f"algorithm={config.algorithm}: self-play needs a game without hidden information; env.name={name} "
      f"has hidden information{hint}"
    )


def make_evaluator(
  agent: PureAgent, noise: float, config: Config, spec: EnvSpec, num_simulations: int | None
) -> Evaluator:
  """Returns the evaluator of an agent that does not search.

  Args:
    noise: the temperature if `evaluation.noise_free` is false; if it is true, the temperature is 0.

  Raises: UserError: `num_simulations` is given.
  """
  if num_simulations is not None:
    raise UserError(
      f"--simulations={num_simulations}: this run's algorithm is {config.algorithm}, which does not search"
    )
  temperature = 0.0 if config.evaluation.noise_free else noise
  return Evaluator(agent, temperature, config, spec, build.make_test_env(config))


def check_frame(network: BaselineNetworkConfig, section: str, config: Config, spec: EnvSpec) -> None:
  """Raises UserError if the frames do not suit the network of the configuration's `section`."""
  if network.kind == "multi_input":
    check_multi_input(f"{section}.network.kind", spec, "conv")
  height, width, _ = spec.frame_shape
  if network.kind == "nature_conv" and min(height, width) < MIN_NATURE_FRAME:
    others = "mlp and multi_input" if spec.frame_parts else "mlp and conv"
    raise UserError(
      f"{section}.network.kind=nature_conv: needs frames of at least {MIN_NATURE_FRAME}×{MIN_NATURE_FRAME}; "
      f"those of {config.env.name} are {height}×{width}, which allow {others}"
    )
