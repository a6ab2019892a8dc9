"""Tests the structure of the package: no circles of imports, and names that are used once."""

from scripts import measure_structure as structure


def test_no_files_import_each_other_in_a_circle():
  assert structure.circles() == []


def test_each_class_has_its_own_name():
  assert structure.repeated(structure.class_names(), 1) == []


def test_no_module_name_is_used_three_times():
  assert structure.repeated(structure.module_names(), 2) == []
