"""Tests of the policy: the history that it passes to the search, forced actions, and episode ends."""

import jax
import numpy as np
import pytest

from moozi.agent import policy as policy_module
from moozi.agent.planner import SearchOutput
from moozi.agent.policy import make_policy
from moozi.core.config import PlannerConfig, TargetsConfig
from moozi.envs.vector import make_vector
from moozi.ops.history import init_history, normalize_frame, stack_history
from tests.agent.tiny import table_model

LENGTH = 3
LANES = 4
STEPS = 30


def policy_of(spec):
  """Returns a policy; its model is never called, because the tests replace the search."""
  model = table_model(spec.num_actions)
  return make_policy(model, PlannerConfig(), TargetsConfig(history_length=LENGTH), spec)


def output_of(action, probs):
  """Returns a search output with these actions and policies; all values are 1."""
  ones = np.ones(LANES, np.float32)
  return SearchOutput(
    action=action,
    action_probs=probs,
    root_value=ones,
    prior_probs=probs,
    prior_value=ones,
    q_values=probs,
    depth_mean=ones,
    depth_max=ones,
  )


@pytest.fixture(scope="module")
def played():
  """Plays a corridor with terminations and truncations; returns steps, policy outputs and search inputs."""
  env = make_vector("tiny:corridor", {"length": 5, "max_episode_steps": 6}, LANES, seed=0)
  random = np.random.default_rng(0)
  stacks = []

  def plan(
    model, config, discount, num_players, params, net_state, rng_key, stacked, mask, temperature, **options
  ):
    stacks.append(np.asarray(stacked))
    mask = np.asarray(mask)
    action = np.array([random.choice(np.flatnonzero(row)) for row in mask], np.int32)
    probs = mask / mask.sum(-1, keepdims=True)
    return output_of(action, probs)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(policy_module, "plan", plan)
    policy = policy_of(env.spec)
    history, step = init_history(LANES, LENGTH, env.spec), env.reset()
    steps, outputs = [], []
    for _ in range(STEPS):
      history, output = policy({}, {}, history, step, jax.random.PRNGKey(0), 1.0)
      steps.append(step)
      outputs.append(jax.device_get(output))
      step = env.step(outputs[-1].action)
  return env.spec, steps, outputs, stacks


def test_search_input_is_the_episodes_history(played):
  """Zero frames and dummy actions fill the history before the episode's first frame."""
  spec, steps, outputs, stacks = played
  num_first = 0
  for lane in range(LANES):
    for t, step in enumerate(steps):
      if step.is_first[lane]:
        frames, actions = [np.zeros_like(step.frame[lane])] * LENGTH, [0] * LENGTH
        num_first += 1
      frames = [*frames[1:], step.frame[lane]]
      expected = stack_history(
        normalize_frame(np.stack(frames), spec.frame_dtype), np.array(actions, np.int32), spec.num_actions
      )
      np.testing.assert_array_equal(stacks[t][lane], expected)
      actions = [*actions[1:], int(outputs[t].action[lane])]
  assert num_first > 2 * LANES


def test_forced_actions_enter_the_history(monkeypatch):
  env = make_vector("tiny:catch", {}, LANES, seed=0)

  def plan(*args, **kwargs):
    probs = np.full((LANES, env.spec.num_actions), 0.25, np.float32)
    action = np.full(LANES, 2, np.int32)
    return output_of(action, probs)

  monkeypatch.setattr(policy_module, "plan", plan)
  policy = policy_of(env.spec)
  history, step = init_history(LANES, LENGTH, env.spec), env.reset()
  forced = np.array([-1, 1, 3, 0], np.int32)
  after, output = policy({}, {}, history, step, jax.random.PRNGKey(0), 1.0, forced)
  assert output.action.tolist() == [2, 1, 3, 0]
  assert after.actions[:, -1].tolist() == [2, 1, 3, 0]
  after, output = policy({}, {}, history, step, jax.random.PRNGKey(0), 1.0)
  assert after.actions[:, -1].tolist() == [2, 2, 2, 2]


def test_ends(played):
  _, steps, outputs, _ = played
  kinds = set()
  for step, output in zip(steps, outputs, strict=True):
    for lane in range(LANES):
      is_terminal = bool(step.is_last[lane] and not step.is_truncated[lane])
      kinds.add((bool(step.is_last[lane]), is_terminal))
      assert (output.action[lane] == 0) == step.is_last[lane]
      assert output.root_value[lane] == (0.0 if is_terminal else 1.0)
      assert output.action_probs[lane, 0] == (1.0 if is_terminal else 0.0)
  assert kinds == {(False, False), (True, False), (True, True)}
