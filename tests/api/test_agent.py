"""Tests of `Agent`: it acts like the evaluator, and refuses observations that do not match its spec."""

import json
import shutil

import dm_env
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import moozi
from moozi.api import players
from moozi.core.errors import UserError
from tests.commands.conftest import PPO, make_run

SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def catch(runs):
  return moozi.load(runs["catch"])


@pytest.fixture
def agent(catch):
  catch.reset()
  return catch


@pytest.fixture
def step(agent):
  """Returns the first step of the agent's environment."""
  return agent.make_env(seed=3).reset()


@pytest.mark.parametrize(
  ("kind", "episodes"),
  [
    ("catch", (0, 1)),
    pytest.param("board", (0, 1), marks=SLOW),
    pytest.param("ppo", (0, 1), marks=SLOW),
    pytest.param("lstm", (0, 1), marks=SLOW),
    pytest.param("noisy", (1,), marks=SLOW),
  ],
)
def test_acts_as_the_evaluator(runs, catch, kind, episodes):
  """Compares each action; in two-player games from both seats."""
  agent = catch if kind == "catch" else moozi.load(runs[kind])
  num_acted = num_observed = 0
  for episode in episodes:
    agent.reset()
    for played in agent.evaluator().play(agent.state.variables, episode):
      if played.is_last:
        break
      seen = moozi.Observation(played.frame, played.legal_actions_mask[1:], played.to_play)
      if played.seat is None or played.to_play == played.seat:
        assert agent.act(seen) == played.action - 1
        num_acted += 1
      else:
        agent.observe(seen, played.action - 1)
        num_observed += 1
  assert num_acted > 4
  assert (num_observed > 0) == (kind in ("board", "lstm"))


@SLOW
def test_search_is_that_of_the_next_act(agent):
  """`Agent.search` gives the figures of `Agent.inspect` for the same frames."""
  episode = agent.inspect(0, max_steps=3)
  for t in range(3):
    seen = moozi.Observation(episode.frames[t], episode.legal_actions_mask[t, 1:], 0)
    found = agent.search(seen)
    assert_allclose(found.policy, episode.action_probs[t, 1:])
    assert_allclose(found.prior, episode.prior_probs[t, 1:])
    assert_allclose(found.q_values, episode.q_values[t, 1:])
    assert_allclose(found.network_q_values, episode.network_q_values[t, 1:])
    assert (found.value, found.prior_value) == (episode.root_values[t], episode.prior_values[t])
    assert_array_equal(found.tree.visits, episode.trees[t].visits)
    assert found.visits.sum() == found.num_simulations == 4
    assert agent.act(seen) == found.action == episode.actions[t] - 1


@pytest.mark.slow
def test_search_shows_itself(agent, step):
  found = agent.search(step)
  text = found._repr_html_()
  assert text.count("<svg ") == 1
  assert "simulations, network value" in text
  assert f">{found.action_names[0]}<" in text
  frame = found.to_frame()
  assert list(frame.index) == [0, 1, 2]
  assert list(frame["name"]) == ["left", "stay", "right"]
  assert_array_equal(frame["visits"], found.visits)
  assert (frame["q"].isna() == (found.visits == 0)).all()


@pytest.mark.slow
def test_search_escapes_names(agent, step):
  import dataclasses

  found = dataclasses.replace(agent.search(step), action_names=("<script>", "a&b", "c"), env="<b>")
  text = found._repr_html_()
  assert "<script>" not in text
  assert "<b>" not in text
  assert "&lt;script&gt;" in text


@SLOW
def test_search_of_a_board_hides_illegal_actions(runs):
  agent = moozi.load(runs["board"], simulations=6)
  env = agent.make_env()
  step = env.step(agent.act(env.reset()))
  found = agent.search(step)
  taken = ~step.observation.legal_actions_mask
  assert taken.sum() == 1
  for values in (found.policy, found.prior, found.q_values, found.network_q_values, found.visits):
    assert (values[taken] == 0).all()
  assert found.num_simulations == 6
  assert found.signed_discount < 0
  assert len(found.to_frame()) == 8


def test_all_kinds_of_observation_act_alike(runs, agent):
  env = agent.make_env(seed=5)
  seen = [env.reset()]
  actions = []
  while not seen[-1].last():
    actions.append(agent.act(seen[-1]))
    seen.append(env.step(actions[-1]))
  for convert in (lambda s: s.observation, lambda s: s.observation.frame):
    agent.reset()
    assert [agent.act(convert(s)) for s in seen[:-1]] == actions
  gym, done = agent.make_env(seed=5).as_gymnasium(), False
  frame, info = gym.reset()
  agent.reset()
  for action in actions:
    assert agent.act(frame, info["legal_actions_mask"]) == action
    frame, _, *ends, info = gym.step(action)
    done = any(ends)
  assert done


