"""Compares the JAX versions of MinAtar with the package minatar.

docs/jax_environments.md lists the differences. The tests compare single steps from equal states, with random
spawns made beforehand, so that steps are deterministic. They compare random draws by their frequencies.
"""

import collections
import dataclasses
import functools

import numpy as np
import pytest

from moozi.envs import registry
from moozi.envs.suites import gymnax as gymnax_suite
from moozi.envs.suites import pgx as pgx_suite
from moozi.envs.vector import make_vector
from tests.envs.contract import random_agent_actions
from tests.envs.environments import need
from tests.envs.suites.minatar_states import (
  GAMES,
  GYMNAX_NAMES,
  PGX_NAMES,
  Fork,
  differences,
  make_rules,
  settle_spawns,
)

need("minatar")
need("pgx")
need("gymnax")

pytestmark = pytest.mark.slow

NUM_STEPS = 2000
FORKS = [(library, game) for library in ("gymnax", "pgx") for game in GAMES]
UP = 2


@dataclasses.dataclass
class Comparison:
  """Holds the results of single steps.

  Attributes:
    differing: for each field name, "reward", "end" or "frame", the indices of the steps that differ.
    before, after: the package's states before and after each step, with the fork's field names.
    reward, is_over: the package's rewards and ends.
    fork: the result of `Fork.step`.
  """

  differing: dict
  before: list
  after: list
  reward: np.ndarray
  is_over: np.ndarray
  fork: tuple


@functools.cache
def make_fork(library, game):
  if library == "gymnax":
    return Fork(GYMNAX_NAMES[game])
  return Fork(PGX_NAMES[game], sticky_action_prob=0.0)


def play_package(game, fork, num_steps):
  """Yields the steps of a player that never loses and therefore reaches the states of good play."""
  rules, random = make_rules(game), np.random.default_rng(0)
  for _ in range(num_steps):
    if game == "seaquest":
      prepare_seaquest(rules, random)
    settle_spawns(rules)
    # In Freeway the player mostly moves up, because random moves almost never cross the road.
    action = UP if game == "freeway" and random.random() < 0.9 else int(random.integers(6))
    before = fork.fields(rules)
    reward, is_over = rules.act(action)
    yield before, action, fork.fields(rules), float(reward), is_over, rules.state()
    rules.terminal = False
    if is_over and (
      game in ("breakout", "freeway") or (game == "space_invaders" and rules.alien_map[9].any())
    ):
      rules.reset()


def prepare_seaquest(rules, random):
  """Randomly sets the oxygen and the divers; resets the game before a list outgrows its size in JAX."""
  if random.random() < 0.05:
    rules.oxygen = int(random.integers(0, 201))
  if random.random() < 0.05:
    rules.diver_count = int(random.integers(0, 7))
  if rules.oxygen < 0 or max(map(len, (rules.e_fish, rules.e_subs, rules.e_bullets))) > 18:
    rules.reset()


@functools.cache
def compare(library, game):
  fork = make_fork(library, game)
  before, actions, after, rewards, ends, frames = zip(*play_package(game, fork, NUM_STEPS), strict=True)
  out = fields, reward, is_terminal, is_cut, frame = fork.step(before, actions)
  differing = collections.defaultdict(list)
  for i in range(NUM_STEPS):
    names = differences(after[i], {name: value[i] for name, value in fields.items()})
    others = {
      "reward": rewards[i] != reward[i],
      "end": ends[i] != (is_terminal[i] or is_cut[i]),
      "frame": (frames[i] != frame[i]).any(),
    }
    for name in (*names, *(name for name, differs in others.items() if differs)):
      differing[name].append(i)
  return Comparison(dict(differing), before, after, np.array(rewards), np.array(ends), out)


@pytest.mark.parametrize(
  ("library", "game"),
  [
    ("gymnax", "breakout"),
    ("pgx", "breakout"),
    ("gymnax", "asterix"),
    ("pgx", "asterix"),
  ],
)
def test_steps_equal_the_packages(library, game):
  result = compare(library, game)
  assert result.differing == {}
  assert (result.reward > 0).sum() > 20
  assert result.is_over.sum() > 20


