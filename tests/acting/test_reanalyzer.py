"""Tests that both reanalyze modes repeat the searches of acting if the parameters are the same."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from moozi.acting.reanalyzer import Reanalyzer, search_change
from moozi.core.config.reanalyze import ReanalyzeConfig
from moozi.core.errors import RunError, UserError
from moozi.core.pytree import fields_of, map_fields
from moozi.core.records import SearchedRoots, SearchRoots
from moozi.envs.vector import SyncVectorEnvironment
from moozi.io.config import load_config
from moozi.ops.history import normalize_frame, stack_history
from moozi.run import build, local
from moozi.run.events import Acted, Finished, Reanalyzed, Updated
from moozi.run.session import RunInputs
from tests.acting.parameters import collector_in
from tests.envs.environments import make_lives, make_nim
from tests.replay.replay_lanes import assert_valid
from tests.run_events import assert_equal_trees, final_state, first_checkpoint
from tests.tiny_run import TINY, shaken

SEARCHES = {
  "gumbel": ("gumbel_scale=0", "root_value=improved"),
  "puct": ("algorithm=puct", "temperature=0"),
  "stochastic": ("algorithm=stochastic", "temperature=0", "root_value=improved"),
  "stochastic_gumbel": ("algorithm=stochastic_gumbel", "gumbel_scale=0"),
}
CORRIDOR = ("env.name=tiny:corridor", "env.kwargs.length=5", "env.kwargs.max_episode_steps=6")
# More than 32 joint actions. A search samples the same ones again only if it is free of noise.
SAMPLED = [
  f"planners.{who}.{key}"
  for who in ("train", "reanalyze")
  for key in ("num_sampled_actions=6", "temperature=0", "gumbel_scale=0")
]
ENVS = {
  # In order: terminations and truncations; a history of one frame; lives; two players; sampled joint actions.
  "corridor": ((*CORRIDOR, "targets.history_length=3"), None),
  "catch": (("targets.history_length=1",), None),
  "lives": (("targets.history_length=3", "network.kind=conv_latent", "network.channels=2"), make_lives),
  "nim": (("targets.history_length=2", "workers.num_envs=3"), lambda: make_nim(max_episode_steps=5)),
  "point": (("env.name=tiny:point", "targets.history_length=2", *SAMPLED), None),
}


def config_of(env, search):
  planner = [f"planners.{who}.{text}" for who in ("train", "reanalyze") for text in SEARCHES[search]]
  simulations = ["planners.train.num_simulations=4", "planners.reanalyze.num_simulations=4"]
  few = ["replay.capacity=512", "reanalyze.batch_size=12"]
  if search.startswith("stochastic"):
    few += ["chance.codes=3", f"planners.test.algorithm={search}"]
  return load_config(None, [*TINY, *ENVS[env][0], *planner, *simulations, *few])


@functools.cache
def acted(env, search):
  """Returns the spec, five segments, the parameters that acted, and a reanalyzer with these parameters."""
  config, make = config_of(env, search), ENVS[env][1]
  if make is None:
    spec = build.env_spec(config)
    collector = build.build_collector(config, spec, 0)
  else:
    vector = SyncVectorEnvironment([make() for _ in range(config.workers.num_envs)])
    spec = vector.spec
    collector = collector_in(vector, config, seed=0)
  state = build.initial_training_state(config, spec)
  parameters = (shaken(state.params), state.net_state), 0
  collector.set_parameters(*parameters)
  segments = [collector.run(0)[0] for _ in range(5)]
  return spec, segments, parameters, Reanalyzer(build.build_model(config, spec), config, spec, seed=1)


def replay_and_reanalyzer(env="corridor", search="gumbel"):
  """Returns a replay buffer with the segments, the reanalyzer, and the parameters that acted."""
  spec, segments, parameters, reanalyzer = acted(env, search)
  replay = build.build_replay(config_of(env, search), spec)
  for segment in segments:
    replay.add(segment, first_lane=0)
  reanalyzer.set_parameters(*parameters)
  return replay, reanalyzer, parameters


@pytest.mark.slow
@pytest.mark.parametrize(
  ("search", "env"),
  # Two searches are left out for the corridor, because they give all of its positions nearly the same value.
  # Searches with chance nodes need an entry for each action, which sampled joint actions do not have.
  [
    (search, env)
    for search in SEARCHES
    for env in ENVS
    if (env != "corridor" or search not in ("puct", "stochastic_gumbel"))
    and (env != "point" or not search.startswith("stochastic"))
  ],
)
def test_both_modes_repeat_the_search_of_acting(env, search):
  replay, reanalyzer, _ = replay_and_reanalyzer(env, search)
  arrays, queue = replay.storage.arrays, replay.reanalyze_queue
  slot = queue.choose(1000, "oldest", 1)
  terminal = arrays["is_last"] & ~arrays["is_truncated"]
  assert len(slot) == replay.num_steps - terminal.sum()
  gathered = reanalyzer.search_roots(queue.gather(slot))
  # With only some of the positions, spans start within an episode and contain steps that are not searched.
  some = slot[np.arange(len(slot)) % 7 > 3]
  replayed = reanalyzer.search_spans(queue.spans(some))
  for searched, at in ((gathered, slot), (replayed, some)):
    np.testing.assert_array_equal(searched.slot, at)
    np.testing.assert_array_equal(searched.sequence, replay.storage.sequence[at])
    np.testing.assert_allclose(searched.root_value, arrays["root_value"][at], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(searched.action_probs, arrays["action_probs"][at], rtol=1e-4, atol=1e-5)
  # The assertions above would also hold for a network whose output is constant.
  assert np.std(gathered.root_value) > 1e-3


@pytest.mark.slow
def test_the_history_matters():
  replay, reanalyzer, _ = replay_and_reanalyzer()
  roots = replay.reanalyze_queue.gather(replay.reanalyze_queue.choose(1000, "oldest", 1))
  blank = map_fields(np.array, roots)
  blank.frames[:, :-1] = 0
  blank.history_actions[:] = 0
  other = reanalyzer.search_roots(blank)
  assert np.abs(other.root_value - roots.root_value).max() > 1e-3


@pytest.mark.parametrize("mode", ["gather", pytest.param("replayed", marks=pytest.mark.slow)])
def test_results_are_written_back(mode):
  replay, reanalyzer, ((params, net_state), _) = replay_and_reanalyzer()
  reanalyzer.set_parameters((shaken(params, 5), net_state), 40)
  positions = replay.positions(ReanalyzeConfig(mode=mode, batch_size=31), 40)
  assert isinstance(positions, SearchRoots) == (mode == "gather")
  searched, metrics = reanalyzer.run(positions)
  assert len(searched.slot) == 31
  assert metrics["reanalyze/renewed_age_updates"] == 40
  assert metrics["reanalyze/value_change_abs"] > 0
  assert 0 < metrics["reanalyze/policy_divergence"] < np.log(2)
  assert replay.write_back(**fields_of(searched)) == 31
  arrays = replay.storage.arrays
  np.testing.assert_array_equal(arrays["root_value"][searched.slot], searched.root_value)
  assert (arrays["searched_version"] == 40).sum() == 31
  assert_valid(replay)


@pytest.mark.slow
def test_without_a_search_the_network_renews_values_only():
  replay, _, (variables, version) = replay_and_reanalyzer()
  config = config_of("corridor", "gumbel")
  config = config.model_copy(update={"reanalyze": ReanalyzeConfig(search=False, batch_size=12)})
  spec = acted("corridor", "gumbel")[0]
  model = build.build_model(config, spec)
  reanalyzer = Reanalyzer(model, config, spec, seed=1)
  reanalyzer.set_parameters(variables, version)
  roots = replay.positions(ReanalyzeConfig(batch_size=31), 40)
  searched, metrics = reanalyzer.run(roots)
  np.testing.assert_array_equal(searched.action_probs, roots.action_probs)
  history = stack_history(
    normalize_frame(roots.frames, spec.frame_dtype), roots.history_actions, spec.policy_groups
  )
  output, _ = model.root_inference(*variables, jnp.asarray(history), False)
  np.testing.assert_allclose(
    searched.root_value, model.transform.to_scalar(output.value_logits), rtol=1e-4, atol=1e-5
  )
  assert metrics["reanalyze/policy_divergence"] == 0
  assert metrics["reanalyze/value_change_abs"] > 1e-3


def test_replayed_trajectories_need_a_search():
  with pytest.raises(UserError, match=r"search=false: not with mode=replayed; set mode=gather"):
    load_config(None, ["reanalyze.search=false", "reanalyze.mode=replayed"])


@pytest.mark.parametrize("mode", ["gather", "replayed"])
def test_no_positions_are_an_error(mode):
  spec, _, _, reanalyzer = acted("corridor", "gumbel")
  empty = build.build_replay(config_of("corridor", "gumbel"), spec)
  with pytest.raises(RunError, match="no position to search"):
    reanalyzer.run(empty.positions(ReanalyzeConfig(mode=mode), 0))


def test_search_change_by_hand():
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
  # The Jensen-Shannon divergence is ln 2 for policies without a shared action, and 0 for equal policies.
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
def test_a_run_keeps_the_ratio_and_samples_newer_searches(order):
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
  """Reanalyze searches with the target network, which is copied every twenty learner steps."""
  seen, set_parameters = [], Reanalyzer.set_parameters
  monkeypatch.setattr(
    Reanalyzer,
    "set_parameters",
    lambda self, *args: seen.append(args[1]) or set_parameters(self, *args),
  )
  events = run("reanalyze.ratio=0.5")
  late = [version for version in seen if version >= 20]
  assert len(late) > 2
  assert all(version % 20 == 0 for version in late)
  assert [e.metrics["reanalyze/renewed_age_updates"] for e in events if isinstance(e, Reanalyzed)][-1] > 0


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run_with_reanalyze():
  runs = [run("reanalyze.ratio=0.5", "replay.sampling=rank", "max_env_steps=320") for _ in range(2)]
  assert_equal_trees(*(final_state(events).training for events in runs))
  assert any(isinstance(e, Acted) for e in runs[0])


@pytest.mark.slow
def test_resume_with_reanalyze_is_exact_to_the_bit():
  overrides = ("reanalyze.ratio=0.5", "checkpoint.milestones_env_steps=160", "max_env_steps=320")
  events = run(*overrides)
  at = first_checkpoint(events)
  assert any(isinstance(e, Reanalyzed) for e in events[:at])
  config = load_config(None, [*TINY, *RUN, *overrides])
  again = list(local.run(RunInputs(config, build.env_spec(config), state=events[at].state)))
  reported = [
    [(e.env_steps, e.ratio, e.metrics["reanalyze/value_change"]) for e in x if isinstance(e, Reanalyzed)]
    for x in (events[at:], again)
  ]
  assert reported[0] == reported[1]
  assert reported[0]
  assert_equal_trees(final_state(events).training, final_state(again).training)
