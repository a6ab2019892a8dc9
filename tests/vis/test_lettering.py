import math

import numpy as np
import pytest

from moozi.vis.lettering import short_figure, value_text


@pytest.mark.parametrize(
  ("number", "text"),
  [
    (0.0, "+0"),
    (-0.0, "+0"),
    (0.125, "+0.125"),
    (-0.0625, "-0.062"),
    (1.125, "+1.12"),
    (-12.34, "-12.3"),
    (0.9999, "+1"),
    (999.7, "+1000"),
    (-12345.6, "-12346"),
    (99_999.9, "+1e5"),
    (0.001, "+0.001"),
    (-2.1e-05, "-2e-5"),
    (3e38, "+3e38"),
    (math.inf, "+inf"),
    (math.nan, "+nan"),
  ],
)
def test_short_figure(number, text):
  assert short_figure(number) == text


def test_short_figure_is_near_and_short():
  random = np.random.default_rng(0)
  for x in (random.normal(size=2000) * 10.0 ** random.integers(-30, 36, 2000)).astype(np.float32).tolist():
    text = short_figure(x)
    assert len(text) <= 6
    # The text has at least one significant digit.
    assert abs(float(text) - x) <= 0.5 * 10 ** math.floor(math.log10(abs(x))) * (1 + 1e-6)


def test_value_text():
  assert value_text(0.0) == "value 0.000"
  assert value_text(math.nan) == "value not searched"
