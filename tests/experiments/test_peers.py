"""Tests of the comparison of speed with other systems. They install and measure nothing."""

import ast
import dataclasses
import json
import os
import time

import pytest

from experiments.peers import environments, pages, run
from experiments.peers.drivers import job as driver_job
from experiments.peers.work import SIMULATIONS, SYSTEMS, System, Work, job_of

DRIVERS = run.DRIVERS
FIGURES = {
  "versions": {"moozi": "1.0", "jax": "2.0"},
  "parameters": 1000,
  "parameters_per_simulation": 800,
  "act_steps_per_s": 100.0,
  "learn_samples_per_s": 400.0,
  "train_steps_per_s": 50.0,
  "samples_per_step": 4.0,
}
RESULTS = json.loads(run.RESULTS.read_text("utf-8"))


def results_of(*rows):
  machine = {"cpu": "a processor", "cores": 2, "python": "3.11.7"}
  settings = {"repetitions": 3, "share": 1.0, "busy": 0.0, "simulations": [8, 32]}
  return {"machine": machine, "commit": "0123456789ab", **settings, "rows": list(rows)}


def row(system, simulations=8, repetition=0, **figures):
  return {"system": system, "simulations": simulations, "repetition": repetition, **FIGURES, **figures}


@pytest.fixture
def system(tmp_path, monkeypatch):
  """Returns a function that makes a system whose driver is the given program."""
  monkeypatch.setattr(run, "DRIVERS", tmp_path)

  def make(program, key="moozi", **settings):
    (tmp_path / f"drive_{key}.py").write_text(program)
    return System(key=key, name=key, **settings)

  return make


def start(system, tmp_path, job=None):
  return run.run_driver(system, job or {"simulations": 8}, tmp_path, max(os.sched_getaffinity(0)))


def test_the_figures_of_the_committed_results_are_in_the_pages():
  sentence, text = pages.answer(RESULTS), pages.text_of(RESULTS)
  readme, page = pages.README.read_text("utf-8"), pages.PAGE.read_text("utf-8")
  begin, end = "<!-- peers: begin -->\n\n", "\n\n<!-- peers: end -->"
  assert f"\n\n**Answer.** {sentence}\n\n{begin}{text}{end}" in readme, "run experiments.peers.pages --readme"
  assert f"{begin}{text}{end}" in page


def test_readme_has_the_ratios_of_the_faster_peers():
  def ratio(system, simulations, key):
    own, base = (
      pages.median_of(pages.rows_of(RESULTS, each, simulations), key) for each in (system, "moozi")
    )
    return own / base

  few, many = (
    [ratio(each, n, "act_steps_per_s") for each in ("mujax", "muax")] for n in RESULTS["simulations"]
  )
  text = " ".join((run.HERE.parents[1] / "README.md").read_text("utf-8").split())
  assert (
    f"(docs/peers.md#speed) act {few[0]:.2f} and {few[1]:.2f} times as fast as MooZi with 8 simulations, and "
    f"{many[0]:.2f} and {many[1]:.2f} times as fast with 32." in text
  )
  others = [
    ratio(each.key, n, f"{kind}_steps_per_s")
    for each in SYSTEMS[1:]
    for n in RESULTS["simulations"]
    for kind in ("act", "train")
  ]
  assert {each for each in others if each > 1.05} <= {*few, *many}, "README does not name all"


def test_a_new_answer_replaces_only_the_old_one():
  readme = "# Q?\n\n**Answer.** Old \\1.\n\ntext **Answer.** kept\n"
  assert pages.with_answer(readme, r"New \1.") == readme.replace("Old", "New")


def test_the_committed_results_have_every_job():
  jobs = [(row["system"], row.get("simulations"), row.get("repetition")) for row in RESULTS["rows"]]
  assert len(set(jobs)) == len(jobs)
  for system in SYSTEMS:
    found = {(n, repetition) for key, n, repetition in jobs if key == system.key}
    assert found == {(n, r) for n in RESULTS["simulations"] for r in range(RESULTS["repetitions"])}


def test_the_committed_results_are_of_equal_work():
  for simulations in RESULTS["simulations"]:
    sizes = [pages.rows_of(RESULTS, system.key, simulations) for system in SYSTEMS]
    sizes = [rows[0]["parameters_per_simulation"] for rows in sizes if rows]
    assert max(sizes) <= 1.05 * min(sizes)
  for row in RESULTS["rows"]:
    if "failure" not in row:
      assert row["samples_per_step"] == pytest.approx(Work.samples_per_step, rel=0.1)


@pytest.mark.parametrize("simulations", SIMULATIONS)
def test_all_systems_have_the_same_settings_but_the_duration(simulations):
  jobs = [job_of(system, simulations, 4.0) for system in SYSTEMS]
  for job in jobs:
    job.pop("steps")
    assert job["simulations"] == simulations
  assert all(job == jobs[0] for job in jobs)


