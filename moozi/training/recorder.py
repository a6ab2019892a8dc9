"""Records the events of a run in its run directory, and shows them on its display."""

import collections
import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from moozi.core.config import Config
from moozi.core.flat_state import State, part, prefixed
from moozi.core.spec import EnvSpec
from moozi.evaluation.evaluator import evaluation_terms
from moozi.io.checkpoints import CheckpointStore, describe_run
from moozi.io.machine import describe_machine
from moozi.io.metrics import FAULT_PREFIX, MetricsSink
from moozi.io.run_directory import MACHINE, RunDirectory
from moozi.io.sinks import SinkGuard
from moozi.io.timeline import TimelineFile
from moozi.io.trackers import Trackers
from moozi.io.trajectory_folder import TrajectoryWriter
from moozi.ops.schedules import horizon_at
from moozi.run import events
from moozi.run.work_log import WorkFigures, resident_mib
from moozi.training.checkpoint_saver import Saver
from moozi.training.forecast import Forecast
from moozi.training.gif_writer import Drawer
from moozi.training.learning_notes import LearningNotes
from moozi.training.resume import Resumed

_log = logging.getLogger("moozi.driver")
_NUM_RECENT_EPISODES = 100
_FILLING_PERIOD_S = 2.0


class Recorder:
  """Receives the events of a run in order, and records them in the run directory.

  Args:
    config, spec, run: the run's configuration, environment specification and directory.
    display: shows the newest figures; a display of `moozi.io.progress`.
    start: the run's start in the time of `time.monotonic()`; for a resumed run, earlier by the seconds that
      it had run before.
    resumed: what the run starts from; None: initial parameters.
  """

  def __init__(
    self,
    config: Config,
    spec: EnvSpec,
    run: RunDirectory,
    display: Any,
    start: float,
    resumed: Resumed | None = None,
  ) -> None:
    self._config, self._spec, self._run, self._display, self._start = config, spec, run, display, start
    tensorboard = run.location if config.logging.tensorboard else None
    self._guard = SinkGuard(display.note)
    resume_store, state = (None, None) if resumed is None else (resumed.store, resumed.recorder)
    terms = evaluation_terms(config)
    store = CheckpointStore(run.checkpoints_path, config.checkpoint, resume_store, terms)
    self._saver = Saver(store, self._guard, describe_run(config, spec), display.note)
    self._next_tick_s = self._wall_s() + config.logging.period_s
    self._recent_returns: collections.deque[float] = collections.deque(maxlen=_NUM_RECENT_EPISODES)
    self._recent_lengths: collections.deque[float] = collections.deque(maxlen=_NUM_RECENT_EPISODES)
    self._staleness = _Mean()
    self._num_samples = self._num_actions = 0
    self._learning_since: float | None = None
    self._training_ended_s: float | None = None
    self._last_test: dict[str, float] = {}
    self._test_scalars: dict[str, float] = {}
    # A run that starts from another run's checkpoint keeps its learner step.
    starts_from = None if resumed is None or state is not None else resumed.state
    first_step = 0 if starts_from is None else starts_from.learner_steps
    # The seconds of a resumed run's earlier parts are not part of its start.
    self._began = start + (0.0 if state is None else float(state["wall_s"]))
    self._filling = _Filling(config, phase_notes(display, self._began), first_step)
    self._work, self._timeline = WorkFigures(), TimelineFile(run.timeline_path)
    self._faults = dict.fromkeys((FAULT_PREFIX + kind for kind in events.FAULTS), 0)
    self.summary: dict[str, Any] | None = None
    keep = None if state is None else self._set_state(state)
    self._trajectories: TrajectoryWriter | None = None
    if config.trajectories.save:
      # The writer drops stored steps later than the checkpoint, because the resumed run repeats them.
      begin = None if keep is None else keep[0]
      writer = part(state or {}, "trajectories")
      self._trajectories = TrajectoryWriter(run.trajectories_path, spec, begin, writer)
    self._metrics = MetricsSink(run.metrics_path, tensorboard, keep)
    with self._guard.writing("metrics"):
      self._metrics.write_settings(config)
      for joint in () if resumed is None else resumed.joints:
        self._metrics.write_text("lineage", joint.text(), max(joint.at_env_steps, 0))
    self._trackers = Trackers(config, run, display.note)
    self._drawer = Drawer(run.gifs_path, spec, self._guard, self._metrics)
    self._notes, self._forecast = LearningNotes(config, self._warn), Forecast(config, display.note)
    self._acted_until = 0 if keep is None else keep[0]
    begin_counts = (0, first_step) if keep is None else keep[:2]
    self._window = _Window(self._wall_s(), *begin_counts, config.max_env_steps)

  def observe(self, event: events.Event) -> None:
    """Records one event."""
    match event:
      case events.Started():
        _log.info("started: %s", event.message)
        self._display.note(f"acting starts after {time.monotonic() - self._began:.0f} s ({event.message})")
      case events.Acted():
        self._filling.observe(event)
        self._recent_returns.extend(event.episode_returns.tolist())
        self._recent_lengths.extend(event.episode_lengths.tolist())
        self._staleness.add(event.staleness)
        self._window.add(self._count_faults(event.metrics) | {"train/staleness": event.staleness})
        self._window.episodes += len(event.episode_returns)
        # The last frame of an episode gets no action: the environment's next step is a reset.
        steps, self._acted_until = event.env_steps - self._acted_until, event.env_steps
        self._num_actions += round(steps * (1.0 - event.metrics.get("train/last_share", 0.0)))
        self._window.latest["train/actions"] = self._num_actions
      case events.Collected():
        assert self._trajectories is not None, "emitted only with trajectories.save"
        with self._guard.writing("trajectories"):
          self._trajectories.append(event.segment, event.first_lane, event.env_steps, event.follows)
      case events.Reanalyzed():
        self._window.add(event.metrics)
        self._window.positions += event.num_positions
        self._window.latest["reanalyze/ratio"] = event.ratio
      case events.Updated():
        if self._learning_since is None:
          self._learning_since = self._wall_s()
        self._num_samples += event.num_samples
        self._window.samples += event.num_samples
        self._window.add(self._count_faults(event.metrics))
        self._window.latest["train/sample_reuse"] = event.sample_reuse
      case events.ActorReports():
        self._work.add(event.reports)
        self._timeline.add({name: report.stretch for name, report in event.reports.items()})
      case events.Histograms():
        with self._guard.writing("histograms"):
          self._metrics.write_histograms(event.histograms, event.env_steps)
      case events.Evaluated():
        self._on_evaluated(event)
      case events.StateReady():
        self._on_state(event)
        return  # without a tick: a state may have been made before the last one, and arrive after it
      case events.Faulted():
        _log.warning("%s: %s", event.message, event.counts)
        self._display.note(event.message)
        counts = {FAULT_PREFIX + kind: count for kind, count in event.counts.items()}
        self._count_faults(counts, is_noted=True)
      case events.Finished():
        self._on_finished(event)
    # After the training, the only tick is that of the final evaluation: nothing else changes.
    if self._wall_s() >= self._next_tick_s and self._training_ended_s is None:
      self._tick(event)

  def flush(self) -> None:
    """Waits until the checkpoint and the GIFs in progress are written."""
    self._saver.collect()
    self._drawer.collect()

  @property
  def unsaved(self) -> str | None:
    """Why the run's last checkpoint could not be saved; None if it was, or the run has not ended."""
    return self._saver.unsaved

  def close(self) -> None:
    """Closes the files; a second call does nothing."""
    if self._trajectories is not None:
      with self._guard.writing("trajectories"):
        self._trajectories.close()
    self._saver.close()
    self._drawer.close()
    with self._guard.writing("the timeline"):
      self._timeline.close()
    with self._guard.writing("metrics"):
      self._metrics.close()
    self._trackers.close(self.summary)
    self._display.close()

  def _count_faults(self, metrics: Mapping[str, float], is_noted: bool = False) -> dict[str, float]:
    """Adds the faults among metrics to the run's totals; returns the other metrics."""
    faults = {name: int(value) for name, value in metrics.items() if name.startswith(FAULT_PREFIX)}
    for name, count in faults.items():
      before = self._faults.get(name, 0)
      if count:
        self._faults[name] = before + count
      if count and not is_noted:
        _log.warning("%s: %d new, %d in total", name, count, before + count)
        if not before:
          self._display.note(f"{name}: {count}; the run continues, see logs/")
    return {name: value for name, value in metrics.items() if name not in faults}

  def _all_faults(self) -> dict[str, int]:
    return self._faults | {FAULT_PREFIX + "disk": self._guard.num_failures}

  def _on_evaluated(self, event: events.Evaluated) -> None:
    result = event.result
    figures = result.summary()
    names = ("return_mean", "return_std", "score", "episodes")
    self._last_test = {name: float(figures[name]) for name in names if name in figures}
    self._last_test["env_steps"] = float(result.env_steps)
    self._test_scalars = {f"test/{name}": float(value) for name, value in figures.items()}
    self._test_scalars |= {"test/at_env_steps": float(result.env_steps), "test/seconds": result.seconds}
    self._test_scalars["test/version"] = float(result.version)
    kind = "final evaluation" if event.is_final else "evaluation"
    text = (
      f"{kind} at {result.env_steps:,} steps: "
      f"return {figures['return_mean']:z.2f} ± {figures['return_std']:.2f} over {figures['episodes']} "
      f"episodes ({figures['distinct_episodes']} distinct), length {figures['length_mean']:.0f}"
    )
    if "human_normalized" in figures:
      text += f", human-normalized {figures['human_normalized']:z.3f}"
    if "score" in figures:
      opponent = self._config.evaluation.opponent
      text += f", score {figures['score']:.3f} against {opponent if opponent != 'self' else 'itself'}"
    if "rating" in figures:
      text += f", rating {figures['rating']:.0f}"
    if "rating_low" in figures:
      text += f" ({figures['rating_low']:.0f} to {figures['rating_high']:.0f})"
    if "gate_score" in figures:
      text += (
        f", score {figures['gate_score']:.3f} against the acting parameters "
        f"({figures['gate_distinct']} distinct games)"
      )
    _log.info(text)
    self._display.note(text)
    self._drawer.draw(result)
    self._tick(event)

  def _on_state(self, event: events.StateReady) -> None:
    if event.is_final and self._training_ended_s is None:
      self._training_ended_s = self._wall_s()
    # Without this tick, the curves of a resumed run would lack the steps since the last tick.
    if self._window.is_before(event):
      self._tick(event)
    if event.is_final:
      self._window.is_last = True
    # Metrics and trajectories must be on the disk before the checkpoint: a resumed run continues them.
    with self._guard.writing("metrics"):
      self._metrics.sync()
    if self._trajectories is not None:
      with self._guard.writing("trajectories"):
        self._trajectories.flush()
    self._saver.save(event, self._wall_s(), self._get_state(event))

  def _get_state(self, event: events.StateReady) -> State:
    """Returns what a resumed run needs: the running figures and the position in the trajectory files."""
    kept = {} if self._trajectories is None else prefixed("trajectories", self._trajectories.get_state())
    state: State = {
      "env_steps": event.env_steps,
      "learner_steps": event.learner_steps,
      "wall_s": round(self._wall_s(), 3),  # as in ticks: a resumed run keeps those up to this time
      "recent_returns": np.array(self._recent_returns, np.float64),
      "recent_lengths": np.array(self._recent_lengths, np.float64),
      "staleness": np.array([self._staleness.total, self._staleness.count], np.float64),
      "num_samples": self._num_samples,
      "num_actions": self._num_actions,
      "learning_since": -1.0 if self._learning_since is None else self._learning_since,
      "num_disk_failures": self._guard.num_failures,
    }
    return state | self._faults | kept | prefixed("last_test", self._last_test)

  def _set_state(self, state: State) -> tuple[int, int, float]:
    """Restores the running figures; returns the saved (environment steps, learner steps, wall time in s)."""
    self._recent_returns.extend(state["recent_returns"].tolist())
    self._recent_lengths.extend(state["recent_lengths"].tolist())
    self._staleness.total, self._staleness.count = float(state["staleness"][0]), int(state["staleness"][1])
    self._num_samples, self._num_actions = int(state["num_samples"]), int(state["num_actions"])
    self._learning_since = None if state["learning_since"] < 0 else float(state["learning_since"])
    # Restores the counts of all kinds, including kinds outside FAULTS, such as one per non-finite term.
    self._faults |= {name: int(count) for name, count in state.items() if name.startswith(FAULT_PREFIX)}
    self._guard.num_failures = int(state["num_disk_failures"])
    self._last_test = {name: float(value) for name, value in part(state, "last_test").items()}
    return int(state["env_steps"]), int(state["learner_steps"]), float(state["wall_s"])

  def _on_finished(self, event: events.Finished) -> None:
    wall_s = self._wall_s()
    self._saver.retry()
    self._drawer.collect()
    # The rates cover the time of training and exclude the final evaluation.
    ended_s = wall_s if self._training_ended_s is None else self._training_ended_s
    learning_s = ended_s - self._learning_since if self._learning_since is not None else 0.0
    test = self._last_test
    self.summary = {
      "env": self._spec.name,
      "reason": event.reason,
      "seed": self._config.seed,
      "env_steps": event.env_steps,
      "learner_steps": event.learner_steps,
      "wall_s": round(wall_s, 1),
      "training_s": round(ended_s, 3),
      "env_steps_per_s": event.env_steps / ended_s,
      "learner_samples_per_s": self._num_samples / learning_s if learning_s else 0.0,
      "sample_reuse": event.sample_reuse,
      "staleness_mean": self._staleness.value,
      "test_return_mean": test.get("return_mean"),
      "test_return_std": test.get("return_std"),
      **({"test_score": test["score"]} if "score" in test else {}),
      "test_episodes": int(test.get("episodes", 0)),
      MACHINE: describe_machine(),
      "test_at_env_steps": int(test["env_steps"]) if test else None,
      "faults": {name.removeprefix(FAULT_PREFIX): count for name, count in self._all_faults().items()},
    }
    if self.unsaved is not None:
      return  # the run can be resumed, so it has not ended
    with self._guard.writing("the summary"):
      self._run.write_summary(self.summary)
    _log.info("finished: %s", self.summary)

  def _tick(self, event: events.Event) -> None:
    """Writes one line of metrics and shows it."""
    self._saver.collect(is_waiting=False)
    self._drawer.collect(is_waiting=False)
    wall_s = self._wall_s()
    self._next_tick_s = wall_s + self._config.logging.period_s
    scalars = self._window.take(wall_s, event) | self._all_faults() | self._work.take(resident_mib())
    with self._guard.writing("the timeline"):
      self._timeline.flush()
    if self._recent_returns:
      scalars["train/return_mean"] = float(np.mean(self._recent_returns))
      scalars["train/length_mean"] = float(np.mean(self._recent_lengths))
    if (horizon := horizon_at(self._config, event.env_steps)) is not None:
      scalars["update/horizon"] = horizon
    # An evaluation's figures are written only in the first tick after the evaluation.
    shown = scalars | self._test_scalars
    tick: Any = {"env_steps": event.env_steps, "learner_steps": event.learner_steps, "wall_s": wall_s}
    with self._guard.writing("metrics"):
      self._metrics.write(**tick, scalars=shown)
    self._trackers.write(shown, event.env_steps)
    self._test_scalars = {}
    self._display.update(**tick, scalars=shown)
    self._notes.observe(shown, event.learner_steps)
    self._forecast.observe(event.env_steps, wall_s, is_learning=self._learning_since is not None)

  def _warn(self, text: str) -> None:
    _log.warning("%s", text)
    self._display.note(text)

  def _wall_s(self) -> float:
    return time.monotonic() - self._start


