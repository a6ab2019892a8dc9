"""Tests of the symmetries that environments list: rules preserve them, targets transform like games."""

import dataclasses
import math

import numpy as np
import pytest

from moozi.core.config import ReplayConfig, TargetsConfig
from moozi.core.errors import UserError
from moozi.core.pytree import fields_of, stack
from moozi.core.records import StepSample, TrajectorySample
from moozi.core.spec import EnvSpec
from moozi.core.symmetry import SQUARE, Symmetry, board_symmetries, tables_of
from moozi.envs import registry
from moozi.envs.vector import SyncVectorEnvironment
from moozi.io.config import load_config
from moozi.ops.symmetry import turn_targets
from moozi.replay.buffer import ReplayBuffer
from moozi.training.checks import check_players

OTHELLO = ("rotate_180", "transpose", "antitranspose")
OPEN_SPIEL = {
  "connect_four": ("mirror",),
  "go(board_size=4)": SQUARE,
  "hex(board_size=4)": ("rotate_180",),
  "othello": OTHELLO,
  "small_othello(size=6)": OTHELLO,
  "tic_tac_toe": SQUARE,
}
PGX = {
  "connect_four": ("mirror",),
  "go_9x9": SQUARE,
  "hex": ("rotate_180",),
  "othello": OTHELLO,
  "tic_tac_toe": SQUARE,
}


def check_rules(name: str, names: tuple[str, ...], num_games: int) -> None:
  """Plays the transformed actions of random games in parallel; frames, legal actions transform alike."""
  spec = registry.env_spec(name)
  assert tuple(symmetry.name for symmetry in spec.symmetries) == names
  tables = tables_of(spec.symmetries, math.prod(spec.frame_shape), spec.num_actions)
  random = np.random.default_rng(0)
  envs = [registry.make(name, 0) for _ in tables.actions]
  for _ in range(num_games):
    steps = [env.reset() for env in envs]
    while not steps[0].last():
      legal = steps[0].observation.legal_actions_mask
      action = int(random.choice(np.flatnonzero(legal)))
      steps = [env.step(int(a[action + 1]) - 1) for env, a in zip(envs, tables.actions, strict=True)]
      first = steps[0].observation
      for i, step in enumerate(steps):
        assert (step.reward, step.last()) == (steps[0].reward, steps[0].last())
        assert step.observation.to_play == first.to_play
        turned = first.frame.reshape(-1)[tables.entries[i]].reshape(spec.frame_shape)
        np.testing.assert_array_equal(step.observation.frame, turned, f"{name}: {i}")
        mask = np.append(False, first.legal_actions_mask)[tables.policies[i]]
        np.testing.assert_array_equal(step.observation.legal_actions_mask, mask[1:])


class TestRules:
  @pytest.mark.parametrize("game", OPEN_SPIEL)
  def test_open_spiel(self, game):
    pytest.importorskip("pyspiel")
    check_rules(f"open_spiel:{game}", OPEN_SPIEL[game], 3)

  @pytest.mark.slow
  @pytest.mark.parametrize("game", ["hex", "go(board_size=7)", *OPEN_SPIEL])
  def test_open_spiel_more_games(self, game):
    pytest.importorskip("pyspiel")
    names = {"hex": ("rotate_180",)}.get(game, OPEN_SPIEL.get(game, SQUARE))
    check_rules(f"open_spiel:{game}", names, 100)

  @pytest.mark.slow
  @pytest.mark.parametrize("game", PGX)
  def test_pgx(self, game):
    pytest.importorskip("pgx")
    check_rules(f"pgx:{game}", PGX[game], 2)


