"""Tests that numbers in the documentation's prose equal those of the committed results."""

import json
import runpy

import pytest

from tests.docs.pages import ROOT

EXPERIMENTS = ROOT / "experiments"
RESULTS_PAGE = runpy.run_path(str(ROOT / "scripts" / "make_results_page.py"))


def words_of(page: str) -> str:
  """Returns a page's text with runs of white space replaced by single spaces."""
  return " ".join((ROOT / page).read_text("utf-8").split())


def test_readme_has_the_figures_of_the_results_page():
  text, found = words_of("README.md"), RESULTS_PAGE["others"]()
  assert found["connect_four"] in text
  assert found["go_5x5"] in text
  assert f"{found['connect_four_cost'].split()[-1]} minutes" in text
  assert f"{found['cartpole'].split()[0]} of 500; six minutes" in text
  assert found["cartpole_cost"].endswith("| 6")
  for hand in found["kuhn"].split(" per hand")[0].split(" and "):
    assert hand in text


def test_gallery_has_the_figure_of_its_run():
  folder = EXPERIMENTS / "minatar_vs_ppo" / "one_seed" / "muzero_breakout_seed0"
  last = json.loads((folder / "evaluations.json").read_text())[-1]
  summary = json.loads((folder / "summary.json").read_text())
  text = words_of("docs/gallery/README.md")
  figures = f"{last['return_mean']:.1f} after 3M environment steps, {summary['training_s'] / 60:.0f} minutes"
  assert f"mean return is {figures}" in text
  assert "one_seed/muzero_breakout_seed0" in text


@pytest.mark.slow
def test_reanalyze_page_has_the_ratios_of_its_experiment():
  from experiments.reanalyze_sample_efficiency import sweep

  rows = [[cell.strip() for cell in line.split("|")] for line in sweep.table_of(250_000, 0.8).splitlines()]
  ratios = {(row[1], row[2]): float(row[5]) for row in rows[2:]}
  breakout = ratios["breakout", "reanalyze_more"]
  invaders = ratios["space_invaders", "reanalyze_more_uniform"]
  text = words_of("docs/reanalyze.md")
  assert f"{breakout:.1f} times the return on Breakout, and {invaders:.1f} times on Space Invaders" in text


@pytest.mark.slow
def test_decision_on_defaults_has_the_figures_of_its_ablation():
  from experiments.minatar_two_cores.ablation import ABLATION

  table = ABLATION.table(300_000)
  means = {}
  for line in table.splitlines()[2:]:
    cells = [cell.strip() for cell in line.split("|")]
    means[cells[1]] = [cell.rpartition("(mean ")[2].rstrip(")") for cell in cells[3:5]]
  text = words_of("docs/decisions/0005-defaults-for-two-cores.md")
  (acting, tested), (acting_with, tested_with) = means["default"], means["consistency"]
  raised = f"from {acting} to {acting_with} while acting and from {tested} to {tested_with} in evaluation"
  assert f"The consistency loss raises the return {raised}" in text
  assert "Prioritized sampling gives {} and {};".format(*means["prioritized"]) in text
  assert "five steps instead of three gives {} and {},".format(*means["unroll_5"]) in text