def test_the_work_fits_the_units_of_the_systems():
  work = Work(simulations=8)
  # muax: whole updates after an episode; MooZi: whole updates after a segment; the timed part is after both.
  assert work.episode_length * work.samples_per_step % work.batch_size == 0
  assert work.num_envs * work.segment_length * work.samples_per_step % work.batch_size == 0
  assert work.warm_steps > work.num_envs * work.episode_length
  assert work.warm_steps > work.min_steps_to_learn
  assert work.min_steps_to_learn >= work.batch_size


def test_drivers_read_every_setting_of_the_work_and_no_other():
  names = {field.name for field in dataclasses.fields(Work)}
  shared = {
    "simulations",
    "num_envs",
    "batch_size",
    "unroll_steps",
    "n_step",
    "samples_per_step",
    "bins",
    "width",
  }
  all_used = set()
  for system in SYSTEMS:
    tree = ast.parse((DRIVERS / system.driver).read_text("utf-8"))
    used = {
      node.attr
      for node in ast.walk(tree)
      if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "job"
    }
    assert used <= names, system.key
    assert shared <= used, system.key
    all_used |= used
  assert names <= all_used | {"episode_length"}


def test_the_last_line_of_a_driver_is_parsed(capsys, monkeypatch):
  monkeypatch.setattr(driver_job, "version", lambda name: "1.2")
  driver_job.print_result(("jax",), act_steps_per_s=3.5)
  line = capsys.readouterr().out
  assert run.parse_result(f"noise\n{line}more noise\n") == {
    "versions": {"jax": "1.2"},
    "act_steps_per_s": 3.5,
  }


@pytest.mark.parametrize("stdout", ["", "noise", "a PEERS_RESULT {}", '{"act_steps_per_s": 1}'])
def test_output_without_a_result_has_none(stdout):
  assert run.parse_result(stdout) is None


def test_a_driver_gets_its_job_on_one_core(system, tmp_path):
  program = (
    "import json, os\n"
    "job = json.loads(os.environ['PEERS_JOB'])\n"
    "print('PEERS_RESULT ' + json.dumps({'job': job, 'cores': len(os.sched_getaffinity(0))}))\n"
  )
  job = job_of(SYSTEMS[0], 32, 4.0)
  assert start(system(program), tmp_path, job) == {"job": job, "cores": 1}


@pytest.mark.parametrize(
  ("program", "reason"),
  [
    ("raise ValueError('no such thing')", "ValueError: no such thing"),
    ("import sys; print('PEERS_RESULT {}'); sys.exit(3)", "exit status 3 without a result"),
    ("print('done')", "exit status 0 without a result"),
    ("import sys; print('PEERS_RESULT {\"act', flush=True)", "the result cannot be read"),
  ],
)
def test_a_failed_driver_has_its_reason(system, tmp_path, program, reason):
  assert start(system(program), tmp_path) == {"failure": reason}


def test_a_driver_that_hangs_is_stopped(system, tmp_path):
  began = time.monotonic()
  found = start(system("import time; time.sleep(60)", timeout=0.3), tmp_path)
  assert found == {"failure": "no result after 0.3 s"}
  assert time.monotonic() - began < 30


def test_an_environment_that_lost_its_python_is_a_failure(system, tmp_path):
  found = start(system("", key="gone", requirements=("gone==1",)), tmp_path)
  assert found["failure"].startswith("cannot be started: ")


def test_a_failed_peer_does_not_stop_the_others(system, tmp_path, monkeypatch):
  good = system(f"print('PEERS_RESULT ' + {json.dumps(FIGURES)!r})")
  bad = system("raise SystemExit('ImportError: no torch')", key="bad")
  refused = System(key="refused", name="refused", requirements=("refused==1",))
  monkeypatch.setattr(
    run, "install", lambda system, folder, log: "ERROR: no wheel" if system is refused else None
  )
  monkeypatch.setattr(run.psutil, "cpu_percent", lambda interval: 30.0)
  found = run.measure(tmp_path / "envs", 2, 1.0, systems=(refused, bad, good))
  assert found["rows"][0] == {"system": "refused", "failure": "ERROR: no wheel"}
  jobs = [(row["system"], row["simulations"], row["repetition"]) for row in found["rows"][1:]]
  # The order turns with the repetition.
  assert jobs == [
    *(("bad", 8, 0), ("moozi", 8, 0), ("bad", 32, 0), ("moozi", 32, 0)),
    *(("moozi", 8, 1), ("bad", 8, 1), ("moozi", 32, 1), ("bad", 32, 1)),
  ]
  assert [row.get("failure") for row in found["rows"][1:]] == [
    *("ImportError: no torch", None, "ImportError: no torch", None),
    *(None, "ImportError: no torch", None, "ImportError: no torch"),
  ]
  assert found["busy"] == 0.3
  json.dumps(found, allow_nan=False)


def test_a_failed_peer_has_a_row_and_its_reason():
  found = results_of(row("moozi"), row("moozi", 32), {"system": "mujax", "failure": "ERROR: no `wheel`"})
  text = pages.text_of(found)
  assert "| 8 | mujax | – | – | – | – |" in text
  assert "| mujax | – | – | – | – | – |" in text
  assert "mujax: 1 of its jobs failed: `ERROR: no 'wheel'`." in text
  assert pages.answer(found) == "No peer was measured."


