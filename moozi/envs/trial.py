"""A trial episode, so that errors of a user's environment or wrapper appear before a run starts."""

import contextlib
from collections.abc import Callable
from dataclasses import astuple, fields

import numpy as np
from dm_env import TimeStep

from moozi.core.errors import UserError, as_exceptions
from moozi.core.spec import EnvSpec
from moozi.core.user_code import Plugin
from moozi.envs.environment import Environment, random_action
from moozi.envs.observations import bounds_are_strict
from moozi.envs.validation import check_reward, check_step, one_line
from moozi.ops.pictures import to_picture

# Maximum number of steps of the trial episode.
_TRIAL_STEPS = 200
# Maximum number of its steps at which an environment with `max_moves` is copied.
_TRIAL_COPIES = 20


def spec_after_trial(environment: Environment, plugin: Plugin, draws: bool = True) -> EnvSpec:
  """Plays at most 200 steps of a trial episode, closes the environment, and returns its specification.

  With `draws`, checks the first two pictures and the last one.

  Raises: UserError: the environment fails or violates its specification.
  """
  try:
    with plugin.errors("its first steps failed"), bounds_are_strict():
      environment.seed(0)
      random, step = np.random.default_rng(0), environment.reset()
      _check(step, environment.env_spec, True, None)
      if draws:
        check_picture(environment, plugin.where, describe=plugin.describe)
      for t in range(_TRIAL_STEPS):
        mover = int(step.observation.to_play)
        step = environment.step(
          random_action(environment.env_spec, step.observation.legal_actions_mask, random)
        )
        _check(step, environment.env_spec, False, 1 - mover)
        if draws and (step.last() or t in (0, _TRIAL_STEPS - 1)):
          check_picture(environment, plugin.where, describe=plugin.describe)
        if step.last():
          break
      if environment.max_moves is not None:
        _check_rules(environment)
  except UserError:
    with contextlib.suppress(Exception), as_exceptions():
      environment.close()
    raise
  with plugin.errors("closing it failed"):
    environment.close()
  return environment.env_spec


def _check_rules(environment: Environment) -> None:
  """Checks that an environment with `max_moves` can be copied, and that its actions determine its state.

  Raises: UserError: a copy is not independent, or equal actions lead to another state with another seed.
  """
  where, random = f"env.name={environment.env_spec.name}", np.random.default_rng(1)
  environment.seed(1)
  step, other = environment.reset(), environment.clone()
  other.seed(2)
  same = other.reset()
  for _ in range(_TRIAL_COPIES):
    if not _is_equal(step, same):
      raise UserError(
        f"{where}: with another seed, the same actions lead to another state; an environment with max_moves "
        "must have no chance and always the same start; without max_moves, muzero can play it"
      )
    if step.last():
      return
    action = random_action(environment.env_spec, step.observation.legal_actions_mask, random)
    copied = environment.clone()
    ahead = copied.step(action)
    if not ahead.last():
      copied.step(int(np.flatnonzero(ahead.observation.legal_actions_mask)[0]))
    try:
      step, same = environment.step(action), other.step(action)
    except ValueError:  # the copy has moved the environment, where the action is illegal now
      step = same
    if not _is_equal(step, ahead):
      raise UserError(
        f"{where}: a step of a copy (`clone`) changes the environment, or differs from its step; "
        "a copy must share nothing that a step changes (by default it is copy.deepcopy)"
      )


def _is_equal(a: TimeStep, b: TimeStep) -> bool:
  """Returns whether steps are the same, except that only one of them may be at a step cap."""
  parts = zip(a.observation, b.observation, strict=True)
  same = all(np.array_equal(x, y) for x, y in parts)
  return same and a.reward == b.reward and (a.discount == 0) == (b.discount == 0)


def check_picture(
  environment: Environment, where: str, given: str = "", describe: Callable[[BaseException], str] = one_line
) -> None:
  """Draws the environment's picture, and checks it.

  Args:
    where: the start of the error message.
    given: the options, for the message.
    describe: describes an error of the environment in one line.

  Raises: UserError: the picture cannot be drawn, or `to_picture` refuses its form.
  """
  try:
    with as_exceptions():
      drawn = environment.render()
  except Exception as error:
    raise UserError(f"{where}: its picture cannot be drawn{given}: {describe(error)}") from error
  try:
    to_picture(drawn)
  except ValueError as error:
    raise UserError(f"{where}: its picture (render) is {error}, or return None for no picture") from None


def spec_of_variants(
  make: Callable[[bool], Environment], plugin: Plugin, has_variants: bool, draws: bool = True
) -> EnvSpec:
  """Returns the specification of environments after a trial episode of each variant.

  Args:
    make: maps `is_testing` to an environment.
    has_variants: whether the environment depends on `is_testing`; if not, only that of training is tried.
    draws: whether pictures are checked.

  Raises: UserError: an environment fails, or the variants have different specs.
  """
  spec = spec_after_trial(make(False), plugin, draws)
  if has_variants:
    check_same_spec(spec, spec_after_trial(make(True), plugin, draws), "is_testing", "in evaluation")
  return spec


def check_same_spec(spec: EnvSpec, other: EnvSpec, cause: str, when: str) -> None:
  """Raises UserError, which names the first difference, if the specs of two environments differ.

  Args:
    cause: what the spec must not depend on.
    when: where the environment has the spec `other`.
  """
  if other == spec:
    return
  pairs = zip(fields(spec), astuple(spec), astuple(other), strict=True)
  field, was, now = next((field.name, a, b) for field, a, b in pairs if a != b)
  raise UserError(
    f"env.name={spec.name}: the spec must not depend on {cause}; {field} was {one_line(was, 80)} and is "
    f"{one_line(now, 80)} {when}"
  )


def _check(step: TimeStep, spec: EnvSpec, is_first: bool, mover: int | None) -> None:
  """Checks a step as a run does, and that its reward is finite."""
  check_step(spec, step, is_first, mover)
  if not is_first:
    check_reward(f"env.name={spec.name}", step.reward)
