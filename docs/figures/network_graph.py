"""Draws the computation graph of a network: its layers, with the shapes of their outputs, from the code."""

import dataclasses
import math
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
from drawing import Drawing

from moozi.envs import registry
from moozi.io.config import load_config
from moozi.run.build import build_model

CONFIG = "minatar/breakout"
_WHAT = {"UnpaddedConv": "convolution, relu", "Linear": "dense", "Norm": "layer norm, relu"}


@dataclasses.dataclass(frozen=True)
class Layer:
  """A layer: its module, what it computes, the shape of its output, and its number of parameters."""

  path: str
  what: str
  shape: tuple[int, ...]
  size: int


def layers() -> tuple[tuple[int, ...], int, list[Layer]]:
  """Returns the shape of the network's input, the number of actions A, and the layers in order."""
  config = load_config(CONFIG)
  spec = registry.env_spec(config.env.name, **config.env.arguments)
  model, length = build_model(config, spec), config.targets.history_length
  height, width, channels = spec.frame_shape
  shape = (height, width, length * (channels + spec.policy_size))
  stacked = jax.ShapeDtypeStruct((1, *shape), jnp.float32)
  params, state = jax.eval_shape(model.init, jax.random.PRNGKey(0), stacked)
  found: dict[str, Layer] = {}

  def see(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
    out, module = call(*args, **kwargs), context.module
    what = _WHAT.get(type(module).__name__)
    if context.method_name == "__call__" and what is not None:
      own = [x for name, x in params.items() if f"{name}/".startswith(f"{module.module_name}/")]
      size = sum(math.prod(array.shape) for arrays in own for array in arrays.values())
      found[module.module_name] = Layer(module.module_name, what, out.shape[1:], size)
    return out

  def run(params: Any, state: Any, stacked: Any, action: Any) -> Any:
    root, _ = model.root_inference(params, state, stacked, False)
    after, _ = model.recurrent_inference(params, state, root.hidden_state, action, False)
    return model.project(params, state, after.hidden_state, False)

  with hk.intercept_methods(see):
    jax.eval_shape(run, params, state, stacked, jax.ShapeDtypeStruct((1,), jnp.int32))
  return shape, spec.num_actions, list(found.values())


def network() -> Drawing:
  """Returns the figure of the layers of h, g, f and the projection, with the shapes of their outputs."""
  shape, num_actions, found = layers()
  by_path = {layer.path: layer for layer in found}
  total = sum(layer.size for layer in found)
  size = by_path["representation/dense"].shape[0]
  d = Drawing(
    860,
    590,
    "The layers of a network",
    f"The network of {CONFIG}. The representation is a convolution and a dense layer. The dynamics is a "
    "residual block with a reward head. The prediction has a value head and a policy head. The projection is "
    "two dense layers.",
  )
  x = {"representation": 20, "dynamics": 232, "prediction": 444, "projection": 656}
  wide, tall, gap = 184, 46, 18
  titles = ("representation h", "dynamics g", "prediction f", "projection")
  for (part, left), title in zip(x.items(), titles, strict=True):
    d.text(left + wide / 2, 34, title, style="bold", size=17)
    count = sum(layer.size for layer in found if layer.path.startswith(part))
    d.text(left + wide / 2, 54, f"{count:,} parameters", style="muted", size=13)

  def put(part: str, row: int, text: str, kind: str = "net", start: float = 0, width: float = wide) -> None:
    top = 70 + row * (tall + gap)
    d.box(x[part] + start, top, width, tall, text, kind, 14)

  def down(part: str, row: int, start: float = wide / 2, end: float | None = None) -> None:
    top = 70 + row * (tall + gap) + tall
    d.arrow((x[part] + start, top), (x[part] + (start if end is None else end), top + gap - 1))

  def name(layer: Layer) -> str:
    return f"{layer.what}\n{' × '.join(map(str, layer.shape))}"

  def chain(part: str, paths: list[str], row: int) -> int:
    for path in paths:
      down(part, row - 1)
      put(part, row, name(by_path[f"{part}/{path}"]))
      row += 1
    return row

  state = f"hidden state s\n{size}"
  put("representation", 0, f"frames and actions\n{' × '.join(map(str, shape))}", "env")
  end = chain("representation", ["conv", "dense"], 1)
  down("representation", end - 1)
  put("representation", end, state, "search")
  put("dynamics", 0, f"state, action\n{size} + {num_actions}", "search")
  end = chain("dynamics", ["block_0/dense_0", "block_0/norm", "block_0/dense_1"], 1)
  down("dynamics", end - 1)
  put("dynamics", end, f"+ state: next state s′\n{size}", "search")
  left = x["dynamics"]
  d.arrow(
    (left, 70 + tall / 2), (left - 11, 70 + tall / 2), (left - 11, 70 + end * (tall + gap) + tall / 2),
    (left - 1, 70 + end * (tall + gap) + tall / 2),
  )  # fmt: skip
  end = chain("dynamics", ["head/hidden", "head/norm"], end + 1)
  down("dynamics", end - 1)
  put("dynamics", end, f"reward\n{by_path['dynamics/head/reward'].shape[0]} logits", "data")
  put("prediction", 0, state, "search")
  end = chain("prediction", ["heads/hidden", "heads/norm"], 1)
  half = (wide - 10) / 2
  for head, start in (("value", 0.0), ("policy", half + 10)):
    down("prediction", end - 1, start + half / 2)
    put(
      "prediction", end, f"{head}\n{by_path[f'prediction/heads/{head}'].shape[0]} logits", "data", start, half
    )
  put("projection", 0, state, "search")
  chain("projection", ["dense_0", "norm", "dense_1"], 1)
  bottom = x["prediction"]
  lines = (
    f"The network of {CONFIG}:",
    f"{total:,} parameters.",
    "A box has the shape of its output.",
    "The states s and s′ are normalized.",
    f"Value and policy read {by_path['prediction/heads/hidden'].shape[0] // 2} units each.",
  )
  for i, line in enumerate(lines):
    d.text(bottom, 410 + 22 * i, line, anchor="start", style="bold" if i == 0 else "muted")
  return d
