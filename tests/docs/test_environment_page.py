"""Tests that the example of docs/custom_environment.md works."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "custom_environment.md"
# These overrides shorten the page's example, which takes a minute.
QUICK = (
  *("runtime=local", "max_env_steps=128", "replay.min_steps_to_learn=64", "replay.capacity=4096"),
  *("workers.num_envs=4", "learner.batch_size=16", "learner.updates_per_call=2"),
  *("network.latent_size=16", "network.head_size=16", "targets.unroll_steps=1", "targets.n_step=2"),
  *("planners.train.num_simulations=2", "planners.test.num_simulations=2", "learner.consistency_coef=0"),
  *("evaluation.num_envs=2", "evaluation.final_episodes=2", "evaluation.gif=false"),
  *("logging.progress=none", "logging.tensorboard=false"),
)


def blocks(kind: str) -> list[str]:
  return re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


def moozi(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
  """Runs `moozi` without the current folder on Python's path, as the installed command does."""
  code = "import sys; sys.path.remove(''); from moozi.cli import main; main()"
  root = Path(__file__).parents[2]
  return subprocess.run(
    [sys.executable, "-c", f"import sys; sys.path.append({str(root)!r}); {code}", *arguments],
    cwd=folder,
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
  """Returns a folder with the files that the page shows."""
  folder = tmp_path_factory.mktemp("page")
  dm_env, gym_env, *_ = blocks("python")
  (config,) = blocks("yaml")
  (folder / "my_envs.py").write_text(f"{dm_env}\n{gym_env}")
  (folder / "hallway.yaml").write_text(config)
  return folder


def commands() -> list[list[str]]:
  return [line.split() for text in blocks("sh") for line in text.splitlines()]


@pytest.mark.slow
def test_example_trains_and_evaluates(folder):
  pytest.importorskip("gymnasium")
  train, evaluate, train_gymnasium, *_ = commands()
  for command in (train, train_gymnasium):
    done = moozi(folder, *command[1:], *QUICK)
    assert done.returncode == 0, done.stderr
  done = moozi(folder, *evaluate[1:], "--episodes", "3", "--json")
  assert done.returncode == 0, done.stderr
  assert json.loads(done.stdout)["env"] == "my_envs:make_env"
  done = moozi(folder, *[a for a in evaluate[1:] if a != "--allow-code"])
  assert done.returncode == 2
  assert "--allow-code" in done.stderr
  assert done.stderr.count("\n") == 1


def test_gymnasium_example_is_equal(folder, monkeypatch):
  pytest.importorskip("gymnasium")
  from moozi.envs import registry

  monkeypatch.chdir(folder)
  monkeypatch.setattr(sys, "path", list(sys.path))
  gym_spec = registry.env_spec("my_envs:GymHallway")
  dm_env_spec = registry.env_spec("my_envs:make_env", length=5)
  assert gym_spec.frame_shape == dm_env_spec.frame_shape == (1, 1, 2)
  for name in ("my_envs:GymHallway", "my_envs:make_env"):
    env = registry.make(name, seed=1)
    rewards = set()
    for _ in range(20):
      step = env.reset()
      goal = step.observation.frame[0, 0, 1]
      while not step.last():
        step = env.step(1)
      assert step.reward == goal  # both are 1 or -1; the frame is scaled by its bound
      rewards.add(step.reward)
    assert rewards == {-1.0, 1.0}
  sys.modules.pop("my_envs", None)
