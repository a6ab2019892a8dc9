"""Declares the arrays of each network, as the modules of `nn` and of the baselines make them.

`declare` raises an error if the declared paths or shapes differ from those of the network's own arrays. A
changed network is therefore refused until its declaration is changed, unless all paths and shapes stay.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping

from moozi.baselines.observations import OBSERVATIONS
from moozi.core.config import Config, NetworkConfig
from moozi.core.spec import EnvSpec
from moozi.nn.blocks import LARGE_FRAME
from moozi.nn.conv_latent import SMALL_ENOUGH
from moozi.ops.scalar_transform import ScalarTransform
from moozi.surgery.axes import Axis, Group, names, units
from moozi.surgery.baseline_networks import baseline_layers, declare_baseline
from moozi.surgery.layers import UNLIKELY_ACTION, UNLIKELY_BIN, Declared, Where, fixed, module

_LATENT = "the normalization of the hidden state"
Shapes = Mapping[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NamedNetwork:
  """What determines the arrays of a network and their meaning.

  Attributes:
    config, spec: of the run.
    planes: the name of each plane of a frame; a plane of another network with this name has its meaning.
    entries: the name of each entry of a policy, likewise; the first is the dummy's.
  """

  config: Config
  spec: EnvSpec
  planes: tuple[object, ...]
  entries: tuple[object, ...]

  @property
  def length(self) -> int:
    config = self.config
    return config.ppo.history_length if config.algorithm == "ppo" else config.targets.history_length

  @property
  def has_known_axes(self) -> bool:
    """Whether the meaning of the axes is known: not of a user's own network, nor of a table's."""
    config = self.config
    if config.searches:
      return config.network.kind in _KINDS
    return config.algorithm == "ppo" or config.q_learning.kind == "network"

  @property
  def kind_text(self) -> str:
    """The setting that determines the kind of network, for messages."""
    config = self.config
    if config.searches:
      return f"network.kind={config.network.kind}"
    if config.algorithm == "q_learning" and config.q_learning.kind == "table":
      return "q_learning.kind=table"
    return f"{config.algorithm}.network.kind={baseline_layers(config).kind}"

  @property
  def has_categories(self) -> bool:
    """Whether values are categories of the scalar transform."""
    config = self.config
    return config.searches or (config.algorithm == "ppo" and config.ppo.value_loss == "categorical")

  @property
  def bins(self) -> Axis:
    transform = ScalarTransform(**self.config.scalar_transform.model_dump())
    return names(("category",), tuple(int(z) for z in transform.support))

  @property
  def policy(self) -> Axis:
    """The entries of a policy, in the groups that have a distribution."""
    groups: list[Group] = [("policy dummy",)]
    for dimension, size in enumerate(self.spec.policy_groups[1:]):
      groups += [("policy", f"dimension {dimension}")] * size
    groups += [("policy",)] * (len(self.entries) - len(groups))  # of a policy with one distribution
    joined = Axis(())
    for group, entry in zip(groups, self.entries, strict=True):
      joined = joined + names(group, (entry,))
    return joined

  def frames(self, length: int, first_age: int = 0) -> Axis:
    """Returns the frame planes of a stacked history, oldest first; the newest frame has `first_age`."""
    joined = Axis(())
    for age in reversed(range(first_age, first_age + length)):
      joined = joined + names(("plane", f"age {age}"), self.planes)
    return joined

  def actions(self, length: int, first_age: int = 0) -> Axis:
    """Returns the action planes that follow the frame planes."""
    joined = Axis(())
    for age in reversed(range(first_age, first_age + length)):
      joined = joined + names(("action", f"age {age}"), self.entries, 1.0 / len(self.entries))
    return joined


def declare(network: NamedNetwork, shapes: Shapes) -> Declared:
  """Returns the arrays of a network.

  Args:
    shapes: the shape of each array by path in `params` and `net_state`.

  Raises: ValueError: the network has other arrays.
  """
  config = network.config
  out = Declared(shapes, config.network.norm)
  if not network.has_known_axes:
    for path, shape in shapes.items():
      out.add(module(path), unknown=shape)
    return out
  if config.searches:
    _KINDS[config.network.kind](out, network)
    _declare_inputs(out, network)
  else:
    declare_baseline(out, network)
    section = config.ppo if config.algorithm == "ppo" else config.q_learning
    if section.normalize_observations:
      _declare_statistics(out, module(OBSERVATIONS), network)
  found = {array.path: array.shape for array in out.arrays.values()}
  if found != dict(shapes):
    wrong = sorted(path for path in found.keys() | shapes.keys() if found.get(path) != shapes.get(path))
    raise ValueError(f"{wrong[0]} is {shapes.get(wrong[0])}; is declared as {found.get(wrong[0])}")
  return out


def _declare_statistics(out: Declared, where: Where, network: NamedNetwork) -> None:
  """Declares the RunningStats of each entry of a frame."""
  height, width, _ = network.spec.frame_shape
  planes = names(("plane", "each"), network.planes)
  for name in ("mean", "variance"):
    out.add(where / name, fixed("row", height), fixed("column", width), planes, is_state=True)
  out.add(where / "count", is_state=True)


def _declare_inputs(out: Declared, network: NamedNetwork) -> None:
  """Declares the statistics that normalize the frames."""
  config, (height, width, _) = network.config, network.spec.frame_shape
  cells = fixed("row", height), fixed("column", width)
  if config.network.normalize_observations:
    _declare_statistics(out, module("observation_norm/stats"), network)
  if config.network.center_frames:
    norms = {"frame_norm": network.frames(network.length)}
    if config.chance.codes:
      norms["transition_norm"] = network.frames(network.length + 1)
    for name, planes in norms.items():
      # Of frames further back than before, the mean of the oldest one.
      ages = range(1, network.length + 1)
      instead: dict[Group, Group] = {("plane", f"age {age}"): ("plane", f"age {age - 1}") for age in ages}
      out.add(module(f"{name}/mean"), *cells, dataclasses.replace(planes, instead=instead), is_state=True)
      for scalar in ("variance", "count"):
        out.add(module(f"{name}/{scalar}"), is_state=True)


def _latent(
  represent: Callable[[Declared, NamedNetwork, NetworkConfig, str, int], None],
) -> Callable[..., None]:
  """Returns the declaration of a network whose hidden state is a vector."""

  def declare_all(out: Declared, network: NamedNetwork) -> None:
    config, chance = network.config.network, network.config.chance
    state, blocks = units("latent", config.latent_size), max(1, config.num_dynamics_blocks)
    action = names(("action",), network.entries)
    bins = network.bins, UNLIKELY_BIN
    represent(out, network, config, "representation", network.length)
    for i in range(config.num_prediction_blocks):
      out.residual_dense(module(f"prediction/block_{i}"), state)
    policy = network.policy, UNLIKELY_ACTION
    out.heads(module("prediction/heads"), state, config, value=bins, policy=policy)
    if network.config.plans_with_rules:
      return
    # With chance nodes, the afterstate computes what the dynamics computes without, and a new outcome passes
    # it on. Its heads then have the dynamics network's keys.
    part = "afterstate" if chance.codes else "dynamics"
    for i in range(blocks):
      out.residual_dense(module(f"{part}/block_{i}", f"move/block_{i}"), state, action if i == 0 else None)
    if chance.codes:
      codes = fixed("code", chance.codes)
      for i in range(blocks):
        out.residual_dense(module(f"outcome/block_{i}"), state, codes if i == 0 else None)
      sizes: dict[str, tuple[Axis, float | None]] = {"value": bins, "chance": (codes, None)}
      if chance.reward_from == "afterstate":
        heads = module("afterstate/heads", instead="reward_head")
        out.heads(heads, state, config, **sizes, reward=bins)
      else:
        out.heads(module("afterstate/heads"), state, config, **sizes)
      encoder_size = chance.encoder_size or config.latent_size
      own = config.model_copy(update={"latent_size": encoder_size})
      represent(out, network, own, "outcome_representation", network.length + 1)
      encoded = units("outcome_representation", encoder_size)
      out.heads(module("encoder/head"), encoded, config, code=(codes, None))
    if not chance.codes or chance.reward_from == "outcome":
      reward = module("outcome/head" if chance.codes else "dynamics/head", "reward_head")
      out.heads(reward, state, config, reward=bins)
    middle = units("projection/middle", config.latent_size)
    out.linear(module("projection/dense_0"), state, middle)
    out.norm(module("projection/norm"), middle)
    out.linear(module("projection/dense_1"), middle, state)

  return declare_all


def _vector(name: str, size: int) -> Axis:
  """Returns the units of a representation's result; the encoder's representation has units of its own."""
  return units("latent" if name == "representation" else name, size)


def _mlp_layers(out: Declared, where: Where, inputs: Axis, vector: Axis) -> None:
  first = where / "dense"
  out.linear(first, inputs.per_cell(out.num_cells(first, inputs)), vector, even=_LATENT)
  out.norm(where / "norm", vector)
  out.residual_dense(where / "block", vector)


def _mlp(out: Declared, network: NamedNetwork, config: NetworkConfig, name: str, length: int) -> None:
  inputs = network.frames(length) + network.actions(length)
  _mlp_layers(out, module(name), inputs, _vector(name, config.latent_size))


def _conv_latent(out: Declared, network: NamedNetwork, config: NetworkConfig, name: str, length: int) -> None:
  where, channels = module(name), units(f"{name}/conv", config.channels)
  frames, actions = network.frames(length), network.actions(length)
  if min(network.spec.frame_shape[:2]) >= LARGE_FRAME:
    out.conv(where / "conv", 8, frames, channels)
    out.linear(where / "actions", actions, channels, has_bias=False)
    channels = _shrink(out, where, channels, config.channels)
  else:
    out.conv(where / "conv", 3, frames + actions, channels)
  last = where / "dense"
  flat = channels.per_cell(out.num_cells(last, channels))
  out.linear(last, flat, _vector(name, config.latent_size), even=_LATENT)


def _shrink(out: Declared, where: Where, channels: Axis, size: int) -> Axis:
  """Declares the convolutions of `nn.conv_latent.shrink`; returns the channels of the last."""
  i = 1
  while out.has(where / f"conv_{i}"):
    after = units(f"{where.key}/conv_{i}", 2 * size)
    out.conv(where / f"conv_{i}", 4, channels, after)
    channels, i = after, i + 1
  return channels


def _multi_input(out: Declared, network: NamedNetwork, config: NetworkConfig, name: str, length: int) -> None:
  where, numbers, images = module(name), Axis(()), []
  for part in network.spec.frame_parts:
    own = network.planes[part.start : part.stop]
    if not part.is_image:
      for age in reversed(range(length)):
        numbers = numbers + names(("plane", f"age {age}"), own)
      continue
    # Only the planes of an image have entries in an array: all its cells share the kernel.
    count = part.shape[0] if part.has_channels_first else part.shape[2]
    planes = Axis(())
    for age in reversed(range(length)):
      planes = planes + names(("plane", f"{part.name}, age {age}"), tuple(range(count)))
    images.append((part, planes))
  first = units(f"{name}/numbers", config.latent_size)
  out.linear(where / "numbers", numbers + network.actions(length), first)
  out.norm(where / "norm", first)
  joined = first
  for i, (part, planes) in enumerate(images):
    image, channels = where / f"image_{i}", units(f"{name}/image_{i}/conv", config.channels)
    sides = list(part.shape[1:] if part.has_channels_first else part.shape[:2])
    is_large, fits = min(sides) >= LARGE_FRAME, min(sides) >= 3
    out.conv(image / "conv", 8 if is_large else 3, planes, channels)
    # As `nn.multi_input.ImageEncoder`: strided by 4 and padded, unpadded, or padded.
    sides = [-(-(side - 4) // 4) if is_large else side - 2 * fits for side in sides]
    last = _shrink(out, image, channels, config.channels)
    while max(sides) > SMALL_ENOUGH:
      sides = [-(-side // 2) for side in sides]
    joined = joined + last.per_cell(math.prod(sides))
  _mlp_layers(out, where / "mlp", joined, _vector(name, config.latent_size))


def _resnet(out: Declared, network: NamedNetwork) -> None:
  config, spec = network.config.network, network.spec
  is_large = min(spec.frame_shape[:2]) >= LARGE_FRAME
  state = units("latent", config.channels)
  where = module("representation")
  inputs = network.frames(network.length) + network.actions(network.length)
  num_blocks = config.num_representation_blocks
  if is_large:
    # Block numbers run through the three stages; a block's key is its place in its stage.
    half = units("representation/half", max(1, config.channels // 2))
    first, second, last = (round(num_blocks * share / 8) for share in (2, 5, 8))
    for i, (reads, writes) in enumerate(((inputs, half), (half, state))):
      out.conv(where / f"~_halve/conv_{i}", 3, reads, writes)
      out.norm(where / f"~_halve/norm_{i}", writes)
    for stage, (start, stop) in enumerate(((0, first), (first, second), (second, last))):
      for i in range(start, stop):
        block = module(f"representation/block_{i}", f"representation/stage_{stage}/block_{i - start}")
        out.residual_conv(block, state if stage else half, True)
  else:
    out.conv(where / "conv", 1, inputs, state)
    for i in range(num_blocks):
      out.residual_conv(where / f"block_{i}", state, i > 0)
  # The last layer of a representation with blocks, and of the dynamics, is a relu.
  for i in range(config.num_prediction_blocks):
    out.residual_conv(module(f"prediction/block_{i}"), state, i > 0 or is_large or num_blocks > 0)
  cells = out.num_cells(module("prediction/value_head/hidden"), state)
  flat, bins = state.per_cell(cells), (network.bins, UNLIKELY_BIN)
  out.heads(module("prediction/value_head"), flat, config, value=bins)
  out.heads(module("prediction/policy_head"), flat, config, policy=(network.policy, UNLIKELY_ACTION))
  places = 0 if is_large else spec.num_places
  if config.conv_policy and places:
    out.conv(module("prediction/policy_places"), 1, state, fixed("place", 1), starts_at_zero=True)
  if network.config.plans_with_rules:
    return
  others = network.entries[:1] + network.entries[1 + places :]
  edge = names(("action",), others, 1.0 / len(others))
  joined = state + edge + (names(("action",), ("place",)) if places else Axis(()))
  out.conv(module("dynamics/conv"), 1, joined, state)
  if config.action_offsets and places and spec.action_places == "cells":
    height, width, _ = spec.frame_shape
    axes = fixed("row", 2 * height - 1), fixed("column", 2 * width - 1), state
    out.add(module("dynamics/offsets"), *axes, starts_at_zero=True)
  for i in range(config.num_dynamics_blocks):
    out.residual_conv(module(f"dynamics/block_{i}"), state, i > 0)
  out.residual_conv(module("dynamics/state_block"), state, False)
  out.heads(module("dynamics/reward_head"), flat, config, reward=bins)
  out.residual_conv(module("projection/block_0"), state, True)


_KINDS: dict[str, Callable[[Declared, NamedNetwork], None]] = {
  "mlp": _latent(_mlp),
  "conv_latent": _latent(_conv_latent),
  "multi_input": _latent(_multi_input),
  "resnet": _resnet,
}
"""The declarations by `network.kind`."""
