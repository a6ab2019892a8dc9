"""Lists the trained agents that come with MooZi."""

from moozi.io.card import Card, list_agents


def zoo() -> list[Card]:
  """Returns the cards of the trained agents. `moozi.load(f"zoo:{card.name}")` loads the agent of a card.

  Raises: UserError: an agent's files are damaged.
  """
  return list_agents()
