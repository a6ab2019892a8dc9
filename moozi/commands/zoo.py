"""The command `moozi zoo`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from moozi.commands.common import AsJson
from moozi.core.errors import UserError
from moozi.io.output import notice, say

if TYPE_CHECKING:
  from moozi.io.card import Card


def zoo(as_json: AsJson = False) -> int:
  """List the trained agents that come with MooZi."""
  from moozi.io.card import CARD, read_card
  from moozi.io.zoo_files import ZOO_PREFIX, agent_names, resolve_run, size_of
  from moozi.vis.card_page import opponent_text, result_text

  agents: list[tuple[Card, Path]] = []
  for name in agent_names():
    try:
      path = resolve_run(ZOO_PREFIX + name)
      agents.append((read_card(path / CARD), path))
    except UserError as error:
      notice(f"moozi: skipped {error}")
  if as_json:
    rows = [
      {
        "name": card.name,
        "env": card.env,
        "evaluation": card.evaluation.model_dump() if card.evaluation else None,
        "env_steps": card.env_steps,
        "minutes": card.minutes,
        "bytes": size_of(path),
        "path": str(path),
        "command": card.command,
      }
      for card, path in agents
    ]
    say(json.dumps({"agents": rows}, allow_nan=False))
    return 0
  header = ("name", "environment", "return, 95% interval", "opponent", "steps", "minutes", "size")
  table = [header]
  for card, path in agents:
    steps = "–" if card.env_steps is None else f"{card.env_steps:,}"
    minutes = "–" if card.minutes is None else f"{card.minutes:g}"
    size = f"{size_of(path) / 2**20:.1f} MiB"
    result, opponent = result_text(card.evaluation), opponent_text(card.evaluation)
    table.append((ZOO_PREFIX + card.name, card.env, result, opponent, steps, minutes, size))
  widths = [max(len(row[i]) for row in table) for i in range(len(header))]
  for row in table:
    say("  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip())
  if agents:
    say("\nmoozi watch NAME plays one; moozi card NAME writes its card.")
    say("An interval covers the episodes of one agent; it says nothing about other seeds.")
    say("In board games a win is 1, a draw 0 and a loss -1, against the opponent.")
  return 0
