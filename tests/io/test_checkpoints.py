"""Tests of checkpoints: round trips; checkpoints of another network; which are kept and found."""

import dataclasses
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.core.config import CheckpointConfig
from moozi.core.errors import UserError
from moozi.envs.registry import env_spec
from moozi.io.atomic_write import remove_leftovers
from moozi.io.checkpoints import (
  CheckpointStore,
  code_commit,
  expected_of,
  find_checkpoint,
  list_checkpoints,
  load_checkpoint,
  read_checkpoint_info,
  save_checkpoint,
)
from moozi.io.config import load_config
from tests.io.state_files import with_meta

META = {
  "env_steps": 10,
  "learner_steps": 3,
  "spec": {"name": "tiny:catch", "frame_shape": (10, 5, 1)},
  "network": {"kind": "mlp", "latent_size": 16},
}


class Slots(NamedTuple):
  count: Any
  mu: Any


class Empty(NamedTuple):
  pass


def make_state(scale: float = 1.0, width: int = 3) -> dict:
  rng = np.random.default_rng(0)
  return {
    "params": {
      "mlp/~/linear_0": {"w": scale * rng.normal(size=(2, width)).astype(np.float32), "b": jnp.zeros(width)}
    },
    "opt": (Slots(jnp.int32(7), {"w": jnp.full((2, width), -0.0)}), Empty(), (), None, [np.int64(2**62)]),
    "old_key": jax.random.PRNGKey(5),
    "mask": np.array([True, False]),
    "step": np.int32(12),
  }


def assert_same(a: Any, b: Any) -> None:
  assert jax.tree_util.tree_structure(a) == jax.tree_util.tree_structure(b)
  for x, y in zip(jax.tree_util.tree_leaves(a), jax.tree_util.tree_leaves(b), strict=True):
    assert isinstance(y, np.ndarray)
    assert (np.asarray(x).dtype, np.asarray(x).tobytes()) == (y.dtype, y.tobytes())


@pytest.fixture
def saved(tmp_path) -> Path:
  return save_checkpoint(tmp_path / "checkpoints", "step_10", make_state(), META)


def refusal(path: Path, template: Any = None, **expected: Any) -> str:
  with pytest.raises(UserError) as caught:
    load_checkpoint(path, make_state(0.0) if template is None else template, expected)
  return str(caught.value)


def test_roundtrip_is_exact(saved):
  assert_same(make_state(), load_checkpoint(saved, make_state(scale=0.0), {"spec": META["spec"]}))


def test_template_can_be_abstract(tmp_path):
  make = lambda: {"w": jnp.ones((2, 3)), "key": jax.random.PRNGKey(9)}  # noqa: E731
  path = save_checkpoint(tmp_path, "a", make(), META)
  assert_same(make(), load_checkpoint(path, jax.eval_shape(make)))


def test_save_replaces_the_same_name(saved):
  save_checkpoint(saved.parent, "step_10", make_state(scale=2.0), META)
  assert_same(make_state(scale=2.0), load_checkpoint(saved, make_state()))
  assert [p.name for p in saved.parent.iterdir()] == ["step_10.safetensors"]


def test_malformed_checkpoints_are_refused(saved):
  info = read_checkpoint_info(saved)
  assert (info.name, info.env_steps, info.learner_steps) == ("step_10", 10, 3)
  assert info.meta["spec"]["frame_shape"] == [10, 5, 1]
  whole = saved.read_bytes()
  for counters in ({"env_steps": "10"}, {"env_steps": None}, {"learner_steps": True}):
    saved.write_bytes(with_meta(whole, lambda meta, counters=counters: meta | counters))
    assert "not a file of this kind" in refusal(saved)
    assert list_checkpoints(saved.parent) == []


