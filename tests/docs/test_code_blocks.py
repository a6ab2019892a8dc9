"""Runs the code blocks of README.md and docs/: `python` blocks, and the `moozi` commands of `sh` blocks.

The blocks of a page run in order, in their own folder and process. Settings such as the number of steps are
replaced by small ones; all else runs as written. `tests.docs.pages.blocks` describes the comments that
prepare a page.
"""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import ROOT, Block, blocks

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "docs" / "gallery" / "README.md"]
# Overrides of every training run; they follow the page's own.
_SMALL = """
  runtime=local max_env_steps=128 max_wall_s=600
  workers.num_workers=1 workers.num_envs=4 workers.segment_length=8 workers.max_random_starts=0
  replay.min_steps_to_learn=64 replay.capacity=4096
  learner.batch_size=16 learner.updates_per_call=2 learner.samples_per_step=1
  network.channels=4 network.latent_size=16 network.head_size=16 network.num_representation_blocks=1
  targets.unroll_steps=1 targets.n_step=2 reanalyze.batch_size=8
  planners.train.num_simulations=2 planners.test.num_simulations=2 planners.reanalyze.num_simulations=2
  ppo.num_envs=4 ppo.segment_length=16 ppo.num_minibatches=2 ppo.num_epochs=1
  evaluation.num_envs=2 evaluation.episodes=2 evaluation.final_episodes=2 evaluation.gif=false
  evaluation.max_episode_steps=20 evaluation.opponent_simulations=2
  logging.progress=none logging.tensorboard=false
"""
SMALL = _SMALL.split()
# Options for each command; they follow the page's own.
OPTIONS = {
  "evaluate": ["--episodes", "2"],
  "watch": ["--episodes", "1"],
  "inspect": ["--step", "0"],
  "report": ["--max-steps", "3"],
  "latent": ["--steps", "3"],
}
RUNNER = """
import json, sys
import moozi
from moozi import cli

steps, small = json.loads(sys.stdin.read())
sys.stdin = open("/dev/null")
sys.path.insert(0, "")
for name in ("train", "train_events"):
  make = lambda function: lambda config, **settings: function(config, **{**settings, **small})
  if hasattr(moozi, name):
    setattr(moozi, name, make(getattr(moozi, name)))
namespace = {"__name__": "__main__"}
for where, kind, code in steps:
  print(f"==> {where}", flush=True)
  if kind == "python":
    exec(compile(code, where, "exec"), namespace)
    continue
  sys.argv = ["moozi", *code]
  try:
    cli.main()
  except SystemExit as end:
    if end.code:
      raise SystemExit(f"{where}: {' '.join(sys.argv)}: exit status {end.code}")
"""


def commands(text: str) -> list[list[str]]:
  """Returns the arguments of each `moozi` command in a block's text, with small settings."""
  found = []
  for line in text.replace("\\\n", " ").splitlines():
    words = shlex.split(line, comments=True)
    if not words or words[0].removeprefix(".venv/bin/") != "moozi":
      continue
    command, arguments = words[1], words[2:]
    if command == "play":  # needs a player
      continue
    if command == "train" and "--resume" in arguments:
      arguments.append("max_env_steps=192")
    elif command == "train":
      arguments += SMALL
      if any(argument.startswith("evaluation.gate_score=") for argument in arguments):
        arguments.append("evaluation.period_env_steps=96")  # a gate needs an evaluation before the end
    found.append([command, *arguments, *OPTIONS.get(command, [])])
  return found


def _parsed(setting: str) -> tuple[str, object]:
  key, _, value = setting.partition("=")
  return key, yaml.safe_load(value)


def write_file(folder: Path, block: Block) -> None:
  assert block.file is not None
  name, is_appended = block.file
  with open(folder / name, "a" if is_appended else "w") as file:
    file.write(block.text)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_code_blocks_run(page, tmp_path, monkeypatch):
  steps = []
  for block in blocks(page):
    where = f"{page.name}:{block.line}"
    if block.file is not None:
      write_file(tmp_path, block)
    elif block.is_run and block.kind == "python":
      steps.append((where, "python", block.text))
    elif block.is_run and block.kind in ("sh", "setup"):
      steps += [(where, "moozi", command) for command in commands(block.text)]
  if not steps:
    pytest.skip("has no code to run")
  (tmp_path / "config").symlink_to(ROOT / "config")  # the pages use paths of the clone
  monkeypatch.setenv("PYTHONPATH", str(ROOT))
  done = subprocess.run(
    [sys.executable, "-c", RUNNER],
    input=json.dumps([steps, dict(_parsed(setting) for setting in SMALL)]),
    cwd=tmp_path,
    capture_output=True,
    text=True,
    timeout=900,
    check=False,
  )
  assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
