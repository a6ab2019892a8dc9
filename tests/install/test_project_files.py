"""Tests of the workflow, the citation file, the issue forms and the installation page."""

import re
import tomllib

import pytest

import moozi
from moozi.io.config_files import PACKAGES
from moozi.io.plain_data import read_yaml
from tests.install.build import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
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
  assert citation["license"] == PROJECT["license"]
  assert {"cff-version", "message", "title", "authors"} <= citation.keys()
  assert [reference["year"] for reference in citation["references"]] == [2022, 2020]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_forms(path):
  form = read_yaml(path)
  assert {"name", "description", "body"} <= form.keys()
  fields = [(field["type"], field["id"], field["attributes"]["label"]) for field in form["body"]]
  assert len({name for _, name, _ in fields}) == len(fields)
  assert {kind for kind, _, _ in fields} <= {"input", "textarea", "dropdown", "checkboxes"}


def test_every_extra_is_explained():
  page = (ROOT / "docs/install.md").read_text("utf-8")
  extras = PROJECT["optional-dependencies"].keys() - {"worlds"}
  assert all(f"`{extra}`" in page for extra in extras)
  assert PACKAGES.keys() <= extras
