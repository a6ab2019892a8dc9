"""A run with past selves in the driver, with a fake `ray` module, and its continuation."""

import pytest

from moozi.actors import driver
from moozi.io.config import load_config
from moozi.run import build
from moozi.run.events import Acted, Finished
from moozi.run.session import RunInputs
from tests.actors import in_process_ray
from tests.run_events import final_state
from tests.tiny_run import TINY

pytestmark = pytest.mark.slow


def test_pool_grows_and_is_part_of_the_state():
  pytest.importorskip("pyspiel")
  config = load_config(
    None,
    [
      *(*TINY, "env.name=open_spiel:tic_tac_toe", "targets.discount=1"),
      *("opponents.past_share=0.5", "opponents.period_updates=10", "ray.publish_period_updates=4"),
      *("evaluation.final_episodes=1", "max_env_steps=512"),
    ],
  )
  spec = build.env_spec(config)
  with in_process_ray.connected():
    events = list(driver.run(RunInputs(config, spec)))
  acted = [e.metrics for e in events if isinstance(e, Acted)]
  assert isinstance(events[-1], Finished)
  assert acted[-1]["past/pool_size"] > 2
  assert sum(m["past/games"] for m in acted) > 4
  state = final_state(events)
  saved = len(state.progress["past_selves/versions"])
  assert saved >= acted[-1]["past/pool_size"]  # updates after the last segment add more
  longer = config.model_copy(update={"max_env_steps": 640})
  with in_process_ray.connected():
    run = driver.run(RunInputs(longer, spec, state=state))
    first = next(e.metrics for e in run if isinstance(e, Acted))
    run.close()
  assert first["past/pool_size"] >= saved
