"""Tests the structure of the package: no circles of imports, names used once, and the documented counts."""

import re

import pytest

from scripts import measure_structure as structure


def test_no_files_import_each_other_in_a_circle():
  assert structure.circles() == []


def test_each_class_has_its_own_name():
  assert structure.repeated(structure.class_names(), 1) == []


def test_no_module_name_is_used_three_times():
  assert structure.repeated(structure.module_names(), 2) == []


def test_the_documented_measures_are_true():
  page = (structure.ROOT / "docs" / "architecture.md").read_text("utf-8")
  section = page.partition("## Measures")[2].partition("\n## ")[0]
  rows = re.findall(r"\| (.+?) \| ([\d,]+) \|", section)
  documented = {words: int(count.replace(",", "")) for words, count in rows}
  counted = {words: count for words, (count, _) in structure.measures().items()}
  assert documented.keys() == counted.keys()
  for words, count in counted.items():
    is_rounded = words.startswith("lines")
    assert documented[words] == (pytest.approx(count, rel=0.05) if is_rounded else count), words
