"""Dense and convolutional layers in bfloat16."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from moozi.nn.conv_latent import UnpaddedConv
from moozi.nn.resnet import PointwiseConv

_LAYERS = (hk.Linear, hk.ConvND, UnpaddedConv, PointwiseConv)


@contextlib.contextmanager
def layers_in_bfloat16() -> Iterator[None]:
  """Makes dense and convolutional layers that are traced inside the `with` block compute in bfloat16.

  Inputs and parameters of such a layer are rounded to bfloat16, and its outputs are converted to float32. The
  parameters themselves, their gradients and all other modules stay float32.

  Source: Micikevicius et al. 2018 (float32 parameters). Departures: bfloat16 in place of float16, which needs
    no scaling of the loss.
  """

  def compute(next_f: Callable[..., Any], args: Any, kwargs: Any, context: hk.MethodContext) -> Any:
    if not isinstance(context.module, _LAYERS) or context.method_name != "__call__":
      return next_f(*args, **kwargs)
    with hk.custom_getter(lambda next_getter, value, _: next_getter(_converted(value, jnp.bfloat16))):
      out = next_f(*_converted(args, jnp.bfloat16), **kwargs)
    return _converted(out, jnp.float32)

  with hk.intercept_methods(compute):
    yield


def _converted(tree: Any, dtype: Any) -> Any:
  """Returns a tree with its float arrays in `dtype`."""

  def convert(x: Any) -> Any:
    is_array = isinstance(x, jax.Array | np.ndarray)
    return jnp.asarray(x, dtype) if is_array and jnp.issubdtype(x.dtype, jnp.floating) else x

  return jax.tree_util.tree_map(convert, tree)
