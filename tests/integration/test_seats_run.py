"""Tests that agents train in one seat of a game, and beat random players in the other seats."""

import functools

import jax
import numpy as np
import pytest

import moozi
from moozi.core.plugins import PLAYERS
from moozi.evaluation.random_play import random_returns
from moozi.io.config import load_config
from moozi.run import build
from moozi.run.events import Evaluated, Finished
from moozi.run.session import RunInputs
from moozi.training.algorithms import algorithm_of
from tests.baselines.ppo.conftest import TINY as TINY_PPO
from tests.baselines.q_learning.conftest import TINY as TINY_Q
from tests.docs.pages import ROOT, blocks
from tests.run_events import final_state
from tests.tiny_run import RESUMABLE, TINY, keywords

pytest.importorskip("pyspiel")
SEAT = ("env.kwargs.seat=random", "evaluation.max_random_starts=0", "evaluation.max_episode_steps=40")


def run(settings, *overrides):
  """Returns the events of a run."""
  config = load_config(None, ["runtime=local", *settings, *SEAT, *overrides])
  return list(algorithm_of(config).run(RunInputs(config, build.env_spec(config))))


def results(events):
  return [event.result for event in events if isinstance(event, Evaluated)]


@pytest.mark.slow
@pytest.mark.parametrize(
  ("settings", "name"),
  [
    (TINY_PPO, "simplest"),
    ((*TINY, "evaluation.period_env_steps=160"), "simplest"),
    (TINY_PPO, "kuhn_poker(players=3)"),
    (TINY, "leduc_poker"),
    (TINY, "uno(players=4,hand=2)"),
    (TINY_PPO, "stratego"),
    (TINY_Q, "uno(players=4,hand=2)"),
  ],
)
def test_run_trains_in_a_seat(settings, name):
  events = run(settings, f"env.name=open_spiel:{name}")
  assert isinstance(events[-1], Finished)
  assert events[-1].learner_steps > 0
  state = final_state(events)
  assert all(np.isfinite(x).all() for x in jax.tree_util.tree_leaves(state.training.params))
  assert all(result.seats is None and np.abs(result.returns).max() > 0 for result in results(events))


@pytest.mark.slow
def test_past_selves_play_the_other_seats(tmp_path, monkeypatch):
  """The player of docs/boards.md plays with the newest checkpoint of the run that it plays in."""
  monkeypatch.chdir(tmp_path)
  load, act, loaded, acted = moozi.load, moozi.Agent.act, [], []

  def spied_load(run):
    loaded.append(-1)  # stays if there is no checkpoint
    agent = load(run)
    loaded[-1] = agent.checkpoint.env_steps
    return agent

  def spied_act(agent, *arguments):
    acted.append(agent.checkpoint.env_steps)
    return act(agent, *arguments)

  game = "env.name=open_spiel:uno(hand=2,max_turns=20)"
  settings = keywords((*RESUMABLE, *SEAT, game, "checkpoint.milestones_env_steps=32"))
  monkeypatch.setattr(moozi, "load", spied_load)
  monkeypatch.setattr(moozi.Agent, "act", spied_act)
  monkeypatch.setattr(moozi, "train", functools.partial(moozi.train, **settings))
  (program,) = (block.text for block in blocks(ROOT / "docs" / "boards.md") if "class Past" in block.text)
  try:
    exec(program, {"__name__": "__main__"})
  finally:
    del PLAYERS.registered["past"]
  assert loaded[0] == -1
  assert loaded == sorted(loaded)
  assert len({*loaded}) > 2
  assert len({*acted}) > 1
  assert {*acted} <= {*loaded}


def learned(name, *overrides):
  """Trains with a configuration; returns the returns of the last evaluation and those of random play."""
  config = load_config(name, ["runtime=local", *overrides])
  events = list(algorithm_of(config).run(RunInputs(config, build.env_spec(config))))
  return results(events)[-1].returns, random_returns(config, 1000)


@pytest.mark.learning
@pytest.mark.parametrize("name", ["boards/simplest", "ppo/boards/simplest", "q_learning/boards/simplest"])
def test_simplest_is_learned(name):
  """Against random players, the best mean return is 0.75, and that of random play is 0."""
  returns, by_random = learned(name)
  assert abs(by_random.mean()) < 0.1
  assert returns.mean() > 0.68


@pytest.mark.learning
@pytest.mark.parametrize(
  "name",
  [
    "boards/leduc_poker",
    *(
      f"{algorithm}/boards/{game}_poker" for algorithm in ("ppo", "q_learning") for game in ("leduc", "kuhn")
    ),
  ],
)
def test_poker_beats_random_play(name):
  returns, by_random = learned(name, "max_env_steps=60000", "evaluation.final_episodes=4000")
  assert returns.mean() - 1.96 * returns.std() / len(returns) ** 0.5 > 0.05
  assert abs(by_random.mean()) < 0.3