def test_rates_have_medians_ranges_ratios_and_the_best_in_bold():
  own = [row("moozi", 8, i, act_steps_per_s=rate) for i, rate in enumerate((1000.0, 3000.0, 2000.0))]
  peer = [row("mujax", 8, i, act_steps_per_s=rate) for i, rate in enumerate((2500.0, 2600.0, 9000.0))]
  lines = pages.speed_table(results_of(*own, *peer)).splitlines()
  assert lines[2] == "| 8 | MooZi | 2,000 (1,000 to 3,000) | 1.00 | **50** (50 to 50) | 1.00 |"
  assert lines[3] == "| 8 | mujax | **2,600** (2,500 to 9,000) | 1.30 | **50** (50 to 50) | 1.00 |"
  assert len(lines) == 2 + len(SIMULATIONS) * len(SYSTEMS)


def test_the_answer_has_the_peers_that_are_faster_and_those_that_are_not():
  rows = [row("moozi", n) for n in SIMULATIONS]
  rows += [row("mujax", n, act_steps_per_s=rate) for n, rate in ((8, 150.0), (32, 125.0))]
  rows += [
    row("muax", n, act_steps_per_s=rate, train_steps_per_s=5.0) for n, rate in ((8, 90.0), (32, 180.0))
  ]
  rows += [row("lightzero", n, act_steps_per_s=9.0, train_steps_per_s=5.0) for n in SIMULATIONS]
  found = results_of(*rows)
  assert pages.answer(found) == (
    "In acting with 8 or 32 simulations, mujax and muax are 0.90 to 1.80 times as fast as MooZi, and MooZi is"
    " faster than LightZero."
    " In training, mujax is 1.00 times as fast as MooZi, and MooZi is faster than muax and LightZero."
  )
  assert pages.answer(found | {"busy": 0.5}).startswith("Preliminary: in acting with 8 or 32 simulations, ")
  assert "MooZi of commit 0123456789ab. The figures are medians" in pages.conditions(found)


@pytest.mark.parametrize(
  ("key", "value"), [("repetitions", 1), ("share", 0.2), ("busy", 0.5), ("simulations", [8])]
)
def test_a_short_or_disturbed_measurement_is_marked(key, value):
  found = results_of(row("moozi"), row("mujax"))
  assert "Preliminary" not in pages.text_of(found)
  assert "**Preliminary: a short run" in pages.text_of(found | {key: value})


@pytest.fixture
def pip(tmp_path, monkeypatch):
  """Returns a function that replaces pip by one with an error output and a status, and returns its calls."""

  def make(stderr="", status=0):
    calls = []

    def create(home, **_):
      home.mkdir(parents=True, exist_ok=True)

    def pip_run(arguments, **_):
      calls.append(arguments)
      return environments.subprocess.CompletedProcess(arguments, status, "", stderr)

    monkeypatch.setattr(environments.venv, "create", create)
    monkeypatch.setattr(environments.subprocess, "run", pip_run)
    return calls

  return make


def test_installing_twice_calls_pip_once_for_each_list(pip, tmp_path):
  calls, system = pip(), System(key="a", name="a", requirements=("b==1",), without_dependencies=("a==2",))
  assert environments.install(system, tmp_path, tmp_path / "log") is None
  assert environments.install(system, tmp_path, tmp_path / "log") is None
  assert [call[-1] for call in calls] == ["b==1", "a==2"]
  assert ["--no-deps" in call for call in calls] == [False, True]
  assert calls[0][0] == str(tmp_path / "a" / "bin" / "python")
  assert (
    environments.install(dataclasses.replace(system, requirements=("b==2",)), tmp_path, tmp_path / "log")
    is None
  )
  assert len(calls) == 4


def test_a_refused_installation_has_pips_reason_and_is_tried_again(pip, tmp_path):
  stderr = "WARNING: x\nERROR: Could not find a version that satisfies a==2\nhint: y\n"
  calls, system = pip(stderr, 1), System(key="a", name="a", requirements=("a==2",))
  for _ in range(2):
    reason = environments.install(system, tmp_path, tmp_path / "log")
    assert reason == "ERROR: Could not find a version that satisfies a==2"
  assert len(calls) == 2


def test_rates_of_the_drivers():
  calls = []
  assert driver_job.rate_of(lambda: calls.append(0), 0.01) > 0
  assert len(calls) > 3
  assert driver_job.steps_per_second([0.0, 9.0, 10.0, 11.0, 13.0], 1) == 0.75


def test_wrong_arguments_are_errors(monkeypatch, capsys):
  monkeypatch.delattr(os, "sched_setaffinity")
  assert run.main([]) == 2
  assert "needs Linux" in capsys.readouterr().err
  with pytest.raises(SystemExit):
    run.main(["--repetitions", "0"])
