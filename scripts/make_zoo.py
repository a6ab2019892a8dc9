"""Makes a zoo agent from a run: python scripts/make_zoo.py RUN NAME [--hardware TEXT].

NAME is the name of the run's configuration, such as minatar/breakout. The agent is written to zoo/NAME, and
replaces an older one. The table in docs/zoo.md is written from the cards of all agents.
"""

import argparse
import re
import sys
from pathlib import Path

from moozi.core.errors import UserError
from moozi.io.atomic_write import write_text
from moozi.io.card import CARD, list_agents, read_card
from moozi.io.run_directory import RunDirectory
from moozi.io.zoo import ZOO_PREFIX, resolve_run, size_of
from moozi.training.zoo_entry import make_entry
from moozi.vis.card import result_text

PAGE = Path(__file__).resolve().parents[1] / "docs" / "zoo.md"


def main() -> None:
  parser = argparse.ArgumentParser(description="Make a zoo agent from a run.")
  parser.add_argument("run", type=Path, metavar="RUN")
  parser.add_argument("name", metavar="NAME", help="such as minatar/breakout")
  parser.add_argument("--hardware", help="of the training, if the run has not recorded it")
  parser.add_argument("--root", type=Path, help="the folder of the agents; default: zoo")
  arguments = parser.parse_args()
  try:
    run = RunDirectory.open(arguments.run)
    path = make_entry(run, arguments.name, root=arguments.root, hardware=arguments.hardware)
  except UserError as error:
    sys.exit(f"make_zoo: error: {error}")
  for file in sorted(p for p in path.rglob("*") if p.is_file()):
    print(f"{file.stat().st_size:>10,}  {file}")
  print(f"{size_of(path):>10,}  in all; return {result_text(read_card(path / CARD).evaluation)}")
  if arguments.root is None:
    write_table()


def write_table() -> None:
  """Replaces the table of agents in docs/zoo.md."""
  lines = ["| agent | environment | return, 95% interval | episodes | steps | minutes | size |"]
  lines += ["|---|---|---|---|---|---|---|"]
  for card in list_agents():
    path = resolve_run(ZOO_PREFIX + card.name)
    lines += [
      f"| [`zoo:{card.name}`](../zoo/{card.name}/card.md) | `{card.env}` | {result_text(card.evaluation)} | "
      f"{card.evaluation.episodes} | {card.env_steps:,} | {card.minutes:g} | {size_of(path) / 2**20:.1f} MiB |"
    ]
  table = "\n".join(lines)
  text = PAGE.read_text("utf-8")
  marks = r"(?<=<!-- agents -->\n).*?(?=\n<!-- end of agents -->)"
  write_text(PAGE, re.sub(marks, lambda _: table, text, flags=re.DOTALL))


if __name__ == "__main__":
  main()
