"""Bridge to the games of the Arcade Learning Environment, through ale-py.

The conventions are those of the field, each of them an option: up to 30 no-ops at a game's start, the action
held for four frames, the pixelwise maximum of the last two, grey pictures of 84 by 84 (or colour of 96 by 96,
as MuZero has them), in bytes. The agent stacks the history. In training a life lost ends the episode, and the
reset after it goes on with the game. By option a reset fires, for games that stand still until somebody does.
Each game has a fresh seed from one generator, which `seed` seeds.

Frames are those of gymnasium.wrappers.AtariPreprocessing, pixel for pixel, its terminal frames too (where
the game ends between the last two frames, they show what came before).

Source: Bellemare et al. 2013; Mnih et al. 2015; Machado et al. 2018; Schrittwieser et al. 2020. Departures:
  - A life lost ends the episode after all frames of the step, as baselines has it; Gymnasium breaks off.
  - What the step without action earns that goes on with a game after a life lost is not counted, nor what
    firing earns (as in baselines); a life lost while firing ends nothing.
"""

import functools
import importlib.util
import json
import logging
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field

from moozi.core.config import NonNegativeInt, PositiveInt, Probability, Section
from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.envs.environment import Environment, GameEnvironment, check_seed
from moozi.envs.suite import Suite
from moozi.envs.suites.atari.chance import GameChance, GameSeeds
from moozi.envs.suites.atari.frames import AreaResize
from moozi.envs.vector_protocol import VectorEnvironment

_log = logging.getLogger("moozi.envs")

NOOP, FIRE = 0, 1
"""ALE's numbers of the action that does nothing, and of the one that fires."""

# For more than one player only; to load one of them ends the process.
_NO_SINGLE_PLAYER = frozenset({"combat", "joust", "maze_craze", "warlords"})
_SMALLEST_SCREEN = 160


class Options(Section):
  """Options of `atari:*`. Testing has no `episodic_life` and no `clip_rewards`, whatever is said here."""

  max_noops: NonNegativeInt = Field(30, description="a game begins with 1 to so many no-ops, of a frame each")
  frame_skip: PositiveInt = Field(4, description="frames that an action is held for")
  colour: bool = Field(False, description="RGB frames instead of grey ones")
  frame_size: Annotated[int, Field(ge=1, le=_SMALLEST_SCREEN)] | None = Field(
    None, description="height and width of a frame; null is 84, in colour 96"
  )
  sticky_action_prob: Probability = Field(
    0.0, description="chance, at each frame, that the last frame's action is repeated; ale-py's v5 has 0.25"
  )
  minimal_actions: bool = Field(True, description="only the actions that matter; false keeps all 18")
  episodic_life: bool = Field(True, description="in training, a life lost ends the episode; the game goes on")
  fire_on_reset: bool = Field(
    False,
    description="after each reset, and each life lost in training, the actions 1 and 2 come first where 1 "
    "fires and there are more than two, as in baselines",
  )
  clip_rewards: bool = Field(False, description="in training, rewards to -1, 0 and 1")
  max_episode_steps: PositiveInt | None = Field(
    27_000, description="truncate a game, with all its lives, after so many steps; 27,000 is half an hour"
  )
  num_threads: NonNegativeInt = Field(
    0, description="train on ale-py's vectorized environment with so many threads; 0 plays one by one"
  )
  reseed: bool = Field(
    True,
    description="a fresh seed for each game; false lets chance run on where a game ended by itself: quicker "
    "with num_threads (no ROM is loaded again), and such games may begin without a no-op",
  )


class GameFacts(NamedTuple):
  """What a ROM tells about its game.

  Attributes:
    rom: the file's name without its ending.
    minimal_actions, all_actions: ALE's numbers of them.
    action_names: of all actions by their numbers.
    height, width: of the screen in pixels.
    num_start_frames: frames that ALE counts in a game before its first.
  """

  rom: str
  minimal_actions: tuple[int, ...]
  all_actions: tuple[int, ...]
  action_names: dict[int, str]
  height: int
  width: int
  num_start_frames: int

  def actions(self, options: Options) -> tuple[int, ...]:
    """ALE's numbers of the environment's actions, in its order."""
    return self.minimal_actions if options.minimal_actions else self.all_actions

  def opening(self, options: Options) -> tuple[int, ...]:
    """ALE's numbers of the actions that `fire_on_reset` has come first; none where nothing is to fire."""
    actions = self.actions(options)
    return actions[1:3] if options.fire_on_reset and len(actions) > 2 and actions[1] == FIRE else ()


