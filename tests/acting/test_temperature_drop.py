"""Tests of the temperature that drops after the first moves of a game."""

import jax
import numpy as np
import pydantic
import pytest

from moozi.acting.rollout import RolloutCollector
from moozi.acting.temperature_drop import with_temperature_drop
from moozi.agent.agent import Decision, PureAgent
from moozi.core.config import PlannerConfig
from moozi.core.config.planner import PlannersConfig
from moozi.envs.jax.adapters import JaxVectorEnvironment
from moozi.envs.vector import blank_step
from moozi.io.config import load_config
from moozi.run import build
from moozi.run.collector_state import have_same_settings
from tests.acting.parameters import collector_in, random_parameters
from tests.acting.test_rollout import MLP, assert_same
from tests.envs.jax.toys import make_nim
from tests.replay.replay_lanes import make_spec

DROP = 2


def test_each_lane_has_the_temperature_of_its_own_move():
  """`f` first frame, `l` last frame, `.` another one. In lane 2 a lost life ends an episode, not the game."""
  seen = []

  def act(variables, carry, timestep, key, temperature, forced, position):
    seen.append(np.asarray(temperature).tolist())
    return carry, Decision(action=forced, action_probs=None, root_value=None, extras={})

  agent = with_temperature_drop(
    PureAgent(init=np.zeros, act=act, observe=lambda variables, carry, step, action: carry), DROP, 0.25
  )
  lanes = ("f...lf..", "flff..lf", "f.l.....")
  carry = agent.init(3)
  for letters in zip(*lanes, strict=True):
    step = blank_step(make_spec(), 3)
    step.is_first[:], step.is_last[:] = np.array(letters) == "f", np.array(letters) == "l"
    carry, _ = agent.act((), carry, step, jax.random.PRNGKey(0), 1.5)
  by_lane = np.array(seen).T.tolist()
  assert by_lane == [
    [1.5, 1.5, 0.25, 0.25, 0.25, 1.5, 1.5, 0.25],
    [1.5, 1.5, 1.5, 1.5, 1.5, 0.25, 0.25, 1.5],
    [1.5, 1.5, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25],
  ]
  # Another player's moves count too.
  step.is_first[:], step.is_last[:] = True, False
  carry = agent.observe((), agent.init(3), step, np.ones(3, np.int32))
  assert carry["num_moves"].tolist() == [1, 1, 1]


def test_a_number_of_moves_beyond_int32_is_every_move():
  seen = []

  def act(variables, carry, timestep, key, temperature, forced, position):
    seen.extend(np.asarray(temperature).tolist())
    return carry, Decision(action=forced, action_probs=None, root_value=None, extras={})

  agent = with_temperature_drop(PureAgent(init=np.zeros, act=act, observe=np.ones), 2**40, 0.25)
  agent.act((), agent.init(3), blank_step(make_spec(), 3), jax.random.PRNGKey(0), 1.5)
  assert seen == [1.5] * 3


PUCT = (
  *("planners.train.algorithm=puct", "planners.train.temperature=3", "planners.train.num_simulations=12"),
  "workers.segment_length=40",
)


def played(segment):
  """Returns for each live step its number in the game, and whether its action has the most visits."""
  live = ~segment.is_last
  number = np.zeros(live.shape, int)
  for t in range(1, len(live)):
    number[t] = np.where(segment.is_first[t], 0, number[t - 1] + 1)
  probs = segment.action_probs
  chosen = np.take_along_axis(probs, segment.action[..., None], -1)[..., 0]
  return number[live], (chosen == probs.max(-1))[live]


def test_a_compiled_rollout_takes_the_most_visited_action_after_the_first_moves():
  config, env = load_config(None, [*MLP, *PUCT]), make_nim()
  agent = with_temperature_drop(build.build_agent(config, env.spec, config.planners.train), DROP, 0.0)
  collector = collector_in(
    JaxVectorEnvironment(env, list(range(16))), config, kind=RolloutCollector, agent=agent
  )
  collector.set_parameters(random_parameters(config, env.spec), 0)
  number, is_most_visited = played(collector.run(0)[0])
  assert is_most_visited[number >= DROP].all()
  assert (number >= DROP).sum() > 50
  # At a temperature of 3 the first moves are nearly uniform over the visited actions.
  assert not is_most_visited[number < DROP].all()


@pytest.mark.slow
def test_scan_equals_step():
  config, env = load_config(None, [*MLP, *PUCT]), make_nim()
  out = []
  for kind in (None, RolloutCollector):
    agent = with_temperature_drop(build.build_agent(config, env.spec, config.planners.train), DROP, 0.5)
    kinds = {} if kind is None else {"kind": kind}
    collector = collector_in(JaxVectorEnvironment(env, list(range(4))), config, agent=agent, **kinds)
    collector.set_parameters(random_parameters(config, env.spec), 0)
    out.append([collector.run(0) for _ in range(3)])
  assert_same(*out)


def test_environments_are_reset_where_the_setting_changed():
  plain = {"lanes/carry/frames": np.zeros(2)}
  counted = {"lanes/carry/agent/frames": np.zeros(2), "lanes/carry/num_moves": np.zeros(2, np.int32)}
  both = {"lanes/rng_key": np.zeros(2)}
  assert have_same_settings([plain | both], [plain | both])
  assert have_same_settings([counted | both], [counted | both])
  assert not have_same_settings([plain | both], [counted | both])
  assert not have_same_settings([counted | both], [plain | both])


def test_it_needs_a_search_that_reads_the_temperature_and_is_for_training():
  assert PlannerConfig(algorithm="puct", temperature_drop=3).noise_free().temperature_drop is None
  with pytest.raises(pydantic.ValidationError, match="temperature_drop=3: needs algorithm=puct"):
    PlannerConfig(temperature_drop=3)
  with pytest.raises(pydantic.ValidationError, match=r"temperature_drop=3: must be null in planners\.test"):
    PlannersConfig(test=PlannerConfig(algorithm="puct", temperature_drop=3))
