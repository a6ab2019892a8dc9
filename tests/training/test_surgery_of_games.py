"""`moozi surgery` on runs of games that change: more planes and actions, another game, past selves."""

import shutil

import numpy as np
import pytest

import moozi
from moozi import cli as program
from moozi.core.flat_state import part
from moozi.core.pytree import fields_of
from moozi.core.spec import EnvSpec
from moozi.envs.game import Game, GameEnvironment
from moozi.io.lineage import read_lineage
from moozi.io.metrics import read_metrics
from moozi.io.run_directory import RunDirectory
from moozi.io.trajectory_folder import open_trajectories
from moozi.run import build
from moozi.surgery.check import TOLERANCE, compare
from moozi.surgery.plan import make_plan
from moozi.training.resume import load_saved
from tests.tiny_run import RESUMABLE

pytestmark = pytest.mark.slow

PLANES, ACTIONS = ("shown", "noise", "more"), ("left", "right", "up", "down")


class Signals(Game):
  """One plane shows the action that has the reward 1; the others are noise. No action is legal twice in turn.

  Args:
    spec: names the planes and actions.
    shown: number of the plane that shows the action.
  """

  def __init__(self, spec: EnvSpec, shown: int) -> None:
    self._spec, self._shown = spec, shown
    self.seed(0)

  def seed(self, seed: int) -> None:
    self._random = np.random.default_rng(seed)

  def reset(self) -> None:
    self._left, self._last, self._rewarded = 6, -1, 0

  def step(self, action: int) -> tuple[float, bool, bool]:
    reward = float(action == self._rewarded)
    self._left, self._last = self._left - 1, action
    self._rewarded = int(self._random.integers(self._spec.num_env_actions))
    return reward, self._left == 0, False

  def frame(self) -> np.ndarray:
    out = self._random.random(self._spec.frame_shape) < 0.5
    out[..., self._shown] = np.arange(6).reshape(2, 3) == self._rewarded
    return out

  def legal_actions_mask(self) -> np.ndarray:
    return np.arange(self._spec.num_env_actions) != self._last


def make_signals(planes: int = 2, actions: int = 3) -> GameEnvironment:
  """Makes the game; what is new has the first numbers."""
  return _made("test:signals", PLANES[:planes][::-1], ACTIONS[:actions][::-1], planes - 1)


def make_other_signals() -> GameEnvironment:
  return _made("test:other", ("sign", "fog"), ("a", "b", "c"), 0)


def _made(name: str, planes: tuple[str, ...], actions: tuple[str, ...], shown: int) -> GameEnvironment:
  spec = EnvSpec(
    name=name,
    frame_shape=(2, 3, len(planes)),
    frame_dtype="bool",
    num_env_actions=len(actions),
    action_names=actions,
    frame_names=planes,
  )
  return GameEnvironment(Signals(spec, shown), spec)


# The entries of a policy of three actions in one of four; the dummy's is the first.
KEPT, NEW = np.array([0, 2, 3, 4]), 1
GAME = f"env.name={__name__}:make_signals"


def command(*arguments):
  with pytest.raises(SystemExit) as ended:
    program.main([str(argument) for argument in arguments])
  assert ended.value.code == 0


def open_saved(path):
  """Returns the newest state of a run, its configuration and its specification."""
  directory = RunDirectory.open(path)
  config = directory.load_config()
  spec = build.env_spec(config)
  return load_saved(config, spec, directory).state, config, spec


def sample_of(path, size):
  """Returns the fields of a batch from the saved replay of a run."""
  state, config, spec = open_saved(path)
  replay = build.build_replay(config, spec)
  replay.restore(state.replay)
  return fields_of(replay.sample_many(1, size))


def assert_converted(before, after):
  """Asserts that steps have a new first plane of 0 and a new first action, illegal and never taken."""
  assert before.keys() == after.keys()
  for name, x in before.items():
    found = after[name]
    if name.startswith("frame"):
      assert not found[..., 0].any(), name
      found = found[..., 1:]
    elif name in ("action_probs", "legal_actions_mask"):
      assert not found[..., NEW].any(), name
      found = found[..., KEPT]
    elif "action" in name:
      x = KEPT[x]
    np.testing.assert_array_equal(found, x, err_msg=name)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
  """Returns a run of 128 steps with trajectories."""
  folder = tmp_path_factory.mktemp("signals")
  options = (*RESUMABLE, GAME, "trajectories.save=true", "max_env_steps=128")
  command("train", "tiny/catch", *options, f"run.dir={folder}", "run.name=first")
  return folder / "first"


@pytest.fixture(scope="module")
def second(first):
  """Returns the run with one more plane and action; its stored steps are kept."""
  kwargs = "env.kwargs.planes=3", "env.kwargs.actions=4"
  command("surgery", first, *kwargs, "--keep-replay", "--out", "second", "--allow-code")
  return first.parent / "second"


def test_trajectories_are_converted(first, second):
  old, new = (open_trajectories(path) for path in (first, second))
  assert (new.spec.frame_shape, new.spec.num_env_actions) == ((2, 3, 3), 4)
  assert new.num_steps == old.num_steps == 128
  taken = set()
  for before, after in zip(old.read(), new.read(), strict=True):
    assert before.span == after.span
    assert before.steps.frame.any()
    assert_converted(fields_of(before.steps), fields_of(after.steps))
    taken |= set(before.steps.action.tolist())
  assert taken == {0, 1, 2, 3}  # the dummy is that of an episode's last frame


