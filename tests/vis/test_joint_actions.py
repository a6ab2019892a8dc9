"""Tests that every display names joint actions, sampled ones by the choices of a step."""

import dataclasses
import json

import numpy as np
import pytest

from moozi.core.search_record import PlayedStep
from moozi.envs import registry
from moozi.vis.action_names import action_label, action_name, action_names, dimensions_text, edge_labels
from moozi.vis.gif import episode_images
from moozi.vis.play_page import dimensions_of
from moozi.vis.report import episode_data
from moozi.vis.search_tree import tree_legend, tree_svg
from moozi.vis.terminal import step_line, step_view
from tests.vis.trees import make_episode, make_tree

DIALS = registry.env_spec("tiny:dials")
FEW = registry.env_spec("tiny:dials", num_dials=2)
E = 5


def sampled_episode(num_frames=4):
  """Returns an episode of Dials with 5 sampled choices a step; the last frame has none."""
  random = np.random.default_rng(0)
  choices = np.sort([random.choice(np.arange(1, 126), E, replace=False) for _ in range(num_frames)], axis=1)
  choices[-1] = 0
  probs = random.dirichlet(np.ones(E), num_frames).astype(np.float32)
  trees = []
  for t in range(num_frames - 1):
    tree = make_tree(12, E + 1, seed=t)
    numbers = np.concatenate([[0], choices[t]])
    trees.append(dataclasses.replace(tree, action=np.where(tree.action < 0, -1, numbers[tree.action])))
  of_choices = {
    name: random.normal(size=(num_frames, E)).astype(np.float32) for name in ("q_values", "network_q_values")
  }
  return make_episode(
    DIALS,
    num_frames,
    actions=np.array([*choices[:-1, 2], 0], np.int32),
    choices=choices.astype(np.int32),
    action_probs=probs * (choices > 0),
    prior_probs=probs[::-1] * (choices > 0),
    legal_actions_mask=choices > 0,
    trees=(*trees, None),
    **of_choices,
  )


def step_of(episode, t):
  return PlayedStep(
    frame=episode.frames[t],
    picture=None,
    to_play=0,
    seat=None,
    reward=0.0,
    total=0.0,
    legal_actions_mask=episode.legal_actions_mask[t],
    is_first=t == 0,
    is_last=t == 3,
    is_truncated=False,
    is_agents=True,
    action=int(episode.actions[t]),
    root_value=0.5,
    action_probs=episode.action_probs[t],
    choices=episode.choices[t],
  )


def test_names():
  assert action_name(DIALS, 1 + 5 * 7 + 2) == "dial 0=1 dial 1=2 dial 2=2"
  assert action_label(DIALS, 1 + 5 * 7 + 2) == "1 2 2"
  assert (action_name(DIALS, 0), action_label(DIALS, 0)) == ("end", "end")
  assert dimensions_text(DIALS) == "dial 0, dial 1, dial 2"
  assert action_name(FEW, 8) == "dial 0=1 dial 1=2"
  assert action_label(FEW, 8) == "1 2"
  assert len(action_names(FEW)) == 26
  assert dimensions_text(FEW) == "dial 0, dial 1"
  # A user's specification may leave out the names of enumerated joint actions.
  assert action_names(dataclasses.replace(FEW, action_names=())) == action_names(FEW)
  point = registry.env_spec("tiny:point")
  assert action_name(point, 49) == "x=+0.25 y=+0.25"


def test_report_has_the_choices_of_each_step():
  episode = sampled_episode()
  data = json.loads(json.dumps(episode_data(episode, DIALS)))
  assert data["choices"] == episode.choices.ravel().tolist()
  assert data["dimensions"] == "dial 0, dial 1, dial 2"
  for t in range(3):
    for e, action in enumerate(episode.choices[t].tolist()):
      assert data["names"][str(action)] == DIALS.factors.name(action - 1)
      assert data["prior_probs"][t * E + e] == pytest.approx(episode.prior_probs[t, e], rel=1e-3)
    visits = data["root_visits"][t * E : (t + 1) * E]
    assert sum(visits) == 12
  assert set(map(str, data["trees"]["action"])) - {"-1"} <= set(data["labels"])
  assert data["prior_probs"][-E:] == [None] * E
  assert "choices" not in episode_data(make_episode(FEW, 3), FEW)


def test_tree_names_edges_by_their_values():
  episode = sampled_episode()
  tree = episode.trees[0]
  legend = tree_legend(tree, 0.99, dimensions_text(DIALS))
  svg = tree_svg(tree, edge_labels(DIALS, tree), signed_discount=0.99, caption=legend)
  assert "named by their values of: dial 0, dial 1, dial 2" in svg
  shown = episode.choices[0][tree.root_visits(episode.choices[0]) > 0]
  for action in shown.tolist():
    assert f">{action_label(DIALS, action)}  N " in svg
  assert tree.root_visits(episode.choices[0]).sum() == 12
  assert not any("sampled" in line for line in tree_legend(tree, 0.99))


def test_gif_draws_the_choices():
  episode = sampled_episode()
  fields = ("frames", "actions", "rewards", "root_values", "action_probs", "choices")
  given = {name: getattr(episode, name) for name in fields}
  images = episode_images(**given, spec=DIALS)
  assert len({image.shape for image in images}) == 1
  orange = [(image == (230, 159, 0)).all(axis=-1).any() for image in images]
  assert orange == [True, True, True, False], "the bar of the played choice has its own color"
  swapped = given | {"choices": given["choices"] + (given["choices"] > 0)}
  assert (episode_images(**swapped, spec=DIALS)[0] != images[0]).any()
  with pytest.raises(ValueError, match=r"choices: shape \(3, 5\); must be \(4, 5\)"):
    episode_images(**(given | {"choices": given["choices"][:3]}), spec=DIALS)
  few = make_episode(FEW, 3)
  given = {name: getattr(few, name) for name in fields}
  assert len({image.shape for image in episode_images(**given, spec=FEW)}) == 1


def test_terminal_shows_the_choices():
  episode = sampled_episode()
  step = step_of(episode, 0)
  order = np.argsort(-step.action_probs)[:3]
  expected = [f"{action_name(DIALS, step.choices[e])}: {step.action_probs[e]:.2f}" for e in order]
  assert step_line(step, DIALS).endswith(f"; policy {', '.join(expected)}")
  text = step_view(step, DIALS, ["a line"], 40, 30).renderables[0].plain
  assert "dial 0, dial 1, dial 2\n" in text
  assert all(f"{action_label(DIALS, action)} " in text for action in step.choices)
  last = dataclasses.replace(
    step_of(episode, 3), choices=np.zeros(0, np.int32), action_probs=np.zeros(0, np.float32)
  )
  assert step_line(last, DIALS).endswith("end")
  assert step_view(last, DIALS, ["a line"], 40, 30) is not None


def test_page_has_a_control_for_each_dimension():
  controls = dimensions_of(registry.env_spec("tiny:point"))
  assert [x["name"] for x in controls] == ["x", "y"]
  assert controls[0]["values"][0] == "-0.25"
  assert len(controls[1]["values"]) == 7
  assert dimensions_of(FEW) == []
