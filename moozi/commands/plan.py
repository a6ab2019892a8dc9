"""The command `moozi plan`."""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moozi.commands.common import AsJson, integer, number_of, print_progress, stdout_to_stderr
from moozi.core.errors import UserError
from moozi.io.output import say

if TYPE_CHECKING:
  from moozi.core.config import Config
  from moozi.training.network_size import NetworkSize
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

  The parts are measured on this machine. The prediction leaves out evaluations, games of the gate and
  checkpoints. Also count the network's parameters and multiply-adds.
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
  from moozi.training.network_size import network_size

  config = load_config(arguments[0], arguments[1:]).allowing_code(False)
  hardware = _hardware(cpus, gpus, nodes, memory)
  jax_process.set_up()
  jax_process.use_cpu_only()  # the parts' processes use the GPU
  with stdout_to_stderr():  # libraries of environments print
    spec = env_spec(config.env.name, **config.env.arguments)
    find_algorithm(config).check(config, spec)
    check_players(config, spec)
    costs = calibration.calibrate(config, spec, duration, _show)
    size = network_size(config, spec)
    assert size is not None, "`calibrate` refuses a user's algorithm"
  print_progress("\n")
  stored_mib = stored_bytes(config, spec) / 2**20
  found = sizing.plan_of(config, costs, hardware, stored_mib)
  enough = sizing.enough_workers(config, costs, hardware)
  if as_json:
    say(json.dumps(to_json(config, size, found, costs, hardware, enough), allow_nan=False))
  else:
    say(*describe(config, size, found, costs, hardware, enough))
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
  config: "Config",
  size: "NetworkSize",
  found: "SizePlan",
  costs: "PartCosts",
  hardware: "Hardware",
  enough: int | None,
) -> dict[str, Any]:
  """Returns all that the plan shows as plain data; a limit that is infinite is null."""
  from moozi.training.sizing import step_s_by_call

  plan_data = dataclasses.asdict(found)
  plan_data["limits"] = {
    name: value if math.isfinite(value) else None for name, value in found.limits.items()
  }
  return plan_data | {
    "network": {"num_parameters": size.num_parameters} | dataclasses.asdict(size),
    "left_out": _left_out(config),
    "enough_workers": enough,
    "costs": dataclasses.asdict(costs),
    "shares": _shares(step_s_by_call(config, costs)),
    "hardware": dataclasses.asdict(hardware),
  }


def describe(
  config: "Config",
  size: "NetworkSize",
  found: "SizePlan",
  costs: "PartCosts",
  hardware: "Hardware",
  enough: int | None,
) -> list[str]:
  """Returns the lines of the plan."""
  gib = f"{hardware.memory_mib / 1024:.1f} GiB"
  machines = f"{hardware.nodes} × {hardware.cpus} cores, {hardware.gpus} GPUs, {gib}"
  processes = "one process" if config.has_one_process else "Ray"
  time = f"{config.max_env_steps:,} steps take {found.hours:,.2f} h"
  *names, last = _left_out(config)
  lines = [
    f"{config.env.name}, algorithm={config.algorithm}, {processes} on {machines}",
    f"expected: {found.steps_per_s:,.0f} environment steps/s; {time}, without {', '.join(names)} and {last}",
    f"bottleneck: {_label(found.limit, config)}",
    "",
    *_network(config, size),
    "",
  ]
  if not config.has_one_process:
    lines += [*_resources(config, found), ""]
  if enough is not None:
    lines += [f"acting does not limit the run with {enough} or more training workers", ""]
  lines += [*_calls(config, costs), ""]
  widths = ", ".join(f"{width}: {rate:,.0f}" for width, rate in costs.act_by_width.items())
  lines += [f"one worker's environment steps/s by number of environments: {widths}", ""]
  memory = [(_words(name), f"{count}", f"{mib:,.0f}") for name, (count, mib) in found.memory.items()]
  lines += _table(("process", "number", "MiB each"), memory)
  if not config.has_one_process:
    lines += ["", f"objects in flight: {found.object_store_mib:,.0f} MiB"]
  for number, node in enumerate(found.placement):
    actors = ", ".join(f"{count} × {_words(role)}" for role, count in node.items())
    lines.append(f"node {number}: {actors}")
  return [*lines, *(f"warning: {text}" for text in found.warnings)]


