"""Tests of agents: the history that they decide with, forced actions, ends, and other players' moves."""

import jax
import numpy as np
import pytest

from moozi.agent import muzero
from moozi.agent.agent import Decision, keyed, make_agent
from moozi.agent.planner import SearchOutput
from moozi.core.config import PlannerConfig, TargetsConfig
from moozi.envs.vector import make_vector
from moozi.ops.history import network_input, normalize_frame, stack_history
from tests.agent.tiny import table_model

LENGTH = 3
LANES = 4
STEPS = 30


@pytest.fixture(scope="module")
def played():
  """Plays a corridor with terminations and truncations; returns steps, decisions and the inputs they had."""
  env = make_vector("tiny:corridor", {"length": 5, "max_episode_steps": 6}, LANES, seed=0)
  random = np.random.default_rng(0)
  stacks = []

  def decide(variables, history, timestep, rng_key, temperature, position):
    stacks.append(np.asarray(network_input(history.frames, history.actions, env.spec)))
    mask = np.asarray(timestep.legal_actions_mask)
    action = np.array([random.choice(np.flatnonzero(row)) for row in mask], np.int32)
    probs = mask / mask.sum(-1, keepdims=True)
    return Decision(action=action, action_probs=probs, root_value=np.ones(LANES, np.float32), extras={})

  agent = make_agent(decide, env.spec, LENGTH)
  carry, step = agent.init(LANES), env.reset()
  steps, outputs = [], []
  for _ in range(STEPS):
    carry, output = agent.act({}, carry, step, jax.random.PRNGKey(0), 1.0)
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
        normalize_frame(np.stack(frames), spec.frame_dtype), np.array(actions, np.int32), spec.policy_groups
      )
      np.testing.assert_array_equal(stacks[t][lane], expected)
      actions = [*actions[1:], int(outputs[t].action[lane])]
  assert num_first > 2 * LANES


def fixed_agent(spec):
  """Returns an agent that always chooses action 2."""

  def decide(variables, history, *args):
    probs = np.full((LANES, spec.num_actions), 0.25, np.float32)
    extras = {"frames": history.frames, "key": args[1]}
    return Decision(
      action=np.full(LANES, 2, np.int32), action_probs=probs, root_value=probs[:, 0], extras=extras
    )

  return make_agent(decide, spec, LENGTH)


def test_forced_actions_enter_the_history():
  env = make_vector("tiny:catch", {}, LANES, seed=0)
  agent = fixed_agent(env.spec)
  carry, step = agent.init(LANES), env.reset()
  forced = np.array([-1, 1, 3, 0], np.int32)
  after, output = agent.act({}, carry, step, jax.random.PRNGKey(0), 1.0, forced)
  assert output.action.tolist() == [2, 1, 3, 0]
  assert after.actions[:, -1].tolist() == [2, 1, 3, 0]
  after, output = agent.act({}, carry, step, jax.random.PRNGKey(0), 1.0)
  assert after.actions[:, -1].tolist() == [2, 2, 2, 2]


def test_observed_moves_leave_the_carry_of_forced_ones():
  """In NumPy, as `AgentPlayer` observes, and across the ends of episodes."""
  env = make_vector("tiny:corridor", {"length": 5, "max_episode_steps": 3}, LANES, seed=0)
  agent = fixed_agent(env.spec)
  acted = observed = agent.init(LANES)
  step, random = env.reset(), np.random.default_rng(0)
  for _ in range(9):
    action = np.where(step.is_last, 0, random.integers(1, 3, LANES)).astype(np.int32)
    acted, _ = agent.act({}, acted, step, jax.random.PRNGKey(0), 1.0, action)
    observed = agent.observe({}, observed, step, action)
    assert isinstance(observed.frames, np.ndarray)
    jax.tree_util.tree_map(np.testing.assert_array_equal, acted, observed)
    step = env.step(action)


def test_keyed_splits_as_the_caller_would():
  env = make_vector("tiny:catch", {}, LANES, seed=0)
  agent, step = fixed_agent(env.spec), env.reset()
  key = jax.random.PRNGKey(5)
  after, _, decision = keyed(agent)({}, agent.init(LANES), step, key, 1.0)
  np.testing.assert_array_equal([after, decision.extras["key"]], jax.random.split(key))
  assert set(decision.extras) == {"frames", "key"}
  assert set(decision.only(["key", "value"]).extras) == {"key"}


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


def test_muzero_searches_with_the_stacked_history(monkeypatch):
  """Its extras are the other fields of the search's output."""
  env, seen = make_vector("tiny:catch", {}, LANES, seed=0), []

  def plan(model, config, discount, players, params, net_state, rng_key, stacked, mask, *args, **options):
    seen.append((params, net_state, np.asarray(stacked), options["with_tree"], options["node"]))
    probs, values = np.float32(mask), np.zeros(LANES, np.float32)
    return SearchOutput(
      action=np.full(LANES, 2),
      action_probs=probs,
      root_value=values,
      prior_probs=probs,
      prior_action=np.full(LANES, 1),
      prior_value=values,
      q_values=probs,
      depth_mean=values,
      depth_max=values,
      tree="tree",
    )

  monkeypatch.setattr(muzero, "plan", plan)
  targets = TargetsConfig(history_length=LENGTH)
  agent = muzero.make_muzero(table_model(env.spec.num_actions), PlannerConfig(), targets, env.spec, True)
  step = env.reset()
  carry, decision = agent.act(("params", "averages"), agent.init(LANES), step, jax.random.PRNGKey(0), 1.0)
  assert not agent.plans_with_rules
  assert set(decision.extras) == {
    "prior_probs",
    "prior_action",
    "prior_value",
    "q_values",
    "depth_mean",
    "depth_max",
    "tree",
  }
  ((params, averages, stacked, with_tree, node),) = seen
  assert (params, averages, with_tree, node) == ("params", "averages", True, None)
  np.testing.assert_array_equal(stacked, muzero.input_of(agent.init(LANES), step, env.spec))
  np.testing.assert_array_equal(
    stacked, network_input(carry.frames, np.zeros((LANES, LENGTH), int), env.spec)
  )
