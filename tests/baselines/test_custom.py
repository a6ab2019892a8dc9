"""Tests of algorithms of one's own: the example of docs/plugins.md by every command, and what is refused."""

import dataclasses
import io
import json
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moozi
from moozi.agent.agent import Decision
from moozi.core import plugins
from moozi.core.errors import NotFiniteError, UserError
from moozi.core.pytree import replace
from moozi.io.config import load_config
from moozi.ops.policy import draw_action
from moozi.run import build
from moozi.run.events import Acted, Updated
from moozi.run.session import RunInputs
from moozi.training.algorithms import algorithm_of
from moozi.training.dry_run import dry_run
from tests.run_events import assert_equal_trees, final_state, first_checkpoint
from tests.tiny_run import RESUMABLE

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = "algorithm=algorithm:PolicyGradient(learning_rate=0.02)"


@pytest.fixture
def example(folder, monkeypatch):
  """Makes the example's module importable."""
  monkeypatch.syspath_prepend(EXAMPLES)
  yield folder
  sys.modules.pop("algorithm", None)


def configure(*overrides):
  return load_config(None, [*RESUMABLE, *overrides])


def events_of(config, **inputs):
  return list(algorithm_of(config).run(RunInputs(config, build.env_spec(config), **inputs)))


@dataclasses.dataclass(frozen=True)
class Wandering:
  """Adds noise to a table of logits at each update. Its state has each kind of leaf."""

  spec: moozi.EnvSpec
  scale: float = 0.1

  def init(self, rng_key, frames):
    return {"logits": jnp.zeros(self.spec.num_actions), "counts": (np.int32(0), True), "size": 1.5}

  def decide(self, state, history, timestep, rng_key, temperature):
    logits = jnp.tile(state["logits"], (len(history.frames), 1))
    action, log_probs = draw_action(logits, timestep.legal_actions_mask, rng_key, temperature)
    value = jnp.sum(history.frames, axis=(1, 2, 3, 4)).astype(jnp.float32)
    return Decision(
      action=action, action_probs=jnp.exp(log_probs), root_value=value, extras={"log_probs": log_probs}
    )

  def update(self, state, rollout, rng_key):
    count, flag = state["counts"]
    logits = state["logits"] + self.scale * jax.random.normal(rng_key, state["logits"].shape)
    metrics = {"wandering/reward": jnp.mean(rollout.reward), "wandering/frames": jnp.mean(rollout.value)}
    metrics["wandering/certainty"] = jnp.mean(jnp.max(rollout.extras["log_probs"], axis=-1))
    return {**state, "logits": logits, "counts": (count + 1, flag)}, metrics


def own(algorithm, arguments="", *overrides):
  """Returns a configuration with an algorithm that is registered as `own`."""
  plugins.ALGORITHMS.register("own")(algorithm)
  return configure(f"algorithm=own{arguments}", *overrides)


# --- runs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  "algorithm", [pytest.param(EXAMPLE, marks=pytest.mark.slow), "algorithm=own(scale=0.5)"]
)
def test_resume_to_the_bit(example, algorithm):
  plugins.ALGORITHMS.register("own")(Wandering)
  config = configure(algorithm)
  whole = events_of(config)
  at = first_checkpoint(whole)
  assert 0 < whole[at].env_steps < whole[-1].env_steps == 320
  again = events_of(config, state=whole[at].state)
  assert_equal_trees(final_state(whole).training, final_state(again).training)
  assert_equal_trees(final_state(whole).collectors, final_state(again).collectors)
  rest = [[(type(e), e.env_steps, e.learner_steps) for e in x] for x in (whole[at + 1 :], again[1:])]
  assert rest[0] == rest[1]


def test_an_update_has_the_segment_and_the_extras_of_its_decisions(folder):
  events = events_of(own(Wandering, "(scale=3)"))
  acted = [e for e in events if isinstance(e, Acted)]
  updated = [e for e in events if isinstance(e, Updated)]
  assert len(acted) == len(updated) == events[-1].learner_steps == 10
  assert {e.num_samples for e in updated} == {32}
  # A frame of Catch has two cells, the ball and the paddle; the value of a terminal frame is 0.
  assert all(0 < e.metrics["wandering/frames"] <= 2 for e in updated)
  assert updated[0].metrics["wandering/certainty"] == pytest.approx(np.log(1 / 3), abs=1e-5)
  assert updated[-1].metrics["wandering/certainty"] > np.log(1 / 3) / 2
  state = final_state(events).training.params
  assert (state["counts"][0], state["size"]) == (10, 1.5)


