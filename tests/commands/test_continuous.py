"""Tests of every command with a run of continuous actions."""

import io
import json
import sys

import numpy as np
import pytest

import moozi
from moozi.core.errors import UserError
from moozi.envs.suites.tiny import POINT_SPEED
from tests.baselines.ppo.conftest import TINY
from tests.commands.conftest import make_run

POINT = (*TINY, "env.name=tiny:point", "env.kwargs.action_bins=0", "logging.progress=none")


@pytest.fixture(name="agent", scope="module")
def _agent(tmp_path_factory):
  return moozi.load(make_run(tmp_path_factory.mktemp("runs"), "point", *POINT))


def test_act_takes_and_returns_own_actions(agent):
  env = agent.make_env()
  step, length = env.reset(), 0
  agent.reset()
  while not step.last():
    action = agent.act(step)
    assert (action.dtype, action.shape) == (np.float32, (2,))
    assert np.abs(action).max() <= POINT_SPEED
    step, length = env.step(action), length + 1
  assert length == 10
  observation = env.reset().observation
  agent.reset()
  agent.observe(observation, np.array([0.1, -0.2]))
  with pytest.raises(UserError, match=r"action=0.3: must be from -0.25 to 0.25 in y"):
    agent.observe(observation, np.array([0.1, 0.3]))


def test_act_in_several_games(agent):
  steps = [agent.make_env(seed).reset() for seed in range(3)]
  agent.reset()
  together = agent.act(steps)
  assert (together.dtype, together.shape) == (np.float32, (3, 2))
  for i, step in enumerate(steps):
    agent.reset()
    np.testing.assert_allclose(agent.act(step), together[i], rtol=1e-5, atol=1e-6)
  agent.reset()
  some = agent.act(steps, lanes=[1])
  np.testing.assert_allclose(some, [[0, 0], together[1], [0, 0]], rtol=1e-5, atol=1e-6)
  np.testing.assert_array_equal(agent.act(steps, lanes=[]), np.zeros((3, 2)))
  agent.observe(steps, together, lanes=[0, 2])


def test_gymnasiums_vector_environment(agent):
  gymnasium = pytest.importorskip("gymnasium")
  envs = gymnasium.vector.SyncVectorEnv([lambda: agent.make_env().as_gymnasium()] * 3)
  frames, _ = envs.reset(seed=0)
  agent.reset()
  actions = agent.act(frames.view(moozi.Frame))
  assert envs.action_space.contains(actions)
  envs.step(actions)


def test_evaluate_watch_and_refusals(agent, cli, tmp_path):
  path = agent.directory.path
  status, out, err = cli("evaluate", path, "--episodes", "2", "--json", "--gif", tmp_path / "seen.gif")
  assert status == 0, err
  assert json.loads(out.splitlines()[0])["episodes"] == 2
  assert (tmp_path / "seen.gif").stat().st_size > 0
  status, out, err = cli("watch", path)
  assert status == 0, err
  lines = out.splitlines()
  assert "action x=" in lines[0]
  assert " y=" in lines[0]
  assert "policy" not in out
  assert lines[-2].endswith("end")
  for arguments, message in (
    (("inspect", path), "algorithm=ppo has no search"),
    (
      ("train", "ppo/gymnasium/pendulum", *POINT, "algorithm=muzero", "max_env_steps=100000"),
      "continuous actions need algorithm=ppo",
    ),
  ):
    status, _, err = cli(*arguments)
    assert status != 0
    assert message in err, err
    assert len(err.strip().splitlines()) == 1


def test_a_person_plays_the_runs_environment(agent, cli, monkeypatch):
  monkeypatch.setattr(sys, "stdin", io.StringIO("0.1 -0.2\n0.3 0\nq\n"))
  status, out, err = cli("play", agent.directory.path)
  assert (status, err) == (0, "")
  assert "action=0.3: must be from -0.25 to 0.25 in x" in out
  assert out.splitlines()[-1].endswith(" in 1 steps")


def test_a_checkpoint_of_binned_actions_is_another_environments(agent, refused, tmp_path):
  own = agent.directory.path
  other = make_run(tmp_path, "binned", *POINT, "env.kwargs.action_bins=7")
  (binned,), (continuous,) = ((run / "checkpoints").glob("step_*") for run in (other, own))
  before = continuous.read_bytes()
  for run, checkpoint, sizes in ((own, binned, (49, 1)), (other, continuous, (1, 49))):
    line = refused("evaluate", run, "--checkpoint", checkpoint)
    found, expected = sizes
    assert f"of another environment: spec.num_env_actions is {found}, expected {expected}" in line
  assert continuous.read_bytes() == before


@pytest.mark.slow
def test_train_resume_report_and_trajectories(cli, tmp_path):
  names = (f"run.dir={tmp_path}", "run.name=point", "trajectories.save=true", "evaluation.gif=true")
  status, _, err = cli("train", "ppo/gymnasium/pendulum", *POINT, *names, "max_env_steps=256")
  assert status == 0, err
  run = tmp_path / "point"
  status, _, err = cli("train", "--resume", run, "max_env_steps=384")
  assert status == 0, err
  assert list(run.rglob("*.gif"))
  status, _, err = cli("report", run)
  assert status == 0, err
  episodes = list(moozi.read_trajectories(run))
  assert sum(e.length + 1 for e in episodes) == 384
  for episode in episodes:
    assert (episode.actions.dtype, episode.actions.shape) == (np.float32, (episode.length, 2))
    assert np.abs(episode.actions).max(initial=0) <= POINT_SPEED
    places = episode.frames[:, 0, 0, :2]
    np.testing.assert_allclose(np.clip(places[:-1] + episode.actions, -1, 1), places[1:], atol=1e-6)
  spec = moozi.make_env("tiny:point", seed=0, action_bins=0).env_spec
  moozi.write_trajectories(tmp_path / "copy", spec, episodes)
  for first, second in zip(episodes, moozi.read_trajectories(tmp_path / "copy"), strict=True):
    np.testing.assert_array_equal(first.actions, second.actions)
    np.testing.assert_array_equal(first.frames, second.frames)


def test_written_actions_are_checked(tmp_path):
  spec = moozi.make_env("tiny:point", seed=0, action_bins=0).env_spec
  frames, rewards = np.zeros((3, 1, 1, 3), np.float32), np.zeros(2, np.float32)

  def write(actions):
    episode = moozi.Episode(frames=frames, actions=actions, rewards=rewards, is_terminal=True)
    moozi.write_trajectories(tmp_path / "new", spec, [episode])

  for bad, message in (
    (np.full((2, 2), 0.3), r"episodes\[0\].actions\[0\]: action=0.3: must be from -0.25 to 0.25 in x"),
    (np.zeros((2, 3)), r"episodes\[0\].actions\[0\]: action: must be numbers of shape \[2\]"),
    (np.zeros(2, int), r"episodes\[0\].actions\[0\]: action: must be numbers of shape \[2\]"),
    (np.zeros((3, 2)), "episodes"),
  ):
    with pytest.raises(UserError, match=message):
      write(bad)
  write([[0.1, 0.2], np.zeros(2)])
  (episode,) = moozi.read_trajectories(tmp_path / "new")
  np.testing.assert_array_equal(episode.actions, np.float32([[0.1, 0.2], [0, 0]]))
  np.testing.assert_array_equal(episode.action_probs, [[1, 1], [1, 1], [0, 0]])
