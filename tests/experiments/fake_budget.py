"""A time budget that imitates `moozi train` and `moozi evaluate` in this process, for tests."""

import itertools
import json
from pathlib import Path

import numpy as np

from moozi.experiments.time_budget import TimeBudget
from moozi.io.checkpoints import find_checkpoint, save_checkpoint
from moozi.io.config import load_config
from moozi.io.run_directory import SUMMARY_KEYS, RunDirectory, load_resumed_config, save_resumed_config


class FakeBudget(TimeBudget):
  """Writes the files of the commands without running them.

  Args:
    pause: the budget is used up after half of the training steps.
    fail: each evaluation fails.
    kill: training ends after its last step without a summary, as if killed.
  """

  def __init__(
    self, pause: bool = False, fail: bool = False, kill: bool = False, seconds: float = 3600
  ) -> None:
    super().__init__(seconds)
    self.pause, self.fail, self.kill = pause, fail, kill
    self.commands: list[tuple[str, ...]] = []
    self.envs: list[dict[str, str]] = []

  def run(self, command, stdout=None, stderr=None, env=None) -> int:
    words = [str(word) for word in command]
    name, *arguments = words[words.index("moozi.cli") + 1 :] if "moozi.cli" in words else words
    self.commands.append((name, *arguments))
    self.envs.append(dict(env or {}))
    if "moozi.training.speed" in words:
      seconds = {"act": 1e-4, "learn": 2e-4}[words[words.index("moozi.training.speed") + 1]]
      stdout.write(f"a line before\n{json.dumps({'seconds': seconds, 'threads': 1, 'device': 'some'})}\n")
      return 0
    if name == "train":
      self._train([text for text in arguments if text not in ("--allow-code", "--allow-own-code")])
      return 0
    if self.fail:
      stderr.write("moozi: error: it broke\n")
      stderr.flush()
      return 2
    stdout.write(json.dumps(evaluate(arguments)))
    return 0

  def _train(self, arguments: list[str]) -> None:
    if arguments[0] == "--resume":
      run = RunDirectory.open(arguments[1])
      config = load_resumed_config(run, arguments[2:])
      save_resumed_config(run, config, 0)
    else:
      run = RunDirectory.create(load_config(arguments[0], arguments[1:]))
      config = run.load_config()
    steps = config.max_env_steps // 2 if self.pause else config.max_env_steps
    counts = {"env_steps": steps, "learner_steps": steps}
    meta = counts | {"wall_s": 60.0 * steps, "is_milestone": True, "commit": "abc"}
    for folder in (run.resume_path, run.checkpoints_path):
      save_checkpoint(folder, f"step_{steps:09d}", {"x": np.zeros(1)}, meta)
    tick = counts | {"wall_s": 60.0 * steps, "test/return_mean": 1.5, "train/return_mean": 2.5}
    with run.metrics_path.open("a") as file:
      file.write(json.dumps(tick) + "\n")
    if self.pause:
      self.end()
    if self.kill:
      return
    episodes = config.evaluation.final_episodes
    tested = {"test_return_mean": 3.0 + config.seed, "test_return_std": 2.0, "test_episodes": episodes}
    summary = dict.fromkeys(SUMMARY_KEYS, 0) | counts | tested
    summary |= {"test_at_env_steps": steps, "training_s": 60.0 * steps, "wall_s": 10.0}
    is_timed_out = config.max_wall_s is not None and 60.0 * steps >= config.max_wall_s
    reason = "max_wall_s" if is_timed_out else "stopped" if self.pause else "max_env_steps"
    run.write_summary(summary | {"reason": reason})


def evaluate(arguments: list[str]) -> dict:
  """Returns figures as `moozi evaluate --json --returns` prints them."""
  options = dict(itertools.pairwise(arguments))
  found = find_checkpoint(Path(arguments[0]) / "checkpoints", options["--checkpoint"])
  count = int(options["--episodes"])
  returns = [float(options.get("--simulations", 0)) + i for i in range(count)]
  figures = {"checkpoint": found.name, "env_steps": found.env_steps, "episodes": count}
  return figures | {"return_mean": float(np.mean(returns)), "returns": returns}
