"""Tests of the content of a run's report; test_report_page.py tests it in a browser."""

import base64
import hashlib
import html
import io
import json
import re

import numpy as np
import pytest
from PIL import Image

from moozi.core.spec import EnvSpec
from moozi.envs import registry
from moozi.vis import report
from moozi.vis.frames import PALETTE, draw_frame, render_frame
from moozi.vis.report import curve_data, episode_data, write_report
from tests.vis.trees import make_episode

SPEC = EnvSpec(
  name="minatar:breakout",
  frame_shape=(10, 10, 4),
  frame_dtype="bool",
  num_env_actions=3,
  action_names=("noop", "left", "right"),
)
BOARD = EnvSpec(name="a:board", frame_shape=(3, 3, 2), frame_dtype="bool", num_env_actions=9, num_players=2)
RUN = {"name": "first", "checkpoint": "step_1", "env_steps": 10, "learner_steps": 2, "figures": ""}
TICKS = [
  {"env_steps": 10 * i, "learner_steps": i, "wall_s": 1.0, "loss/total": 1 / (i + 1)} for i in range(5)
]


def write(tmp_path, episode=None, spec=SPEC, **changes):
  arguments = {"run": RUN, "ticks": TICKS, "config": "seed: 0\n"} | changes
  return write_report(tmp_path / "report.html", episode or make_episode(spec), spec, **arguments)