@pytest.mark.slow
def test_first_step_resets_the_history(agent):
  env = agent.make_env(seed=1)
  step = env.reset()
  search = agent.search(step)
  while not step.last():
    step = env.step(agent.act(step))
  env.seed(1)
  assert agent.search(env.reset()).value == search.value
  agent.act(env.reset())


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (lambda f: f[:-1], "observation: bool[9, 5, 2]; must be bool[10, 5, 2], a frame of tiny:catch"),
    (lambda f: f.astype(np.float32), "observation: float32[10, 5, 2]; must be bool[10, 5, 2]"),
    # A list, or one axis more, is several games.
    (lambda f: f[None, None], "observation: bool[1, 1, 10, 5, 2]; must be"),
    (lambda f: None, "observation: object[]; must be"),
  ],
)
def test_wrong_observations(agent, step, change, message):
  for call in (agent.act, agent.search, lambda seen: agent.observe(seen, 0)):
    with pytest.raises(UserError) as caught:
      call(change(step.observation.frame))
    assert message in str(caught.value)


def test_a_list_is_several_games(agent):
  message = r"^observation 0 of 2: observation: int64\[1\]; must be bool\[10, 5, 2\]"
  for call in (agent.act, agent.search, lambda seen: agent.observe(seen, [0, 0])):
    with pytest.raises(UserError, match=message):
      call([[1], [1, 2]])


@pytest.mark.parametrize(
  ("legal", "message"),
  [
    ([True, True], "legal: bool[2]; must be bool[3], one entry for each action of tiny:catch"),
    ([True] * 4, "legal: bool[4]; must be bool[3]"),
    ([0.5, 1, 1], "legal: float64[3]; must be bool[3]"),
    ([2, 1, 1], "legal: int64[3]; must be bool[3]"),
    ([False] * 3, "legal: allows no action"),
  ],
)
def test_wrong_masks(agent, step, legal, message):
  with pytest.raises(UserError) as caught:
    agent.act(step, legal)
  assert message in str(caught.value)


def test_legal_mask_is_obeyed(agent, step):
  for action in range(3):
    legal = np.zeros(3, np.int8)
    legal[action] = 1
    assert agent.search(step, legal).action == action
    agent.reset()
    assert agent.act(step, legal) == action


def test_a_checkpoint_by_steps_and_by_path(runs):
  info = moozi.Run(runs["catch"]).checkpoints()[-1]
  for checkpoint in (info.env_steps, str(info.env_steps), info.path, info.name):
    assert moozi.load(runs["catch"], checkpoint).checkpoint.name == info.name


def test_other_refusals(runs, agent, step, tmp_path):
  with pytest.raises(UserError, match="the episode is over"):
    agent.act(dm_env.termination(0.0, step.observation))
  with pytest.raises(UserError, match="action=3: must be from 0 to 2"):
    agent.observe(step, 3)
  with pytest.raises(UserError, match="no such folder"):
    moozi.load(tmp_path / "missing")
  with pytest.raises(UserError, match="no such checkpoint"):
    moozi.load(runs["catch"], "step_1")
  for options, message in (
    ({"opponent": "mcts"}, "opponent=mcts: tiny:catch has one player"),
    (
      {"opponent": "nobody"},
      "opponent=nobody: must be random, mcts, alpha_beta, self, mcts:SIMULATIONS, alpha_beta:DEPTH, run:PATH",
    ),
    (
      {"opponent": "mcts:many"},
      "opponent=mcts:many: must be random, mcts, alpha_beta, self, mcts:SIMULATIONS, alpha_beta:DEPTH, run",
    ),
    (
      {"opponent": "alpha_beta:100"},
      "opponent=alpha_beta:100: must be .* or a registered name; DEPTH is an integer from 1 to 99",
    ),
    ({"opponent_simulations": 3}, "opponent_simulations=3: tiny:catch has one player"),
  ):
    with pytest.raises(UserError, match=message):
      agent.evaluate(1, **options)


@SLOW
def test_checkpoint_of_another_environment(runs):
  other = moozi.load(runs["catch"]).checkpoint.path
  with pytest.raises(UserError, match=r"another environment: spec\.name is tiny:catch"):
    moozi.load(runs["board"], str(other))


