"""Contract tests of the tasks in config/boards, and of how they are drawn."""

import pytest

from moozi.envs import registry
from moozi.io.config import load_config
from moozi.io.config_files import list_configs
from moozi.vis.action_names import action_names
from moozi.vis.frames import draw_frame
from moozi.vis.render_spec import render_spec_of
from moozi.vis.terminal import frame_text
from tests.envs.contract import EnvironmentContract, IllegalActionsContract, TwoPlayersContract, play

pytest.importorskip("pyspiel")
pytestmark = pytest.mark.slow
TASKS = [info.name for info in list_configs() if info.name.startswith("boards/")]


def make(name):
  config = load_config(name)
  return registry.make(config.env.name, seed=0, **config.env.arguments)


class SelfPlay(TwoPlayersContract, IllegalActionsContract):
  task = "boards/othello"

  def make(self):
    return make(self.task)


class TestOthello(SelfPlay):
  pass


class TestSmallOthello(SelfPlay):
  task = "boards/othello_6x6"


class TestGo5(SelfPlay):
  task = "boards/go_5x5"


class TestGo7(SelfPlay):
  task = "boards/go_7x7"


class TestGo9(SelfPlay):
  task = "boards/go_9x9"
  num_steps = 200


class TestHex(SelfPlay):
  task = "boards/hex"


class Seat(IllegalActionsContract):
  task = "boards/uno"

  def make(self):
    return make(self.task)


class TestUno(Seat):
  pass


class TestUno4(Seat):
  task = "boards/uno_4"


class TestStratego(Seat):
  task = "boards/stratego"


class TestLeducPoker(Seat):
  task = "boards/leduc_poker"


class TestSimplest(EnvironmentContract):
  def make(self):
    return make("boards/simplest")


@pytest.mark.parametrize("name", TASKS)
def test_task_is_drawn(name):
  """Every task has a board or facts to draw, and a name for each action."""
  env = make(name)
  spec = env.env_spec
  assert render_spec_of(spec).kind in ("board", "facts")
  names = action_names(spec)
  assert len(set(names)) == spec.num_actions
  assert not [action for action in names if action.startswith("action ")]
  pictures, texts = set(), set()
  for step in play(env, 8):
    observation = step.observation
    pictures.add(draw_frame(observation.frame, spec, 200, observation.to_play).tobytes())
    texts.add(frame_text(observation.frame, spec, observation.to_play))
  assert len(pictures) > 1
  assert len(texts) > 1