class TestPlaces:
  @pytest.mark.parametrize("game", OPEN_SPIEL)
  def test_open_spiel(self, game):
    pytest.importorskip("pyspiel")
    self.check(f"open_spiel:{game}")

  @pytest.mark.slow
  @pytest.mark.parametrize("game", PGX)
  def test_pgx(self, game):
    pytest.importorskip("pgx")
    self.check(f"pgx:{game}")

  def check(self, name):
    """The frames after two first moves differ at the places of the moves, in Othello elsewhere too."""
    spec, env = registry.env_spec(name), registry.make(name, 0)
    assert spec.action_places == ("columns" if "connect_four" in name else "cells")
    legal = np.flatnonzero(env.reset().observation.legal_actions_mask)
    legal = legal[legal < spec.num_places]
    frames = []
    for action in legal:
      env.reset()
      frames.append(env.step(int(action)).observation.frame.astype(np.float32))
    for a, b in zip(range(len(legal)), range(1, len(legal)), strict=False):
      differs = np.any(frames[a] != frames[b], axis=-1)
      cells = np.any(differs, axis=0) if spec.action_places == "columns" else differs.reshape(-1)
      places = np.flatnonzero(cells)
      assert set(legal[[a, b]]) <= set(places)
      assert len(places) == 2 or "othello" in name

  @pytest.mark.parametrize("game", ["connect_four", "go(board_size=4)", "tic_tac_toe"])
  def test_player_planes(self, game):
    """Each player's stones are in its plane, and the last plane has the player to move."""
    pytest.importorskip("pyspiel")
    spec, env = registry.env_spec(f"open_spiel:{game}"), registry.make(f"open_spiel:{game}", 0)
    assert spec.player_planes is not None
    own, other, mover = spec.player_planes
    env.reset()
    frame = env.step(0).observation.frame
    assert (frame[..., own].sum(), frame[..., other].sum(), frame[..., mover].all()) == (1, 0, True)
    assert frame[0, 0, own]
    frame = env.step(1).observation.frame
    assert (frame[..., own].sum(), frame[..., other].sum(), frame[..., mover].any()) == (1, 1, False)
    assert frame[0, 1, other]

  def test_egocentric_frames_have_no_player_planes(self):
    """These frames are from the mover's view already."""
    pytest.importorskip("pyspiel")
    spec = registry.env_spec("open_spiel:connect_four(egocentric_obs_tensor=true)")
    assert spec.player_planes is None

  def test_mover_view_needs_player_planes(self):
    config = load_config("tiny/catch", ["network.mover_view=true"])
    with pytest.raises(UserError, match=r"network\.mover_view=true: must be false with env.name=tiny:catch"):
      check_players(config, registry.env_spec(config.env.name))

  def test_refuses_too_few_actions(self):
    with pytest.raises(
      ValueError, match=r"action_places='cells': needs at least 9 actions, one for each place"
    ):
      EnvSpec(name="t:t", frame_shape=(3, 3, 1), frame_dtype="bool", num_env_actions=8, action_places="cells")

  def test_quarter_turns_need_a_square(self):
    assert len(board_symmetries(("mirror", "flip", "rotate_180"), (4, 5, 1), 20)) == 3
    for name in ("transpose", "antitranspose", "rotate_90", "rotate_270"):
      with pytest.raises(ValueError, match=f"turns: {name} changes the shape of frame, 4 by 5"):
        board_symmetries((name,), (4, 5, 1), 20)
      with pytest.raises(ValueError, match=f"turns: {name} changes the shape of moves='columns', 1 by 3"):
        board_symmetries((name,), (3, 3, 1), 3, "columns")

  def test_is_not_written(self):
    """Checkpoints and trajectories identify an environment by what is compared."""
    spec = registry.env_spec("open_spiel:tic_tac_toe")
    assert not {"action_places", "symmetries"} & set(spec.to_dict())
    assert spec == dataclasses.replace(spec, action_places="none")


class TestBoard:
  def test_mirror_by_hand(self):
    (mirror,) = board_symmetries(("mirror",), (1, 3, 2), 3, "columns")
    # Entries are numbered cell by cell: the cells 0, 1, 2 have the entries (0, 1), (2, 3), (4, 5).
    assert mirror.entries.tolist() == [4, 5, 2, 3, 0, 1]
    assert mirror.actions.tolist() == [2, 1, 0]

  def test_cell_moves_with_its_stone(self):
    for symmetry in board_symmetries(SQUARE, (3, 3, 1), 10):
      for cell in range(9):
        board = np.arange(9) == cell
        assert board[symmetry.entries].argmax() == symmetry.actions[cell], symmetry.name
      assert symmetry.actions[9] == 9  # the pass

  def test_spec_refuses_what_is_no_permutation(self):
    spec = registry.env_spec("tiny:coin")
    wrong = Symmetry("wrong", np.zeros(math.prod(spec.frame_shape), int), np.arange(spec.num_env_actions))
    with pytest.raises(ValueError, match=r"symmetries: wrong.entries: must be a permutation of 0 …"):
      dataclasses.replace(spec, symmetries=(wrong,))

  @pytest.mark.parametrize("key", ["learner.symmetries", "planners.test.average_symmetries"])
  def test_run_needs_symmetries(self, key):
    config = load_config("tiny/catch", [f"{key}=true"])
    with pytest.raises(UserError, match=f"{key}=true: must be false with env.name=tiny:catch, which lists"):
      check_players(config, registry.env_spec(config.env.name))


