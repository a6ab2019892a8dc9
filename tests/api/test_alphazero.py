"""Tests of a run of AlphaZero in the API and the commands, which hand it the position of the game."""

import io
import json
import sys

import numpy as np
import pytest

import moozi
from moozi.core.errors import UserError
from tests.commands.conftest import make_run
from tests.tiny_run import RESUMABLE, keywords

pytest.importorskip("pyspiel")
ALPHAZERO = ("algorithm=alphazero", "targets.unroll_steps=0")
SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  """Returns the path of a run in tic-tac-toe with an untrained network, a history and random starts."""
  folder = tmp_path_factory.mktemp("alphazero")
  game = ("env.name=open_spiel:tic_tac_toe", "targets.history_length=2", "evaluation.max_random_starts=3")
  return make_run(folder, "az", *ALPHAZERO, *game)


def test_refuses_what_it_cannot_do(run, refused, tmp_path):
  agent = moozi.load(run)
  step = agent.make_env().reset()
  for method in (agent.act, agent.search):
    with pytest.raises(UserError, match=r"position: missing; algorithm=alphazero .* position=env.position"):
      method(step)
    with pytest.raises(UserError, match="position: 2 rows; must have 1"):
      method([step], position=[None, None])
  error = refused("latent", run)
  assert "algorithm=alphazero has no model; `moozi latent` needs an algorithm with one" in error
  assert "algorithm=alphazero has no model; `moozi reanalyze` needs" in refused(
    "reanalyze", run, "--out", tmp_path / "out"
  )
  error = refused("train", "tiny/catch", *ALPHAZERO, f"run.dir={tmp_path}")
  assert "env.name=tiny:catch: algorithm=alphazero plans with the true rules" in error
  assert not list(tmp_path.iterdir())


@SLOW
def test_acts_as_the_evaluator(run):
  """`Agent.act` with positions plays the evaluation's episodes, and `Agent.search` shows its next action."""
  agent = moozi.load(run)
  evaluator = agent.evaluator()
  for episode in (0, 1):
    agent.reset()
    played = list(evaluator.play(agent.state.variables, episode))
    inspected = agent.inspect(episode)
    np.testing.assert_array_equal(inspected.frames, [p.frame for p in played])
    np.testing.assert_array_equal(inspected.actions, [p.action for p in played])
    np.testing.assert_allclose(inspected.root_values[:-1], [p.root_value for p in played[:-1]], atol=1e-6)
    assert inspected.imagined_rewards.shape[1] == 0
    env = agent.make_env()
    step = env.reset()
    while not step.last():
      found = agent.search(step, position=env.position())
      assert found.num_simulations == 4
      assert not found.policy[~step.observation.legal_actions_mask].any()
      assert agent.act(step, position=env.position()) == found.action
      step = env.step(found.action)


@SLOW
def test_inspected_q_values_of_the_network_are_true_at_ends(run):
  """A winning action has the Q-value 1 before search: the reward of the rules, and value 0 after it."""
  agent, num_wins = moozi.load(run), 0
  for episode in range(4):
    found = agent.inspect(episode)
    last = len(found.actions) - 2
    if found.end == "terminal" and found.rewards[-1] == 1:
      assert found.network_q_values[last, found.actions[last]] == 1
      num_wins += 1
  assert num_wins


@SLOW
def test_plays_as_every_kind_of_player(run, cli, monkeypatch, tmp_path):
  agent = moozi.load(run)
  names = [f"run:{run}", f"prior:{run}"]
  own = agent.evaluate(6, opponent="self")
  # Random starts are not shown to a player, so its position must come from the environment.
  named = agent.evaluate(6, opponent=names[0])
  assert named.returns.tolist() == own.returns.tolist()
  assert named.lengths.tolist() == own.lengths.tolist()
  result = moozi.arena("open_spiel:tic_tac_toe", [*names, names[0], "random"], games=8, opening_plies=2)
  assert len(result.games) == 48
  itself = result.pairs().set_index(["first", "second"])
  copies = [name for name in {n for pair in itself.index for n in pair} if name.startswith("run:")]
  assert len(copies) == 2
  lines = "\n".join(str(a) for a in range(9)) + "\n"
  monkeypatch.setattr(sys, "stdin", io.StringIO(lines * 2))
  status, out, _ = cli("play", run)
  assert status == 0
  assert "O plays (" in out
  tick = {"env_steps": 32, "learner_steps": 1, "wall_s": 1.0, "loss/total": 1.0}
  (run / "metrics.jsonl").write_text(json.dumps(tick) + "\n")
  for arguments in (("evaluate", run, "--episodes", "3"), ("inspect", run), ("report", run)):
    assert cli(*arguments)[0] == 0, arguments


@SLOW
def test_a_run_with_sampled_joint_actions(tmp_path):
  """The run starts, learns, resumes and plays in a game of 36 joint actions, of which each node samples 6."""
  game = ("env.name=tests.envs.lock:make_lock", "evaluation.num_envs=1", "evaluation.max_random_starts=0")
  samples = [f"planners.{who}.num_sampled_actions=6" for who in ("train", "test")]
  settings = keywords((*RESUMABLE, *ALPHAZERO, *game, *samples, "max_env_steps=96"))
  run = moozi.train({}, **settings, run={"dir": tmp_path, "name": "first"})
  learned = run.summary["learner_steps"]
  assert learned > 0
  run = moozi.resume(run.path, allow_code=True, max_env_steps=128)
  assert run.summary["learner_steps"] > learned
  agent = moozi.load(run.path, allow_code=True)
  found = agent.inspect(0)
  env = agent.make_env()
  step = env.reset()
  for action in found.actions[:-1]:
    search = agent.search(step, position=env.position())
    assert len(search.actions) == 6
    own = agent.act(step, position=env.position())
    assert env.env_spec.factors.joint_action(own) == action - 1
    step = env.step(own)
  assert step.last()


@SLOW
def test_compiled_rules_play_too(tmp_path):
  pytest.importorskip("pgx")
  run = make_run(tmp_path, "az", *ALPHAZERO, "env.name=pgx:tic_tac_toe")
  agent = moozi.load(run)
  own = agent.evaluate(4, opponent="self")
  named = agent.evaluate(4, opponent=f"run:{run}")
  assert named.returns.tolist() == own.returns.tolist()
  result = moozi.arena("pgx:tic_tac_toe", [f"run:{run}", "random"], games=4)
  assert len(result.games) == 4
  env = agent.make_env()
  assert 0 <= agent.act(env.reset(), position=env.position()) < 9