def test_replay_is_converted(first, second):
  before, after = (sample_of(path, 64) for path in (first, second))
  assert before["frames"].any()
  assert_converted(before, after)
  (joint,) = read_lineage(second / "lineage.json")
  assert joint.changes[-1] == (
    "kept: replay and trajectories of the environment before env.kwargs.planes: unset → 3, "
    "env.kwargs.actions: unset → 4"
  )
  assert not joint.lost


def test_old_and_new_steps_are_learned_from(second, tmp_path):
  path = tmp_path / "second"
  shutil.copytree(second, path)
  command("train", "--resume", path, "max_env_steps=256", "--allow-code")
  store = open_trajectories(path)
  assert store.num_steps == 256
  stored = list(store.read())
  old = list(open_trajectories(second).read())
  for before, after in zip(old, stored, strict=False):
    assert before.span == after.span
    np.testing.assert_array_equal(before.steps.frame, after.steps.frame)
  own = [piece.steps for piece in stored[len(old) :]]
  assert sum(len(steps.action) for steps in own) == 128
  assert all(steps.frame[..., 0].any() for steps in own)
  assert all(steps.legal_actions_mask[:, NEW].any() for steps in own)
  is_new = sample_of(path, 64)["frames"][..., 0].any(axis=(-1, -2, -3))
  assert 0 < is_new.sum() < 64
  assert open_saved(path)[0].learner_steps > open_saved(second)[0].learner_steps


MAPPING = "planes: {sign: shown, fog: null}\nactions: {a: left, b: right, c: null}\n"


def test_a_file_maps_another_game(cli, refused, first, tmp_path):
  mapping = tmp_path / "map.yaml"
  mapping.write_text(MAPPING)
  other = (first, f"env.name={__name__}:make_other_signals", "--allow-code")
  assert "name a file that says which planes and actions correspond" in refused("surgery", *other)
  options = (*other, "--map", mapping, "--out", "other")
  status, out, err = cli("surgery", *options, "--dry-run")
  assert status == 0, err
  lines = [" ".join(line.split()) for line in out.splitlines()]
  # In each of six cells there are two planes, and entries of the last action: the dummy's and three.
  how = "12 new inputs: 0; in another order; 12 entries dropped"
  assert f"representation/dense/w 36×16 → 36×16 {how}" in lines
  how = "1 new entries: 12 below the mean of the others; in another order; 1 entries dropped"
  assert f"prediction/heads/policy/w 16×4 → 16×4 {how}" in lines
  (line,) = [line for line in lines if line.startswith("dynamics/block_0/dense_0/w ")]
  assert line.endswith("20×16 → 20×16 1 new inputs: 0; in another order; 1 entries dropped")
  assert "representation/dense/b 16 → 16 copied" in lines
  left = "steps of test:signals are not steps of test:other"
  assert f"left behind: replay and trajectories: {left}" in lines
  (line,) = [line for line in lines if "prediction/heads/policy/w and" in line]
  assert line.startswith("not preserved: ")
  status, out, err = cli("surgery", *options)
  assert (status, out) == (2, "")
  assert "surgery does not preserve the network: " in err
  command("surgery", *options, "--lossy")
  paths = first, first.parent / "other"
  logits = [moozi.load(path, allow_code=True).params["prediction/heads/policy"]["b"] for path in paths]
  # The old actions are up, right and left; the new ones a (left), b (right) and c.
  np.testing.assert_array_equal(logits[1][:3], logits[0][np.array([0, 3, 2])])
  (joint,) = read_lineage(paths[1] / "lineage.json")
  assert joint.lost


def test_past_selves_are_converted(tmp_path):
  pytest.importorskip("pyspiel")
  past = ("opponents.past_share=0.5", "opponents.period_updates=10", "opponents.pool_size=3")
  game = ("env.name=open_spiel:tic_tac_toe", "targets.discount=1")
  options = (*RESUMABLE, *game, *past, "max_env_steps=128", f"run.dir={tmp_path}", "run.name=first")
  command("train", "tiny/catch", *options)
  command("surgery", tmp_path / "first", "network.latent_size=32", "run.name=second")
  old, new = (open_saved(tmp_path / name) for name in ("first", "second"))
  pools = [part(saved[0].progress, "past_selves") for saved in (old, new)]
  assert len(pools[0]["versions"]) > 1
  for name in ("versions", "qualities", "drawn", "weight", "num_draws"):
    np.testing.assert_array_equal(pools[1][name], pools[0][name], err_msg=name)
  plan = make_plan(*old[1:], *new[1:])
  sizes = [pool["0/0/representation/dense/b"].size for pool in pools]
  assert sizes == [16, 32]
  for i in range(len(pools[0]["versions"])):
    states = [_as_state(part(pool, str(i))) for pool in pools]
    assert compare(plan, *states).largest <= TOLERANCE
  # They differ from one another, so each is the conversion of its own.
  exchanged = [_as_state(part(pool, str(i))) for i, pool in enumerate(pools)]
  assert compare(plan, *exchanged).largest > TOLERANCE
  command("train", "--resume", tmp_path / "second", "max_env_steps=256")
  ticks = [tick for tick in read_metrics(tmp_path / "second" / "metrics.jsonl") if tick["env_steps"] > 128]
  assert max(tick["past/pool_size"] for tick in ticks if "past/pool_size" in tick) == 3
  assert sum(tick["past/games"] for tick in ticks if "past/games" in tick) > 0


def _as_state(variables):
  """Returns the variables of a past self as leaves of a training state."""
  prefixes = {"0": "params", "1": "net_state"}
  return {f"{prefixes[name[0]]}/{name[2:]}": x for name, x in variables.items()}