def phase_notes(display: Any, start: float) -> Callable[[str], None]:
  """Returns a function that shows and logs a phase with the seconds since `start`, in `time.monotonic()`."""

  def note(text: str) -> None:
    seconds = time.monotonic() - start
    _log.info("%s after %.1f s", text, seconds)
    display.note(f"{seconds:4.0f} s  {text}")

  return note


class _Filling:
  """Shows when the first segment is complete, and how far replay is filled before the first update."""

  def __init__(self, config: Config, note: Callable[[str], None], first_step: int) -> None:
    self._note, self._last_s, self._first_step = note, -math.inf, first_step
    self._num_steps = config.replay.min_steps_to_learn
    self._is_over = config.is_on_policy
    self._has_acted = False

  def observe(self, event: events.Acted) -> None:
    if not self._has_acted:
      self._has_acted = True
      self._note("acted the first segment")
    now_s, num_filled = time.monotonic(), min(event.env_steps, self._num_steps)
    is_full = num_filled == self._num_steps
    is_due = is_full or (num_filled > 0 and now_s >= self._last_s + _FILLING_PERIOD_S)
    if self._is_over or event.learner_steps > self._first_step or not is_due:
      return
    self._last_s, self._is_over = now_s, is_full
    self._note(f"filling replay: {num_filled:,} of {self._num_steps:,} steps")


