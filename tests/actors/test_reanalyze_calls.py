"""The driver's reanalyze: bounded work at each worker, the newest target network, and losses put right."""

import types

from moozi.actors.reanalyze_calls import ReanalyzeCalls
from moozi.io.config import load_config
from moozi.run.events import Reanalyzed
from moozi.run.pacing import Pacer


class Calls:
  """Calls in flight whose results come when the test says."""

  def __init__(self):
    self.waiting = {}

  def expect(self, reference, actor, react=lambda _: [], undo=list):
    self.waiting[reference] = (actor, react, undo)

  def come(self, reference, value):
    return self.waiting.pop(reference)[1](value)

  def lose(self, reference):
    return self.waiting.pop(reference)[2]("lost")


class Method:
  """`actor.method.remote(…)`; remembers its arguments, and returns a fresh reference."""

  def __init__(self, name):
    self.name, self.asked, self.num_returns = name, [], 1

  def options(self, num_returns):
    self.num_returns = num_returns
    return self

  def remote(self, *args):
    self.asked.append(args)
    references = [f"{self.name}/{len(self.asked)}/{i}" for i in range(self.num_returns)]
    return references[0] if self.num_returns == 1 else references


def actor(name, *methods):
  return types.SimpleNamespace(**{method: Method(f"{name}.{method}") for method in methods})


def make(ratio=0.5, num_workers=2):
  config = load_config(
    None,
    [
      f"reanalyze.ratio={ratio}",
      f"reanalyze.num_workers={num_workers}",
      "reanalyze.batch_size=8",
      "learner.target_update_period=100",
      "replay.min_steps_to_learn=32",
      "workers.num_envs=4",
    ],
  )
  pool = types.SimpleNamespace(
    server=actor("server", "target_parameters"),
    replay=actor("replay", "positions", "write_back"),
    reanalyze_workers={i: actor(f"searcher_{i}", "run") for i in range(num_workers if ratio else 0)},
  )
  pacer, calls = Pacer(config, slack_steps=0), Calls()
  pacer.ask_act(32)
  pacer.done_act(32)
  pacer.may_learn(can_sample=True)
  counters = {"env_steps": 1, "learner_steps": 2}
  return pool, calls, pacer, ReanalyzeCalls(pool, calls, config, pacer, lambda: counters, learner_steps=0)


def act(pacer, num_steps):
  pacer.ask_act(num_steps)
  pacer.done_act(num_steps)


def test_nothing_is_asked_before_the_target_network_is_here():
  pool, calls, pacer, searches = make()
  act(pacer, 64)
  searches.ask(can_sample=True)
  assert not pool.replay.positions.asked
  calls.come("server.target_parameters/1/0", ("params", "net", 0))
  searches.ask(can_sample=True)
  # Two calls at each of two workers, though pacing would allow eight.
  assert pool.replay.positions.asked == [(0,)] * 4
  assert [len(w.run.asked) for w in pool.reanalyze_workers.values()] == [2, 2]
  assert pool.reanalyze_workers[0].run.asked[0] == ("server.target_parameters/1/0", 0, "replay.positions/1/0")


def test_what_is_found_goes_back_and_makes_room():
  pool, calls, pacer, searches = make(num_workers=1)
  act(pacer, 64)
  calls.come("server.target_parameters/1/0", ("params", "net", 0))
  searches.ask(can_sample=True)
  (event,) = calls.come("searcher_0.run/1/1", (8, {"reanalyze/value_change": 1.0}))
  assert isinstance(event, Reanalyzed)
  assert (event.num_positions, event.ratio) == (8, 8 / 72)
  assert pool.replay.write_back.asked == [("searcher_0.run/1/0",)]
  searches.ask(can_sample=True)
  assert len(pool.reanalyze_workers[0].run.asked) == 3


def test_the_target_network_is_taken_anew_where_it_was_copied_to():
  pool, calls, pacer, searches = make(num_workers=1)
  calls.come("server.target_parameters/1/0", ("params", "net", 0))
  # Within its first period it is the newest parameters.
  searches.on_updated(96)
  assert len(pool.server.target_parameters.asked) == 2
  searches.on_updated(104)
  assert len(pool.server.target_parameters.asked) == 3
  searches.on_updated(112)
  assert len(pool.server.target_parameters.asked) == 3
  calls.come("server.target_parameters/3/0", ("params", "net", 100))
  act(pacer, 8)
  searches.ask(can_sample=True)
  assert pool.replay.positions.asked == [(100,)]
  assert pool.reanalyze_workers[0].run.asked[0][:2] == ("server.target_parameters/3/0", 1)


def test_parameters_of_a_version_that_comes_twice_are_another_publication():
  pool, calls, pacer, searches = make(num_workers=1)
  calls.come("server.target_parameters/1/0", ("params", "net", 100))
  searches.publish()
  calls.come("server.target_parameters/2/0", ("others", "net", 100))
  act(pacer, 8)
  searches.ask(can_sample=True)
  assert pool.reanalyze_workers[0].run.asked[0][:2] == ("server.target_parameters/2/0", 1)


def test_a_search_that_is_lost_is_asked_for_again():
  pool, calls, pacer, searches = make(num_workers=1)
  act(pacer, 8)
  calls.come("server.target_parameters/1/0", ("params", "net", 0))
  searches.ask(can_sample=True)
  assert not pacer.may_reanalyze()
  assert calls.lose("searcher_0.run/1/1") == []
  assert pacer.may_reanalyze()
  pool.reanalyze_workers[0] = actor("anew", "run")
  searches.ask(can_sample=True)
  assert len(pool.reanalyze_workers[0].run.asked) == 1


def test_a_search_that_began_before_replay_was_made_anew_is_not_written_into_it():
  pool, calls, pacer, searches = make(num_workers=1)
  act(pacer, 64)
  calls.come("server.target_parameters/1/0", ("params", "net", 0))
  searches.ask(can_sample=True)
  old, pool.replay = pool.replay, actor("replay", "positions", "write_back")
  calls.come("searcher_0.run/1/1", (8, {}))
  assert not old.write_back.asked
  assert not pool.replay.write_back.asked
  assert pacer.positions_done == 8


def test_a_replay_that_died_and_holds_too_little_is_asked_for_nothing():
  pool, calls, pacer, searches = make()
  act(pacer, 64)
  calls.come("server.target_parameters/1/0", ("params", "net", 0))
  pool.replay = actor("replay", "positions", "write_back")
  searches.ask(can_sample=False)
  assert not pool.replay.positions.asked
  assert pacer.may_reanalyze()
  searches.ask(can_sample=True)
  assert len(pool.replay.positions.asked) == 4


def test_without_a_ratio_nothing_is_asked_of_anybody():
  pool, calls, pacer, searches = make(ratio=0)
  act(pacer, 64)
  searches.ask(can_sample=True)
  searches.on_updated(1000)
  assert not pool.server.target_parameters.asked
  assert not calls.waiting