def play_lanes(turns: list[int], length: int) -> tuple[TrajectorySample, object]:
  """Returns a segment of random play of tic-tac-toe in which lane i is lane 0 turned by `turns[i]`."""
  spec = registry.env_spec("open_spiel:tic_tac_toe")
  tables = tables_of(spec.symmetries, math.prod(spec.frame_shape), spec.num_actions)
  vector = SyncVectorEnvironment([registry.make(spec.name, 0) for _ in turns])
  random, samples = np.random.default_rng(1), []
  step, lanes = vector.reset(), np.array(turns)
  for _ in range(length):
    legal = step.legal_actions_mask[0]
    probs = np.where(legal, random.random(spec.num_actions) + 0.1, 0).astype(np.float32)
    probs, action = probs / probs.sum(), random.choice(np.flatnonzero(legal)) * (not step.is_last[0])
    value = np.float32(random.normal() * (not step.is_last[0]))
    version = np.zeros(len(turns), np.int32)
    samples.append(
      StepSample(
        **fields_of(step),
        root_value=np.full(len(turns), value),
        action_probs=probs[tables.policies[lanes]],
        action=tables.actions[lanes, action],
        acted_version=version,
        searched_version=version,
      )
    )
    step = vector.step(samples[-1].action)
  return TrajectorySample(**fields_of(stack(samples))), spec


class TestTargets:
  def make_buffer(self, spec, num_lanes, **kwargs):
    targets = TargetsConfig(history_length=3, unroll_steps=4, n_step=2, discount=1.0)
    config = ReplayConfig(capacity=100 * num_lanes, sampling="uniform", min_steps_to_learn=1)
    return ReplayBuffer(config, targets, spec, num_lanes, 0, **kwargs)

  def test_target_turns_like_its_game(self):
    pytest.importorskip("pyspiel")
    turns = list(range(8))
    segment, spec = play_lanes(turns, 60)
    buffer = self.make_buffer(spec, 8, frames_ahead=4)
    buffer.add(segment, 0)
    drawn = buffer.sample_many(1, 256)
    # Only the targets of lane 0, each turned by all symmetries, compared with those of the other lanes.
    by_slot = {int(slot): i for i, slot in enumerate(drawn.slot[0])}
    tables = tables_of(spec.symmetries, math.prod(spec.frame_shape), spec.num_actions)
    num_compared = 0
    for slot, i in by_slot.items():
      for turn in turns:
        other = by_slot.get(slot + turn * buffer.lane_capacity)
        if slot >= buffer.lane_capacity or other is None:
          continue
        one = type(drawn)(**{name: x[0, i : i + 1] for name, x in fields_of(drawn).items()})
        turned = turn_targets(one, tables, np.array([turn]))
        for name, x in fields_of(turned).items():
          if name not in ("slot", "sequence"):
            np.testing.assert_array_equal(x[0], fields_of(drawn)[name][0, other], name)
        num_compared += 1
    assert num_compared > 50

  def test_draws_each_symmetry_and_resumes_exactly(self):
    pytest.importorskip("pyspiel")
    segment, spec = play_lanes([0], 40)
    plain, buffer = self.make_buffer(spec, 1), self.make_buffer(spec, 1, turns_targets=True)
    for b in (plain, buffer):
      b.add(segment, 0)
    restored = self.make_buffer(spec, 1, turns_targets=True)
    restored.restore(buffer.snapshot())
    drawn, expected = buffer.sample_many(2, 64), plain.sample_many(2, 64)
    np.testing.assert_array_equal(drawn.slot, expected.slot)
    tables = tables_of(spec.symmetries, math.prod(spec.frame_shape), spec.num_actions)
    all_turned = [turn_targets(expected, tables, np.full((2, 64), g)) for g in range(8)]
    is_turn = np.array([(t.action_probs == drawn.action_probs).all((2, 3)) for t in all_turned])
    assert is_turn.any(0).all()
    assert is_turn.any((1, 2)).all()
    again = restored.sample_many(2, 64)
    for name, x in fields_of(drawn).items():
      np.testing.assert_array_equal(x, fields_of(again)[name], name)
