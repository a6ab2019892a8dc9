"""Numbers in few characters."""

import math


def short_figure(x: float) -> str:
  """A number with its sign in at most six characters where it is below 1e100: `+0.125`, `-12.3`, `-2e-5`."""
  size = abs(x)
  if 0 < size < 0.001 or 99_999.5 <= size < math.inf:
    digit, _, exponent = f"{x:+.0e}".partition("e")
    return f"{digit}e{int(exponent)}"
  return f"{x:+.0f}" if size >= 999.5 else f"{round(x, 3) + 0.0:+.3g}"


def value_text(value: float) -> str:
  """A position's value in words; nan stands for one that was not searched."""
  return "value not searched" if math.isnan(value) else f"value {value:.3f}"
