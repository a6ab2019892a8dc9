"""Results of evaluation episodes, and the steps that are kept of them."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped

from moozi.core.search_record import PlayedEpisode, PlayedStep
from moozi.envs.suite import ReferenceScores
from moozi.evaluation.opponents import margin, score_figures
from moozi.evaluation.ratings import Interval
from moozi.ops.pictures import stack_pictures


@dataclasses.dataclass(frozen=True)
class EvaluationResult:
  """Results of N episodes.

  Attributes:
    returns: undiscounted returns after the random start; with two players, those of the agent's seat.
    lengths: number of actions of each episode after the random start.
    num_distinct: number of different episodes, compared by frames, actions and rewards.
    version: learner step of the evaluated parameters.
    env_steps: environment steps of the run at the time of the evaluation.
    episode: the first `evaluation.gif_max_frames` steps of the first episode, fewer if they take too much
      memory; None if it was not recorded.
    seats: the agent's seat in each episode; None with one player.
    tiles: the first `evaluation.gif_tiles` episodes, cut in the same way, with small pictures; empty if they
      were not recorded.
    seconds: duration of the evaluation in seconds.
    references: the published returns of random play and of a human; None if the game has none.
    picture_fault: why a picture could not be drawn; empty if none has failed.
    rating: the agent's rating by the games against `evaluation.pool`; None without these games.
    gate_score: mean score of new parameters against those that act in training; None without these games.
    gate_distinct: number of different games among these; None without them.
    gate_fault: the error of an environment that ended these games; empty without one.
  """

  returns: Float[np.ndarray, "N"]
  lengths: Int[np.ndarray, "N"]
  num_distinct: int
  version: int
  env_steps: int
  episode: PlayedEpisode | None
  seats: Int[np.ndarray, "N"] | None = None
  tiles: tuple[PlayedEpisode, ...] = ()
  seconds: float = 0.0
  references: ReferenceScores | None = None
  picture_fault: str = ""
  rating: Interval | None = None
  gate_score: float | None = None
  gate_distinct: int | None = None
  gate_fault: str = ""

  @property
  def lower_bound(self) -> float:
    """Lower end of the 95% confidence interval of the mean return: the mean minus 1.96 standard errors."""
    return float(self.returns.mean()) - margin(self.returns)

  def summary(self) -> dict[str, float | int]:
    """Returns the statistics of the episodes by name, in environment units and steps.

    Has `human_normalized` if there are reference scores, `score_figures` with two players, `rating` if there
    is a rating, its bounds if they are finite, and `gate_score` and `gate_distinct` if the gate's games were
    played.
    """
    figures: dict[str, float | int] = {
      "episodes": len(self.returns),
      "distinct_episodes": self.num_distinct,
      "return_mean": float(self.returns.mean()),
      "return_std": float(self.returns.std()),
      "return_min": float(self.returns.min()),
      "return_max": float(self.returns.max()),
      "length_mean": float(self.lengths.mean()),
    }
    if self.references is not None:
      figures["human_normalized"] = self.references.normalize(figures["return_mean"])
    if self.rating is not None:
      figures["rating"] = self.rating.value
      if math.isfinite(self.rating.low):
        figures |= {"rating_low": self.rating.low, "rating_high": self.rating.high}
    if self.gate_score is not None and self.gate_distinct is not None:
      figures |= {"gate_score": self.gate_score, "gate_distinct": self.gate_distinct}
    return figures if self.seats is None else figures | score_figures(self.returns, self.seats)


class EpisodeKeeper:
  """Keeps the first steps of an evaluation's first episodes.

  Args:
    num_episodes: number of episodes to keep, starting with episode 0.
    max_frames: maximum number of frames per episode; lowered if the frames and pictures of all kept episodes
      would take more than `max_bytes`.
    max_picture: maximum width and height of the pictures, in pixels; None keeps their size.
  """

  def __init__(
    self, num_episodes: int, max_frames: int, max_bytes: int, max_picture: int | None = None
  ) -> None:
    self._max_frames, self._max_bytes, self._max_picture = max_frames, max_bytes, max_picture
    self._kept: list[list[PlayedStep]] = [[] for _ in range(num_episodes)]

  def wants(self, episode: int) -> bool:
    """Whether a further step of the episode is kept."""
    return 0 <= episode < len(self._kept) and len(self._kept[episode]) < self._max_frames

  def keep(self, episode: int, step: PlayedStep) -> None:
    """Keeps a copy of a step of an episode that the keeper `wants`."""
    picture = step.picture
    if picture is not None and self._max_picture is not None:
      # Every n-th pixel, with the smallest n for which no side exceeds the maximum.
      stride = -(-max(picture.shape[:2]) // self._max_picture)
      picture = np.array(picture[::stride, ::stride])
    if not any(self._kept):
      size = step.frame.nbytes + (0 if picture is None else picture.nbytes)
      self._max_frames = min(self._max_frames, max(1, self._max_bytes // (len(self._kept) * size)))
    self._kept[episode].append(dataclasses.replace(step, frame=np.array(step.frame), picture=picture))

  def result(self, lengths: Int[np.ndarray, "N"]) -> tuple[PlayedEpisode, ...]:
    """Returns the kept episodes; `lengths` has the number of actions of each whole episode."""
    return tuple(
      PlayedEpisode(index=i, seat=steps[0].seat, length=int(lengths[i]), **stack_steps(steps))
      for i, steps in enumerate(self._kept)
      if steps
    )


def stack_steps(steps: Sequence[PlayedStep]) -> dict[str, Any]:
  """Returns the fields of a PlayedEpisode that have a row for each step."""
  outcomes = [step.extras["chance_probs"][step.action] for step in steps if "chance_probs" in step.extras]
  chance_probs = None
  if outcomes:
    rest = [np.zeros_like(outcomes[0])] * (len(steps) - len(outcomes))  # only the last frame has none
    chance_probs = np.stack([*outcomes, *rest])
  actions, choices = [step.action for step in steps], [step.choices for step in steps]
  return {
    "frames": np.stack([step.frame for step in steps]),
    "pictures": stack_pictures([step.picture for step in steps]),
    "to_play": np.array([step.to_play for step in steps], np.int32),
    "actions": np.array(actions, np.int32 if isinstance(actions[0], int) else np.float32),
    "rewards": np.array([step.reward for step in steps], np.float32),
    "totals": np.array([step.total for step in steps], np.float64),
    "root_values": np.array([step.root_value for step in steps], np.float32),
    "action_probs": stack_rows([step.action_probs for step in steps]).astype(np.float32),
    "choices": None if choices[0] is None else stack_rows(choices),
    "chance_probs": chance_probs,
  }


def stack_rows(rows: Sequence[Any]) -> Shaped[np.ndarray, "T E"]:
  """Stacks rows; those that are shorter than others get zeros at their end."""
  width = max(map(len, rows))
  return np.stack([np.pad(row, (0, width - len(row))) for row in rows])
