"""Both ways of reanalyze say the same, and what acting said where the parameters are the same."""

import jax
import numpy as np
import pytest

from moozi.acting.collector import TrajectoryCollector
from moozi.acting.reanalyzer import Reanalyzer, search_change
from moozi.core.errors import RunError
from moozi.core.pytree import fields_of, map_fields
from moozi.core.records import SearchedRoots
from moozi.envs.vector import SyncVectorEnvironment
from moozi.io.config import load_config
from moozi.run import build, local
from moozi.run.events import Acted, Finished, Reanalyzed, StateReady, Updated
from moozi.run.session import RunInputs
from tests.envs.environments import make_lives, make_nim
from tests.tiny_run import TINY, shaken

SEARCHES = {
  "gumbel": ("gumbel_scale=0", "root_value=improved"),
  "puct": ("algorithm=puct", "temperature=0"),
}
CORRIDOR = ("env.name=tiny:corridor", "env.kwargs.length=5", "env.kwargs.max_episode_steps=6")
ENVS = {
  # Terminal and truncated ends; the newest frame alone; a life lost and a history that goes on; two players.
  "corridor": ((*CORRIDOR, "targets.history_length=3"), None),
  "catch": (("targets.history_length=1",), None),
  "lives": (("targets.history_length=3", "network.kind=conv_latent", "network.channels=2"), make_lives),
  "nim": (("targets.history_length=2", "workers.num_envs=3"), lambda: make_nim(max_episode_steps=5)),
}


def config_of(world, search, *overrides):
  planner = [f"planners.{who}.{text}" for who in ("train", "reanalyze") for text in SEARCHES[search]]
  simulations = ["planners.train.num_simulations=4", "planners.reanalyze.num_simulations=4"]
  few = ["replay.capacity=512", "reanalyze.batch_size=12"]
  return load_config(None, [*TINY, *ENVS[world][0], *planner, *simulations, *few, *overrides])


def acted(world, search):
  """A reanalyzer and a replay buffer with steps that were acted with its parameters."""
  config, make = config_of(world, search), ENVS[world][1]
  if make is None:
    spec = build.env_spec(config)
    collector = build.build_collector(config, spec, 0)
  else:
    env = SyncVectorEnvironment([make() for _ in range(config.workers.num_envs)])
    spec = env.spec
    model = build.build_model(config, spec)
    collector = TrajectoryCollector(model, config, config.planners.train, env, seed=0)
  params, net_state, version = build.build_learner(config, spec).parameters()
  replay, parameters = build.build_replay(config, spec), (shaken(params), net_state, version)
  collector.set_parameters(*parameters)
  for _ in range(5):
    replay.add(collector.run(0)[0], first_lane=0)
  reanalyzer = Reanalyzer(build.build_model(config, spec), config, spec, seed=1)
  reanalyzer.set_parameters(*parameters)
  return config, replay, reanalyzer


