"""Tests of collectors whose decisions an inference server makes: they act as collectors that decide."""

import jax
import numpy as np
import pytest

from moozi.acting.served import BatchedAct, ServedCollector
from moozi.core.pytree import fields_of
from moozi.io.config import load_config
from moozi.run import build
from tests.acting.parameters import random_parameters
from tests.run_events import assert_equal_trees
from tests.tiny_run import TINY, shaken

FAULTY = "env.name=tests.envs.faulty:make_env"
ALPHAZERO = ("algorithm=alphazero", "targets.unroll_steps=0")


class Direct:
  """A client in the server's process, which asks in batches of one request.

  Args:
    act: decides.
    before: called before each request with its number, from 1.
  """

  def __init__(self, act, before=lambda number: None):
    self.acting, self.before, self.num_requests, self.num_repeated = act, before, 0, 0

  def warm_up(self, request):
    self.template = request

  def decide(self, request):
    self.num_requests += 1
    self.before(self.num_requests)
    (answer,) = self.acting.answer([request], [0.25])
    return answer


def make(*options):
  config = load_config(None, [*TINY, "acting.mode=server", *options])
  spec = build.env_spec(config)
  return config, spec, build.build_inference(config, spec), random_parameters(config, spec)


@pytest.mark.parametrize(
  "options",
  [
    # Actions are repeated in the first half of the three segments.
    ("targets.history_length=3", "workers.num_holding_envs=2", "workers.holding_env_steps=48"),
    # Each environment fails once, in a step that the server has decided; this decision is dropped.
    pytest.param((FAULTY, "env.kwargs.step=6", "targets.history_length=3"), marks=pytest.mark.slow),
    pytest.param(("env.name=open_spiel:tic_tac_toe", *ALPHAZERO), marks=pytest.mark.slow),
    pytest.param(("env.name=pgx:tic_tac_toe", "workers.rollout=step", *ALPHAZERO), marks=pytest.mark.slow),
    pytest.param(("env.name=gymnasium:Pendulum-v1",), marks=pytest.mark.slow),
    pytest.param(
      ("planners.train.algorithm=puct", "planners.train.temperature_drop=3"), marks=pytest.mark.slow
    ),
  ],
)
def test_batches_of_one_request_equal_worker_mode_to_the_bit(options):
  config, spec, act, parameters = make(*options)
  act.set_parameters(parameters, 7)
  served = build.build_collector(config, spec, 0, client=Direct(act))
  own = build.build_collector(config, spec, 0)
  assert isinstance(served, ServedCollector)
  own.set_parameters(parameters, 7)
  num_faults = 0
  for _ in range(3):
    (segment, acted), (expected, also) = served.run(0), own.run(0)
    for name, x in fields_of(segment).items():
      np.testing.assert_array_equal(x, fields_of(expected)[name], name, strict=True)
    assert acted.version == also.version == 7
    np.testing.assert_array_equal(acted.episode_returns, also.episode_returns)
    num_faults += acted.metrics.get("faults/env_errors", 0)
  assert num_faults == (config.workers.num_envs if FAULTY in options else 0)
  # The state has the carry and the random key.
  found, wanted = served.get_state(), own.get_state()
  assert found.keys() == wanted.keys()
  for name, x in found.items():
    np.testing.assert_array_equal(x, wanted[name], name)


def test_a_request_draws_the_same_numbers_in_every_batch():
  config, spec, act, parameters = make("targets.history_length=3")
  act.set_parameters(parameters, 7)
  requests = []
  for worker in (0, 1):
    client = Direct(act)
    build.build_collector(config, spec, worker, client=client).warm_up(None)
    requests.append(client.template)
  together = act.answer(requests, [0.1, 0.2])
  alone = [act.answer([request], [0.0])[0] for request in requests]
  assert not np.array_equal(requests[0].rng_key, requests[1].rng_key)
  assert [(a.batch_size, a.wait_s, a.version) for a in together] == [(2, 0.1, 7), (2, 0.2, 7)]
  for joint, own in zip(together, alone, strict=True):
    np.testing.assert_array_equal(joint.rng_key, own.rng_key)
    np.testing.assert_array_equal(joint.decision.action, own.decision.action)
    jax.tree.map(
      lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), joint.decision, own.decision
    )


def test_parameters_change_between_two_decisions_and_never_to_older_ones():
  config, spec, act, (params, net_state) = make()
  act.set_parameters((params, net_state), 7)

  def before(number):
    if number == 3:
      act.set_parameters((shaken(params), net_state), 9)
    if number == 5:
      act.set_parameters((params, net_state), 8)

  collector = build.build_collector(config, spec, 0, client=Direct(act, before))
  segment, acted = collector.run(0)
  assert segment.acted_version[:, 0].tolist() == [7, 7, 9, 9, 9, 9, 9, 9]
  assert (segment.acted_version == segment.searched_version).all()
  assert acted.version == 7, "staleness is that of the oldest decision"
  again, _ = build.build_collector(config, spec, 0, client=Direct(act)).run(0)
  assert not np.array_equal(again.root_value[0], segment.root_value[0])


def test_requests_and_those_asked_again_are_measured():
  config, spec, act, parameters = make()
  act.set_parameters(parameters, 7)
  client = Direct(act)
  collector = build.build_collector(config, spec, 0, client=client)
  client.num_repeated = 2
  _, first = collector.run(0)
  _, second = collector.run(0)
  assert first.metrics["inference/batch_size"] == 1
  assert first.metrics["inference/wait_ms"] == 250
  assert first.metrics["inference/answer_ms"] > 0
  assert first.metrics["faults/repeated_requests"] == 2
  assert "faults/repeated_requests" not in second.metrics


def test_warm_up_changes_nothing_and_compiles_each_size_once():
  config, spec, act, _ = make()
  client = Direct(act)
  collector = build.build_collector(config, spec, 0, client=client)
  before = collector.get_state()
  collector.warm_up(None)
  assert_equal_trees(before, collector.get_state())
  decided = []
  act._decide = lambda variables, requests: decided.append((variables, len(requests)))
  template = build.variables_template(config, spec)
  for batch_sizes in ([1, 2], [1, 2, 4]):
    act.warm_up(template, client.template, batch_sizes)
  assert [size for _, size in decided] == [1, 2, 4]
  assert act._held is None
  assert isinstance(act, BatchedAct)
