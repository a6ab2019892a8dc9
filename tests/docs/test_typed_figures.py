"""Tests that numbers in the documentation's prose equal those of the committed results."""

import json
import re
import runpy

import pytest
import yaml

from experiments.minatar_vs_ppo import analysis
from moozi.core.config import Config
from tests.docs.pages import ROOT

EXPERIMENTS = ROOT / "experiments"
RESULTS_PAGE = runpy.run_path(str(ROOT / "scripts" / "make_results_page.py"))


def words_of(page: str) -> str:
  """Returns a page's text with runs of white space replaced by single spaces."""
  return " ".join((ROOT / page).read_text("utf-8").split())


@pytest.mark.parametrize("path", RESULTS_PAGE["BLOCKS"])
def test_a_page_has_the_blocks_of_its_generator(path):
  text = (ROOT / path).read_text("utf-8")
  for name, block in RESULTS_PAGE["BLOCKS"][path].items():
    (found,) = re.findall(f"<!-- {name}: begin -->\n\n(.*?)\n\n<!-- {name}: end -->", text, re.DOTALL)
    assert found == block(), "run python scripts/make_results_page.py"


def test_readme_has_the_comparison_on_minatar():
  text = (ROOT / "README.md").read_text("utf-8")
  tables = json.loads((EXPERIMENTS / "minatar_vs_ppo" / "results" / "table.json").read_text())
  assert analysis.project_block(tables) in text, "run python -m experiments.minatar_vs_ppo.analysis --readme"


def test_readme_table_of_games_has_numbers_and_names_the_games_whose_seeds_have_other_settings():
  head, _, *rows = [line.strip("| ").split(" | ") for line in RESULTS_PAGE["games"]().splitlines()]
  assert len(rows) == len(RESULTS_PAGE["game_runs"]())
  numbers = [head.index(name) for name in ("result", "seeds", "steps", "minutes", "its result")]
  number = r"-?[\d,]+(\.\d+)?M?"
  for row in rows:
    assert all(re.fullmatch(f"{number}( to {number})?", row[i]) for i in numbers), row
  # Noise-free evaluation does not read the temperature.
  own = {"seed", "run.name", "max_wall_s", "planners.test.temperature"}
  differing = []
  for row, (job, runs) in zip(rows, RESULTS_PAGE["game_runs"]().items(), strict=True):
    assert int(row[head.index("seeds")]) == len(runs) > 0
    configs = [load_settings(EXPERIMENTS / run / "config.yaml") for run in runs]
    keys = {key for config in configs for key in config} - own
    if any(config.get(key) != configs[0].get(key) for config in configs for key in keys):
      differing.append(job.capitalize())
    if job in RESULTS_PAGE["README_ATARI"]:
      counts = [config["planners.test.num_simulations"] for config in configs]
      assert [config["planners.train.num_simulations"] for config in configs] == [8] * len(runs)
      returns = [
        json.loads((EXPERIMENTS / run / "summary.json").read_text())["test_return_mean"] for run in runs
      ]
      lowest = returns.index(min(returns))
      assert counts == [32 if (job, i) == ("pong", lowest) else 8 for i in range(len(runs))]
  text = words_of("README.md")
  assert f"the seeds of {' and of '.join(differing)} have [different settings](docs/atari.md), " in text
  assert "and two of Pong's four runs have one seed" in text
  assert "Atari has 8 simulations per move, and of Pong's lowest run 32" in text


def load_settings(path):
  """Returns the values that differ from the defaults, by keys such as `learner.batch_size`."""

  def flat(values, prefix=""):
    for key, value in values.items():
      yield from flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", value)]

  defaults = dict(flat(Config().model_dump(mode="json")))
  settings = flat(yaml.safe_load(path.read_text("utf-8")))
  return {key: value for key, value in settings if value != defaults.get(key)}


