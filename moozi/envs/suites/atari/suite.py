"""The games of the Arcade Learning Environment, through ale-py."""

import functools
import logging

from moozi.envs.environment import Environment, VectorEnvironment
from moozi.envs.game import GameEnvironment
from moozi.envs.suite import Suite
from moozi.envs.suites.atari.game import AtariGame
from moozi.envs.suites.atari.rom import AtariOptions, list_games, load_facts, make_spec
from moozi.envs.suites.atari.scores import reference_scores
from moozi.envs.suites.atari.vector import AtariVectorEnvironment, find_obstacle

_log = logging.getLogger("moozi.envs")


def make_environment(game: str, options: AtariOptions) -> Environment:
  return GameEnvironment(AtariGame(game, options), make_spec(game, options))


def make_vector(game: str, options: AtariOptions, seeds: list[int]) -> VectorEnvironment | None:
  """Makes ale-py's vectorized environment; returns None if `num_threads` is 0, or with an obstacle."""
  if options.num_threads == 0:
    return None
  obstacle = find_obstacle(load_facts(game), options)
  if obstacle is not None:
    _warn_of_fallback(game, obstacle)
    return None
  return AtariVectorEnvironment(load_facts(game), make_spec(game, options), options, seeds)


@functools.cache
def _warn_of_fallback(game: str, obstacle: str) -> None:
  _log.warning("env.kwargs.num_threads: atari:%s is stepped without threads: %s", game, obstacle)


def for_testing(options: AtariOptions) -> AtariOptions:
  return options.model_copy(update={"episodic_life": False, "clip_rewards": False})


SUITE = Suite(
  summary="Atari 2600 games, by the Arcade Learning Environment",
  package="ale_py",
  list_games=list_games,
  options=lambda game: AtariOptions,
  make_spec=make_spec,
  make_environment=make_environment,
  for_testing=for_testing,
  make_vector=make_vector,
  reference_scores=reference_scores,
)
