"""Numbers along the axes of pictures."""

import numpy as np


def round_ticks(highest: float, most: int = 6) -> list[float]:
  """A few round numbers from 0 to the highest, which is above 0; about `most` of them."""
  step = 10.0 ** np.floor(np.log10(highest))
  for factor in (0.1, 0.2, 0.5, 1.0):
    if highest / (step * factor) <= most:
      step *= factor
      break
  return [float(round(i * step, 10)) for i in range(int(highest / step) + 1)]
