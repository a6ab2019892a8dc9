"""Tests of the DeepMind Control Suite: equality with the package, seeds, ends, observations and pictures."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

from moozi.core.errors import UserError
from moozi.envs import registry
from moozi.envs.environment import random_action
from moozi.envs.suites import dm_control as control_suite
from moozi.envs.suites import mujoco
from tests.envs.contract import assert_same, play
from tests.envs.environments import need

need("dm_control")
mujoco.prepare()
suite = pytest.importorskip("dm_control.suite")

# A task of each domain that is quick to load.
TASKS = ("cartpole-swingup", "finger-spin", "reacher-easy", "fish-swim", "manipulator-bring_ball")
FEW_BINS = {"humanoid": 2, "quadruped": 5, "swimmer": 4}


def own_env(task, seed):
  """Returns the package's own environment, seeded as the first episode of seed `seed` is."""
  domain, _, name = task.partition("-")
  return suite.load(domain, name, task_kwargs={"random": int(np.random.default_rng(seed).integers(2**31))})


def vector_of(observation):
  return np.concatenate([np.ravel(part) for part in observation.values()]).astype(np.float32)


def test_every_task_is_offered_or_refused():
  tasks = {f"{domain}-{task}" for domain, task in suite.ALL_TASKS}
  assert tasks == set(control_suite.GAMES) | set(control_suite.REFUSED)
  assert not set(control_suite.GAMES) & set(control_suite.REFUSED)


@pytest.mark.slow
@pytest.mark.parametrize("task", control_suite.GAMES)
def test_every_offered_task_plays(task):
  bins = FEW_BINS.get(task.partition("-")[0], 7)
  env = registry.make(f"dm_control:{task}", seed=0, action_bins=bins, max_episode_steps=4)
  assert len(env.env_spec.frame_names) == env.env_spec.frame_shape[2]
  steps = play(env, 6)
  assert [step.last() for step in steps] == [False] * 4 + [True, False]
  assert all(0.0 <= step.reward <= 1.0 for step in steps[1:5])
  assert all(np.isfinite(step.observation.frame).all() for step in steps)


LARGE = [name for name in control_suite.GAMES if name.startswith(tuple(FEW_BINS))]
QUICK = ("humanoid-stand", "quadruped-walk", "swimmer-swimmer6", "swimmer-swimmer15")


@pytest.mark.parametrize(
  "task", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in LARGE]
)
def test_tasks_with_many_dimensions_say_how_many_bins_they_allow(task):
  most = FEW_BINS[task.partition("-")[0]]
  if task == "swimmer-swimmer6":
    assert registry.env_spec(f"dm_control:{task}").num_env_actions == 7**5
    return
  assert registry.env_spec(f"dm_control:{task}", action_bins=most).is_factored
  with pytest.raises(UserError, match=f"joint actions of .*; action_bins is at most {most} here"):
    registry.env_spec(f"dm_control:{task}")


def test_summaries_say_how_many_bins_are_allowed():
  for task in set(LARGE) - {"swimmer-swimmer6"}:
    summary = control_suite.GAMES[task]
    assert "the same" in summary or "dimensions, so action_bins" in summary
    assert summary.endswith(str(FEW_BINS[task.partition("-")[0]]))


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("repeat", [1, 3])
def test_episodes_equal_the_package(task, repeat):
  env, own = registry.make(f"dm_control:{task}", seed=7, action_repeat=repeat), own_env(task, 7)
  random, factors = np.random.default_rng(0), env.env_spec.factors
  step, own_step = env.reset(), own.reset()
  np.testing.assert_array_equal(step.observation.frame[0, 0], vector_of(own_step.observation))
  for _ in range(25):
    action = random_action(env.env_spec, step.observation.legal_actions_mask, random)
    step = env.step(action)
    own_steps = [own.step(factors.own_action(action)) for _ in range(repeat)]
    np.testing.assert_array_equal(step.observation.frame[0, 0], vector_of(own_steps[-1].observation))
    assert step.reward == sum(own_step.reward for own_step in own_steps)


def test_names():
  spec = registry.env_spec("dm_control:reacher-easy")
  assert spec.factors.names == ("shoulder", "wrist")
  assert spec.factors.name(0) == "shoulder=-1 wrist=-1"
  assert spec.frame_names == tuple(
    f"{key} {i}" for key in ("position", "to_target", "velocity") for i in (0, 1)
  )
  assert registry.env_spec("dm_control:cartpole-swingup").action_names[3] == "slide=0"
  assert "upright" in registry.env_spec("dm_control:fish-swim").frame_names
  assert "arm_pos 0,1" in registry.env_spec("dm_control:manipulator-bring_ball").frame_names


@pytest.mark.parametrize(
  ("options", "num_steps"), [({}, 1000), ({"action_repeat": 4}, 250), ({"action_repeat": 7}, 143)]
)
def test_the_suites_time_limit_truncates(options, num_steps):
  env = registry.make("dm_control:cartpole-balance", seed=0, **options)
  step, num_played = env.reset(), 0
  while not step.last():
    step, num_played = env.step(3), num_played + 1
  assert num_played == num_steps
  assert step.discount == 1.0
  assert step.observation.legal_actions_mask.all()
  assert env.step(0).first()


