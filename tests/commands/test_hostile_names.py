"""Tests that names from outside reach no output as they are: one hostile run, in every command."""

import io
import json
import re
import shutil
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from moozi.io.plain_data import dump_yaml, read_yaml
from tests.commands.conftest import make_run

# Of a folder: escape sequences, HTML, a link, a table, letters in reverse, and a byte that is not UTF-8.
NAME = "\x1b[2J\x1b]0;x\x07<img src=x onerror=a()>[c](http:x) |\n# `h` \u202e$x$ caf\udce9 " + "y" * 100
MARKS = ("\x1b", "\x07", "\u202e", "\udce9")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Path:
  """Returns a run in a folder of this name, whose metrics have hostile texts too. It has no checkpoint."""
  return make_hostile(tmp_path_factory.mktemp("hostile"), checkpoint=False)


@pytest.fixture(scope="module")
def playing(tmp_path_factory) -> Path:
  """Returns such a run with a checkpoint, so that commands play its agent."""
  return make_hostile(tmp_path_factory.mktemp("playing"), checkpoint=True)


def make_hostile(folder: Path, checkpoint: bool) -> Path:
  made = make_run(folder, "made", checkpoint=checkpoint)
  path = folder / NAME
  shutil.move(made, path)
  config = read_yaml(path / "config.yaml")
  config["run"]["name"] = None
  if not checkpoint:
    config["env"]["kwargs"] = {"max_episode_steps": 5}
  (path / "config.yaml").write_text(dump_yaml(config))
  rows = [
    {"env_steps": n, "learner_steps": n, "wall_s": 1.0 * n, "test/at_env_steps": n, "test/return_mean": 0.5}
    | {"test/return_std": 0.5, "test/episodes": 4}
    for n in (10, 20)
  ]
  (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
  (path / "checkpoints" / f"{NAME}.safetensors").touch()
  return path


def check(text: str) -> None:
  assert not [mark for mark in MARKS if mark in text], text
  assert all(c.isprintable() or c == "\n" for c in text), text


COMMANDS = [
  ("card", "RUN", "--out", "OUT"),
  ("compare", "RUN", "--out", "OUT"),
  ("compare", "RUN", "RUN"),
  ("timeline", "RUN"),
  ("trajectories", "RUN"),
  ("evaluate", "RUN"),
  ("evaluate", "RUN", "--checkpoint", NAME),
  ("inspect", "RUN", "--checkpoint", "CHECKPOINT"),
  ("watch", "RUN"),
  ("latent", "RUN", "--checkpoint", "CHECKPOINT"),
  ("report", "RUN"),
  ("reanalyze", "RUN"),
  ("play", "RUN"),
  ("play", NAME),
  ("arena", NAME, "random"),
  ("arena", "open_spiel:tic_tac_toe", "random", "run:RUN"),
  ("train", "--resume", "RUN"),
  ("train", NAME),
  ("train", "tiny/catch", f"run.name={NAME}"),
  ("train", "tiny/catch", f"env.name={NAME}"),
  ("train", "tiny/catch", f"network.kind={NAME}"),
  ("train", "tiny/catch", f"{NAME}=1"),
  ("sweep", NAME),
  ("envs", NAME),
  ("configs", NAME),
  ("configs", "show", NAME),
  ("zoo", NAME),
  (NAME,),
]

LONG = ("card", "compare", "configs", "reanalyze", "zoo")
SLOW = (pytest.mark.slow,)


@pytest.mark.parametrize(
  "words",
  [pytest.param(words, marks=SLOW if words[0] in LONG else ()) for words in COMMANDS],
  ids=lambda words: " ".join(words).encode("ascii", "replace").decode()[:30],
)
def test_no_command_prints_what_a_name_has(cli, hostile, tmp_path, monkeypatch, words):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))
  places = {
    "RUN": str(hostile),
    "OUT": str(tmp_path / "out"),
    "CHECKPOINT": str(hostile / "checkpoints" / f"{NAME}.safetensors"),
  }
  words = [re.sub("RUN|OUT|CHECKPOINT", lambda found: places[found[0]], word) for word in words]
  status, out, err = cli(*words)
  assert status in (0, 2)
  assert "Traceback" not in err
  check(out)
  check(err)


@pytest.mark.slow
@pytest.mark.parametrize(
  "words",
  [
    ("evaluate", "--episodes", "2", "--gif", "OUT.gif"),
    ("inspect", "--out", "OUT"),
    ("watch", "--episodes", "1"),
    ("report", "--out", "OUT.html"),
    ("latent", "--steps", "3"),
    ("latent", "--steps", "3", "--out", "OUT"),
  ],
  ids=" ".join,
)
def test_no_command_prints_the_name_of_a_run_that_it_plays(cli, playing, tmp_path, monkeypatch, words):
  monkeypatch.chdir(tmp_path)
  out_path = tmp_path / "out"
  command, *options = [word.replace("OUT", str(out_path)) for word in words]
  status, out, err = cli(command, playing, *options)
  assert (status, out != "") == (0, True), err
  check(out)
  check(err.replace("\r", ""))
  written = [
    path for path in tmp_path.rglob("*") if path.suffix in (".html", ".svg", ".md", ".tsv", ".pbtxt")
  ]
  assert len(written) >= (command in ("inspect", "report", "latent") and str(out_path) in "".join(options))
  for path in written:
    text = path.read_text("utf-8")
    assert "<img src=x" not in text
    assert not [mark for mark in MARKS if mark in text]


def test_card_of_a_hostile_run(cli, hostile, tmp_path):
  status, _, _ = cli("card", hostile, "--out", tmp_path / "card")
  assert status == 0
  page = (tmp_path / "card" / "card.md").read_text("utf-8")
  check(page)
  check((tmp_path / "card" / "curve.svg").read_text("utf-8"))
  assert "<img" not in (tmp_path / "card" / "curve.svg").read_text("utf-8")
  tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(page)
  inline = [child for token in tokens for child in token.children or []]
  assert not [t.type for t in (*tokens, *inline) if "html" in t.type or t.type in ("link_open", "s_open")]
  assert {t.attrs["src"] for t in inline if t.type == "image"} <= {"curve.svg", "play.gif"}
  assert json.loads((tmp_path / "card" / "card.json").read_text("utf-8"))["name"].isprintable()


def test_compare_page_of_a_hostile_run(cli, hostile, tmp_path):
  assert cli("compare", hostile, "--out", tmp_path / "out")[0] == 0
  pages = [path for path in (tmp_path / "out").iterdir() if path.suffix == ".html"]
  assert pages
  for path in pages:
    text = path.read_text("utf-8")
    assert "<img src=x" not in text
    assert not [mark for mark in MARKS if mark in text]