@pytest.mark.parametrize(
  ("search", "world"),
  [
    # PUCT over a fresh network gives the corridor's positions, which hardly differ, one and the same value.
    pytest.param(search, world, marks=[] if (search, world) == ("gumbel", "catch") else [pytest.mark.slow])
    for search in SEARCHES
    for world in ENVS
    if (search, world) != ("puct", "corridor")
  ],
)
def test_both_ways_say_what_acting_said(world, search):
  _, replay, reanalyzer = acted(world, search)
  slot = replay._roots.choose(1000, "oldest", 1)
  terminal = replay._storage.arrays["is_last"] & ~replay._storage.arrays["is_truncated"]
  assert len(slot) == replay.num_steps - terminal.sum()
  gathered = reanalyzer.search_roots(replay._roots.gather(slot))
  # Not all at once, so that some spans begin in the middle of an episode and some positions are passed by.
  some = slot[np.arange(len(slot)) % 7 > 3]
  replayed = reanalyzer.search_spans(replay._roots.spans(some))
  arrays = replay._storage.arrays
  for searched, at in ((gathered, slot), (replayed, some)):
    np.testing.assert_array_equal(searched.slot, at)
    np.testing.assert_array_equal(searched.sequence, replay._storage.sequence[at])
    np.testing.assert_allclose(searched.root_value, arrays["root_value"][at], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(searched.action_probs, arrays["action_probs"][at], rtol=1e-4, atol=1e-5)
  # A network that told nothing apart would pass the above.
  assert np.std(gathered.root_value) > 1e-3


def test_the_history_counts():
  """Positions with their histories taken away are searched to another end."""
  _, replay, reanalyzer = acted("corridor", "gumbel")
  roots = replay._roots.gather(replay._roots.choose(1000, "oldest", 1))
  blank = map_fields(lambda x: x, roots)
  blank.frames[:, :-1] = 0
  blank.history_actions[:] = 0
  other = reanalyzer.search_roots(blank)
  assert np.abs(other.root_value - roots.root_value).max() > 1e-3


@pytest.mark.parametrize("way", ["gather", "replayed"])
def test_a_run_of_the_worker_goes_back_into_replay(way):
  config, replay, reanalyzer = acted("corridor", "gumbel")
  params, net_state, _ = build.build_learner(config, build.env_spec(config)).parameters()
  reanalyzer.set_parameters(shaken(params, 5), net_state, 40)
  settings = config.reanalyze.model_copy(update={"way": way, "batch_size": 31})
  searched, metrics = reanalyzer.run(replay.positions(settings, 40))
  assert len(searched.slot) == 31
  assert metrics["reanalyze/renewed_age_updates"] == 40
  assert metrics["reanalyze/value_change_abs"] > 0
  assert 0 < metrics["reanalyze/policy_divergence"] < np.log(2)
  assert replay.write_back(**fields_of(searched)) == 31
  arrays = replay._storage.arrays
  np.testing.assert_array_equal(arrays["root_value"][searched.slot], searched.root_value)
  assert (arrays["searched_version"] == 40).sum() == 31
  replay.check_valid()


@pytest.mark.parametrize("way", ["gather", "replayed"])
def test_nothing_to_search_is_refused(way):
  config, _, reanalyzer = acted("catch", "gumbel")
  empty = build.build_replay(config, build.env_spec(config))
  with pytest.raises(RunError, match="no position to search"):
    reanalyzer.run(empty.positions(config.reanalyze.model_copy(update={"way": way}), 0))


def test_other_parameters_of_the_same_version_are_taken_after_a_drop():
  config, replay, reanalyzer = acted("corridor", "gumbel")
  roots = replay._roots.gather(replay._roots.choose(12, "oldest", 1))
  params, net_state, _ = build.build_learner(config, build.env_spec(config)).parameters()
  before = reanalyzer.search_roots(roots).root_value
  reanalyzer.set_parameters(shaken(params, 5), net_state, reanalyzer.version)
  np.testing.assert_array_equal(reanalyzer.search_roots(roots).root_value, before)
  version = reanalyzer.version
  reanalyzer.drop_parameters()
  assert reanalyzer.version == -1
  reanalyzer.set_parameters(shaken(params, 5), net_state, version)
  assert np.abs(reanalyzer.search_roots(roots).root_value - before).max() > 1e-3


def test_change_of_values_and_policies_by_hand():
  new = SearchedRoots(
    root_value=np.array([1.0, -2.0], np.float32),
    action_probs=np.array([[0, 1, 0], [0, 0.5, 0.5]], np.float32),
    searched_version=np.zeros(2, np.int32),
    slot=np.arange(2),
    sequence=np.arange(2),
  )
  change = search_change(
    np.array([0.0, 1.0], np.float32), np.array([[0, 0, 1], [0, 0.5, 0.5]], np.float32), new
  )
  assert change["reanalyze/value_change"] == pytest.approx(-1.0)
  assert change["reanalyze/value_change_abs"] == pytest.approx(2.0)
  # No action shared: ln 2; the same: 0.
  assert change["reanalyze/policy_divergence"] == pytest.approx(np.log(2) / 2, rel=1e-6)


RUN = (
  "max_env_steps=640",
  "evaluation.final_episodes=1",
  "learner.target_update_period=20",
  "reanalyze.batch_size=8",
)


def run(*overrides):
  config = load_config(None, [*TINY, *RUN, *overrides])
  return list(local.run(RunInputs(config, build.env_spec(config))))


@pytest.mark.slow
@pytest.mark.parametrize("order", ["oldest", "priority"])
def test_the_loop_holds_the_ratio_and_freshens_what_is_sampled(order):
  plain = run()
  assert not any(isinstance(e, Reanalyzed) for e in plain)
  events = run("reanalyze.ratio=0.75", f"reanalyze.order={order}")
  searches = [e for e in events if isinstance(e, Reanalyzed)]
  assert searches[-1].ratio == pytest.approx(0.75, rel=0.02)
  assert sum(e.num_positions for e in searches) == 8 * len(searches)
  last, before = ([e for e in es if isinstance(e, Updated)][-1].metrics for es in (events, plain))
  assert before["replay/searched_again_share"] == 0
  assert last["replay/searched_again_share"] > 0.5
  assert last["replay/search_age_updates"] < 0.8 * before["replay/search_age_updates"]
  assert last["replay/rewritten"] == 8 * len(searches)
  assert events[-1].env_steps == plain[-1].env_steps
  assert isinstance(events[-1], Finished)


@pytest.mark.slow
def test_the_target_network_searches(monkeypatch):
  """Reanalyze searches with the copies of every twentieth learner step, once there is one."""
  seen, set_parameters = [], Reanalyzer.set_parameters
  monkeypatch.setattr(
    Reanalyzer,
    "set_parameters",
    lambda self, *given: seen.append(given[2]) or set_parameters(self, *given),
  )
  events = run("reanalyze.ratio=0.5")
  late = [version for version in seen if version >= 20]
  assert len(late) > 2
  assert all(version % 20 == 0 for version in late)
  assert [e.metrics["reanalyze/renewed_age_updates"] for e in events if isinstance(e, Reanalyzed)][-1] > 0


@pytest.mark.slow
def test_with_reanalyze_too_the_same_seed_gives_the_same_run_to_the_bit():
  runs = [run("reanalyze.ratio=0.5", "replay.sampling=rank", "max_env_steps=320") for _ in range(2)]
  states = [next(e.state for e in events if isinstance(e, StateReady) and e.is_final) for events in runs]
  for a, b in zip(*(jax.tree_util.tree_leaves(state.training) for state in states), strict=True):
    np.testing.assert_array_equal(a, b)
  assert any(isinstance(e, Acted) for e in runs[0])


@pytest.mark.slow
def test_a_run_with_reanalyze_that_is_taken_up_goes_on_to_the_bit():
  overrides = ("reanalyze.ratio=0.5", "checkpoint.milestones_env_steps=160", "max_env_steps=320")
  events = run(*overrides)
  at = next(i for i, e in enumerate(events) if isinstance(e, StateReady) and not e.is_best)
  assert any(isinstance(e, Reanalyzed) for e in events[:at])
  config = load_config(None, [*TINY, *RUN, *overrides])
  again = list(local.run(RunInputs(config, build.env_spec(config), state=events[at].state)))
  told = [
    [(e.env_steps, e.ratio, e.metrics["reanalyze/value_change"]) for e in x if isinstance(e, Reanalyzed)]
    for x in (events[at:], again)
  ]
  assert told[0] == told[1]
  assert told[0]
  ends = [next(e.state for e in x if isinstance(e, StateReady) and e.is_final) for x in (events, again)]
  for a, b in zip(*(jax.tree_util.tree_leaves(end.training) for end in ends), strict=True):
    np.testing.assert_array_equal(a, b)


def test_parameters_of_the_target_network_tell_the_step_of_their_copy():
  config = load_config(None, [*TINY, "learner.target_update_period=3"])
  learner = build.build_learner(config, build.env_spec(config))
  replay = build.build_replay(config, build.env_spec(config))
  collector = build.build_collector(config, build.env_spec(config), 0)
  collector.set_parameters(*learner.parameters())
  for _ in range(4):
    replay.add(collector.run(0)[0], first_lane=0)
  versions, firsts = [], []
  for _ in range(5):
    learner.update(replay.sample_many(2, 16))
    params, _, version = learner.target_parameters()
    versions.append(version)
    firsts.append(np.asarray(jax.tree_util.tree_leaves(params)[-1]).copy())
  # The second step is before the first copy: an untrained network would search worse than what is stored.
  assert versions == [2, 3, 6, 6, 9]
  for before, after in ((0, 1), (1, 2), (3, 4)):
    assert not np.array_equal(firsts[before], firsts[after])
  np.testing.assert_array_equal(firsts[2], firsts[3])