@pytest.mark.parametrize("limit", [5, 1100])
def test_a_limit_of_ones_own_replaces_the_suites(limit):
  env = registry.make("dm_control:cartpole-balance", seed=0, max_episode_steps=limit)
  steps = [env.reset(), *(env.step(3) for _ in range(limit))]
  assert [step.last() for step in steps] == [False] * limit + [True]
  assert steps[-1].discount == 1.0


@pytest.mark.parametrize("task", TASKS)
def test_an_episode_depends_on_its_seed_alone(task):
  env = registry.make(f"dm_control:{task}", seed=1, max_episode_steps=20)
  first = play(env, 60)
  env.seed(1)
  assert_same(play(env, 60), first)
  starts = [step.observation.frame for step in first if step.first()]
  assert len(starts) == 3
  for left, right in itertools.combinations(starts, 2):
    assert (left != right).any()


def test_own_observations_are_converted():
  env, own = registry.make("dm_control:fish-swim", seed=0), own_env("fish-swim", 0)
  observation = own.reset().observation
  frame = env.to_observation(observation).frame
  np.testing.assert_array_equal(frame, env.reset().observation.frame)
  shuffled = dict(reversed(list(observation.items())))
  np.testing.assert_array_equal(env.to_observation(shuffled).frame, frame)
  split = env.own_observations.split
  assert split(observation) is None
  batch = {key: np.stack([part, part + 1]) for key, part in observation.items()}
  rows = split(batch)
  assert len(rows) == 2
  np.testing.assert_array_equal(env.to_observation(rows[0]).frame, frame)
  np.testing.assert_allclose(env.to_observation(rows[1]).frame, frame + 1, rtol=1e-6)


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (lambda x: np.zeros(24), "must be a dict of joint_angles, upright, target, velocity"),
    (lambda x: {key: part for key, part in x.items() if key != "target"}, "must be a dict of"),
    (lambda x: x | {"more": np.zeros(1)}, "must be a dict of"),
    (lambda x: x | {"target": np.zeros(4)}, r"observation\['target'\]: float64\[4\]; must be float64\[3\]"),
    (lambda x: x | {"upright": "up"}, r"observation\['upright'\]"),
    (lambda x: x | {"target": np.full(3, np.nan)}, "an observation that is not finite"),
  ],
)
def test_observations_that_do_not_fit(change, message):
  env = registry.make("dm_control:fish-swim", seed=0)
  observation = dict(own_env("fish-swim", 0).reset().observation)
  with pytest.raises(
    UserError, match=rf"^env.name=dm_control:fish-swim: observation.*{message}|{message}"
  ) as error:
    env.to_observation(change(observation))
  assert "\n" not in str(error.value)


def test_batches_of_different_sizes_are_refused():
  env = registry.make("dm_control:fish-swim", seed=0)
  observation = own_env("fish-swim", 0).reset().observation
  batch = {key: np.stack([part, part]) for key, part in observation.items()}
  with pytest.raises(UserError, match=r"its entries are batches of \[2, 3\] observations"):
    env.own_observations.split(batch | {"upright": np.zeros(3)})


def run(code, gl):
  """Runs code in a process without a screen; returns what it printed and its log."""
  kept = {
    key: value for key, value in os.environ.items() if key not in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL")
  }
  env = kept | ({} if gl is None else {"MUJOCO_GL": gl})
  done = subprocess.run([sys.executable, "-W", "error", "-c", code], env=env, capture_output=True, text=True)
  return done.returncode, done.stdout, done.stderr


DRAW = (
  "from moozi.envs import registry\n"
  "env = registry.make('dm_control:cheetah-run', seed=0, pictures=True)\n"
  "env.reset()\n"
  "first = env.render()\n"
  "for _ in range(9): env.step(0)\n"
  "second = env.render()\n"
  "print(None if first is None else (first.shape, first.dtype.name, bool((first != second).any())))"
)


@pytest.mark.slow
def test_no_pictures_without_opengl(tmp_path):
  code, out, log = run(f"import os; os.chdir({str(tmp_path)!r})\n{DRAW}", "disable")
  assert (code, out.strip()) == (0, "None"), log
  assert log.count("\n") == 1
  assert "dm_control draws no pictures: No OpenGL" in log
  assert not list(tmp_path.iterdir())  # MuJoCo's own log


@pytest.mark.slow
def test_pictures_with_egl_or_none():
  code, out, log = run(DRAW, None)
  assert code == 0, log
  assert out.strip() in ("((240, 320, 3), 'uint8', True)", "None")


@pytest.mark.slow
@pytest.mark.parametrize("gl", [None, "disable"])
def test_logging_stays_as_it_was(gl):
  code, out, log = run(f"import logging\n{DRAW}\nprint(logging.getLogger().handlers)", gl)
  assert code == 0, log
  assert out.splitlines()[-1] == "[]"


@pytest.mark.slow
def test_an_unknown_renderer():
  code, _, log = run(
    "from moozi.envs import registry; registry.env_spec('dm_control:cartpole-swingup')", "no_such"
  )
  assert code == 1
  assert "env.name=dm_control:cartpole-swingup: dm_control cannot be imported" in log
  assert "set MUJOCO_GL=disable" in log


def test_no_pictures_by_default():
  env = registry.make("dm_control:cartpole-swingup", seed=0)
  env.reset()
  assert env.render() is None