def list_games() -> dict[str, str]:
  """The games that ale-py has a ROM of. Raises UserError where ale-py is not installed."""
  return {_game_of(rom): f"Atari 2600, {rom.replace('_', ' ')}" for rom in _roms()}


def make_spec(game: str, options: Options) -> EnvSpec:
  """The facts of one game under these options."""
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


def make_environment(game: str, options: Options) -> Environment:
  """One game as an environment. Its emulator is made at the first reset; that of `load_facts` is thrown
  away.
  """
  spec = make_spec(game, options)
  return GameEnvironment(_AtariGame(load_facts(game), spec, options), spec)


def make_vector(game: str, options: Options, seeds: list[int]) -> VectorEnvironment | None:
  """Games on ale-py's vectorized environment; None where they are played one by one."""
  if options.num_threads == 0:
    return None
  from moozi.envs.suites.atari import vector as atari_vector

  facts = load_facts(game)
  obstacle = atari_vector.find_obstacle(facts, options)
  if obstacle is not None:
    _tell_of_fallback(game, obstacle)
    return None
  return atari_vector.AtariVector(facts, make_spec(game, options), options, seeds)


@functools.cache
def _tell_of_fallback(game: str, obstacle: str) -> None:
  _log.warning("env.kwargs.num_threads: atari:%s is played one by one: %s", game, obstacle)


def for_testing(options: Options) -> Options:
  """The options of environments that are tested on."""
  return options.model_copy(update={"episodic_life": False, "clip_rewards": False})


class _AtariGame:
  """One game on an emulator of its own, with the conventions."""

  def __init__(self, facts: GameFacts, spec: EnvSpec, options: Options) -> None:
    self._facts, self._options = facts, options
    self._actions, self._opening = facts.actions(options), facts.opening(options)
    self._ale: Any = None
    self._mask = np.ones(spec.num_env_actions, bool)
    self._mask.flags.writeable = False
    self._resize = AreaResize(facts.height, facts.width, spec.frame_shape[0])
    # The last frame but one of a step, and the last: afterwards the maximum of both.
    shape = (facts.height, facts.width, spec.frame_shape[2])
    self._before, self._screen = np.zeros(shape, np.uint8), np.zeros(shape, np.uint8)
    self._num_steps = 0
    self.will_continue = False
    self.is_continued = False
    self.seed(0)

  def seed(self, seed: int) -> None:
    self._seeds = GameSeeds(check_seed(seed), self._options.max_noops)
    self._must_reseed = True
    self.will_continue = False

  def reset(self) -> None:
    self.is_continued = self.will_continue and not self._goes_on_to_an_end()
    if not self.is_continued:
      self._begin()
      for action in self._opening:
        _, is_over = self._play(action)
        if is_over:
          self._begin()
      self._num_steps = 0
    self.will_continue = False

  def step(self, action: int) -> tuple[float, bool, bool]:
    lives = self._ale.lives()
    reward, is_over = self._play(self._actions[action])
    is_life_lost = self._options.episodic_life and not is_over and 0 < self._ale.lives() < lives
    is_cut = self._num_steps == self._options.max_episode_steps
    self.will_continue = is_life_lost and not is_cut
    self._must_reseed = is_cut and not is_over
    if self._options.clip_rewards:
      reward = float(np.sign(reward))
    # A life lost on the step of the cap is an end like any other; it is a new game that begins after it.
    return reward, is_over or is_life_lost, is_cut

  def frame(self) -> np.ndarray:
    return self._resize(self._screen)

  def render(self) -> np.ndarray:
    picture: np.ndarray = self._ale.getScreenRGB()
    return picture

  def legal_actions_mask(self) -> np.ndarray:
    return self._mask

  def to_play(self) -> int:
    return 0

  def _goes_on_to_an_end(self) -> bool:
    """Goes on with the game after a life lost, by a step without action and firing; whether that ends it."""
    for action in (NOOP, *self._opening):
      _, is_over = self._play(action)
      is_cut = self._num_steps == self._options.max_episode_steps
      self._must_reseed = is_cut and not is_over
      if is_over or is_cut:
        return True
    return False

  def _begin(self) -> None:
    """Begins a new game with its no-ops."""
    if self._options.reseed or self._must_reseed:
      seed = self._seeds.draw()
      self._chance = GameChance(seed, self._options.max_noops, self._options.sticky_action_prob)
      self._go_back_to_loading()
    else:
      self._ale.reset_game()
    self._must_reseed = False
    self._last_action = NOOP
    for _ in range(self._chance.num_noops()):
      self._act(NOOP)
      if self._ale.game_over():
        self._ale.reset_game()
        self._last_action = NOOP
    self._num_steps = 0
    self._before.fill(0)
    self._show(self._screen)

  def _go_back_to_loading(self) -> None:
    """Puts the emulator where it is when the ROM has just been loaded and the game reset."""
    if self._ale is None or not self._options.reseed:
      self._ale = load_emulator(self._facts.rom)
      self._ale.reset_game()
      self._start = self._ale.cloneState()
      return
    # Loading takes a tenth of a second. A state lacks some of what a reset sets, and a reset leaves some of
    # what a state has: either alone lets a few games depend on what was played before, both together none
    # (measured on every ROM of ale-py 0.12.1; a test holds it).
    self._ale.reset_game()
    self._ale.restoreState(self._start)

  def _act(self, action: int) -> float:
    """One frame."""
    if not self._chance.sticks():
      self._last_action = action
    return float(self._ale.act(self._last_action))

  def _play(self, action: int) -> tuple[float, bool]:
    """One step: so many frames. Returns their reward and whether the game is over."""
    num_frames, reward, is_over = self._options.frame_skip, 0.0, False
    for i in range(num_frames):
      reward += self._act(action)
      is_over = self._ale.game_over()
      if is_over:
        break
      if i == num_frames - 2:
        self._show(self._before)
      elif i == num_frames - 1:
        self._show(self._screen)
    np.maximum(self._before, self._screen, out=self._screen)
    self._num_steps += 1
    return reward, is_over

  def _show(self, out: np.ndarray) -> None:
    if out.shape[2] == 1:
      self._ale.getScreenGrayscale(out[..., 0])
    else:
      self._ale.getScreenRGB(out)


