"""The command `moozi inspect`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from moozi.commands import common
from moozi.core.errors import UserError
from moozi.io.output import say

if TYPE_CHECKING:
  from moozi.core.search_record import InspectedEpisode, SearchTree
  from moozi.core.spec import EnvSpec


def inspect(
  run: common.Run,
  checkpoint: common.Checkpoint = None,
  episode: common.Episode = 0,
  step: Annotated[int, common.integer("Step of the episode, from 0.", minimum=0, metavar="T")] = 0,
  simulations: common.Simulations = None,
  nodes: Annotated[int, common.integer("Draw at most the N most visited nodes.")] = 60,
  out: Annotated[Path | None, common.output("inspect")] = None,
  allow_code: common.AllowCode = False,
) -> int:
  """Draw the search tree of one step, and print what the search found for each legal action."""
  from moozi.api.loading import agent_of
  from moozi.api.run_access import check_searches, open_run, place_in_run, writing
  from moozi.io.atomic_write import atomic_path
  from moozi.vis.action_names import dimensions_text, edge_labels
  from moozi.vis.search_tree import tree_legend, tree_svg

  directory, config = open_run(run, allow_code)
  check_searches(run, config, "`moozi inspect`")
  folder = place_in_run(directory, "inspect") if out is None else out
  with common.stdout_to_stderr():
    agent = agent_of(directory, config, checkpoint, simulations=simulations, allow_code=allow_code)
    played = agent.inspect(episode, max_steps=step + 1, on_step=common.show_steps(episode))
  common.print_progress("\n")
  spec, checkpoint_name = agent.spec, agent.checkpoint.name
  if step >= played.num_decisions:
    raise UserError(f"--step={step}: must be from 0 to {played.num_decisions - 1} in episode {episode}")
  tree = played.trees[step]
  assert tree is not None, "every decision is searched"
  summary = _summary(spec, played, step)
  legend = tree_legend(tree, played.signed_discount, dimensions_text(spec))
  picture = tree_svg(
    tree,
    edge_labels(spec, tree),
    signed_discount=played.signed_discount,
    caption=[f"{spec.name}, {checkpoint_name}, episode {episode}, step {step}", summary, *legend],
    action=int(played.actions[step]) if played.is_agents[step] else None,
    max_nodes=nodes,
  )
  path = folder / f"{checkpoint_name}_episode_{episode}_step_{step}.svg"
  with writing("--out", folder), atomic_path(path) as partial:
    partial.write_text(picture, "utf-8")
  say("\n".join([summary, *_table(spec, played, step, tree), str(path)]))
  return 0


def _summary(spec: "EnvSpec", played: "InspectedEpisode", at: int) -> str:
  """Returns one line with the move, and the values of its frame before and after the search."""
  from moozi.vis.action_names import action_name
  from moozi.vis.render_spec import player_name

  name = action_name(spec, int(played.actions[at]))
  who = "the search chose" if played.is_agents[at] else "the opponent played"
  player = "" if spec.num_players == 1 else f" for {player_name(spec, int(played.to_play[at]))}"
  return (
    f"{who} {name}{player}; search value {played.root_values[at]:+.3f} after {played.num_simulations} "
    f"simulations, network value {played.prior_values[at]:+.3f}"
  )


def _table(spec: "EnvSpec", played: "InspectedEpisode", at: int, tree: "SearchTree") -> list[str]:
  """Returns a header and one line per legal choice, with the results of the network and the search."""
  import numpy as np

  from moozi.vis.action_names import names_of

  choices = played.choices_at(at)
  names, visits = names_of(spec, choices.tolist()), tree.root_visits(choices)
  legal = np.flatnonzero(played.legal_actions_mask[at])
  width = max(len("action"), *(len(names[a]) for a in legal))
  lines = [f"{'action':<{width}}  prior  policy  visits  network Q  search Q"]
  for a in legal:
    # For an action without visits, the record has a completed Q-value, which the table leaves out.
    search_q = f"{played.q_values[at, a]:+9.3f}" if visits[a] else f"{'–':>9}"
    lines.append(
      f"{names[a]:<{width}}  {played.prior_probs[at, a]:5.3f}   {played.action_probs[at, a]:5.3f}  "
      f"{visits[a]:6d}  {played.network_q_values[at, a]:+9.3f} {search_q}"
    )
  return lines
