"""Tests of `Agent.act` with observations of the environment's own, and with those of several games."""

import dm_env
import gymnasium
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces
from numpy.testing import assert_array_equal

import moozi
from moozi.api.observing import ObservationReader
from moozi.core.errors import UserError
from moozi.envs.vector import blank_step
from tests.commands.conftest import PPO, make_run
from tests.envs import hostile

NINE = spaces.Box(0, 9, (2, 2, 1), np.float32)
PARTS = spaces.Dict(
  {
    "action_mask": spaces.MultiBinary(3),
    "at": spaces.Discrete(4),
    "speed": spaces.Box(-2, 2, (2,), np.float32),
  }
)


class Fixed(gymnasium.Env):
  """Shows random observations of a space for eight steps; the reward is the action."""

  def __init__(self, space=NINE):
    self.observation_space, self.action_space = space, spaces.Discrete(3)

  def reset(self, *, seed=None, options=None):
    if seed is not None:
      self.observation_space.seed(seed)
    self._count = 0
    return self._sample(), {}

  def step(self, action):
    self._count += 1
    return self._sample(), float(action), self._count == 8, False, {}

  def _sample(self):
    out = self.observation_space.sample()
    if isinstance(out, dict):
      out["action_mask"][:] = [0, 1, 1]
    return out


def nine():
  return Fixed()


def parts():
  return Fixed(PARTS)


class Record(dm_env.Environment):
  """Two players and records of integers from 0 to 9."""

  def reset(self):
    return dm_env.restart({"frame": np.array([1, 9]), "to_play": 0, "legal_actions_mask": [True, False]})

  def step(self, action):
    return self.reset()

  def observation_spec(self):
    return {
      "frame": specs.BoundedArray((2,), np.int64, 0, 9),
      "to_play": specs.DiscreteArray(2),
      "legal_actions_mask": specs.Array((2,), bool),
    }

  def action_spec(self):
    return specs.DiscreteArray(2)


def record():
  return Record()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
  """Returns the agent of an untrained run with these settings, made once."""
  folder, agents = tmp_path_factory.mktemp("acting"), {}

  def make(*settings):
    if settings not in agents:
      agents[settings] = moozi.load(make_run(folder, f"run_{len(agents)}", *settings), allow_code=True)
    agents[settings].reset()
    return agents[settings]

  return make


def test_an_observation_becomes_the_frame_of_training():
  env = moozi.make_env("tests.api.test_acting:nine", seed=0)
  frame, raw = env.reset().observation.frame, Fixed()
  raw.observation_space.seed(0)
  observation = np.full((2, 2, 1), 4.5, np.float32)
  assert isinstance(frame, moozi.Frame)
  assert_array_equal(env.to_observation(observation).frame, np.full((2, 2, 1), 0.5, np.float32))
  assert env.to_observation(observation).legal_actions_mask.all()
  seen = moozi.make_env("tests.api.test_acting:parts").to_observation(
    {"at": 2, "speed": np.array([1, -2]), "action_mask": np.array([1, 0, 1], np.int8)}
  )
  assert_array_equal(seen.frame, [[[0, 0, 1, 0, 0.5, -1]]])
  assert seen.legal_actions_mask.tolist() == [True, False, True]
  seen = moozi.make_env("tests.api.test_acting:record").to_observation(
    {"frame": np.array([9, 0]), "to_play": 1, "legal_actions_mask": [False, True]}
  )
  assert_array_equal(seen.frame, [[[1, 0]]])
  assert (seen.to_play, seen.legal_actions_mask.tolist()) == (1, [False, True])
  with pytest.raises(UserError, match="its own observations are frames"):
    moozi.make_env("tiny:catch").to_observation(frame)