def test_asterix_is_compared_at_every_speed():
  speeds = {(int(f["_spawn_speed"]), int(f["_move_speed"])) for f in compare("pgx", "asterix").before}
  assert {(10, 5), (1, 1)} <= speeds


@pytest.mark.parametrize("library", ["gymnax", "pgx"])
def test_freeway_steps_equal_the_packages_except_draws(library):
  """The only random draws are the cars' new speeds when the player arrives."""
  result = compare(library, "freeway")
  arrivals = np.flatnonzero(result.reward).tolist()
  assert len(arrivals) > 20
  assert set(result.differing) <= {"cars", "frame"}
  assert set(result.differing["cars"]) <= set(arrivals)
  assert set(result.differing["frame"]) <= set(arrivals)
  cars = "cars" if library == "gymnax" else "_cars"
  for i in arrivals:  # the cars' positions are equal
    np.testing.assert_array_equal(result.after[i][cars][:, :2], result.fork[0][cars][i][:, :2])


def test_pgx_freeway_is_truncated_at_the_packages_step():
  fork, rules = make_fork("pgx", "freeway"), make_rules("freeway")
  for timer, is_over in ((1, False), (0, True)):
    rules.terminate_timer = timer
    _, _, is_terminal, is_cut, _ = fork.step([fork.fields(rules)] * NUM_STEPS, [0] * NUM_STEPS)
    assert not is_terminal.any()
    assert (is_cut == is_over).all()
    assert rules.act(0)[1] == is_over


@pytest.mark.parametrize("library", ["gymnax", "pgx"])
def test_space_invaders_steps_equal_the_packages(library):
  result = compare(library, "space_invaders")
  assert result.differing == {}
  assert (result.reward > 0).sum() > 20
  assert result.is_over.sum() > 3


def test_space_invaders_starts_as_in_the_package():
  package = make_rules("space_invaders").state()
  for name in (GYMNAX_NAMES["space_invaders"], PGX_NAMES["space_invaders"]):
    np.testing.assert_array_equal(registry.make(name, 0).reset().observation.frame, package)


def test_gymnax_seaquest_steps_equal_the_packages_before_the_end():
  """Only the last frame may differ: at an end without divers, gymnax also fills the oxygen tank."""
  result = compare("gymnax", "seaquest")
  fields = result.fork[0]
  assert "end" not in result.differing
  assert "reward" not in result.differing
  for name, steps in result.differing.items():
    for i in steps:
      assert result.is_over[i], name
      assert result.before[i]["diver_count"] == 0, name
      assert fields["sub_y"][i] == 0, name
  assert_seaquest_was_seen(result, "diver_count", "sub_y")


def assert_seaquest_was_seen(result, diver_count, sub_y):
  assert result.is_over.sum() > 20
  assert (result.reward > 0).sum() > 10
  assert result.reward.max() > 1  # the player surfaced with six divers
  surfaced = [i for i in range(NUM_STEPS) if result.before[i][sub_y] == 1 and result.after[i][sub_y] == 0]
  assert any(result.before[i][diver_count] > 0 for i in surfaced)


def test_pgx_seaquest_differs_in_three_rules():
  """These differ: the end with an empty tank (a step later), the ramp steps, and bullets beyond the board."""
  result = compare("pgx", "seaquest")
  fields, _, is_terminal, *_ = result.fork
  assert set(result.differing) == {"end", "frame", "move_speed", "e_bullets"}
  for i in result.differing["end"]:
    assert result.is_over[i]
    assert not is_terminal[i]
    assert result.before[i]["_oxygen"] == 0
  # pgx draws a negative amount of oxygen as a nearly full tank.
  assert set(result.differing["frame"]) <= {i for i in range(NUM_STEPS) if result.after[i]["_oxygen"] < 0}
  for i in result.differing["move_speed"]:
    assert result.after[i]["_ramp_index"] == result.before[i]["_ramp_index"] + 1
  for i in result.differing["e_bullets"]:
    kept = {tuple(row) for row in fields["_e_bullets"][i].tolist()} - {(-1, -1, -1)}
    remaining = {tuple(row) for row in result.after[i]["_e_bullets"].tolist()} - {(-1, -1, -1)}
    assert remaining < kept
    assert all(not 0 <= row[0] <= 9 for row in kept - remaining)
  assert_seaquest_was_seen(result, "_diver_count", "_sub_y")


