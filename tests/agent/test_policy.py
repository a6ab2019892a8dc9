"""The compiled policy: the history it stacks is the learner's, and ends are ends."""

import jax
import numpy as np
import pytest

from moozi.agent import policy as policy_module
from moozi.agent.planner import PlannerOutput
from moozi.agent.policy import make_policy
from moozi.core.config import PlannerConfig, TargetsConfig
from moozi.envs.vector import make_vector
from moozi.ops.history import init_history, normalize_frame, stack_history

LENGTH = 3
LANES = 4
STEPS = 30


def output_of(action, probs):
  """What a search that knows nothing says: values of 1."""
  ones = np.ones(LANES, np.float32)
  return PlannerOutput(
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
  """Steps of a corridor with both kinds of end, what the search was given at each, and what came out."""
  env = make_vector("tiny:corridor", {"length": 5, "max_episode_steps": 6}, LANES, seed=0)
  random = np.random.default_rng(0)
  stacks = []

  def plan(
    model, config, discount, num_players, params, net_state, rng_key, stacked, mask, temperature, with_tree
  ):
    stacks.append(np.asarray(stacked))
    mask = np.asarray(mask)
    action = np.array([random.choice(np.flatnonzero(row)) for row in mask], np.int32)
    probs = mask / mask.sum(-1, keepdims=True)
    return output_of(action, probs)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(policy_module, "plan", plan)
    policy = make_policy(None, PlannerConfig(), TargetsConfig(history_length=LENGTH), env.spec)
    history, step = init_history(LANES, LENGTH, env.spec), env.reset()
    steps, outputs = [], []
    for _ in range(STEPS):
      history, output = policy(None, None, history, step, jax.random.PRNGKey(0), 1.0)
      steps.append(step)
      outputs.append(jax.device_get(output))
      step = env.step(outputs[-1].action)
  return env.spec, steps, outputs, stacks


def test_the_search_sees_the_history_of_the_rules(played):
  """Zero frames and dummies before an episode's start, then frames up to now and actions before now."""
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


def test_actions_that_somebody_else_plays_stand_in_the_history(monkeypatch):
  env = make_vector("tiny:catch", {}, LANES, seed=0)

  def plan(*args, **kwargs):
    probs = np.full((LANES, env.spec.num_actions), 0.25, np.float32)
    action = np.full(LANES, 2, np.int32)
    return output_of(action, probs)

  monkeypatch.setattr(policy_module, "plan", plan)
  policy = make_policy(None, PlannerConfig(), TargetsConfig(history_length=LENGTH), env.spec)
  history, step = init_history(LANES, LENGTH, env.spec), env.reset()
  forced = np.array([-1, 1, 3, 0], np.int32)
  after, output = policy(None, None, history, step, jax.random.PRNGKey(0), 1.0, forced)
  assert output.action.tolist() == [2, 1, 3, 0]
  assert after.actions[:, -1].tolist() == [2, 1, 3, 0]
  after, output = policy(None, None, history, step, jax.random.PRNGKey(0), 1.0)
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
