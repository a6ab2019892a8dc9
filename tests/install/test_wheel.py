"""Tests of the sdist, and of the installed wheel in an empty folder."""

import json
import re
import subprocess
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from moozi.core.text import extra_of
from moozi.io.config_files import PACKAGES
from tests.docs.pages import PAGES, links
from tests.install.build import OFFLINE, ROOT, copy_sources, environment, make_venv, run
from tests.tiny_run import TINY

CARRIED = sorted(
  path.relative_to(ROOT).as_posix()
  for name in ("config", "zoo")
  for path in (ROOT / name).rglob("*")
  if path.is_file()
)
SDIST = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
SECONDS: dict[str, float] = {}  # by command

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
  sources = copy_sources(tmp_path_factory.mktemp("sources"))
  run("python", "-c", SDIST, "dist", cwd=sources)
  (path,) = (sources / "dist").iterdir()
  return path


@pytest.fixture(scope="module")
def unpacked(sdist, tmp_path_factory) -> Path:
  folder = tmp_path_factory.mktemp("unpacked")
  with tarfile.open(sdist) as file:
    file.extractall(folder, filter="data")
  (path,) = folder.iterdir()
  return path


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory) -> Path:
  """Returns the wheel that pip builds from the source distribution."""
  folder = tmp_path_factory.mktemp("wheel")
  run("python", "-m", "pip", "wheel", "--wheel-dir", folder, sdist, cwd=folder)
  (path,) = folder.iterdir()
  return path


@pytest.fixture(scope="module")
def venv(wheel, tmp_path_factory) -> Path:
  venv = make_venv(tmp_path_factory.mktemp("fresh") / "venv")
  run("python", "-m", "pip", "install", wheel, cwd=venv, venv=venv)
  return venv


@pytest.fixture(scope="module")
def folder(venv, tmp_path_factory) -> Path:
  """Returns a folder that contains only a run, trained by the installed wheel."""
  folder = tmp_path_factory.mktemp("empty")
  before = time.monotonic()
  moozi = venv / "bin" / "moozi"
  settings = [text for text in TINY if not text.startswith("env.name=")]
  run(moozi, "train", "tiny/catch", "runtime=local", "run.name=first", *settings, cwd=folder, venv=venv)
  SECONDS["train"] = time.monotonic() - before
  return folder


def test_both_distributions_carry_configurations_and_agents(unpacked, wheel):
  assert all((unpacked / name).is_file() for name in CARRIED)
  assert not (unpacked / "tests").exists()
  with zipfile.ZipFile(wheel) as file:
    names = set(file.namelist())
    assert {f"moozi/data/{name}" for name in CARRIED} <= names
    assert {"moozi/py.typed", "moozi/vis/report_page/page.html"} <= names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"moozi"}


def test_the_package_index_accepts_both_distributions(sdist, wheel):
  run("python", "-m", "twine", "check", "--strict", sdist, wheel, cwd=sdist.parent)


def test_pages_of_the_sdist_link_to_its_files(unpacked):
  missing = []
  for page in PAGES:
    copy = unpacked / page.relative_to(ROOT)
    missing += [(copy.name, target) for target, _ in links(copy) if not (copy.parent / target).exists()]
  assert missing == []


def test_the_sdist_has_what_make_setup_and_make_train_need(unpacked):
  commands = run("make", "--dry-run", "train", cwd=unpacked)
  assert "pip install" in commands
  assert "moozi train minatar/breakout_short" in commands


def test_the_oldest_pip_of_python_3_11_installs_every_extra(wheel, tmp_path):
  """pip below 23.3 only warns about an extra that it does not find, and installs none of its packages."""
  venv = make_venv(tmp_path / "venv")
  index = {k: v for k, v in environment(venv).items() if k not in OFFLINE}
  old_pip = [venv / "bin" / "python", "-m", "pip", "install", "--quiet", "pip==22.3.1"]
  if subprocess.run(old_pip, env=index, capture_output=True, check=False).returncode:
    pytest.skip("the package index is not reachable")
  extras = ",".join(map(extra_of, PACKAGES))
  command = [venv / "bin" / "python", "-m", "pip", "install", "--dry-run", "--no-index", f"{wheel}[{extras}]"]
  done = subprocess.run(command, env=index, capture_output=True, text=True, check=True)
  assert "does not provide" not in done.stderr
  assert "Requirement already satisfied: open_spiel" in done.stdout


