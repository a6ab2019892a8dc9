"""Tests of the tables of docs/scale.md: they are current, and they follow from their costs."""

import dataclasses
import importlib
import re

import pytest

from tests.docs.pages import ROOT


@pytest.fixture(scope="module")
def scale():
  """The script that writes the tables."""
  with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(ROOT / "scripts")
    yield importlib.import_module("scripts.make_scale_page")


def test_tables_are_up_to_date(scale):
  for path, blocks in scale.BLOCKS.items():
    text = (ROOT / path).read_text("utf-8")
    for name, block in blocks.items():
      (found,) = re.findall(f"<!-- {name}: begin -->\n\n(.*?)\n\n<!-- {name}: end -->", text, re.DOTALL)
      assert found == block(), "run python scripts/make_scale_page.py"
  assert {path.stem for path in scale.RESULTS.glob("*.json")} == set(scale.MEASURED)


def assumed(scale, **values):
  return {
    name: dataclasses.replace(x, value=values.get(name, x.value)) for name, x in scale.assumptions().items()
  }


def test_limits_follow_from_the_assumptions(scale):
  """One worker makes 4,096 steps in 16 searches and emulator steps; 8,192 samples are due for them."""
  gpu = {"emulator": 0.0875, "search": 14.3, "update": 12.7, "exchange": 1.0}
  passing = {"segment_driver": 2.0, "batch_driver": 1.0, "sample": 1000.0, "step": 500.0}
  numbers = assumed(scale, **gpu, **passing, join=5.0, add=1.0, draw=20.0)
  setting, hardware = scale.Setting("", workers=1, learner_gpus=2), scale.Hardware(128, 8, 1024.0)
  found = scale.limits(setting, hardware, numbers)
  act_s = 16 * (0.0143 + 256 * 0.0000875)
  assert found["training_worker"] == pytest.approx(4096 / act_s)
  assert found["parameter_server"] == pytest.approx(2048 / (4 * 0.0137) / 2)
  assert found["replay_buffer"] == pytest.approx(1 / (1e-6 + 2 * 20e-6))
  # A segment, and four calls of the learner.
  assert found["driver"] == pytest.approx(4096 / (0.002 + 4 * 0.001))


def test_the_parameter_server_joins_the_samples_of_shards_and_sends_them(scale):
  """A call of 16 GPUs has 16,384 samples, of which half go to another node."""
  numbers = assumed(scale, update=12.7, exchange=1.0, join=5.0, batch_total=10.24, sample=1000.0, step=500.0)
  hardware = scale.Hardware(128, 8, 1024.0, nodes=8, network_gbit=8.0)
  setting = scale.Setting("", workers=8, learner_gpus=16, learner_nodes=2, shards=8)
  found, samples = scale.limits(setting, hardware, numbers), 256 * 16 * 4
  call_s = 4 * 0.0137 + samples * 5e-6 + samples / 2 * 10e-6
  assert found["parameter_server"] == pytest.approx(samples / call_s / 2)
  # For each step, its node receives two samples of 1,000 bytes, at 1 GB/s.
  assert found["network"] == pytest.approx(1e9 / 2000, rel=1e-3)
  direct = scale.limits(dataclasses.replace(setting, is_direct=True), hardware, numbers)
  assert direct["parameter_server"] == pytest.approx(samples / (4 * 0.0137 + samples / 2 * 5e-6) / 2)
  assert direct["network"] == pytest.approx(1e9 / 1000, rel=1e-3)
  one = dataclasses.replace(setting, learner_gpus=1, learner_nodes=1, shards=1)
  alone = scale.limits(one, hardware, numbers)
  assert alone["parameter_server"] == pytest.approx(1024 / (4 * 0.0127) / 2)


@pytest.mark.parametrize(("rate", "text"), [(7123.0, "7,100"), (84.0, "84"), (323456.0, "320,000")])
def test_rates_have_two_digits(scale, rate, text):
  assert scale._rounded(rate) == text