def test_what_cannot_be_saved_is_refused(tmp_path):
  with pytest.raises(ValueError, match="cannot be stored"):
    save_checkpoint(tmp_path, "x", {"a": np.array(["x"])}, META)
  with pytest.raises(ValueError, match="two key paths of the tree have the same text"):
    save_checkpoint(tmp_path, "x", {"a": {"b": 1}, "a/b": 2}, META)
  with pytest.raises(ValueError, match="learner_steps"):
    save_checkpoint(tmp_path, "x", {}, {"env_steps": 1})
  with pytest.raises(UserError, match="checkpoint="):
    save_checkpoint(tmp_path, "../x", {}, META)
  assert list(tmp_path.iterdir()) == []


# --- another network or environment -------------------------------------------------------------------------


def test_first_different_key_is_named(saved):
  network = {"kind": "mlp", "latent_size": 32}
  message = refusal(saved, network=network)
  assert "another network: network.latent_size is 16, expected 32" in message
  message = refusal(saved, spec={"name": "minatar:breakout", "frame_shape": (10, 10, 4)})
  assert "another environment: spec.name is tiny:catch, expected minatar:breakout" in message
  assert "network.norm is missing, expected layer" in refusal(
    saved, network=META["network"] | {"norm": "layer"}
  )
  with pytest.raises(UserError, match=r"network\.latent_size"):
    read_checkpoint_info(saved, {"network": network})
  load_checkpoint(saved, make_state(), {"network": META["network"], "spec": META["spec"]})


@pytest.mark.parametrize(
  "overrides",
  [
    [],
    ["algorithm=ppo"],
    ["algorithm=ppo", "ppo.value_loss=categorical", "ppo.clip_value=false"],
    ["algorithm=q_learning"],
    ["algorithm=q_learning", "q_learning.conv_stride=2"],
    ["network.kind=mlp", "chance.codes=3"],
  ],
)
def test_every_fact_of_a_checkpoint_is_expected(tmp_path, overrides):
  """No key has a value that a checkpoint may leave out."""
  config = load_config(None, ["env.name=tiny:catch", *overrides])
  expected = expected_of(config, env_spec("tiny:catch"))
  path = save_checkpoint(tmp_path, "step_10", {"x": np.zeros(2)}, META | expected)
  assert read_checkpoint_info(path, expected).env_steps == 10
  assert {"is_perfect_information", "num_seats"} <= expected["spec"].keys()
  for kind, facts in (("environment", "spec"), ("network", "network")):
    for name in expected[facts]:
      cut = expected | {facts: {key: x for key, x in expected[facts].items() if key != name}}
      path = save_checkpoint(tmp_path, "cut", {"x": np.zeros(2)}, META | cut)
      with pytest.raises(UserError, match=rf"a checkpoint of another {kind}: {facts}\.{name} is missing"):
        read_checkpoint_info(path, expected)


@pytest.mark.parametrize(
  ("saved_with", "expected_with", "message"),
  [
    ({"action_bins": 7}, {"action_bins": 5}, "spec.num_env_actions is 49, expected 25"),
    ({"action_bins": 0}, {"action_bins": 7}, "spec.num_env_actions is 1, expected 49"),
    ({"action_bins": 0}, None, "spec.factors.parts[0].values[0] is [-0.25, 0.25], expected [-1.0, 1.0]"),
  ],
)
def test_another_action_space_is_named(tmp_path, saved_with, expected_with, message):
  spec = env_spec("tiny:point", **saved_with)
  if expected_with is None:  # other bounds
    (part,) = spec.factors.parts
    wide = dataclasses.replace(part, values=((-1.0, 1.0),) * 2)
    other = dataclasses.replace(spec, factors=dataclasses.replace(spec.factors, parts=(wide,)))
  else:
    other = env_spec("tiny:point", **expected_with)
  config = load_config(None, ["algorithm=ppo", "env.name=tiny:point"])
  path = save_checkpoint(tmp_path, "step_10", {"x": np.zeros(2)}, META | expected_of(config, spec))
  with pytest.raises(UserError) as error:
    read_checkpoint_info(path, expected_of(config, other))
  assert str(error.value) == f"{path}: a checkpoint of another environment: {message}"


