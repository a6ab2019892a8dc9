"""Measures the cost of checkpoints; part of `make bench`.

    python scripts/bench_saving.py [CONFIG] [key=value …] [--steps-per-s 2500] [--json FILE]

Replay is full. Between two saves it receives the steps that a run of the given rate makes in
`checkpoint.period_s`. The script prints the seconds of four parts, and the share of the period that they take
together:

- the copy of the training state, for which the learner waits;
- the copy of replay's changed blocks, for which sampling waits;
- the transfer to the driver's process (pickle protocol 5, like Ray's);
- the writing in a thread.

The target for their sum is 5% of the period. The sum overstates the cost, because some parts run
concurrently with training. The measurement is repeated with a tenth of the new steps, and without new steps.
"""

import argparse
import pickle
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring import make_parser, report


def measure(config: Any, new_steps: int, count: int) -> list[dict[str, float]]:
  """Returns the seconds of each part and the written MiB of `count` saves, each after `new_steps` steps."""
  from random_segments import RandomSegments

  from moozi.core.flat_state import Snapshot, prefixed
  from moozi.io.checkpoints import CheckpointStore, ResumeStore, expected_of
  from moozi.run import build

  spec = build.env_spec(config)
  replay, learner = build.build_replay(config, spec), build.build_learner(config, spec)
  play = RandomSegments(config.env.name, config.env.kwargs, config.workers.num_envs)
  steps = 0

  def act(more: int) -> None:
    nonlocal steps
    stop = steps + more
    while steps < stop:
      replay.add(play.next(config.workers.segment_length), 0)
      steps += config.workers.num_envs * config.workers.segment_length

  act(replay.num_slots)
  out = []
  with tempfile.TemporaryDirectory() as folder:
    resume = ResumeStore(Path(folder) / "resume")
    store = CheckpointStore(Path(folder) / "checkpoints", config.checkpoint, resume)
    # The first save writes all blocks.
    for _ in range(count + 1):
      marks = [time.perf_counter()]

      def mark(marks: list[float] = marks) -> None:
        marks.append(time.perf_counter())

      training = learner.get_state()
      mark()
      snapshot = replay.snapshot(resume.known)
      mark()
      sent = [pickle.loads(pickle.dumps(x, protocol=5)) for x in (training, snapshot)]
      mark()
      meta = expected_of(config, spec) | {"env_steps": steps, "learner_steps": 0}
      head, copied = prefixed("replay", sent[1].head), sent[1]
      rest = Snapshot(head=head, generations=copied.generations, blocks=copied.blocks)
      store.save(sent[0], meta, 0.0, rest)
      mark()
      names = ("training state", "replay", "transfer to the driver", "writing")
      parts = {name: after - before for name, before, after in zip(names, marks, marks[1:], strict=False)}
      mib = sum(x.nbytes for block in snapshot.blocks.values() for x in block.values()) / 2**20
      out.append(parts | {"replay_mib": mib})
      act(new_steps)
  play.close()
  return out


def measure_all(args: argparse.Namespace) -> dict[str, Any]:
  from moozi.io.config import load_config

  config = load_config(args.config, args.overrides)
  period_s = config.checkpoint.period_s
  usual = round(args.steps_per_s * period_s)
  print(f"replay of {config.replay.capacity:,} steps, a checkpoint every {period_s:g} s")
  figures: dict[str, Any] = {"period_s": period_s, "capacity": config.replay.capacity}
  for new_steps in (usual, usual // 10, 0):
    saves = measure(config, new_steps, args.count)
    figures[str(new_steps)] = saves
    if new_steps == usual:
      print(_row("the first save", saves[:1], period_s))
    print(_row(f"after {new_steps:,} new steps", saves[1:], period_s), flush=True)
  return figures


def _row(title: str, saves: list[dict[str, float]], period_s: float) -> str:
  names = [name for name in saves[0] if name != "replay_mib"]
  means = {name: sum(save[name] for save in saves) / len(saves) for name in names}
  total = sum(means.values())
  mib = sum(save["replay_mib"] for save in saves) / len(saves)
  parts = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in means.items())
  return f"{title}: {total:.3f} s, {total / period_s:.2%} of the time ({parts}; {mib:.1f} MiB of replay)"


def main() -> None:
  parser = make_parser(__doc__, "config/minatar/breakout.yaml")
  parser.add_argument("--steps-per-s", type=float, default=2500.0, help="environment steps/s of the run")
  parser.add_argument("--count", type=int, default=5, help="number of saves of each kind")
  report(parser, measure_all)


if __name__ == "__main__":
  main()
