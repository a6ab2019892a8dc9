"""Evaluation episodes to look at: a step of one while it is played, and several as they looked."""

import dataclasses
from collections.abc import Callable

import numpy as np

# What the episodes of one evaluation may take together. Planes take a fraction of it; of an environment's own
# pictures, fewer steps are kept.
_MAX_BYTES = 32 << 20
_LARGEST_PICTURE = 128


@dataclasses.dataclass(frozen=True)
class EpisodeFrames:
  """One episode as it looked, from its start to its end or to the last step that was kept.

  Attributes:
    frames: [T, H, W, C].
    returns: [T] float64, the agent's undiscounted return so far; of its seat, with two players.
    to_play: [T] int32, the players to move.
    pictures: [T, h, w, 3] uint8, the environment's own, reduced to at most 128 pixels; None where it has
      none.
  """

  frames: np.ndarray
  returns: np.ndarray
  to_play: np.ndarray
  pictures: np.ndarray | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlayedStep:
  """One step of an episode that is being watched.

  Attributes:
    frame: [H, W, C].
    picture: [h, w, 3] uint8, the environment's own; None where it has none.
    to_play: the player to move.
    seat: with two players the agent's; None with one player, and where it plays both.
    reward: received on entering the frame, by the player who moved.
    legal_actions_mask: [A] bool; at an end what the environment left.
    is_first, is_last, is_truncated: of the step.
    action: in the agent's action space, what is played now; the dummy at an end.
    root_value: for the player to move; 0 at a terminal frame, nan at a truncated one, which is not searched.
    action_probs: [A], the search policy, or the network's where nothing searches; zeros at an end.
  """

  frame: np.ndarray
  picture: np.ndarray | None
  to_play: int
  seat: int | None
  reward: float
  legal_actions_mask: np.ndarray
  is_first: bool
  is_last: bool
  is_truncated: bool
  action: int
  root_value: float
  action_probs: np.ndarray


class FramesKeeper:
  """Keeps the first steps of the first episodes.

  Args:
    num_episodes: how many, from episode 0 on; 0 keeps none.
    max_frames: of each episode; fewer where they would take more than 32 MiB together.
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
    frame: np.ndarray,
    return_so_far: float,
    to_play: int,
    render: Callable[[], np.ndarray | None],
  ) -> None:
    """Keeps one step of an episode, unless it has enough of them.

    Args:
      episode: below num_episodes.
      frame: [H, W, C]; copied.
      return_so_far, to_play: see EpisodeFrames.
      render: gives the environment's own picture, or None; not called where nothing is kept.
    """
    kept = self._kept[episode]
    if len(kept) >= self._max_frames:
      return
    picture = _reduced(render())
    if not any(self._kept):
      size = frame.nbytes + (0 if picture is None else picture.nbytes)
      self._max_frames = min(self._max_frames, max(1, _MAX_BYTES // (self.num_episodes * size)))
    kept.append((np.array(frame), float(return_so_far), to_play, picture))

  def result(self) -> tuple[EpisodeFrames, ...]:
    """The episodes."""
    return tuple(_stack(kept) for kept in self._kept if kept)


def _stack(kept: list[tuple[np.ndarray, float, int, np.ndarray | None]]) -> EpisodeFrames:
  frames, returns, to_play, pictures = zip(*kept, strict=True)
  return EpisodeFrames(
    frames=np.stack(frames),
    returns=np.array(returns, np.float64),
    to_play=np.array(to_play, np.int32),
    pictures=None if pictures[0] is None else np.stack(pictures),
  )


def _reduced(picture: np.ndarray | None) -> np.ndarray | None:
  """A copy with every n-th pixel, of at most 128 on a side."""
  if picture is None:
    return None
  step = -(-max(picture.shape[:2]) // _LARGEST_PICTURE)
  return np.array(picture[::step, ::step])