def test_space_invaders_of_the_zoo_by_simulations():
  page = (EXPERIMENTS / "minatar_vs_ppo" / "README.md").read_text("utf-8")
  found = json.loads((EXPERIMENTS / "minatar_vs_ppo" / "zoo_simulations.json").read_text())
  means = [e["return_mean"] for e in found]
  margins = [1.96 * e["return_std"] / e["episodes"] ** 0.5 for e in found]
  rows = {
    "simulations": [str(e["simulations"]) for e in found],
    "return": [f"{mean:.1f}" for mean in means],
    "margin of the 95% interval": [f"{margin:.1f}" for margin in margins],
  }
  for name, cells in rows.items():
    assert f"| {name} | {' | '.join(cells)} |" in page
  assert f"returns {means[-1] - means[0]:.1f} more than with one" in page
  lengths = [e["length_mean"] for e in found]
  assert f"is {min(lengths):.0f} to {max(lengths):.0f} steps" in " ".join(page.split())


def test_gallery_has_the_figures_of_its_agent():
  folder = ROOT / "zoo" / "minatar" / "breakout"
  card, summary = (json.loads((folder / f"{name}.json").read_text("utf-8")) for name in ("card", "summary"))
  text = words_of("docs/gallery/README.md")
  minutes = f"{summary['training_s'] / 60:.0f} minutes on one core"
  assert f"{card['env_steps'] / 1e6:.0f}M environment steps in {minutes}" in text
  assert (
    f"mean return is {card['evaluation']['return_mean']:.2f} over {card['evaluation']['episodes']} episodes"
    in text
  )


def test_questions_have_the_measured_rates_and_memory():
  rates = []
  for path in (EXPERIMENTS / "first_look" / "results").glob("*/job.json"):
    job = json.loads(path.read_text())
    rates.append(round(job["env_steps"] / job["wall_s"], -1))
  summaries = (EXPERIMENTS / "atari" / "results").glob("muzero_pong_seed*/summary.json")
  pong = [json.loads(path.read_text())["env_steps_per_s"] for path in summaries]
  text = words_of("docs/faq.md")
  assert f"made {min(rates):,.0f} to {max(rates):,.0f} steps per second on two cores" in text
  assert len(pong) == 4
  assert f"four runs of Pong made {min(pong):,.0f} to {max(pong):,.0f} on one core" in text
  memory = json.loads((EXPERIMENTS / "replay_memory" / "results.json").read_text())
  sizes = {name: figure["bytes_a_step"] for name, figure in memory.items()}
  minatar = [size for name, size in sizes.items() if name.startswith("minatar:")]
  assert f"takes {min(minatar):.0f} to {max(minatar):.0f} bytes per step in MinAtar" in text
  assert f"and {sizes['atari:Pong'] / 1000:.1f} kB in Atari with frames of 84×84" in text


def test_atari_pages_have_the_figures_of_their_run():
  folder = EXPERIMENTS / "atari" / "results" / "muzero_pong_seed0"
  summary = json.loads((folder / "summary.json").read_text())
  ticks = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
  (rate,) = [tick["update/learning_rate"] for tick in ticks if "update/learning_rate" in tick][-1:]
  text = words_of("experiments/atari/LOG.md")
  assert f"at {summary['env_steps_per_s']:.0f} steps/s" in text
  assert f"the learning rate had fallen only from 1e-3 to {rate * 1e4:.1f}e-4" in text
  page = words_of("docs/atari.md")
  assert f"| Pong | {summary['test_return_mean']:.1f} (of 21) |" in page
  for name in (
    "pong_seed1",
    "pong_seed2",
    "breakout_seed0",
    "breakout_seed1",
    "boxing_seed0",
    "boxing_seed1",
    "freeway_seed0",
  ):
    game, seed = name.split("_seed")
    result = folder.parent / f"muzero_{name}"
    found, job = (json.loads((result / file).read_text()) for file in ("summary.json", "job.json"))
    label = game.capitalize() + (f", seed {seed}" if seed != "0" else "")
    (row,) = re.findall(rf"\| {label} \| ([\d.]+)[^|]* \| ([\d.]+)M \| (\d+) \|", page)
    figures = (found["test_return_mean"], found["env_steps"] / 1e6, job["wall_s"] / 60)
    assert row == tuple(f"{x:.{n}f}" for x, n in zip(figures, (1, 1, 0), strict=True))
  assert f"{summary['env_steps_per_s']:.0f} steps/s" in words_of("config/atari/pong.yaml")


