"""The command `moozi plan`."""

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moozi.commands.common import AsJson, integer, number_of, print_progress, stdout_to_stderr
from moozi.core.errors import UserError
from moozi.io.output import say

if TYPE_CHECKING:
  from moozi.core.config import Config
  from moozi.training.sizing import Hardware, PartCosts, SizePlan

_MIN_S, _MAX_S = 1.0, 3600.0
_MAX_NODES = 1000  # actors are placed on them one by one


def plan(
  arguments: Annotated[
    list[str] | None,
    typer.Argument(
      metavar="CONFIG [KEY=VALUE]...",
      help="A configuration that `moozi configs` lists, or a YAML file, and values that override it.",
    ),
  ] = None,
  cpus: Annotated[int | None, integer("Cores of each machine. Default: this machine's.", "--cpus")] = None,
  gpus: Annotated[
    int | None, integer("GPUs of each machine. Default: this machine's.", "--gpus", minimum=0)
  ] = None,
  nodes: Annotated[int, integer("Number of machines.", "--nodes", maximum=_MAX_NODES)] = 1,
  memory: Annotated[
    int | None, integer("GiB of memory of each machine. Default: this machine's.", "--memory")
  ] = None,
  seconds: Annotated[str, typer.Option(metavar="S", help="Duration of the measurements.")] = "60",
  as_json: AsJson = False,
) -> int:
  """Measure a configuration for a minute, and predict a run's speed, memory and placement.

  The parts are measured on this machine. The prediction leaves out evaluations and checkpoints.
  """
  duration = number_of("--seconds", seconds, _MIN_S, _MAX_S, "seconds")
  if not arguments or "=" in arguments[0]:
    raise UserError("CONFIG: missing; must be a configuration that `moozi configs` lists, or a YAML file")
  from moozi.envs.registry import env_spec
  from moozi.io import jax_process
  from moozi.io.config import load_config
  from moozi.run.memory import stored_bytes
  from moozi.training import calibration, sizing
  from moozi.training.algorithms import find_algorithm
  from moozi.training.checks import check_players

  config = load_config(arguments[0], arguments[1:]).allowing_code(False)
  hardware = _hardware(cpus, gpus, nodes, memory)
  jax_process.set_up()
  jax_process.use_cpu_only()  # the parts' processes use the GPU
  with stdout_to_stderr():  # libraries of environments print
    spec = env_spec(config.env.name, **config.env.arguments)
    find_algorithm(config).check(config, spec)
    check_players(config, spec)
    costs = calibration.calibrate(config, spec, duration, _show)
  print_progress("\n")
  stored_mib = stored_bytes(config, spec) / 2**20
  found = sizing.plan_of(config, costs, hardware, stored_mib)
  enough = sizing.enough_workers(config, costs, hardware)
  if as_json:
    say(json.dumps(to_json(found, costs, hardware, enough), allow_nan=False))
  else:
    say(*describe(config, found, costs, hardware, enough))
  return 0


def _show(text: str) -> None:
  print_progress(f"{text:<60}")


def _hardware(cpus: int | None, gpus: int | None, nodes: int, memory_gib: int | None) -> "Hardware":
  """Returns the machines that the options describe; an option that is None has this machine's value."""
  from moozi.io.machine import memory_bytes, num_cores, num_gpus
  from moozi.training.sizing import Hardware

  memory_mib = memory_bytes() / 2**20 if memory_gib is None else 1024.0 * memory_gib
  return Hardware(cpus or num_cores(), num_gpus() if gpus is None else gpus, memory_mib, nodes)


def to_json(
  found: "SizePlan", costs: "PartCosts", hardware: "Hardware", enough: int | None
) -> dict[str, Any]:
  """Returns the plan, the measured costs and the machines as plain data; a limit that is infinite is null."""
  plan_data = dataclasses.asdict(found)
  plan_data["limits"] = {
    name: value if math.isfinite(value) else None for name, value in found.limits.items()
  }
  return plan_data | {
    "enough_workers": enough,
    "costs": dataclasses.asdict(costs),
    "hardware": dataclasses.asdict(hardware),
  }


def describe(
  config: "Config", found: "SizePlan", costs: "PartCosts", hardware: "Hardware", enough: int | None
) -> list[str]:
  """Returns the lines of the plan."""
  from moozi.training.sizing import takes_turns

  gib = f"{hardware.memory_mib / 1024:.1f} GiB"
  machines = f"{hardware.nodes} × {hardware.cpus} cores, {hardware.gpus} GPUs, {gib}"
  processes = "one process" if config.has_one_process else "Ray"
  time = f"{config.max_env_steps:,} steps take {found.hours:,.2f} h"
  lines = [
    f"{config.env.name}, algorithm={config.algorithm}, {processes} on {machines}",
    f"expected: {found.steps_per_s:,.0f} environment steps/s; {time}, without evaluations and checkpoints",
    f"limit: {_words(found.limit)}",
    "",
  ]
  heading = "share of the time" if takes_turns(config) else "steps/s it allows"
  rows = [
    (_words(name), _amount(found.steps_per_s / value, value, takes_turns(config)))
    for name, value in sorted(found.limits.items(), key=lambda item: item[1])
    if math.isfinite(value)
  ]
  lines += [*_table(("part" if takes_turns(config) else "resource", heading), rows), ""]
  if enough is not None:
    lines += [f"acting limits the run with fewer than {enough} training workers", ""]
  lines += _table(("call", "ms alone", "processor ms"), _calls(costs))
  widths = ", ".join(f"{width}: {rate:,.0f}" for width, rate in costs.act_by_width.items())
  lines += ["", f"one worker's environment steps/s by number of environments: {widths}", ""]
  memory = [(_words(name), f"{count}", f"{mib:,.0f}") for name, (count, mib) in found.memory.items()]
  lines += _table(("process", "number", "MiB each"), memory)
  if not config.has_one_process:
    lines += ["", f"objects in flight: {found.object_store_mib:,.0f} MiB"]
  for number, node in enumerate(found.placement):
    actors = ", ".join(f"{count} × {_words(role)}" for role, count in node.items())
    lines.append(f"node {number}: {actors}")
  return [*lines, *(f"warning: {text}" for text in found.warnings)]


def _words(name: str) -> str:
  return name.replace("_", " ")


def _amount(share: float, steps_per_s: float, is_share: bool) -> str:
  return f"{share:.0%}" if is_share else f"{steps_per_s:,.0f}"


def _calls(costs: "PartCosts") -> list[tuple[str, ...]]:
  """Returns the rows of the calls that the run has."""
  names = {
    "act": "a worker's segment",
    "learn": "a learner's call",
    "add": "replay: add a segment",
    "draw": "replay: draw for a learner's call",
    "reanalyze": "a reanalyze call",
    "pass_segment": "Ray: pass a segment",
    "pass_batch": "Ray: pass a learner's call",
  }
  found = ((text, getattr(costs, name)) for name, text in names.items())
  return [
    (text, f"{1e3 * cost.seconds:,.2f}", f"{1e3 * cost.cpu_s:,.2f}")
    for text, cost in found
    if cost.seconds or cost.cpu_s
  ]


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
  from rich.console import Console
  from rich.table import Table

  table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
  for number, heading in enumerate(headings):
    table.add_column(heading, justify="right" if number else "left", no_wrap=True)
  for row in rows:
    table.add_row(*row)
  console = Console(markup=False, highlight=False, width=100)
  with console.capture() as captured:
    console.print(table)
  return [line.rstrip() for line in captured.get().splitlines()]
