"""Runs the command of each zoo agent's card, and compares the mean return with the card's interval.

    python scripts/check_zoo.py [NAME]... [--episodes N]

With fewer episodes than the card's, the interval is wider. Exits with status 1 if a mean is outside.
"""

import argparse
import json
import shlex
import subprocess
import sys

from make_zoo import is_reproduced

from moozi.io.card import CARD, Card, read_card
from moozi.io.zoo_files import ZOO_PREFIX, agent_names, resolve_run
from moozi.vis.card_page import result_text


def main() -> None:
  parser = argparse.ArgumentParser(description="Reproduce the figures of the zoo's cards.")
  parser.add_argument("names", nargs="*", metavar="NAME", help="default: all agents")
  parser.add_argument("--episodes", type=int, metavar="N", help="at most N episodes each")
  arguments = parser.parse_args()
  failed = []
  for name in arguments.names or agent_names():
    card = read_card(resolve_run(ZOO_PREFIX + name) / CARD)
    mean, episodes, is_inside = check(card, arguments.episodes)
    print(
      f"{'ok    ' if is_inside else 'FAILED'} {name}: {mean:.2f} over {episodes} episodes; "
      f"the card says {result_text(card.evaluation)} over {card.evaluation.episodes}",
      flush=True,
    )
    failed += [] if is_inside else [name]
  sys.exit(1 if failed else 0)


def check(card: Card, max_episodes: int | None = None) -> tuple[float, int, bool]:
  """Runs a card's command; returns the mean return, the episodes, and whether the card is reproduced."""
  episodes = min(card.evaluation.episodes, max_episodes or card.evaluation.episodes)
  program, *options = shlex.split(card.command)
  assert program == "moozi"
  command = [sys.executable, "-m", "moozi.cli", *options, "--episodes", str(episodes), "--json"]
  done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
  mean = json.loads(done.stdout)["return_mean"]
  return mean, episodes, is_reproduced(mean, card.evaluation, episodes)


if __name__ == "__main__":
  main()