def data_of(text):
  (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
  return json.loads(found)


def test_page_has_episode_arrays(tmp_path):
  episode = make_episode(SPEC)
  data = data_of(write(tmp_path, episode).read_text("utf-8"))
  shown = data["episode"]
  num, num_actions = episode.num_frames, SPEC.num_actions
  for name in ("root_values", "prior_values", "returns", "rewards"):
    np.testing.assert_allclose(shown[name], getattr(episode, name), rtol=1e-3, err_msg=name)
  for name, of in (
    ("prior_probs", episode.prior_probs),
    ("action_probs", episode.action_probs),
    ("network_q", episode.network_q_values),
    ("search_q", episode.q_values),
  ):
    flat = shown[name]
    assert flat[-num_actions:] == [None] * num_actions, "the last frame must have no search figures"
    want = of[:-1].ravel()
    np.testing.assert_allclose(flat[:-num_actions], want, rtol=1e-3, atol=1e-6, err_msg=name)
  np.testing.assert_allclose(shown["imagined_values"], episode.imagined_values.ravel(), rtol=1e-3)
  np.testing.assert_allclose(shown["imagined_rewards"], episode.imagined_rewards.ravel(), rtol=1e-3)
  assert shown["actions"] == episode.actions.tolist()
  assert (shown["num_frames"], shown["unroll_steps"]) == (num, 3)
  assert shown["names"] == ["end", "noop", "left", "right"]
  assert data["config"] == "seed: 0\n"
  assert data["run"] == RUN | {"env": "minatar:breakout"}


def test_illegal_actions_are_null():
  episode = make_episode(SPEC)
  episode.legal_actions_mask[0] = [False, True, False, True]
  shown = episode_data(episode, SPEC)
  for name in ("prior_probs", "action_probs", "network_q", "search_q"):
    assert [x is None for x in shown[name][:4]] == [True, False, True, False]


def test_trees_are_concatenated():
  episode = make_episode(SPEC, num_frames=6, num_simulations=60)
  trees = episode_data(episode, SPEC)["trees"]
  assert len(trees["start"]) == 7
  assert trees["total"] == [61] * 5 + [0]
  assert trees["start"][-1] == trees["start"][-2] == 5 * report.MAX_TREE_NODES
  for t in range(5):
    tree, part = episode.trees[t], slice(trees["start"][t], trees["start"][t + 1])
    parent = trees["parent"][part]
    assert parent[0] == -1
    assert all(0 <= p < i for i, p in enumerate(parent) if i)
    assert sum(trees["left_out"][part]) == 61 - report.MAX_TREE_NODES
    assert trees["visits"][part][0] == tree.visits[0]
    np.testing.assert_allclose(trees["value"][part][0], tree.value[0], rtol=1e-3)
    # The principal variation starts with the action played, if it has a node.
    line = [i for i, on in enumerate(trees["principal"][part]) if on]
    first = next(i for i in line if parent[i] == 0)
    has_node = episode.actions[t] in tree.action[tree.depth == 1]
    assert not has_node or trees["action"][part][first] == episode.actions[t]


def test_root_visits():
  episode = make_episode(SPEC, num_frames=3)
  visits = np.reshape(episode_data(episode, SPEC)["root_visits"], (3, 4))
  assert visits.sum(axis=1).tolist() == [16, 16, 0]
  tree = episode.trees[1]
  for node in np.flatnonzero(tree.depth == 1):
    assert visits[1, tree.action[node]] == tree.visits[node]


def decode(sheets):
  return [
    np.asarray(Image.open(io.BytesIO(base64.b64decode(s.partition(",")[2]))).convert("RGB")) for s in sheets
  ]


def frame_at(shown, images, t):
  """Returns the part of a sprite sheet that the page shows for step t."""
  sheet, place = divmod(t, shown["per_sheet"])
  top, left = place // shown["columns"] * shown["height"], place % shown["columns"] * shown["width"]
  return images[sheet][top : top + shown["height"], left : left + shown["width"]]


def test_frames_are_on_sheets():
  episode = make_episode(SPEC, num_frames=230, num_simulations=2)
  shown = episode_data(episode, SPEC)["frames"]
  images = decode(shown["sheets"])
  assert len(images) == 3
  for t in (0, 1, 99, 100, 101, 199, 229):
    np.testing.assert_array_equal(frame_at(shown, images, t), render_frame(episode.frames[t], SPEC, 14))


def played(name, num_moves):
  """Plays `num_moves` first legal moves; returns the spec and an episode with these frames."""
  env = registry.make(name, seed=0)
  seen = [env.reset().observation]
  for _ in range(num_moves):
    seen.append(env.step(int(np.flatnonzero(seen[-1].legal_actions_mask)[0])).observation)
  frames, to_play = np.stack([s.frame for s in seen]), np.array([s.to_play for s in seen], np.int32)
  return env.env_spec, make_episode(env.env_spec, len(seen), frames=frames, to_play=to_play)


@pytest.mark.parametrize("name", ["open_spiel:connect_four", "open_spiel:othello", "tiny:catch"])
def test_page_draws_frames_as_draw_frame(name):
  """Boards are drawn from the same side throughout, although Othello's frames are from the mover's view."""
  spec, episode = played(name, 5)
  shown = episode_data(episode, spec)
  size = 280 if spec.num_players == 2 else 140
  images = decode(shown["frames"]["sheets"])
  for t in range(6):
    want = draw_frame(episode.frames[t], spec, size, int(episode.to_play[t]))
    np.testing.assert_array_equal(frame_at(shown["frames"], images, t), want)


def test_page_names():
  spec, episode = played("open_spiel:connect_four", 2)
  shown = episode_data(episode, spec)
  assert shown["player_names"] == ["red", "yellow"]
  assert shown["planes"] == []
  cartpole = EnvSpec(
    name="gymnasium:CartPole-v1",
    frame_shape=(1, 1, 4),
    frame_dtype="float32",
    num_env_actions=2,
    action_names=("0", "1"),
  )
  assert episode_data(make_episode(cartpole, 3), cartpole)["names"] == ["end", "left", "right"]


def test_page_legend():
  planes = episode_data(make_episode(SPEC, 2), SPEC)["planes"]
  assert [plane["name"] for plane in planes] == ["paddle", "ball", "trail", "brick"]
  assert [tuple(bytes.fromhex(plane["color"][1:])) for plane in planes] == list(PALETTE[:4])
  pictures = np.zeros((2, 8, 8, 3), np.uint8)
  assert episode_data(make_episode(SPEC, 2, pictures=pictures), SPEC)["planes"] == []


def test_page_own_pictures():
  pictures = np.zeros((4, 640, 320, 3), np.uint8)
  pictures[2, :320] = (10, 200, 30)
  shown = episode_data(make_episode(SPEC, 4, pictures=pictures), SPEC)["frames"]
  assert (shown["height"], shown["width"]) == (320, 160)
  frame = frame_at(shown, decode(shown["sheets"]), 2)
  assert frame[10, 10].tolist() == [10, 200, 30]
  assert frame[310, 10].tolist() == [0, 0, 0]


def test_many_colors_are_approximated():
  random = np.random.default_rng(0)
  pictures = random.integers(0, 256, (2, 8, 8, 3)).repeat(16, axis=1).repeat(16, axis=2).astype(np.uint8)
  pictures[0, :, :, 0] = np.arange(128)
  shown = episode_data(make_episode(SPEC, 2, pictures=pictures), SPEC)["frames"]
  images = decode(shown["sheets"])
  difference = frame_at(shown, images, 1).astype(int) - pictures[1]
  assert np.abs(difference).mean() < 16


@pytest.mark.parametrize(
  ("frame_shape", "frame_dtype"),
  [((84, 84, 4), "uint8"), ((210, 160, 3), "uint8"), ((1, 1, 4), "float32"), ((3, 3, 2), "bool")],
)
def test_other_frame_shapes(tmp_path, frame_shape, frame_dtype):
  spec = EnvSpec(name="a:b", frame_shape=frame_shape, frame_dtype=frame_dtype, num_env_actions=18)
  shown = data_of(write(tmp_path, make_episode(spec, 3), spec).read_text("utf-8"))["episode"]
  assert len(decode(shown["frames"]["sheets"])) == 1
  assert len(shown["names"]) == 19


def test_two_players():
  shown = episode_data(make_episode(BOARD), BOARD)
  assert shown["num_players"] == 2
  assert shown["seat_sign"][:4] == [1, -1, 1, -1]
  assert shown["signed_discount"] == -0.99


def test_curve_data():
  ticks = [{"env_steps": i, "wall_s": 2.0, "learner_steps": 1, "a": float(i)} for i in range(600)]
  ticks[9] |= {"test/return_mean": 5.0, "test/at_env_steps": 4.0}
  ticks[0] |= {"b": 1.0, "c": None, "d": float("nan"), "e": "text", "f": True}
  curves = curve_data([*ticks, {"a": 3.0}])
  assert list(curves) == ["a", "b", "test/return_mean"]
  assert curve_data([{"env_steps": 1, "a": 10**400, "b": 2.0}, {"env_steps": 10**400, "b": 3.0}]) == {
    "b": {"x": [1], "y": [2]}
  }
  assert curves["test/return_mean"] == {"x": [4], "y": [5]}
  assert curves["b"] == {"x": [0], "y": [1]}
  assert len(curves["a"]["x"]) == report.MAX_CURVE_POINTS
  assert curves["a"]["x"][:2] == curves["a"]["y"][:2] == [0.5, 2.5]


def test_run_text_cannot_become_code(tmp_path):
  evil = '</script><script>alert(1)</script><!--@DATA@ @STYLE@ "\u2028'
  action = evil.removesuffix("\u2028")  # names of actions are printable
  spec = EnvSpec(
    name=evil, frame_shape=(3, 3, 2), frame_dtype="bool", num_env_actions=2, action_names=(action, "x")
  )
  page = write(
    tmp_path,
    make_episode(spec),
    spec,
    run=RUN | {"name": evil},
    config=evil,
    ticks=[{"env_steps": 1, evil: 2}],
  )
  text = page.read_text("utf-8")
  assert text.count("<script") == 2
  assert text.count("</script") == 2
  shown = data_of(text)
  assert shown["config"] == shown["run"]["name"] == evil
  assert shown["episode"]["names"][1] == action
  assert list(shown["curves"]) == [evil]
  (title,) = re.findall("<title>(.*?)</title>", text)
  assert html.unescape(title).startswith(f"{action}?")  # what cannot be printed is replaced


def test_content_security_policy(tmp_path):
  text = write(tmp_path).read_text("utf-8")
  (policy,) = re.findall('http-equiv="Content-Security-Policy" content="(.*?)"', text)
  policy = html.unescape(policy)
  assert policy.startswith("default-src 'none'; img-src data:;")
  for element, directive in (("script", "script-src"), ("style", "style-src")):
    (body,) = re.findall(f"<{element}>(.*?)</{element}>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
    assert f"{directive} 'sha256-{digest}'" in policy
  addresses = set(re.findall(r"""(?:src|href)=["']([^"'#]+)""", text))
  assert all(address.startswith("data:") for address in addresses)


@pytest.mark.slow
def test_long_episode_stays_small(tmp_path):
  episode = make_episode(SPEC, num_frames=301, num_simulations=50)
  # All frames are made equal, because random ones, unlike those of a game, do not compress.
  episode.frames[:] = episode.frames[:1]
  assert write(tmp_path, episode).stat().st_size < 1_200_000


def test_page_without_an_episode(tmp_path):
  text = write_report(tmp_path / "a.html", None, SPEC, run=RUN, ticks=TICKS, config="").read_text("utf-8")
  assert data_of(text)["episode"] is None
  assert list(data_of(text)["curves"]) == ["loss/total"]
  assert 'id="frame"' not in text


def test_page_has_joints(tmp_path):
  joints = [(-1, "start from a"), (20, "surgery of b at 20 steps")]
  data = data_of(write(tmp_path, joints=joints).read_text("utf-8"))
  assert data["joints"] == [{"x": x, "text": text} for x, text in joints]
  assert data_of(write(tmp_path).read_text("utf-8"))["joints"] == []


def test_errors_of_float_sums_are_not_shown():
  rewards = np.full(12, -7e-15, np.float32)
  assert set(episode_data(make_episode(SPEC, rewards=rewards), SPEC)["rewards"]) == {0}


def test_failed_write_keeps_old_page(tmp_path, monkeypatch):
  path = write(tmp_path)
  before = path.read_bytes()

  def fail(source, target):
    raise OSError("no space left")

  monkeypatch.setattr("os.replace", fail)
  with pytest.raises(OSError, match="no space"):
    write(tmp_path, config="seed: 1\n")
  assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("report.html", before)]