@pytest.mark.parametrize(
  ("name", "observation", "message"),
  [
    (
      "tests.api.test_acting:nine",
      np.zeros((2, 2)),
      r"float64\[2, 2\]; must be float32\[2, 2, 1\], as the environment",
    ),
    ("tests.api.test_acting:nine", np.zeros((2, 2, 1), complex), r"complex128\[2, 2, 1\]; must be float32"),
    ("tests.api.test_acting:nine", [[[1], [2]], [[3]]], r"observation: a list that is not an array"),
    ("tests.api.test_acting:nine", hostile._Unreadable(), r"observation: a _Unreadable that is not an array"),
    ("tests.api.test_acting:nine", np.ma.masked_all((2, 2, 1)), r"observation: a MaskedArray that is not an"),
    ("tests.api.test_acting:nine", np.full((2, 2, 1), np.nan), r"not finite"),
    ("tests.api.test_acting:parts", np.zeros(6), r"observation: a ndarray; must be of Dict"),
    ("tests.api.test_acting:parts", {"at": 2}, r"observation: entries \['at'\]; must be of Dict"),
    (
      "tests.api.test_acting:parts",
      {"at": 1.5, "speed": np.zeros(2), "action_mask": np.ones(3, np.int8)},
      r"observation\['at'\]: float64\[\]; must be int64\[\]",
    ),
    (
      "tests.api.test_acting:parts",
      {"at": 4, "speed": np.zeros(2), "action_mask": np.ones(3, np.int8)},
      r"observation 4; its spec says 0 to 3",
    ),
    (
      "tests.api.test_acting:parts",
      {"at": 1, "speed": np.zeros(2), "action_mask": np.zeros(3, np.int8)},
      r"has no legal action",
    ),
    (
      "tests.api.test_acting:record",
      {"frame": np.zeros(2, int), "to_play": 2},
      r"to_play=2; its spec says 0 or 1",
    ),
    ("tests.api.test_acting:record", {"to_play": 0}, r"observation: object\[\]; must be int64\[2\]"),
  ],
)
def test_an_observation_that_does_not_fit(name, observation, message):
  with pytest.raises(UserError, match=message):
    moozi.make_env(name).to_observation(observation)


def test_the_type_decides_whether_an_array_is_a_frame():
  """The same array is a frame or an observation of the environment's own."""
  env = moozi.make_env("tests.api.test_acting:nine", seed=0)
  reader = ObservationReader(env.env_spec, lambda: env.own_observations)
  raw = np.array([[[9], [0]], [[3], [9]]], np.float32)

  def frame_of(observation):
    assert reader.split(observation) is None
    out = blank_step(env.env_spec, 1)
    reader.read(out, 0, observation, None, False)
    return out.frame[0]

  own = env.to_observation(raw)
  for observation, frame in (
    (raw, raw / 9),
    (own, raw / 9),
    (own.frame, raw / 9),
    (dm_env.restart(own), raw / 9),
    (raw.view(moozi.Frame), raw),
  ):
    np.testing.assert_allclose(frame_of(observation), frame, rtol=1e-6)
  (row,) = reader.split(raw[None])
  assert_array_equal(frame_of(row), frame_of(raw))
  (row,) = reader.split(raw[None].view(moozi.Frame))
  assert_array_equal(frame_of(row), raw)
  view = env.as_gymnasium()
  frame, _ = view.reset(seed=0)
  assert view.observation_space.contains(frame)
  assert_array_equal(frame_of(frame), frame)


def alone(agent, games):
  """Returns the actions of an agent alone in each game; a game is a list of arguments of `act`."""
  out = []
  for game in games:
    agent.reset()
    out.append([agent.act(*step) for step in game])
  return np.array(out).T


@pytest.mark.slow
@pytest.mark.parametrize(
  "settings",
  [
    ("targets.history_length=3",),
    (*PPO, "ppo.history_length=2"),
    ("algorithm=q_learning", "targets.history_length=2"),
  ],
)
def test_games_at_once_equal_each_alone(made, settings):
  """A game that ends is reset while the others go on."""
  agent = made(*settings)
  rng, frames = np.random.default_rng(0), []
  for _ in range(6):
    frames.append(rng.random((3, *agent.spec.frame_shape)) < 0.3)
  masks = rng.random((6, 3, 3)) < 0.8
  masks[..., 0] = True
  got = []
  for t in range(6):
    if t == 4:
      agent.reset([False, True, False] if t % 2 else np.array([False, True, False]))
    got.append(agent.act(frames[t], masks[t]))
  assert got[0].dtype == np.int64
  expected = alone(agent, [[(frames[t][i], masks[t][i]) for t in range(6)] for i in (0, 2)])
  assert_array_equal(np.array(got)[:, [0, 2]], expected)
  for part in (range(4), range(4, 6)):
    expected = alone(agent, [[(frames[t][1], masks[t][1]) for t in part]])[:, 0]
    assert_array_equal(np.array(got)[list(part), 1], expected)