def test_gpu_pages_have_the_figures_of_their_runs():
  text, page = words_of("experiments/gpu/README.md"), words_of("docs/atari.md")
  found = {}
  for name in ("pong_threads", "pong_large_network"):
    folder = EXPERIMENTS / "gpu" / "results" / name
    found[name] = json.loads((folder / "summary.json").read_text())
    steps, seconds = found[name]["env_steps"], found[name]["training_s"]
    cells = f"| {steps / 1e6:.1f}M | {steps / seconds:,.0f} | {seconds / 60:.1f} |"
    (row,) = re.findall(rf"\| `{name}` \| [^|]+ \| [^|]+ (\| [^|]+ \| [^|]+ \| [^|]+ \|)", text)
    assert row == cells
  threads, large = found["pong_threads"], found["pong_large_network"]
  mean, deviation = (f"{threads[f'test_return_{each}']:.1f}" for each in ("mean", "std"))
  assert f"| {mean} (standard deviation {deviation}) |" in text
  assert f"it returned {mean} in 30 whole games" in page
  assert (large["test_return_mean"], large["test_return_std"]) == (-21, 0)
  folder = EXPERIMENTS / "gpu" / "results" / "pong_large_network"
  ticks = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
  values = [tick["search/root_value"] for tick in ticks if "search/root_value" in tick]
  assert f"was {values[0]:.0f} before the first update and {values[-1]:.0f} after 1M steps" in text


def test_decision_on_updates_has_the_figures_of_its_benchmark():
  bench = json.loads((EXPERIMENTS / "minatar_two_cores" / "results" / "bench.json").read_text())
  batch, rates = bench["parts"]["batch_size"], bench["floors"]["2"]
  alone = rates["learn"][str(batch)]
  text = words_of("docs/decisions/0003-updates-per-call.md")
  assert f"with a batch of {batch} on two cores" in text
  assert f"learns {alone:,.0f} samples/s, which is {1000 * batch / alone:.0f} ms per update" in text
  assert f"In a scan it learns {rates['scan']:,.0f}" in text


@pytest.mark.slow
def test_reanalyze_page_has_the_ratios_of_its_experiment():
  from experiments.reanalyze_sample_efficiency.table import means_of

  means = means_of()

  def ratio(game, suffix=""):
    return means[game, f"reanalyze_more{suffix}"] / means[game, f"plain{suffix}"]

  text = words_of("docs/reanalyze.md")
  assert f"| Breakout | uniform | {ratio('breakout'):.1f} |" in text
  by_rank, uniform = ratio("space_invaders"), ratio("space_invaders", "_uniform")
  assert f"| Space Invaders | by rank | {by_rank:.2f} | | Space Invaders | uniform | {uniform:.1f} |" in text


@pytest.mark.slow
def test_decision_on_defaults_has_the_figures_of_its_ablation():
  from experiments.minatar_two_cores.table import means_of

  means = {
    name: [f"{sum(values) / len(values):.1f}" for values in figures] for name, figures in means_of().items()
  }
  text = words_of("docs/decisions/0005-defaults-for-two-cores.md")
  (acting, tested), (acting_with, tested_with) = means["default"], means["consistency"]
  raised = f"from {acting} to {acting_with} in training and from {tested} to {tested_with} in evaluation"
  assert f"raises the return of Breakout {raised}" in text


def test_boards_page_has_the_scores_of_the_two_bots():
  text = words_of("experiments/boards/README.md")
  found = json.loads((EXPERIMENTS / "boards" / "results" / "mcts_bots.json").read_text())
  for row in found:
    assert f"{row['score_of_cpp']:.2f} ± {row['margin']:.2f}" in text
    assert row["games"] == 200
  seconds = found[0]["seconds_per_move"]
  assert f"1/{seconds['python'] / seconds['cpp']:.0f} of the time" in text