class _Mean:
  """A running mean of the finite values; NaN if all values were non-finite, 0 before the first value."""

  def __init__(self) -> None:
    self.total, self.count, self._has_bad = 0.0, 0, False

  def add(self, value: float) -> None:
    if not math.isfinite(value):
      self._has_bad = True
      return
    self.total += value
    self.count += 1

  @property
  def value(self) -> float:
    return self.total / self.count if self.count else math.nan if self._has_bad else 0.0


class _Window:
  """Means and rates between two ticks.

  A window in which the run could not act or learn has no such rate: a rate of 0 would look like a fault.

  Attributes:
    is_last: whether the training was over when the window started, so that only the final evaluation follows.
  """

  def __init__(self, wall_s: float, env_steps: int, learner_steps: int, max_env_steps: int) -> None:
    self._max_env_steps, self.is_last = max_env_steps, False
    self._means: dict[str, _Mean] = collections.defaultdict(_Mean)
    self.latest: dict[str, float] = {}
    self.samples = self.positions = self.episodes = 0
    self._since = (wall_s, env_steps, learner_steps)

  def add(self, metrics: dict[str, float]) -> None:
    for name, value in metrics.items():
      self._means[name].add(value)

  def is_before(self, event: events.Event) -> bool:
    """Returns whether the run has made steps or updates since the window started."""
    _, env_steps, learner_steps = self._since
    now = event.env_steps, event.learner_steps
    return now != (env_steps, learner_steps) and now[0] >= env_steps and now[1] >= learner_steps

  def take(self, wall_s: float, event: events.Event) -> dict[str, float]:
    """Returns the window's scalars and starts the next window."""
    since_s, env_steps, learner_steps = self._since
    elapsed = max(wall_s - since_s, 1e-9)
    scalars = {name: mean.value for name, mean in self._means.items()} | self.latest
    scalars["train/episodes"] = self.episodes
    if not self.is_last:
      if env_steps < self._max_env_steps:
        scalars["system/env_steps_per_s"] = (event.env_steps - env_steps) / elapsed
      scalars["system/updates_per_s"] = (event.learner_steps - learner_steps) / elapsed
      scalars["system/samples_per_s"] = self.samples / elapsed
      if "reanalyze/ratio" in self.latest:
        scalars["system/reanalyzed_per_s"] = self.positions / elapsed
    self._means.clear()
    self.samples = self.positions = self.episodes = 0
    self._since = (wall_s, event.env_steps, event.learner_steps)
    return scalars
