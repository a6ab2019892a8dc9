"""Tests of acting against a past self: whose action is played, and which games count."""

import jax
import numpy as np
import pytest

from moozi.acting.collector import TrajectoryCollector
from moozi.acting.lanes import ActingResult
from moozi.acting.past_selves import PastCollector, past_seats, with_past
from moozi.acting.rollout import RolloutCollector
from moozi.agent.agent import Decision, PureAgent
from moozi.core.pytree import fields_of
from moozi.core.records import TrajectorySample
from moozi.envs import registry
from moozi.envs.jax.adapters import JaxVectorEnvironment
from moozi.envs.vector import blank_step
from moozi.io.config import load_config
from moozi.run import build
from tests.acting.parameters import collector_in, random_parameters
from tests.envs.jax.toys import make_nim
from tests.replay.replay_lanes import make_spec
from tests.tiny_run import TINY, shaken


def test_past_self_plays_its_seat_of_the_last_lanes():
  calls = []

  def act(variables, carry, timestep, key, temperature, forced=None, position=None):
    params, name = variables
    calls.append((params, name, len(timestep.to_play), np.asarray(key).tolist(), carry.tolist()))
    own = np.full(len(timestep.to_play), params)
    action = own if forced is None else np.where(np.asarray(forced) < 0, own, forced)
    return carry, Decision(action=action, action_probs=None, root_value=None, extras={})

  spec = make_spec(num_players=2)
  step = blank_step(spec, 6)
  step.to_play[:] = [0, 1, 0, 0, 1, 1]
  agent = with_past(PureAgent(init=np.arange, act=act, observe=lambda *seen: seen), 4)
  variables, key = ((7, "now"), (3, "then")), jax.random.PRNGKey(0)
  carry, output = agent.act(variables, agent.init(6), step, key, 1.0)
  assert carry.tolist() == [0, 1, 2, 3, 4, 5]
  # Lanes 2 to 5 have the past self in the seats 0, 1, 0, 1; it is to move in lanes 2 and 5.
  assert past_seats(4).tolist() == [0, 1, 0, 1]
  assert output.action.tolist() == [7, 7, 3, 7, 7, 3]
  assert [call[:3] for call in calls] == [(3, "then", 4), (7, "now", 6)]
  assert calls[0][3] != calls[1][3]
  assert calls[0][4] == [2, 3, 4, 5]
  # The caller's forced actions have precedence.
  _, output = agent.act(variables, carry, step, key, 1.0, np.array([-1, 5, -1, 5, -1, 5]))
  assert output.action.tolist() == [7, 5, 3, 5, 7, 5]
  assert agent.observe(variables, "carry", "step", "action") == ((7, "now"), "carry", "step", "action")


class FakeCollector(TrajectoryCollector):
  def __init__(self, segments):
    self._segments, self.version = iter(segments), -1

  def set_parameters(self, variables, version):
    self.variables, self.version = variables, version

  def run(self, env_steps):
    return next(self._segments), ActingResult(0, 0, np.zeros(0), np.zeros(0, int), {})


def segment(text: str) -> TrajectorySample:
  """Returns a segment from rows of steps; a step has a letter per lane.

  `f`: a first frame; `0`, `1`: a frame at which this player is to move; `w`, `l`, `d`: an end at which the
  player who moved wins, loses or draws; `t`: a truncated frame.
  """
  rows = np.array([list(row) for row in text.split()])
  shape, spec = rows.shape, make_spec(num_players=2)
  step = {name: np.stack([x] * shape[0]) for name, x in fields_of(blank_step(spec, shape[1])).items()}
  step["is_first"], step["is_last"] = rows == "f", np.isin(rows, ["w", "l", "d", "t"])
  step["is_truncated"] = rows == "t"
  step["to_play"] = (rows == "1").astype(np.int32)
  step["last_reward"] = np.float32(1) * (rows == "w") - np.float32(1) * (rows == "l")
  zeros = np.zeros(shape, np.float32)
  return TrajectorySample(
    **step,
    root_value=zeros,
    action_probs=np.zeros((*shape, 3), np.float32),
    action=zeros.astype(np.int32),
    acted_version=zeros.astype(np.int32),
    searched_version=zeros.astype(np.int32),
  )


