"""Options of the Atari games, and facts about the ROMs that ale-py contains."""

import functools
import importlib.util
import json
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from moozi.core.config import NonNegativeInt, PositiveInt, Probability, Section
from moozi.core.spec import EnvSpec
from moozi.core.text import missing_package

NOOP, FIRE = 0, 1
"""ALE's numbers of the no-op action and of the fire action."""

# ROMs without a single-player game. Loading such a ROM ends the process.
_NO_SINGLE_PLAYER = frozenset({"combat", "joust", "maze_craze", "warlords"})
_SMALLEST_SCREEN = 160


class AtariOptions(Section):
  """Options of `atari:*`. Environments of evaluation ignore `episodic_life` and `clip_rewards`."""

  max_noops: NonNegativeInt = Field(
    30,
    description="a game starts with 1 to max_noops no-ops of one frame; with num_threads, 0 to max_noops",
  )
  frame_skip: PositiveInt = Field(4, description="number of frames for which an action is repeated")
  colour: bool = Field(False, description="RGB frames instead of grey ones")
  frame_size: Annotated[int, Field(ge=1, le=_SMALLEST_SCREEN)] | None = Field(
    None, description="height and width of a frame; null: 84, or 96 in colour"
  )
  sticky_action_prob: Probability = Field(
    0.0, description="probability, per frame, that the last frame's action is repeated; ale-py's v5 has 0.25"
  )
  minimal_actions: bool = Field(True, description="only the actions with an effect; false keeps all 18")
  episodic_life: bool = Field(
    True, description="in training, a lost life ends the episode and the next episode continues the game"
  )
  fire_on_reset: bool = Field(
    False,
    description="play actions 1 and 2 after each reset and each lost life, if action 1 fires and there are "
    "more than two actions; as in OpenAI Baselines",
  )
  clip_rewards: bool = Field(False, description="in training, clip rewards to their sign: -1, 0 or 1")
  max_episode_steps: PositiveInt | None = Field(
    27_000,
    description="truncate a game, all lives together, after this number of steps; 27,000: 30 min with "
    "frame_skip 4",
  )
  num_threads: NonNegativeInt = Field(
    0,
    description="train on ale-py's vectorized environment with this number of threads; 0: a loop",
  )
  reseed: bool = Field(
    True,
    description="with num_threads, seed each game; this loads its ROM again. false is faster: only the first "
    "game and games after a truncation are seeded",
  )


class GameFacts(NamedTuple):
  """Facts about a ROM.

  Attributes:
    rom: the file's name without its ending.
    minimal_actions, all_actions: ALE's numbers of these actions.
    action_names: names of all actions, by ALE's numbers.
    height, width: size of the screen in pixels.
  """

  rom: str
  minimal_actions: tuple[int, ...]
  all_actions: tuple[int, ...]
  action_names: dict[int, str]
  height: int
  width: int

  def actions(self, options: AtariOptions) -> tuple[int, ...]:
    """ALE's numbers of the environment's actions, in the environment's order."""
    return self.minimal_actions if options.minimal_actions else self.all_actions

  def opening(self, options: AtariOptions) -> tuple[int, ...]:
    """ALE's numbers of the actions that `fire_on_reset` plays after a reset; () if it plays none."""
    actions = self.actions(options)
    return actions[1:3] if options.fire_on_reset and len(actions) > 2 and actions[1] == FIRE else ()


def list_games() -> dict[str, str]:
  """Returns the single-player games whose ROMs ale-py contains.

  Raises: UserError: ale-py is not installed.
  """
  return {listed_name(rom): f"Atari 2600, {rom.replace('_', ' ')}" for rom in _roms()}


def make_spec(game: str, options: AtariOptions) -> EnvSpec:
  facts = load_facts(game)
  size = options.frame_size or (96 if options.colour else 84)
  actions = facts.actions(options)
  return EnvSpec(
    name=f"atari:{game}",
    frame_shape=(size, size, 3 if options.colour else 1),
    frame_dtype="uint8",
    num_env_actions=len(actions),
    action_names=tuple(facts.action_names[a] for a in actions),
  )


@functools.cache
def load_facts(game: str) -> GameFacts:
  """Reads the facts of a game from a temporary emulator; `game` is its listed name."""
  rom = next(rom for rom in _roms() if listed_name(rom) == game)
  ale = load_emulator(rom)
  ale.reset_game()
  height, width = ale.getScreenDims()
  all_actions = ale.getLegalActionSet()
  return GameFacts(
    rom=rom,
    minimal_actions=tuple(a.value for a in ale.getMinimalActionSet()),
    all_actions=tuple(a.value for a in all_actions),
    action_names={a.value: a.name.lower() for a in all_actions},
    height=height,
    width=width,
  )


def load_emulator(rom: str) -> Any:
  """Makes a deterministic `ale_py.ALEInterface` with a ROM."""
  import ale_py

  ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
  ale = ale_py.ALEInterface()
  ale.setInt("random_seed", 0)
  ale.setFloat("repeat_action_probability", 0.0)
  ale.loadROM(_folder() / f"{rom}.bin")
  return ale


def _roms() -> list[str]:
  # The package's list of files is read, because importing the package is slow and imports Gymnasium.
  files = json.loads((_folder() / "md5.json").read_text())
  return sorted({name.removesuffix(".bin") for name in files} - _NO_SINGLE_PLAYER)


def _folder() -> Path:
  """Returns the folder of ale-py's ROMs. Raises UserError where ale-py is not installed."""
  package = importlib.util.find_spec("ale_py")
  if package is None or not package.submodule_search_locations:
    raise missing_package("env.name=atari:…", "ale-py", "atari")
  return Path(package.submodule_search_locations[0]) / "roms"


def listed_name(rom: str) -> str:
  """Returns Gymnasium's name of a ROM: `SpaceInvaders` for `space_invaders`."""
  return rom.title().replace("_", "")