@pytest.mark.learning
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_example_learns_catch(example, cli, seed):
  """The best return is 1; random play has about -0.6."""
  options = ("logging.progress=none", "evaluation.gif=false", f"run.dir={example}", "run.name=one")
  status, _, err = cli("train", "tiny/catch", *options, "algorithm=algorithm:PolicyGradient", f"seed={seed}")
  assert status == 0, err
  assert json.loads((example / "one" / "summary.json").read_text())["test_return_mean"] >= 0.95


@pytest.mark.slow
def test_the_example_by_command(example, cli, refused, monkeypatch):
  run, other = example / "runs" / "one", example / "runs" / "other"
  options = (f"run.dir={run.parent}", "evaluation.gif=false", "logging.tensorboard=false")
  train = ("train", "tiny/catch", *RESUMABLE, *options)
  status, _, err = cli(*train, "run.name=one", EXAMPLE)
  assert status == 0, err
  assert json.loads((run / "summary.json").read_text())["learner_steps"] == 10
  assert EXAMPLE.replace("algorithm=", "algorithm: ", 1) in (run / "config.yaml").read_text()
  for arguments in (("evaluate", run), ("play", run), ("train", "--resume", run, "max_env_steps=640")):
    assert "algorithm=algorithm:PolicyGradient imports a Python module" in refused(*arguments)
    monkeypatch.setattr(sys, "stdin", io.StringIO("1\n1\nq\n"))
    status, out, err = cli(*arguments, "--allow-code")
    assert status == 0, err
  assert json.loads((run / "summary.json").read_text())["env_steps"] == 640
  # Other settings of the algorithm can start from its parameters, but a resumed run cannot change them.
  changed = EXAMPLE.replace("0.02", "0.03")
  assert "a run cannot change it" in refused("train", "--resume", run, changed, "--allow-code")
  status, _, err = cli(*train, "run.name=other", changed, f"checkpoint.start_from={run}")
  assert status == 0, err
  assert json.loads((other / "summary.json").read_text())["learner_steps"] == 30
  for command, words in (
    (("report", run, "--allow-code"), "report.html"),
    (("card", run), "card.md"),
    (("compare", run, other), "by seed"),
  ):
    status, out, err = cli(*command)
    assert status == 0, err
    assert words in out
  assert "no search" in (run / "card.md").read_text()
  for command, words in (
    (("inspect", run), "has no search; `moozi inspect` needs an algorithm with one"),
    (("latent", run), "has no model; `moozi latent` needs an algorithm with one"),
    (("evaluate", run, "--simulations", "4"), "which does not search"),
  ):
    assert words in refused(*command, "--allow-code")


@pytest.mark.slow
def test_self_play_and_approach(example, cli):
  """Plays both seats in training; `approach:` finds the run by the algorithm's name without its arguments."""
  pytest.importorskip("pyspiel")
  options = ("env.name=open_spiel:tic_tac_toe", "evaluation.opponent=random", "trajectories.save=true")
  status, _, err = cli("train", "boards/tic_tac_toe", *RESUMABLE, *options, EXAMPLE, "run.name=one")
  assert status == 0, err
  name = "approach:algorithm:PolicyGradient"
  arguments = ("arena", "open_spiel:tic_tac_toe", name, "random", "--games", "4", "--out", example / "arena")
  status, out, err = cli(*arguments, "--allow-code")
  assert status == 0, err
  assert "runs/one" in out
  assert json.loads(cli("trajectories", example / "runs" / "one", "--json")[1])


# --- what is refused ----------------------------------------------------------------------------------


def method(name, change):
  """Returns Wandering whose method's result is passed to `change`."""
  return type("Changed", (Wandering,), {name: lambda self, *x: change(getattr(Wandering, name)(self, *x))})


