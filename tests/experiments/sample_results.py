"""Writes synthetic results, with the files that a sweep writes."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.lib.results import sweep_of
from experiments.minatar_vs_ppo.runs import HERE
from moozi.experiments.jobs import Job
from moozi.experiments.results import write_json
from moozi.io.config import load_config, save_config

ROOT = Path(__file__).parents[2]


def evaluation(
  env_steps: int, returns: Sequence[float], simulations: int | None = None, wall_s: float = 600.0
) -> dict[str, Any]:
  """Returns the figures of one evaluated checkpoint."""
  return {
    "wanted": str(env_steps),
    "simulations": simulations,
    "wall_s": wall_s,
    "env_steps": env_steps,
    "episodes": len(returns),
    "distinct_episodes": len(set(returns)),
    "return_mean": float(np.mean(returns)),
    "returns": [float(x) for x in returns],
  }


def make_result(
  results: Path,
  name: str,
  evaluations: Sequence[dict[str, Any]],
  curve: Sequence[tuple[int, float, float]] | None = (),
  game: str = "minatar:breakout",
  overrides: Sequence[str] = (),
  test_seconds: float = 0.0,
  config: Path | None = None,
) -> Path:
  """Writes the folder of a result; returns its path.

  Args:
    results: the parent folder.
    name: the name of the folder.
    evaluations: list of results of `evaluation`.
    curve: list of (environment steps, seconds, return in evaluation); None writes no metrics.
    game: the environment, which gets no sticky actions and a cap of 1,000 steps.
    overrides: list of `key=value`.
    test_seconds: the time that each evaluation of the curve took.
    config: the configuration file; with None, that of `game`.
  """
  folder = results / name
  folder.mkdir(parents=True)
  env = (f"env.name={game}", "env.kwargs.sticky_action_prob=0.0", "env.kwargs.max_episode_steps=1000")
  own = list(overrides) if config is not None else [*env, *overrides]
  save_config(load_config(config, own), folder / "config.yaml")
  write_json(folder / "evaluations.json", evaluations)
  write_json(folder / "machine.json", {"cores": 1})
  if curve is not None:
    ticks = [
      {
        "env_steps": s,
        "wall_s": t,
        "test/at_env_steps": s,
        "test/return_mean": r,
        "test/seconds": test_seconds,
      }
      for s, t, r in curve
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(tick) + "\n" for tick in ticks))
  return folder


STEPS = [100_000 * n for n in range(1, 31)]
MACHINE = {"cores": 1, "device": "AMD EPYC", "t_act_s": 1e-4, "t_learn_s": 2e-4}


def job_of(agent: str, protocol: str, game: str, seed: int) -> Job:
  """Returns a job of `experiments.minatar_vs_ppo`, with any seed and game."""
  jobs = {job.name: job for job in sweep_of(HERE).jobs}
  long = {"muzero_short": "muzero", "ppo_short": "ppo_tuned"}.get(agent, agent)
  found = [f"{name}_{protocol}_{game}_seed0" for name in (agent, long)]
  own = next(jobs[name] for name in found if name in jobs)
  return dataclasses.replace(own, name=f"{agent}_{protocol}_{game}_seed{seed}", seed=seed)


def make_run(
  folder,
  agent,
  game,
  seed,
  means,
  protocol="a",
  minutes=30.0,
  overrides=(),
  returns=None,
  lengths=None,
):
  """Writes the result of a job of `experiments.minatar_vs_ppo`; returns its folder.

  Args:
    means: the mean returns of the last `len(means)` milestones.
    minutes: the wall time of training.
    returns: the mean returns of the thirty evaluations during training; None: a linear rise to the mean of
      `means`.
    lengths: the lengths of the episodes in each evaluation of a milestone; None: 100 episodes of 500 steps.
  """
  job = job_of(agent, protocol, game, seed)
  steps = STEPS[-len(means) :]
  milestones = [
    evaluation(step, [mean - 1.0, mean + 1.0] * 50, wall_s=minutes * 60 * step / STEPS[-1])
    | {"lengths": lengths or [500] * 100}
    for step, mean in zip(steps, means, strict=True)
  ]
  rise = returns or [float(np.mean(means)) * step / STEPS[-1] for step in STEPS]
  curve = [(step, minutes * 60 * step / STEPS[-1], x) for step, x in zip(STEPS, rise, strict=True)]
  own = [text for text in job.settings(folder) if not text.startswith("run.")]
  path = make_result(folder, job.name, milestones, curve, config=job.config, overrides=(*own, *overrides))
  write_json(path / "machine.json", MACHINE)
  return path
