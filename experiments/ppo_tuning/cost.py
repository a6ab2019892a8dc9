"""Measures PPO's processor time per environment step with one thread, by network and by game.

    python -m experiments.ppo_tuning.cost    # prints the table and writes cost.json; takes some minutes

Each figure is the minimum of four rounds, because other work on the machine makes a round slower.
"""

import os
import sys
import time

os.environ |= {"NPROC": "1", "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}  # before JAX is imported

from experiments.lib.results import ROOT, sweep_of
from moozi.acting.on_policy import make_rollout
from moozi.baselines.ppo.algorithm import build_collector, build_learner
from moozi.experiments.results import write_json
from moozi.io.config import load_config
from moozi.run import build

HERE = ROOT / "experiments" / "ppo_tuning"
GAMES = ("breakout", "asterix", "freeway", "seaquest", "space_invaders")
ROUNDS = 4
START, FAST = (sweep_of(HERE).job(f"{variant}_seed0").overrides for variant in ("start", "fast"))
CASES = {
  "replica": ("ppo/minatar/breakout", ()),
  "convolution of 16": ("ppo/minatar/breakout", START),
  "convolutions of 16 and 32": ("ppo/minatar/breakout", (*START, "ppo.network.channels=[16,32]")),
  "convolution of 32, stride 2": ("ppo/minatar/breakout", FAST),
  **{f"tuned, {game}": (f"ppo/minatar_tuned/{game}", ()) for game in GAMES},
}


def measure(name: str, overrides: tuple[str, ...]) -> dict[str, float]:
  """Returns the microseconds of processor time per environment step, for acting and for the update."""
  config = load_config(name, overrides)
  spec = build.env_spec(config)
  learner = build_learner(config, spec)
  collector = build_collector(config, spec, worker=0, began_at=0)
  times = []
  for _ in range(1 + ROUNDS):
    start = time.process_time()
    collector.set_parameters(*learner.parameters())
    steps, result = collector.run(0)
    after, decision = collector.look_ahead(0)
    segment = make_rollout(steps, result.extras, after, decision)
    acted = time.process_time()
    learner.advance((segment, config.ppo.learning_rate), segment.is_live.size)
    times.append((acted - start, time.process_time() - acted))
  # The first round compiles.
  acting, update = (1e6 * min(column) / config.ppo.round_steps for column in zip(*times[1:], strict=True))
  return {"acting_us": round(acting, 1), "update_us": round(update, 1)}


def main() -> int:
  """Prints and writes the figures; returns the exit status."""
  figures = {}
  for name, case in CASES.items():
    figures[name] = cost = measure(*case)
    total = cost["acting_us"] + cost["update_us"]
    print(f"| {name} | {cost['acting_us']:.0f} | {cost['update_us']:.0f} | {1500 / total:.0f}M |", flush=True)
  write_json(HERE / "cost.json", figures)
  return 0


if __name__ == "__main__":
  sys.exit(main())