def _left_out(config: "Config") -> list[str]:
  """Returns what the prediction leaves out of the run."""
  games = ["games of the gate"] if config.evaluation.gate_score is not None else []
  return ["evaluations", *games, "checkpoints"]


def _words(name: str) -> str:
  return name.replace("_", " ")


def _label(limit: str, config: "Config") -> str:
  """Returns the name of a resource, or of a run in one process of a part."""
  part = {"training_worker": "acting", "parameter_server": "learning", "replay_buffer": "replay"}.get(limit)
  if config.has_one_process:
    return part or _words(limit.removesuffix("_worker"))
  if limit == "network":
    return "network between nodes"
  return f"{_words(limit)} ({part})" if part in ("acting", "learning") else _words(limit)


def _network(config: "Config", size: "NetworkSize") -> list[str]:
  """Returns the tables of the network's parameters, and of the multiply-adds of its computations."""
  rows = [*size.parameters.items(), ("total", size.num_parameters)]
  lines = _table(("network", "parameters"), [(name, f"{count:,}") for name, count in rows])
  if not size.multiply_adds:
    return lines
  model = "afterstate, outcome" if config.chance.codes else "dynamics"
  texts = {
    "representation": "a representation",
    "simulation": f"a simulation: {'representation' if config.plans_with_rules else model} and prediction",
    "decision": "a decision",
    "update": "an update, for each sample",
  }
  counts = [(texts[name], f"{count:,}") for name, count in size.multiply_adds.items()]
  return [*lines, "", *_table(("computation", "multiply-adds"), counts)]


def _resources(config: "Config", found: "SizePlan") -> list[str]:
  """Returns the table of what each resource allows; of parts that take turns, their shares of the time."""
  from moozi.training.sizing import takes_turns

  takes = takes_turns(config)
  rows = []
  for name, value in sorted(found.limits.items(), key=lambda item: item[1]):
    if math.isfinite(value):
      share = f"{found.steps_per_s / value:.0%}"
      rows.append((_label(name, config), share) if takes else (_label(name, config), f"{value:,.0f}", share))
  return _table(("part", "share of the time") if takes else ("resource", "steps/s it allows", "busy"), rows)


def _calls(config: "Config", costs: "PartCosts") -> list[str]:
  """Returns the table of the calls that the run has, and the environments' share of acting."""
  from moozi.training.sizing import step_s_by_call

  names = {
    "act": "act: a worker's segment",
    "learn": "learn: a learner's call",
    "add": "replay: add a segment",
    "draw": "replay: draw for a learner's call",
    "reanalyze": "reanalyze: a call",
    "pass_segment": "Ray: pass a segment",
    "pass_batch": "Ray: pass a learner's call",
  }
  step_s = step_s_by_call(config, costs)
  shares = _shares(step_s)
  rows = []
  for name, text in names.items():
    cost = getattr(costs, name)
    if cost.seconds or cost.cpu_s:
      each = f"{1e3 * cost.seconds:,.2f}", f"{1e3 * cost.cpu_s:,.2f}"
      rows.append((text, *each, f"{1e6 * step_s[name]:,.1f}", f"{shares[name]:.0%}"))
  kind = "" if config.has_one_process else "processor "
  lines = _table(("call", "ms alone", "processor ms", f"{kind}µs per step", "share"), rows)
  other = "the search" if config.searches else "the network"
  if costs.env_share is None:
    return [*lines, f"a worker's segment: the environments are compiled together with {other}"]
  env, rest = f"{costs.env_share:.0%}", f"{1 - costs.env_share:.0%}"
  text = f"{env} of its duration is in the environments, {rest} in {other} and other code"
  return [*lines, f"a worker's segment: {text}"]


def _shares(step_s: Mapping[str, float]) -> dict[str, float]:
  """Returns the share of an environment step that each kind of call takes, from `step_s_by_call`."""
  whole = sum(step_s.values())
  return {name: seconds / whole if whole else 0.0 for name, seconds in step_s.items()}


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
