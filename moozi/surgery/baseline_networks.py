"""Declares the arrays of the network of PPO and Q-learning, as `baselines.ppo.actor_critic` makes them."""

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from moozi.baselines.ppo.actor_critic import MIN_NATURE_FRAME
from moozi.core.config import Config
from moozi.core.config.ppo import BaselineNetworkConfig
from moozi.surgery.axes import Axis, names, units
from moozi.surgery.layers import UNLIKELY_ACTION, UNLIKELY_BIN, Declared, Where, fixed, module

if TYPE_CHECKING:
  from moozi.surgery.networks import NamedNetwork

# Channels, side and stride of each convolution.
_NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))


def declare_baseline(out: Declared, network: "NamedNetwork") -> None:
  """Declares the arrays of a network of PPO or Q-learning.

  All dense layers of a trunk write units of one name. A layer that reads the trunk therefore keeps its
  inputs when dense layers are added, and an added layer is the identity on these units.
  """
  config = network.config
  is_ppo = config.algorithm == "ppo"
  layers = _LayerAxes(out, network)
  has_two = layers.config.sharing == "separate" and (is_ppo or config.q_learning.dueling)
  trunks = ("policy_trunk", "value_trunk") if has_two else ("trunk",)
  hidden = [layers.trunk(name) for name in trunks]
  if is_ppo and config.ppo.network.lstm_size:
    hidden = [layers.lstm(name, x) for name, x in zip(trunks, hidden, strict=True)]
  if network.spec.is_continuous:
    dimensions = names(("dimension",), network.entries[1:])
    out.linear(module("policy"), hidden[0], dimensions)
    out.add(module("log_std/b"), dimensions)
  else:
    # The values of new actions are the mean of the others: the best action stays the best.
    out.linear(module("policy"), hidden[0], network.policy, below=UNLIKELY_ACTION if is_ppo else 0.0)
  if is_ppo and config.ppo.value_loss == "categorical":
    out.linear(module("value"), hidden[-1], network.bins, below=UNLIKELY_BIN)
  else:
    out.linear(module("value"), hidden[-1], fixed("value", 1))


def baseline_layers(config: Config) -> BaselineNetworkConfig:
  """Returns the section that describes the network of PPO or Q-learning."""
  return config.ppo.network if config.algorithm == "ppo" else config.q_learning.network


class _LayerAxes:
  """Declares the layers of a network; layer norms are numbered in the order of calls."""

  def __init__(self, out: Declared, network: "NamedNetwork") -> None:
    config = network.config
    self.config = baseline_layers(config)
    is_ppo = config.algorithm == "ppo"
    self._out, self._network = out, network
    self._stride = config.ppo.conv_stride if is_ppo else config.q_learning.conv_stride
    self._lstm_size = config.ppo.network.lstm_size if is_ppo else 0
    has_norms = is_ppo and config.ppo.layer_norm
    self._norms: Iterator[str] | None = _norm_paths() if has_norms else None

  def trunk(self, name: str) -> Axis:
    """Declares a trunk, and returns the axis of its outputs."""
    network, spec = self._network, self._network.spec
    frames = network.frames(network.length)
    height, width, _ = spec.frame_shape
    if self.config.kind == "multi_input":
      x = self._joined(name)
    elif self.config.kind == "mlp":
      x = frames.per_cell(height * width)
    else:
      x = self._convolved(name, frames, height, width, self.config.kind)
    stream = f"{name}/dense"
    for i, size in enumerate(self.config.hidden_sizes):
      after, where = units(stream, size), module(f"{name}_dense_{i}")
      self._out.add(where / "w", x, after, reads=0, passes_on=i > 0)
      self._out.add(where / "b", after, starts_at_zero=True)
      self._norm(where, after)
      if i:
        is_identity = self.config.activation == "relu" and self._norms is None
        text = None if is_identity else "a new dense layer, whose tanh or layer norm changes the input"
        self._out.additions[where.key] = text
      x = after
    return x

  def lstm(self, name: str, inputs: Axis) -> Axis:
    """Declares the LSTM after a trunk, and returns the axis of its outputs."""
    where, size = module(f"{name}_lstm"), self._lstm_size
    hidden, gates = units(f"{name}_lstm", size), Axis(())
    for gate in ("input", "forget", "cell", "output"):
      gates = gates + units(f"{name}_lstm {gate}", size)
    self._out.linear(where / "input", inputs, gates)
    self._out.add(where / "w", hidden, gates, reads=0)
    return hidden

  def _norm(self, where: Where, axis: Axis) -> None:
    if self._norms is None:
      return
    found = Where(next(self._norms), f"{where.key}/norm")
    for name in ("scale", "offset"):
      self._out.add(found / name, axis, even="a layer norm")

  def _joined(self, name: str) -> Axis:
    """Declares the layers of each image and of the other numbers; returns the axis of all their outputs."""
    network, numbers, images = self._network, Axis(()), []
    for part in network.spec.frame_parts:
      ages = [f"age {age}" for age in reversed(range(network.length))]
      if part.is_image:
        height, width, count = part.shape
        if part.has_channels_first:
          count, height, width = part.shape
        planes = Axis(())
        for age in ages:
          planes = planes + names(("plane", f"{part.name}, {age}"), tuple(range(count)))
        images.append((planes, height, width))
        continue
      for age in ages:
        numbers = numbers + names(("plane", age), network.planes[part.start : part.stop])
    for size in self.config.hidden_sizes[:1]:
      where, after = module(f"{name}_numbers"), units(f"{name}/numbers", size)
      self._out.linear(where, numbers, after)
      self._norm(where, after)
      numbers = after
    joined = numbers
    for i, (planes, height, width) in enumerate(images):
      kind = "nature_conv" if min(height, width) >= MIN_NATURE_FRAME else "conv"
      joined = joined + self._convolved(f"{name}_image_{i}", planes, height, width, kind)
    return joined

  def _convolved(self, name: str, x: Axis, height: int, width: int, kind: str) -> Axis:
    """Declares convolutions; returns the axis of their flattened outputs."""
    for i, (channels, side, stride) in enumerate(self._convolutions(kind)):
      is_only = kind == "conv" and isinstance(self.config.channels, int)
      after = units(f"{name}/conv_{i}", channels)
      where = module(f"{name}_conv" if is_only else f"{name}_conv_{i}", f"{name}_conv_{i}")
      self._out.conv(where, side, x, after)
      self._norm(where, after)
      is_unpadded = kind == "nature_conv" or (stride == 1 and min(height, width) >= 3)
      height, width = ((n - side) // stride + 1 if is_unpadded else -(-n // stride) for n in (height, width))
      x = after
    return x.per_cell(height * width)

  def _convolutions(self, kind: str) -> Sequence[tuple[int, int, int]]:
    if kind == "nature_conv":
      return _NATURE
    channels = self.config.channels
    every = (channels,) if isinstance(channels, int) else channels
    return [(count, 3, self._stride) for count in every]


def _norm_paths() -> Iterator[str]:
  yield "layer_norm"
  yield from (f"layer_norm_{i}" for i in itertools.count(1))
