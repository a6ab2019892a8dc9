"""Results of evaluation episodes, and the frames and decisions recorded for pictures."""

import dataclasses
from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped, UInt8

from moozi.envs.suite import ReferenceScores
from moozi.evaluation.opponents import margin, score_figures
from moozi.ops.pictures import stack_pictures

# Memory limit in bytes for the frames and pictures that a FramesKeeper holds.
_MAX_BYTES = 32 << 20
_MAX_PICTURE_SIZE = 128

Frames = Shaped[np.ndarray, "T H W C"]
Pictures = UInt8[np.ndarray, "T h w 3"]


@dataclasses.dataclass(frozen=True)
class EpisodeRecord:
  """One episode with the agent's decisions, for pictures.

  T is the number of recorded frames, including the last frame. It is at most `evaluation.gif_max_frames`, and
  less if the frames and pictures would take more than 256 MiB.

  Attributes:
    frames: observations, with the dtype of the environment's spec.
    actions: actions in the agent's action space; the dummy on an episode's last frame.
    rewards: the reward received on entering each frame.
    root_values: search values. An episode's last frame is not searched: 0 if terminal, nan if truncated.
    action_probs: search policies; zeros on an episode's last frame.
    chance_probs: the search's probabilities of the outcomes of each action, by code; zeros where unknown.
      None without chance nodes in the search.
    length: number of actions of the whole episode; T is `length` + 1 if the whole episode is recorded.
    pictures: results of `VectorEnvironment.render`, fitted into the first one's size; None if the environment
      has none, or one could not be drawn.
    to_play: the player to move in each frame; None means player 0 throughout.
    seat: the agent's seat; None without an opponent (one player, or self-play).
  """

  frames: Frames
  actions: Int[np.ndarray, "T"]
  rewards: Float[np.ndarray, "T"]
  root_values: Float[np.ndarray, "T"]
  action_probs: Float[np.ndarray, "T A"]
  length: int
  chance_probs: Float[np.ndarray, "T N"] | None = None
  pictures: Pictures | None = None
  to_play: Int[np.ndarray, "T"] | None = None
  seat: int | None = None


@dataclasses.dataclass(frozen=True)
class EpisodeFrames:
  """The first frames of one episode, at most as many as FramesKeeper keeps.

  Attributes:
    returns: the agent's undiscounted return up to each frame; with two players, the return of its seat.
    to_play: the player to move in each frame.
    pictures: as in `EpisodeRecord`, at most 128 pixels wide and high.
  """

  frames: Frames
  returns: Float[np.ndarray, "T"]
  to_play: Int[np.ndarray, "T"]
  pictures: Pictures | None


@dataclasses.dataclass(frozen=True)
class EvaluationResult:
  """Results of N episodes.

  Attributes:
    returns: undiscounted returns after the random start; with two players, those of the agent's seat.
    lengths: number of actions of each episode after the random start.
    num_distinct: number of different episodes, compared by frames, actions and rewards.
    version: learner step of the evaluated parameters.
    env_steps: environment steps of the run at the time of the evaluation.
    episode: the first episode; None if it was not recorded.
    seats: the agent's seat in each episode; None with one player.
    tiles: frames of the first `evaluation.gif_tiles` episodes; empty if they were not recorded.
    seconds: duration of the evaluation in seconds.
    references: the published returns of random play and of a human; None if the game has none.
    picture_fault: why a picture could not be drawn; empty if none has failed.
  """

  returns: Float[np.ndarray, "N"]
  lengths: Int[np.ndarray, "N"]
  num_distinct: int
  version: int
  env_steps: int
  episode: EpisodeRecord | None
  seats: Int[np.ndarray, "N"] | None = None
  tiles: tuple[EpisodeFrames, ...] = ()
  seconds: float = 0.0
  references: ReferenceScores | None = None
  picture_fault: str = ""

  @property
  def lower_bound(self) -> float:
    """Lower end of the 95% confidence interval of the mean return: the mean minus 1.96 standard errors."""
    return float(self.returns.mean()) - margin(self.returns)

  def summary(self) -> dict[str, float | int]:
    """Returns the numbers that `moozi evaluate --json` prints.

    Adds `human_normalized` if there are reference scores, and `score_figures` with two players.
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
    return figures if self.seats is None else figures | score_figures(self.returns, self.seats)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlayedStep:
  """One step of an episode with the agent's decision; fields as in EpisodeRecord and BatchedTimeStep.

  Without a search, `action_probs` is the network's policy. On an episode's last frame it is all zeros.
  """

  frame: Shaped[np.ndarray, "H W C"]
  picture: UInt8[np.ndarray, "h w 3"] | None
  to_play: int
  seat: int | None
  reward: float
  legal_actions_mask: Bool[np.ndarray, "A"]
  is_first: bool
  is_last: bool
  is_truncated: bool
  action: int
  root_value: float
  action_probs: Float[np.ndarray, "A"]


class FramesKeeper:
  """Keeps the first frames of an evaluation's first episodes.

  Args:
    num_episodes: number of episodes to keep, starting with episode 0.
    max_frames: maximum number of frames per episode; lowered if the frames and pictures of all kept
      episodes would take more than 32 MiB.
  """

  def __init__(self, num_episodes: int, max_frames: int) -> None:
    self.num_episodes = num_episodes
    self._max_frames = max_frames
    self._kept: list[list[tuple[np.ndarray, float, int, np.ndarray | None]]] = [
      [] for _ in range(num_episodes)
    ]

  def keep(
    self,
    episode: int,
    frame: Shaped[np.ndarray, "H W C"],
    return_so_far: float,
    to_play: int,
    render: Callable[[], np.ndarray | None],
  ) -> None:
    """Keeps a copy of one step with its picture, unless `max_frames` steps of the episode are kept."""
    kept = self._kept[episode]
    if len(kept) >= self._max_frames:
      return
    picture = _shrink(render())
    if not any(self._kept):
      size = frame.nbytes + (0 if picture is None else picture.nbytes)
      self._max_frames = min(self._max_frames, max(1, _MAX_BYTES // (self.num_episodes * size)))
    kept.append((np.array(frame), float(return_so_far), to_play, picture))

  def result(self) -> tuple[EpisodeFrames, ...]:
    return tuple(_stack(kept) for kept in self._kept if kept)


def _stack(kept: list[tuple[np.ndarray, float, int, np.ndarray | None]]) -> EpisodeFrames:
  frames, returns, to_play, pictures = zip(*kept, strict=True)
  return EpisodeFrames(
    frames=np.stack(frames),
    returns=np.array(returns, np.float64),
    to_play=np.array(to_play, np.int32),
    pictures=stack_pictures(pictures),
  )


def _shrink(picture: np.ndarray | None) -> np.ndarray | None:
  """Returns every n-th pixel of a picture, with the smallest n for which no side exceeds 128 pixels."""
  if picture is None:
    return None
  step = -(-max(picture.shape[:2]) // _MAX_PICTURE_SIZE)
  return np.array(picture[::step, ::step])