class TestCount:
  def play(self, *segments, versions=None):
    """Returns the results of the segments of three lanes; the past self has seats 0 and 1 of the last two."""
    collector, out = PastCollector(FakeCollector(map(segment, segments)), 2), []
    for i in range(len(segments)):
      version = versions[i] if versions else 5
      collector.set_opponent({}, version)
      collector.set_parameters({}, i)
      result = collector.run(0)[1].past
      assert result.version == version
      out.append((result.wins, result.draws, result.losses, result.is_complete))
    return out

  def test_by_hand(self):
    # Player 1 wins both games. It is the current one in lane 1, and the past self in lane 2.
    assert self.play("fff 011 0w0 1f1 wlw") == [(1, 0, 1, True)]

  def test_first_whole_game_of_each_lane_counts_once(self):
    # Lane 2 begins in the middle of a game, which does not count.
    assert self.play("ff0 001 lll fff ddw") == [(2, 0, 0, True)]

  def test_same_opponent_has_a_new_round(self):
    # When the first round is complete, lane 1 is in the middle of a game, which does not count.
    out = self.play("ff0 001 lll fff 00w", "0df 0fw 00f", "0w0")
    assert out == [(2, 0, 0, True), (1, 0, 0, False), (0, 0, 1, True)]

  def test_game_spans_segments(self):
    assert self.play("fff 111", "000 www") == [(0, 0, 0, False), (1, 0, 1, True)]

  def test_truncated_game_has_no_result(self):
    # The round is complete all the same; otherwise games at a limit of steps would keep an opponent forever.
    assert self.play("fff 000 ttt", "fff 111", "fww") == [(0, 0, 0, True), (0, 0, 0, False), (1, 0, 1, True)]

  def test_new_opponent_starts_a_new_round(self):
    out = self.play("fff 000 ddd", "fff 000", "111 ddd fff ddd", versions=[5, 5, 6])
    assert out == [(0, 2, 0, True), (0, 0, 0, False), (0, 2, 0, True)]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["muzero", "alphazero"])
def test_scan_equals_step(algorithm):
  options = [f"algorithm={algorithm}", "targets.unroll_steps=0"] if algorithm == "alphazero" else []
  name = "pgx:tic_tac_toe" if options else "tests.envs.environments:make_nim"
  if options:
    pytest.importorskip("pgx")
  config = load_config(
    None, [*TINY, *options, f"env.name={name}", "workers.num_envs=6", "opponents.past_share=0.7"]
  )
  env = registry.make_jax_env(name) if options else make_nim()
  spec, num_past = env.spec, config.num_past_lanes
  agent = with_past(build.build_agent(config, spec, config.planners.train), num_past)
  params, net_state = random_parameters(config, spec)
  results = []
  for kind in (TrajectoryCollector, RolloutCollector):
    vector = JaxVectorEnvironment(env, list(range(6)))
    collector = PastCollector(collector_in(vector, config, kind=kind, agent=agent), num_past)
    collector.warm_up((params, net_state))
    results.append([])
    for version in (3, 3, 9):
      collector.set_opponent((shaken(params, version), net_state), version)
      collector.set_parameters((params, net_state), 20)
      results[-1].append(collector.run(0))
  num_games = 0
  for (segment, acted), (other, also) in zip(*results, strict=True):
    for name, x in fields_of(segment).items():
      np.testing.assert_array_equal(x, fields_of(other)[name], name)
    assert acted.past == also.past
    num_games += acted.past.wins + acted.past.draws + acted.past.losses
  assert num_games > 4
