"""Tests of the workflow, the Makefile, the citation file, the issue forms and the installation page."""

import os
import re
import shutil
import subprocess
import tomllib

import pytest

import moozi
from moozi.core.text import extra_of, pip_install
from moozi.io.config_files import PACKAGES
from moozi.io.plain_data import read_yaml
from moozi.io.trackers import TRACKERS
from tests.install.build import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"].keys()
WORKFLOW = read_yaml(ROOT / ".github/workflows/ci.yml")
FORMS = sorted(path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")


def steps(job: str) -> str:
  return "\n".join(step.get("run", "") for step in WORKFLOW["jobs"][job]["steps"])


def test_the_workflow_runs_the_same_checks_as_a_developer():
  assert ".ci/run" in steps("checks").splitlines()
  oldest = PROJECT["requires-python"].removeprefix(">=")
  assert oldest in WORKFLOW["jobs"]["checks"]["strategy"]["matrix"]["python"]
  assert WORKFLOW["permissions"] == {"contents": "read"}
  assert all("timeout-minutes" in job for job in WORKFLOW["jobs"].values())


@pytest.mark.parametrize("job", ["wheel", "container"])
def test_the_workflow_trains_what_exists(job):
  names = re.findall(r"moozi train ([a-z_/]+)", steps(job))
  assert names
  assert all((ROOT / "config" / f"{name}.yaml").is_file() for name in names)


def test_citation():
  citation = read_yaml(ROOT / "CITATION.cff")
  assert citation["version"] == moozi.__version__
  assert f"Version {moozi.__version__} (" in (ROOT / "README.md").read_text("utf-8")
  assert citation["license"] == PROJECT["license"]
  assert {"cff-version", "message", "title", "authors"} <= citation.keys()
  assert [reference["year"] for reference in citation["references"]] == [2022, 2020]


def test_the_package_index_has_the_line_and_the_thesis_of_the_readme():
  readme = (ROOT / "README.md").read_text("utf-8")
  assert readme.startswith(f"# MooZi\n\n{PROJECT['description']}.")
  assert f"]({PROJECT['urls']['Thesis']})" in readme


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_forms(path):
  form = read_yaml(path)
  assert {"name", "description", "body"} <= form.keys()
  fields = [(field["type"], field["id"], field["attributes"]["label"]) for field in form["body"]]
  assert len({name for _, name, _ in fields}) == len(fields)
  assert {kind for kind, _, _ in fields} <= {"input", "textarea", "dropdown", "checkboxes"}


def test_every_extra_is_explained():
  page = (ROOT / "docs/install.md").read_text("utf-8")
  assert all(f"`{extra}`" in page for extra in EXTRAS)


def test_no_extra_has_an_underscore():
  """pip below 23.3 finds no extra with an underscore, and installs the rest with a warning only."""
  assert not [extra for extra in EXTRAS if "_" in extra]


@pytest.mark.parametrize("library", [*PACKAGES, *TRACKERS, "video", "export"])
def test_every_library_has_an_extra(library):
  assert extra_of(library) in EXTRAS
  assert pip_install(library) == f"pip install 'moozi[{extra_of(library)}]'"


def test_every_hint_names_an_extra_that_exists():
  """In messages, pages, files of the build, and in the extras that install other extras."""
  paths = [ROOT / name for name in ("README.md", "Dockerfile", "Makefile", "pyproject.toml")]
  paths += [*(ROOT / "docs").glob("*.md"), *(ROOT / ".github").rglob("*.yml")]
  code = [*(ROOT / "moozi").rglob("*.py")]
  texts = {path: path.read_text("utf-8") for path in (*paths, *code)}
  hint = re.compile(r"(?:moozi|\.whl\)|'\.)\[([\w, -]+)\]|EXTRAS=([\w,-]+)")
  named = {
    (path.relative_to(ROOT).as_posix(), extra.strip())
    for path in paths
    for found in hint.findall(texts[path])
    for extra in "".join(found).split(",")
  }
  assert {"Makefile", "pyproject.toml", "docs/install.md"} <= {path for path, _ in named}
  assert not [(path, extra) for path, extra in named if extra not in EXTRAS]
  # The last argument of `missing_package` is the library, or a package of the library's name.
  called = re.compile(r"(?:pip_install\(|missing_package\(.*)['\"]([\w-]+)['\"]\)")
  libraries = {name for path in code for name in called.findall(texts[path])}
  assert {"atari", "video", "export"} <= {extra_of(name) for name in libraries} <= EXTRAS
  # The command is made in one place.
  assert not [path for path in code if re.search(r"pip install [\"']?moozi", texts[path])]


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(
  ("arguments", "status"), [((), 0), (("PYTHON=./same",), 0), (("PYTHON=./other",), 2)]
)
def test_make_refuses_another_python_than_that_of_the_environment(tmp_path, arguments, status):
  for name in ("Makefile", "pyproject.toml", "constraints.txt"):
    shutil.copy(ROOT / name, tmp_path)
  (tmp_path / ".venv" / "bin").mkdir(parents=True)
  for path, version in ((".venv/bin/python", "3.11.1"), ("same", "3.11.1"), ("other", "3.12.1")):
    (tmp_path / path).write_text(f"#!/bin/sh\necho Python {version}\n")
    (tmp_path / path).chmod(0o755)
  (tmp_path / ".venv" / ".stamp").touch()
  env = {"PATH": os.environ["PATH"]}  # without the MAKEFLAGS of `make test`
  done = subprocess.run(["make", *arguments, "setup"], cwd=tmp_path, env=env, capture_output=True, text=True)
  assert done.returncode == status, done.stderr
  message = "moozi: error: .venv has Python 3.11.1, and ./other is Python 3.12.1; run make clean first\n"
  assert (message in done.stderr) == (status == 2)
