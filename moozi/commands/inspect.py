"""`moozi inspect`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moozi.commands.agent import agent_of
from moozi.commands.common import (
  AllowCode,
  Checkpoint,
  Run,
  Simulations,
  count_of,
  open_run,
  stdout_on_stderr,
)
from moozi.commands.episode import check_searches, number_of, place_in_run, play_episode
from moozi.core.errors import UserError

if TYPE_CHECKING:
  from moozi.core.search_record import InspectedEpisode
  from moozi.core.spec import EnvSpec


def inspect(
  run: Run,
  checkpoint: Checkpoint = None,
  episode: Annotated[str, typer.Option(metavar="I", help="Which of the evaluation's episodes.")] = "0",
  step: Annotated[str, typer.Option(metavar="T", help="Which decision in it.")] = "0",
  simulations: Simulations = None,
  nodes: Annotated[
    str, typer.Option(metavar="N", help="Draw so many of the most visited nodes at most.")
  ] = "60",
  out: Annotated[
    Path | None, typer.Option(metavar="DIR", help="Where the pictures go; RUN/inspect if not given.")
  ] = None,
  allow_code: AllowCode = False,
) -> int:
  """Draw the search tree of one decision."""
  from moozi.vis.render_spec import action_names
  from moozi.vis.search_tree import write_tree

  index, at = number_of("--episode", episode), number_of("--step", step)
  num_simulations, max_nodes = count_of("--simulations", simulations), count_of("--nodes", nodes)
  assert max_nodes is not None, "it has a default"
  directory, settings = open_run(run, allow_code)
  check_searches(run, settings, "inspect")
  folder = place_in_run(directory, "inspect") if out is None else out
  with stdout_on_stderr():
    agent = agent_of(directory, settings, checkpoint)
    played = play_episode(agent, index=index, max_steps=at + 1, num_simulations=num_simulations)
  spec, found = agent.spec, agent.checkpoint
  if at >= played.num_decisions:
    raise UserError(f"--step={at}: episode {index} has the decisions 0 to {played.num_decisions - 1}")
  lines = _describe(spec, played, at)
  tree = played.trees[at]
  assert tree is not None, "a decision was searched for"
  try:
    paths = write_tree(
      folder,
      f"{found.name}_episode_{index}_step_{at}",
      tree,
      action_names(spec),
      signed_discount=played.signed_discount,
      caption=[f"{spec.name}, {found.name}, episode {index}, step {at}", *lines, *_legend(spec)],
      action=int(played.actions[at]) if played.is_agents[at] else None,
      max_nodes=max_nodes,
    )
  except OSError as e:
    raise UserError(f"{folder}: cannot be written to: {e.strerror or e}") from None
  print("\n".join([*lines, *_table(spec, played, at), *map(str, paths)]))
  return 0


def _describe(spec: "EnvSpec", played: "InspectedEpisode", at: int) -> list[str]:
  """Who moved what, and what it was worth."""
  from moozi.vis.render_spec import action_name, player_name

  name = action_name(spec, int(played.actions[at]))
  who = "the search chose" if played.is_agents[at] else "the opponent played"
  player = "" if spec.num_players == 1 else f" for {player_name(spec, int(played.to_play[at]))}"
  simulations = f"{played.num_simulations} simulations"
  value, prior_value = played.root_values[at], played.prior_values[at]
  return [
    f"{who} {name}{player}; value {value:+.3f} after {simulations} (the network's {prior_value:+.3f})",
  ]


def _legend(spec: "EnvSpec") -> list[str]:
  letters = (
    "N visits, P the network's probability, Q what the action is worth, V value of what follows, R reward"
  )
  if spec.num_players == 1:
    return [letters]
  return [letters, "Q and R are for the player who makes the move, V is for the one to move after it"]


def _table(spec: "EnvSpec", played: "InspectedEpisode", at: int) -> list[str]:
  """A line for each legal action: what the network and the search thought of it."""
  import numpy as np

  from moozi.vis.render_spec import action_names

  names, tree = action_names(spec), played.trees[at]
  assert tree is not None, "a decision was searched for"
  visits = np.zeros(spec.num_actions, np.int64)
  visits[tree.action[tree.depth == 1]] = tree.visits[tree.depth == 1]
  legal = np.flatnonzero(played.legal_actions_mask[at])
  width = max(len("action"), *(len(names[a]) for a in legal))
  lines = [f"{'action':<{width}}  prior  policy  visits  network Q  search Q"]
  for a in legal:
    # Without a visit the search has only a stand-in for its value.
    search_q = f"{played.q_values[at, a]:+9.3f}" if visits[a] else f"{'–':>9}"
    lines.append(
      f"{names[a]:<{width}}  {played.prior_probs[at, a]:5.3f}   {played.action_probs[at, a]:5.3f}  "
      f"{visits[a]:6d}  {played.network_q_values[at, a]:+9.3f} {search_q}"
    )
  return lines