def test_bullet_that_left_pgx_seaquest_blocks_later_ones():
  fork = make_fork("pgx", "seaquest")
  rules = make_rules("seaquest")
  rules.sub_y, rules.surface, rules.e_bullets = 8, False, [[0, 3, False], [5, 6, False]]
  before = fork.fields(rules)
  for step in range(1, 4):
    rules.act(0)
    fields, *_, frame = fork.step([before] * NUM_STEPS, [0] * NUM_STEPS)
    before = {name: value[0] for name, value in fields.items()}
    assert rules.e_bullets == [[5 - step, 6, False]]
    assert np.argwhere(rules.state()[..., 4]).tolist() == [[6, 5 - step]]
    assert np.argwhere(frame[0, ..., 4]).tolist() == [[6, 4]]  # in pgx the bullet stops after one move


def spawned(library, game, rules):
  """Returns the fields after one step from the same state, for NUM_STEPS random keys."""
  fork = make_fork(library, game)
  return fork.step([fork.fields(rules)] * NUM_STEPS, [0] * NUM_STEPS)[0]


def shares(values, support):
  return [float(np.mean(np.asarray(values) == v)) for v in support]


@pytest.mark.parametrize("library", ["gymnax", "pgx"])
def test_asterix_draws(library):
  rules = make_rules("asterix")
  rules.spawn_timer = 0
  fields = spawned(library, "asterix", rules)
  entities = fields["entities" if library == "gymnax" else "_entities"]
  is_there = entities[..., 4] == 1 if library == "gymnax" else entities[..., 0] != 99
  assert (is_there.sum(-1) == 1).all()
  rows = entities[is_there]
  assert shares(rows[:, 1], range(1, 9)) == pytest.approx([1 / 8] * 8, abs=0.04)
  assert shares(rows[:, 2], [0, 1]) == pytest.approx([1 / 2] * 2, abs=0.05)
  assert shares(rows[:, 3], [0, 1]) == pytest.approx([2 / 3, 1 / 3], abs=0.05)
  np.testing.assert_array_equal(rows[:, 0], np.where(rows[:, 2], 0, 9))


def test_gymnax_asterix_overwrites_an_entity():
  rules = make_rules("asterix")
  rules.entities = [[3, row + 1, True, False] for row in range(8)]
  rules.spawn_timer = 0
  kept = spawned("pgx", "asterix", rules)["_entities"]
  assert (kept[..., 0] != 99).all()
  assert (spawned("gymnax", "asterix", rules)["entities"][..., 4].sum(-1) == 7).all()
  # One of eight slots is free; with probability 1/8 gymnax's spawn overwrites another.
  rules.entities[2] = None
  counts = spawned("gymnax", "asterix", rules)["entities"][..., 4].sum(-1)
  assert shares(counts, [6, 8]) == pytest.approx([1 / 8, 7 / 8], abs=0.04)
  assert ((spawned("pgx", "asterix", rules)["_entities"][..., 0] != 99).sum(-1) == 8).all()
  settle_spawns(rules)
  assert None not in rules.entities


@pytest.mark.parametrize("library", ["gymnax", "pgx"])
def test_freeway_draws(library):
  rules = make_rules("freeway")
  rules.pos, rules.move_timer = 1, 0
  fork = make_fork(library, "freeway")
  fields, reward, *_ = fork.step([fork.fields(rules)] * NUM_STEPS, [UP] * NUM_STEPS)
  assert (reward == 1).all()
  speeds = fields["cars" if library == "gymnax" else "_cars"][..., 3]
  for lane in range(8):
    assert shares(np.abs(speeds[:, lane]), range(1, 6)) == pytest.approx([1 / 5] * 5, abs=0.05)
    assert shares(np.sign(speeds[:, lane]), [-1, 1]) == pytest.approx([1 / 2] * 2, abs=0.05)