def assert_same_searches(found, expected):
  for one, other in zip(found, expected, strict=True):
    for name, value in vars(one).items():
      if name != "tree":
        assert_array_equal(value, getattr(other, name), err_msg=name)
    for name, value in vars(one.tree).items():
      assert_array_equal(value, getattr(other.tree, name), err_msg=f"tree.{name}")


def test_searches_of_games_equal_each_alone(runs):
  """Frames that were searched only are not part of a history, and a game's first frame remains its first."""
  agent = moozi.load(runs["catch"])
  envs = [agent.make_env(seed=i) for i in range(3)]
  first = np.stack([env.reset().observation.frame for env in envs])
  later = np.stack([env.step(i).observation.frame for i, env in enumerate(envs)])
  agent.observe(later, [2, 2, 2])
  agent.reset([0, 1, 2])
  starts = agent.search(first)
  agent.observe(first, [0, 1, 2])
  found = agent.search(later)
  assert len({search.value for search in (*starts, *found)}) > 3
  assert_same_searches(agent.search(list(later)), found)
  assert_same_searches(agent.search(later, lanes=[2, 0]), [found[2], found[0]])
  for i in range(3):
    agent.reset()
    assert_same_searches([agent.search(first[i])], [starts[i]])
    agent.observe(first[i], i)
    assert_same_searches([agent.search(later[i])], [found[i]])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["point", "alphazero", "board"])
def test_searches_of_games_are_those_of_the_next_act(runs, kind):
  agent = moozi.load(runs[kind])
  envs = [agent.make_env(seed=i) for i in range(3)]
  steps, seen, got = [env.reset() for env in envs], [], []
  for t in range(3):
    positions = [env.position() for env in envs] if kind == "alphazero" else [None] * 3
    seen.append(list(zip(steps, positions, strict=True)))
    got.append(agent.search(steps, position=positions))
    actions = list(agent.act(steps, position=positions))
    assert_array_equal([search.own_action for search in got[-1]], actions)
    # Other moves in each game.
    if kind != "point":
      actions = [
        np.flatnonzero(step.observation.legal_actions_mask)[(i + t) % 2] for i, step in enumerate(steps)
      ]
      agent.reset()
    steps = [env.step(action) for env, action in zip(envs, actions, strict=True)]
  for i in range(3):
    for t in range(3):
      if t == 0 or kind != "point":
        agent.reset()
      step, position = seen[t][i]
      assert_same_searches([agent.search(step, position=position)], [got[t][i]])
      agent.act(step, position=position)


@pytest.mark.slow
def test_lists_and_lanes(made):
  agent = made("targets.history_length=3")
  envs = [agent.make_env(seed=i) for i in range(3)]
  steps = [env.reset() for env in envs]
  observed = agent.act(steps, lanes=[2, 0])
  assert observed[1] == -1
  agent.observe(steps, [9, 1, 9], lanes=np.array([False, True, False]))
  later = [env.step(1) for env in envs]
  got = agent.act(later)
  for i in range(3):
    agent.reset()
    if i == 1:
      agent.observe(steps[i], 1)
    else:
      assert agent.act(steps[i]) == observed[i]
    assert agent.act(later[i]) == got[i]
  # The games continue on their own, and after an end the action is 0.
  while not later[0].last():
    later = [env.step(1) for env in envs]
    got = agent.act(later)
  assert got.tolist() == [0, 0, 0]
  first = [env.step(0) for env in envs]
  assert_array_equal(agent.act(first), [agent.act(step) for step in first])


class Still:
  """Takes the place of a `AgentPlayer`, which would compile."""

  def __init__(self, num_games):
    self.num_games = num_games

  def choose(self, games, timestep, positions=()):
    return np.ones(len(games), np.int32)