def test_different_leaf_is_named(saved):
  state = make_state()
  assert "mask is bool[2]; must be bool[1]" in refusal(saved, state | {"mask": np.array([True])})
  assert "mask is bool[2]; must be uint8[2]" in refusal(saved, state | {"mask": np.zeros(2, np.uint8)})
  assert "extra is missing" in refusal(saved, state | {"extra": np.zeros(1)})
  del state["step"]
  assert "another network or environment: step is not expected" in refusal(saved, state)


# --- pruning and finding ------------------------------------------------------------------------------


def names(directory: Path) -> list[int]:
  return [c.env_steps for c in list_checkpoints(directory)]


def test_last_few_and_milestones_are_kept(tmp_path):
  config = CheckpointConfig(keep_last=2, milestones_env_steps=100)
  store = CheckpointStore(tmp_path, config)
  for step in (30, 60, 90, 120, 150, 180, 310, 320, 330):
    if step == 180:
      store = CheckpointStore(tmp_path, config)  # as in a resumed run, which keeps its milestones
    store.save({"x": np.zeros(1)}, META | {"env_steps": step}, wall_s=1.0)
  assert names(tmp_path) == [120, 310, 320, 330]
  assert [c.meta["is_milestone"] for c in list_checkpoints(tmp_path)] == [True, True, False, False]


def test_replaced_milestone_stays_a_milestone(tmp_path):
  store = CheckpointStore(tmp_path, CheckpointConfig(keep_last=1, milestones_env_steps=100))
  for step in (100, 100, 110, 120):
    store.save({"x": np.zeros(1)}, META | {"env_steps": step}, wall_s=1.0)
  assert names(tmp_path) == [100, 120]


def test_no_milestones_keeps_only_the_last(tmp_path):
  store = CheckpointStore(tmp_path, CheckpointConfig(keep_last=1, milestones_env_steps=None))
  for step in (100, 200):
    store.save({"x": np.zeros(1)}, META | {"env_steps": step}, wall_s=1.0)
  assert names(tmp_path) == [200]


def test_find_checkpoint(tmp_path):
  with pytest.raises(UserError, match="holds no checkpoint"):
    find_checkpoint(tmp_path / "nothing")
  for step in (1_000, 20, 300):
    save_checkpoint(tmp_path, f"step_{step}", {"x": np.zeros(1)}, META | {"env_steps": step})
  (tmp_path / ".step_9.safetensors.1.tmp").write_text("")
  (tmp_path / "notes.txt").write_text("")
  found = {
    w: find_checkpoint(tmp_path, w).env_steps
    for w in (None, "last", "step_20", "170", str(tmp_path / "step_300.safetensors"))
  }
  assert list(found.values()) == [1000, 1000, 20, 300, 300]
  for which in ("step_21", "../x", "", "a\0b", "²"):
    with pytest.raises(UserError, match="no such checkpoint"):
      find_checkpoint(tmp_path, which)
  with pytest.raises(UserError, match="altered or cut"):
    find_checkpoint(tmp_path, str(tmp_path / "notes.txt"))


def test_leftovers_of_a_killed_save_are_ignored_and_removed(saved):
  (saved.parent / f".{saved.name}.77.tmp").write_bytes(saved.read_bytes()[:100])
  (saved.parent / ".best.json.77.tmp").write_text("{")
  assert [info.name for info in list_checkpoints(saved.parent)] == ["step_10"]
  remove_leftovers(saved.parent)
  assert [path.name for path in saved.parent.iterdir()] == [saved.name]
  remove_leftovers(saved.parent / "nothing")


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_code_commit(tmp_path):
  def git(*arguments) -> str:
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    done = subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True)
    return done.stdout.strip()

  assert code_commit(tmp_path) is None
  git("init", "-q")
  (tmp_path / "file").write_text("1")
  git("add", "file")
  git("commit", "-qm", "first")
  git("tag", "-a", "v1", "-m", "a less specific name")
  head = git("rev-parse", "HEAD")
  assert code_commit(tmp_path) == head[:12]
  (tmp_path / "file").write_text("2")
  assert code_commit(tmp_path) == f"{head[:12]}-dirty"
  (tmp_path / "inside").mkdir()
  assert code_commit(tmp_path / "inside") is None
