"""Makes a zoo agent from a run: python scripts/make_zoo.py RUN NAME [--hardware TEXT].

NAME is the name of the run's configuration, such as minatar/breakout. The agent is written to zoo/NAME, and
replaces an older one.
"""

import argparse
import sys
from pathlib import Path

from moozi.core.errors import UserError
from moozi.io.card import CARD, read_card
from moozi.io.run_directory import RunDirectory
from moozi.io.zoo import size_of
from moozi.training.zoo_entry import make_entry
from moozi.vis.card import result_text


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


if __name__ == "__main__":
  main()