@pytest.mark.parametrize(
  ("call", "message"),
  [
    (lambda agent: agent.evaluate(0), "episodes=0: must be at least 1"),
    (lambda agent: agent.evaluate(0, record=True), "episodes=0: must be at least 1"),
    (lambda agent: agent.evaluate(1, simulations=0), "simulations=0: must be at least 1"),
    (lambda agent: agent.evaluate(1, record=True, gif_max_frames=0), "gif_max_frames=0: must be at least 1"),
    (lambda agent: agent.evaluate(1, opponent_simulations=0), "opponent_simulations=0: must be at least 1"),
    (lambda agent: agent.evaluator(0), "simulations=0: must be at least 1"),
    (lambda agent: agent.inspect(-1), "episode=-1: must be at least 0"),
    (lambda agent: agent.inspect(max_steps=0), "max_steps=0: must be at least 1"),
    (lambda agent: agent.inspect(simulations=0), "simulations=0: must be at least 1"),
    (lambda agent: moozi.load(agent.directory.path, simulations=0), "simulations=0: must be at least 1"),
    (lambda agent: moozi.load(agent.directory.path, 10**5000), "checkpoint=…: must be from 0 to"),
    (lambda agent: moozi.load(agent.directory.path, seed=2**70), "seed=…: must be from 0 to 2,147,483,647"),
    (lambda agent: agent.make_env(-1), "seed=-1: must be from 0 to 2,147,483,647"),
    (lambda agent: moozi.make_env("tiny:catch", seed=-1), "seed=-1: must be from 0 to 2,147,483,647"),
    (lambda agent: agent.evaluate(1.5), r"episodes=1\.5: must be an integer"),
    (lambda agent: agent.search(agent.make_env().reset()).svg(0), "max_nodes=0: must be at least 1"),
    (lambda agent: agent.evaluate(1, gif_max_frames=3), "gif_max_frames=3: needs record=True"),
  ],
)
def test_numbers_are_checked(agent, call, message):
  with pytest.raises(UserError, match=message):
    call(agent)


def test_seeds_may_be_numbers_of_numpy(agent):
  agent.make_env(np.int64(2)).close()


@pytest.mark.slow
def test_the_runs_opponent_is_needed_only_where_it_plays(tmp_path):
  overrides = ("env.name=open_spiel:tic_tac_toe", "evaluation.opponent=run:nowhere")
  agent = moozi.load(make_run(tmp_path, "board", *PPO, *overrides))
  assert agent.act(agent.make_env().reset()) in range(9)
  assert len(agent.evaluate(2, opponent="random").returns) == 2
  for call in (lambda: agent.evaluate(1), agent.evaluator):
    with pytest.raises(UserError, match="nowhere: no such folder"):
      call()


@pytest.mark.slow
def test_an_opponents_newer_checkpoint_plays_in_the_next_evaluation(tmp_path):
  board = (*PPO, "env.name=open_spiel:tic_tac_toe")
  other, agent = make_run(tmp_path, "other", *board), moozi.load(make_run(tmp_path, "board", *board))
  name, first = f"run:{other}", other / "checkpoints" / "step_000000064.safetensors"

  def checkpoint():
    agent.evaluate(1, opponent=name)
    return players.make_player(name, agent.spec).agent.checkpoint.name

  assert checkpoint() == first.stem
  shutil.copy(first, first.with_stem("step_000000128"))
  assert players.make_player(name, agent.spec).agent.checkpoint.name == first.stem, "not during an evaluation"
  assert checkpoint() == "step_000000128"


def test_own_environment_needs_allow_code(runs, tmp_path):
  path = tmp_path / "run"
  (path / "checkpoints").mkdir(parents=True)
  (path / "config.yaml").write_text(json.dumps({"env": {"name": "evil_envs:make_env"}}))
  with pytest.raises(UserError, match="allow_code=True"):
    moozi.load(path)


@SLOW
def test_ppo_acts_and_has_no_search(runs):
  agent = moozi.load(runs["ppo"])
  step = agent.make_env().reset()
  with pytest.raises(UserError, match=r"algorithm=ppo has no search; Agent\.search needs an algorithm"):
    agent.search(step)
  with pytest.raises(UserError, match=r"algorithm=ppo has no search; Agent\.search needs an algorithm"):
    agent.search([step, step])
  with pytest.raises(UserError, match=r"Agent\.inspect needs an algorithm"):
    agent.inspect()
  assert agent.act(step) in range(3)


@SLOW
@pytest.mark.parametrize("kind", ["catch", "board", "ppo"])
def test_evaluate_is_that_of_the_command(runs, cli, kind):
  agent = moozi.load(runs[kind])
  agent.act(agent.make_env().reset())  # must not change the evaluation
  result = agent.evaluate()
  printed = json.loads(cli("evaluate", runs[kind], "--json", "--returns")[1])
  assert len(result.returns) == agent.config.evaluation.final_episodes
  assert result.returns.tolist() == printed["returns"]
  assert result.lengths.tolist() == printed["lengths"]
  for name, value in result.summary().items():
    assert printed[name] == pytest.approx(value), name
  if kind == "board":
    printed = json.loads(cli("evaluate", runs[kind], "--episodes", "3", "--opponent", "self", "--json")[1])
    assert agent.evaluate(3, "self").summary()["return_mean"] == printed["return_mean"]