def test_moozi_comes_from_the_wheel(venv, tmp_path):
  program = (
    "import moozi; from moozi.io.config_files import config_root; print(moozi.__file__); print(config_root())"
  )
  out = run("python", "-c", program, cwd=tmp_path, venv=venv).splitlines()
  assert all(Path(line).is_relative_to(venv) for line in out)
  assert out[1].endswith("moozi/data/config")


def test_configurations_are_those_of_the_clone(venv, tmp_path):
  from moozi.io.config import load_config
  from moozi.io.config_files import list_configs

  moozi = venv / "bin" / "moozi"
  listed = json.loads(run(moozi, "configs", "--json", cwd=tmp_path, venv=venv))
  assert [info["name"] for info in listed] == [info.name for info in list_configs()]
  for name in ("minatar/breakout_short", "gymnax/breakout"):
    path = tmp_path / "shown.yaml"
    path.write_text(run(moozi, "configs", "show", name, cwd=tmp_path, venv=venv))
    assert load_config(path) == load_config(name)


def test_every_step_works_in_an_empty_folder(folder, venv, capsys):
  moozi = venv / "bin" / "moozi"
  for step in (
    ("evaluate", "runs/first", "--episodes", "4", "--json"),
    ("watch", "runs/first", "--episodes", "1"),
    ("inspect", "runs/first", "--step", "2"),
    ("report", "runs/first"),
    ("compare", "runs/first"),
    ("zoo",),
    ("evaluate", "zoo:tiny/catch", "--episodes", "2", "--json"),
  ):
    before = time.monotonic()
    out = run(moozi, *step, cwd=folder, venv=venv)
    SECONDS[step[0]] = time.monotonic() - before
    assert out, step
  assert (folder / "runs/first/report.html").stat().st_size > 10_000
  assert [path.name for path in folder.iterdir()] == ["runs"]
  with capsys.disabled():
    print("\nseconds in an empty folder:", {name: round(s, 1) for name, s in SECONDS.items()})


def test_own_environment_and_network_in_under_80_lines(venv, tmp_path, capsys):
  moozi, lines = venv / "bin" / "moozi", 0
  for name in ("environment.py", "network.py"):
    text = (ROOT / "examples" / name).read_text()
    (tmp_path / name).write_text(text)
    lines += text.count("\n")
  assert lines < 80
  own = ("env.name=environment:make", "network.kind=network:make")
  settings = [text for text in TINY if not text.startswith(("env.name=", "network.kind="))]
  seconds = {}
  for step in (
    ("train", "tiny/catch", "--seeds", "2", *settings, *own, "runtime=local", "run.name=own"),
    ("evaluate", "runs/own-seed1", "--allow-code", "--episodes", "4"),
    ("compare", "runs/own-seed1", "runs/own-seed2", "--out", "compared"),
  ):
    before = time.monotonic()
    run(moozi, *step, cwd=tmp_path, venv=venv)
    seconds[step[0]] = round(time.monotonic() - before, 1)
  assert list((tmp_path / "compared").glob("*.html"))
  with capsys.disabled():
    print("\nseconds with an own environment and network:", seconds)


def test_actors_find_moozi(folder, venv):
  """Ray's processes import MooZi from the installed wheel."""
  moozi = venv / "bin" / "moozi"
  settings = [text for text in TINY if not text.startswith("env.name=")]
  out = run(moozi, "train", "tiny/catch", "ray.num_cpus=4", "run.name=ray", *settings, cwd=folder, venv=venv)
  assert re.search(r"^return: +-?\d", out, re.MULTILINE)
