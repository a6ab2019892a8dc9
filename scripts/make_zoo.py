"""Makes a zoo agent from a run: python scripts/make_zoo.py RUN NAME [--episodes N].

    python scripts/make_zoo.py --cards   # compares all agents with their configurations again

NAME is the name of the run's configuration, such as minatar/breakout. The agent is written to zoo/NAME, and
replaces an older one. The table in docs/zoo.md is written from the cards of all agents.
"""

import argparse
import sys
from pathlib import Path

from moozi.core.errors import UserError
from moozi.io.atomic_write import write_text
from moozi.io.card import CARD, list_agents, read_card, with_current_configuration
from moozi.io.run_directory import RunDirectory
from moozi.io.zoo import ZOO_PREFIX, agent_names, resolve_run, size_of, write_files_list
from moozi.training.zoo_entry import make_entry
from moozi.vis.card import opponent_text, result_text, write_card_files

PAGE = Path(__file__).resolve().parents[1] / "docs" / "zoo.md"
_BEGIN, _END = "<!-- agents -->\n", "<!-- end of agents -->\n"


def main() -> None:
  parser = argparse.ArgumentParser(description="Make a zoo agent from a run.")
  parser.add_argument("run", type=Path, nargs="?", metavar="RUN")
  parser.add_argument("name", nargs="?", metavar="NAME", help="such as minatar/breakout")
  parser.add_argument(
    "--cards", action="store_true", help="only compare the cards with the configurations again"
  )
  parser.add_argument("--hardware", help="of the training, if the run has not recorded it")
  parser.add_argument("--episodes", type=int, metavar="N", help="evaluate again with N episodes")
  parser.add_argument("--root", type=Path, help="the folder of the agents; default: zoo")
  arguments = parser.parse_args()
  if arguments.cards:
    for name in agent_names():
      compare_card(resolve_run(ZOO_PREFIX + name))
    return
  if arguments.name is None:
    parser.error("needs RUN and NAME, or --cards")
  try:
    run = RunDirectory.open(arguments.run)
    path = make_entry(
      run,
      arguments.name,
      root=arguments.root,
      hardware=arguments.hardware,
      episodes=arguments.episodes,
    )
  except UserError as error:
    sys.exit(f"make_zoo: error: {error}")
  for file in sorted(p for p in path.rglob("*") if p.is_file()):
    print(f"{file.stat().st_size:>10,}  {file}")
  print(f"{size_of(path):>10,}  in all; return {result_text(read_card(path / CARD).evaluation)}")
  if arguments.root is None:
    write_table()


def compare_card(path: Path) -> None:
  """Writes an agent's card with its differences from the named configuration as it is now."""
  card = with_current_configuration(read_card(path / CARD), RunDirectory.open(path).load_config())
  write_card_files(card, path, has_gif=True)
  write_files_list(path)


def write_table() -> None:
  """Replaces the table of agents in docs/zoo.md."""
  table = "| agent | environment | return, 95% interval | opponent | episodes | steps | minutes | size |\n"
  table += "|---|---|---|---|---|---|---|---|\n"
  for card in list_agents():
    size = f"{size_of(resolve_run(ZOO_PREFIX + card.name)) / 2**20:.1f} MiB"
    result, opponent = result_text(card.evaluation), opponent_text(card.evaluation)
    agent = f"[`zoo:{card.name}`](../zoo/{card.name}/card.md)"
    cells = [agent, f"`{card.env}`", result, opponent, card.evaluation.episodes]
    table += "| " + " | ".join(map(str, [*cells, f"{card.env_steps:,}", f"{card.minutes:g}", size])) + " |\n"
  before, _, rest = PAGE.read_text("utf-8").partition(_BEGIN)
  write_text(PAGE, before + _BEGIN + table + _END + rest.partition(_END)[2])


if __name__ == "__main__":
  main()