@pytest.mark.parametrize("library", ["gymnax", "pgx"])
def test_seaquest_draws(library):
  rules = make_rules("seaquest")
  rules.sub_y, rules.surface = 8, False
  rules.e_spawn_timer = rules.d_spawn_timer = 0
  fields = spawned(library, "seaquest", rules)
  own = "" if library == "gymnax" else "_"
  subs, fish, divers = (fields[own + name] for name in ("e_subs", "e_fish", "divers"))
  is_sub = subs[:, 0, 1] > 0
  np.testing.assert_array_equal(is_sub, ~(fish[:, 0, 1] > 0))
  assert shares(is_sub, [0, 1]) == pytest.approx([2 / 3, 1 / 3], abs=0.05)
  enemies = np.where(is_sub[:, None], subs[:, 0, :3], fish[:, 0, :3])
  for rows in (enemies, divers[:, 0]):
    assert shares(rows[:, 1], range(1, 9)) == pytest.approx([1 / 8] * 8, abs=0.04)
    assert shares(rows[:, 2], [0, 1]) == pytest.approx([1 / 2] * 2, abs=0.05)


@pytest.mark.parametrize("name", [GYMNAX_NAMES["breakout"], PGX_NAMES["breakout"]])
def test_breakouts_ball_starts_on_either_side(name):
  env = make_vector(name, {}, 400, seed=0)
  ball = env.reset().frame[:, 3, :, 1]
  assert ball[:, 0].mean() == pytest.approx(0.5, abs=0.12)
  np.testing.assert_array_equal(ball[:, 0], ~ball[:, 9])


def test_defaults_are_each_librarys_own():
  """Compares the defaults for sticky actions and step caps with those in docs/jax_environments.md."""
  for game in GAMES:
    package = registry.make(f"minatar:{game}", 0)
    assert package._game._sticky_action_prob == 0.1
    assert package._max_episode_steps is None
    assert registry.make_jax_env(PGX_NAMES[game]).max_episode_steps is None
    limit = registry.make_jax_env(GYMNAX_NAMES[game]).max_episode_steps
    assert limit == (2500 if game == "freeway" else 1000)
  assert pgx_suite.PgxMinAtarOptions().sticky_action_prob == 0.1
  assert gymnax_suite.GymnaxMinAtarOptions().sticky_action_prob == 0.0


@pytest.mark.parametrize(("library", "game"), [f for f in FORKS if f[1] != "freeway"])
def test_random_play_has_equal_returns(library, game):
  """Mean returns and lengths of 600 random episodes agree within 4 standard errors."""
  kwargs = {"sticky_action_prob": 0.1, "max_episode_steps": 300}
  fork = make_vector((GYMNAX_NAMES if library == "gymnax" else PGX_NAMES)[game], kwargs, 100, seed=1)
  package = make_vector(f"minatar:{game}", kwargs, 20, seed=1)
  for own, theirs in zip(random_episodes(fork, 600), random_episodes(package, 600), strict=True):
    error = np.sqrt(own.var() / len(own) + theirs.var() / len(theirs))
    assert abs(own.mean() - theirs.mean()) < 4 * error + 1e-9
    assert theirs.std() > 0


def random_episodes(env, num_episodes):
  """Returns the returns and lengths of random episodes, the same number from each environment."""
  random = np.random.default_rng(0)
  each = num_episodes // env.num_envs
  done, totals = np.zeros(env.num_envs, int), np.zeros((2, env.num_envs))
  out, step = [], env.reset()
  while (done < each).any():
    step = env.step(random_agent_actions(step, random))
    totals += [step.last_reward, ~step.is_first]
    out += [totals[:, i].copy() for i in np.flatnonzero(step.is_last & (done < each))]
    done += step.is_last
    totals[:, step.is_last] = 0.0
  return np.array(out).T
