"""The trained agents that come with MooZi, from Python."""

from moozi.io.card import Card, list_agents


def zoo() -> list[Card]:
  """Returns the cards of the agents. `moozi.load(f"zoo:{card.name}")` loads one.

  Raises: UserError: an agent's files are damaged.
  """
  return list_agents()
