"""Settings of the physics engine MuJoCo, which environments of `dm_control` and of `gymnasium` use."""

import contextlib
import ctypes.util
import dataclasses
import functools
import importlib.util
import logging
import os
import sys
from collections.abc import Iterator
from typing import Any

from moozi.core.errors import one_line
from moozi.core.factors import Factors, Intervals
from moozi.envs.validation import warn_once

_log = logging.getLogger("moozi.envs")


@contextlib.contextmanager
def without_absl_logs() -> Iterator[None]:
  """Drops absl's log records below CRITICAL, and keeps absl from adding a handler to the root logger.

  dm_control uses absl's functions, which configure Python's logging where the root logger has no handler; the
  records of `moozi` would then be printed.
  """
  absl, kept, root = logging.getLogger("absl"), logging.NullHandler(), logging.getLogger()
  level = absl.level
  absl.setLevel(logging.CRITICAL)
  root.addHandler(kept)
  try:
    yield
  finally:
    root.removeHandler(kept)
    absl.setLevel(level)


@functools.cache
def prepare() -> None:
  """Prepares MuJoCo in this process; call it before a module that uses MuJoCo is imported.

  MuJoCo's warnings go to the log; they would otherwise be written to a file in the working folder. On a Linux
  machine without a screen, pictures are drawn by EGL, or not at all where EGL is missing or, with dm_control,
  does not start. The environment variable MUJOCO_GL takes precedence: glfw, egl, osmesa (on the processor) or
  disable.
  """
  is_chosen = any(os.environ.get(key) for key in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"))
  if sys.platform == "linux" and not is_chosen:
    os.environ["MUJOCO_GL"] = "egl" if ctypes.util.find_library("EGL") else "disable"
    if importlib.util.find_spec("dm_control") is not None:
      _check_egl()
  log_warnings()


def log_warnings() -> None:
  """Sends MuJoCo's warnings to the log, until dm_control is imported, which sends them elsewhere."""
  if importlib.util.find_spec("mujoco") is None:
    return  # an environment that needs it says so
  import mujoco

  mujoco.set_mju_user_warning(lambda text: _log.info("MuJoCo: %s", text))


def with_actuator_names(factors: Factors | Intervals, model: Any) -> Factors | Intervals:
  """Returns the factors with the names of a model's actuators, or of the joints that they move.

  Args:
    model: a `mujoco.MjModel`. With anything else, or if names are missing or do not fit, the factors are
      unchanged.
  """
  mujoco = sys.modules.get("mujoco")
  if mujoco is None or not isinstance(model, mujoco.MjModel) or model.nu != len(factors.names):
    return factors
  names = []
  for i in range(model.nu):
    is_joint = model.actuator_trntype[i] == mujoco.mjtTrn.mjTRN_JOINT
    joint = model.joint(model.actuator_trnid[i, 0]).name if is_joint else ""
    names.append(model.actuator(i).name or joint)
  is_named = all(name and name.isprintable() for name in names)
  return dataclasses.replace(factors, names=tuple(names)) if is_named else factors


def _check_egl() -> None:
  """Disables pictures where EGL does not start; importing dm_control would fail there."""
  try:
    with without_absl_logs():
      importlib.import_module("dm_control._render")
  except Exception as error:
    os.environ["MUJOCO_GL"] = "disable"
    _log.info("MuJoCo draws no pictures: EGL: %s", one_line(error))


@functools.cache
def can_draw() -> bool:
  """Returns whether dm_control can draw pictures in this process; warns once if it cannot."""
  try:
    with without_absl_logs():
      from dm_control import _render

      _render.Renderer(64, 64).free()
  except Exception as error:
    warn_once(
      f"dm_control draws no pictures: {one_line(error)}; they need OpenGL: install libegl1, or install "
      "libosmesa6 and set MUJOCO_GL=osmesa"
    )
    return False
  return True