@functools.cache
def load_facts(game: str) -> GameFacts:
  """The facts of a game, by its listed name; from an emulator that is thrown away."""
  rom = next(rom for rom in _roms() if _game_of(rom) == game)
  ale = load_emulator(rom)
  ale.reset_game()
  height, width = ale.getScreenDims()
  everything = ale.getLegalActionSet()
  return GameFacts(
    rom=rom,
    minimal_actions=tuple(a.value for a in ale.getMinimalActionSet()),
    all_actions=tuple(a.value for a in everything),
    action_names={a.value: a.name.lower() for a in everything},
    height=height,
    width=width,
    num_start_frames=ale.getEpisodeFrameNumber(),
  )


def load_emulator(rom: str) -> Any:
  """An `ale_py.ALEInterface` with a ROM in it, without chance of its own."""
  import ale_py

  ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
  ale = ale_py.ALEInterface()
  ale.setInt("random_seed", 0)
  ale.setFloat("repeat_action_probability", 0.0)
  ale.loadROM(_folder() / f"{rom}.bin")
  return ale


def _roms() -> list[str]:
  # From the package's list of files: to import it takes a while, and brings Gymnasium along.
  files = json.loads((_folder() / "md5.json").read_text())
  return sorted({name.removesuffix(".bin") for name in files} - _NO_SINGLE_PLAYER)


def _folder() -> Path:
  """Where ale-py keeps its ROMs. Raises UserError where it is not installed."""
  package = importlib.util.find_spec("ale_py")
  if package is None or not package.submodule_search_locations:
    raise UserError(
      'env.name=atari:…: the package ale-py is not installed; pip install "moozi[atari]" brings it (GPL)'
    )
  return Path(package.submodule_search_locations[0]) / "roms"


def _game_of(rom: str) -> str:
  """`space_invaders` is called `SpaceInvaders`, as in Gymnasium."""
  return rom.title().replace("_", "")


SUITE = Suite(
  list_games=list_games,
  options=lambda game: Options,
  make_spec=make_spec,
  make_environment=make_environment,
  for_testing=for_testing,
  make_vector=make_vector,
)