@pytest.mark.parametrize(
  ("name", "change", "message"),
  [
    ("init", lambda state: {**state, "name": "x"}, "init returns a state with str as name; must be a pytree"),
    ("init", lambda state: Wandering, "init returns a state with type; must be a pytree of arrays"),
    ("init", lambda state: jax.random.key(0), r"init returns a state with key<fry>\[\]; must be a pytree"),
    ("init", lambda state: 1 / 0, r"init failed: .*test_custom.py:\d+: ZeroDivisionError"),
    ("decide", lambda x: x.action, r"decide returns int32\[.*\]; must be a Decision"),
    (
      "decide",
      lambda x: replace(x, action_probs=x.action_probs[:, 1:]),
      r"decide returns float32\[3, 3\] as action_probs; must be floating\[3, 4\]",
    ),
    ("decide", lambda x: replace(x, action=x.root_value), r"returns float32\[3\] as action; must be integer"),
    (
      "decide",
      lambda x: replace(x, root_value=None),
      r"returns NoneType as root_value; must be floating\[3\]",
    ),
    (
      "decide",
      lambda x: replace(x, extras={"frames": x.action}),
      "in extras as 'frames'; must be .* another",
    ),
    ("decide", lambda x: replace(x, action=x.action * 0), r"chooses action 0, .* must be one of \[1, 2, 3\]"),
    (
      "decide",
      lambda x: replace(x, action_probs=x.action_probs * jnp.nan),
      r"temperature 1: its action_probs of frame 0 are \[nan",
    ),
    (
      "decide",
      lambda x: replace(x, root_value=x.root_value * jnp.nan),
      "its root_value of frame 0 is nan",
    ),
    ("update", lambda out: out[0], r"update returns dict; must be \(state, metrics\)"),
    ("update", lambda out: ({**out[0], "size": 1}, out[1]), r"size is .*; must be float32\[\]"),
    ("update", lambda out: ({"logits": out[0]["logits"]}, out[1]), "another state .*: counts/0 is missing"),
    ("update", lambda out: ({**out[0], "counts": list(out[0]["counts"])}, out[1]), "have other types"),
    ("update", lambda out: (out[0], {"loss": 1.0}), "as metric 'loss'; must be .* such as loss/policy"),
    ("update", lambda out: (out[0], {"loss/x": jnp.zeros(2)}), r"float32\[2\] as metric 'loss/x'"),
  ],
)
def test_algorithms_that_are_refused_before_a_run(folder, name, change, message):
  config = own(method(name, change))
  with pytest.raises(UserError, match=f"^algorithm=own: .*{message}") as caught:
    dry_run(config, build.env_spec(config))
  assert "\n" not in str(caught.value)


def test_an_algorithm_without_a_method(folder):
  config = own(lambda spec: type("Half", (), {"init": print})())
  with pytest.raises(UserError, match=r"^algorithm=own: returns Half without a method decide; must have"):
    dry_run(config, build.env_spec(config))


@pytest.mark.parametrize(
  ("value", "message"),
  [
    ("ppo(rate=1)", "must be ppo, which has no arguments"),
    ("algorithm:Policy(", r"must be NAME or NAME\(key=value"),
    (
      "pppo",
      "must be muzero, alphazero, ppo, q_learning, module:function or a registered name; the near",
    ),
  ],
)
def test_values_that_are_refused(folder, value, message):
  with pytest.raises(UserError, match=message):
    configure(f"algorithm={value}")


@pytest.mark.parametrize(
  ("value", "message"),
  [
    ("moozi_none_such:Own", "there is no module moozi_none_such"),
    ("algorithm:Policy", "the module algorithm has no Policy; the nearest is PolicyGradient"),
    ("algorithm:PolicyGradient(lr=1)", "TypeError: .* unexpected keyword argument 'lr'"),
  ],
)
def test_functions_that_are_refused(example, refused, value, message):
  line = refused("train", "tiny/catch", *RESUMABLE, f"algorithm={value}")
  assert re.search(f"algorithm={value.partition('(')[0]}: .*{message}", line)
  assert not (example / "runs").exists()


@pytest.mark.parametrize("key", ["reanalyze.ratio=0.5", "workers.network=target", "opponents.past_share=0.5"])
def test_settings_of_other_algorithms_are_refused(folder, key):
  plugins.ALGORITHMS.register("own")(Wandering)
  with pytest.raises(UserError, match="own"):
    configure("algorithm=own", key)


def test_updates_that_are_not_finite_are_skipped_and_end_the_run(folder):
  class Diverging(Wandering):
    def update(self, state, rollout, rng_key):
      new, metrics = super().update(state, rollout, rng_key)
      return {**new, "logits": jnp.where(new["counts"][0] > 2, jnp.nan, new["logits"])}, metrics

  config = own(Diverging, "", "learner.max_skipped_updates=3")
  events, message = [], "algorithm/state is not finite: 3 updates in a row .*learner.max_skipped_updates=3"
  with pytest.raises(NotFiniteError, match=message):
    events.extend(algorithm_of(config).run(RunInputs(config, build.env_spec(config))))
  skipped = [e.metrics["faults/skipped_updates"] for e in events if isinstance(e, Updated)]
  assert skipped == [0, 0, 1, 1]
  assert np.isfinite(final_state(events).training.params["logits"]).all()