def test_arguments_that_do_not_fit_games(runs, monkeypatch):
  agent = moozi.load(runs["catch"])
  monkeypatch.setattr(agent, "_make_games", Still)
  step = agent.make_env().reset()
  frames = np.zeros((4, *agent.spec.frame_shape), bool)
  agent.act(frames)
  for arguments, message in (
    ((frames[:3],), r"3 observations; 4 games are played; call agent.reset\(\)"),
    (([],), r"observation: a batch without observations"),
    ((frames, np.ones(3, bool)), r"legal: 3 rows; must have 4"),
    ((frames, True), r"legal: one value; must have 4"),
    ((frames, np.zeros((4, 3), bool)), r"observation 0 of 4: legal: allows no action"),
    (([step, step, 7, step],), r"observation 2 of 4: observation: int64\[\]; must be bool"),
    ((frames, None, None, [0, 0]), r"lanes=\[0, 0\]: must be bool\[4\]"),
    ((frames, None, None, np.ones(3, bool)), r"lanes=.*True\]: must be bool\[4\]"),
    ((frames[0], None, None, [0]), r"lanes=\[0\]: is for B observations"),
  ):
    for call in (agent.act, agent.search):
      with pytest.raises(UserError, match=message):
        call(*arguments)
  over = dm_env.termination(0.0, step.observation)
  with pytest.raises(UserError, match=r"^observation 2 of 4: the episode is over \(a LAST step\)"):
    agent.search([step, step, over, over])
  with pytest.raises(UserError, match=r"lanes=\[4\]"):
    agent.reset([4])
  with pytest.raises(UserError, match=r"action=7: must be from 0 to 2"):
    agent.observe(frames, [7] * 4)
  agent.reset()
  assert agent.act(frames[:3]).shape == (3,)


@pytest.mark.slow
def test_a_vector_environment_of_dicts(made):
  """The masks in the observations are used, and a batch equals its rows."""
  agent = made("env.name=tests.api.test_acting:parts", *PPO, "ppo.history_length=2")
  envs = gymnasium.vector.SyncVectorEnv(
    [lambda: Fixed(PARTS)] * 3, autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP
  )
  observations, _ = envs.reset(seed=0)
  seen, got = [], []
  for _ in range(7):
    seen.append({key: value.copy() for key, value in observations.items()})
    actions = agent.act(observations)
    got.append(actions)
    observations, _, terminated, truncated, _ = envs.step(actions)
    agent.reset(terminated | truncated)
  assert (np.array(got) > 0).all()
  expected = alone(agent, [[({k: v[i] for k, v in s.items()},) for s in seen] for i in range(3)])
  assert_array_equal(got, expected)
  bad = dict(seen[0], speed=np.zeros((2, 2), np.float32))
  with pytest.raises(UserError, match=r"an entry of shape \[2, 2\] in a batch of 3"):
    agent.act(bad)
  with pytest.raises(UserError, match=r"observation: has no entry 'speed'"):
    agent.act({key: seen[0][key] for key in ("action_mask", "at")} | {"more": seen[0]["at"]})


@pytest.mark.slow
def test_alphazero_with_positions_of_gymnasium(made):
  agent = made("env.name=open_spiel:tic_tac_toe", "algorithm=alphazero", "targets.unroll_steps=0")
  views = [agent.make_env().as_gymnasium() for _ in range(3)]
  shown = [view.reset(seed=0) for view in views]
  for _ in range(2):
    frames = [frame for frame, _ in shown]
    legal, position = ([info[key] for _, info in shown] for key in ("legal_actions_mask", "position"))
    actions = agent.act(frames, legal, position)
    # With a history of one frame, a game alone needs no earlier call.
    for i in range(3):
      assert agent.act(frames[i], legal[i], position[i]) == actions[i]
    played = [np.flatnonzero(mask)[i] for i, mask in enumerate(legal)]
    shown = [view.step(int(action))[::4] for view, action in zip(views, played, strict=True)]
  with pytest.raises(UserError, match="position: missing"):
    agent.act(frames, legal)
  with pytest.raises(UserError, match="position: 2 rows; must have 3"):
    agent.act(frames, legal, position[:2])
