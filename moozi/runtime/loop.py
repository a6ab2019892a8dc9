"""The whole algorithm in one process, on one page.

The executable description, the deterministic integration test, and what runs where Ray is not
installed. `actors.driver` does the same in the same order with futures.
"""

import time
from collections.abc import Callable, Generator, Iterator

from moozi.agent.update import TrainingState
from moozi.core.config import Config
from moozi.core.spec import EnvSpec
from moozi.runtime import build
from moozi.runtime.events import Acted, Evaluated, Event, Finished, Started, StateReady, Updated
from moozi.runtime.pacing import CheckpointSchedule, Every, Pacer


def run(
  config: Config,
  spec: EnvSpec,
  should_stop: Callable[[], bool] = lambda: False,
  state: TrainingState | None = None,
) -> Generator[Event, None, None]:
  """Trains, and yields what happened.

  Args:
    config: the run's configuration. `runtime` and `ray` are not read.
    spec: the world's facts.
    should_stop: asked between steps; true ends the run with a last checkpoint.
    state: begin with this training state instead of a fresh one.

  Yields:
    Events in order; the last is Finished. What they mean for files and screens is the reader's business.
  """
  start = time.monotonic()
  learner = build.build_learner(config, spec)
  replay = build.build_replay(config, spec)
  workers = [build.build_collector(config, spec, i) for i in range(config.workers.num_workers)]
  evaluator = build.build_evaluator(config, spec)
  pacer = Pacer(config, slack_steps=0)
  evaluations = Every(config.evaluation.period_env_steps)
  checkpoints = CheckpointSchedule(config.checkpoint)
  if state is not None:
    learner.set_state(state)
  learner_steps = learner.learner_step

  def counters() -> dict[str, int]:
    return {"env_steps": pacer.env_steps, "learner_steps": learner_steps}

  def evaluate(num_episodes: int, is_final: bool) -> Iterator[Evaluated]:
    params, net_state, version = learner.parameters()
    result = evaluator.run(
      params,
      net_state,
      num_episodes=num_episodes,
      version=version,
      env_steps=pacer.env_steps,
      record=config.evaluation.gif,
      should_stop=should_stop,
    )
    if result is not None:
      yield Evaluated(**counters(), result=result, is_final=is_final)

  yield Started(**counters(), message="one process")
  reason = "max_env_steps"
  while not pacer.is_complete:
    if should_stop():
      reason = "stopped"
      break
    if config.max_wall_s is not None and time.monotonic() - start >= config.max_wall_s:
      reason = "max_wall_s"
      break

    # TimeStep → StepSample → TrajectorySample → replay
    params, net_state, version = learner.parameters()
    for index, worker in enumerate(workers):
      worker.set_parameters(params, net_state, version)
      segment, acted = worker.run(pacer.env_steps)
      pacer.ask_act(acted.num_steps)
      replay.add(segment, first_lane=index * config.workers.num_envs)
      pacer.done_act(acted.num_steps)
      yield Acted(
        **counters(),
        metrics=acted.metrics,
        episode_returns=acted.episode_returns,
        episode_lengths=acted.episode_lengths,
        staleness=learner_steps - acted.version,
      )

    # replay → TrainTarget batch → TrainingState
    while pacer.may_learn(replay.can_sample(config.learner.batch_size)):
      pacer.ask_learn()
      targets = replay.sample_many(config.learner.updates_per_call, config.learner.batch_size)
      priorities, metrics = learner.update(targets)
      if config.replay.refreshes_priorities:
        replay.update_priorities(priorities.slot, priorities.sequence, priorities.delta)
      pacer.done_learn()
      learner_steps += config.learner.updates_per_call
      yield Updated(
        **counters(),
        metrics=metrics | replay.stats(),
        num_samples=targets.slot.size,
        sample_reuse=pacer.sample_reuse,
      )

    if checkpoints.is_due(time.monotonic() - start, pacer.env_steps):
      yield StateReady(**counters(), state=learner.get_state(), is_final=False)
    if evaluations.is_due(pacer.env_steps):
      yield from evaluate(config.evaluation.episodes, is_final=False)

  yield StateReady(**counters(), state=learner.get_state(), is_final=True)
  if reason != "stopped":
    yield from evaluate(config.evaluation.final_episodes, is_final=True)
  yield Finished(**counters(), reason=reason, sample_reuse=pacer.sample_reuse)
