import errno
import os
from unittest import mock

import pytest

from moozi.core.errors import RunError, UserError
from moozi.io.record_log import RecordLog

HEADER = {"format": 1, "seed": 0}


def test_records_are_kept_and_a_cut_line_is_not(tmp_path):
  path = tmp_path / "log.jsonl"
  with RecordLog(path, HEADER) as log:
    log.append([{"a": 1}, {"a": [2, 3]}])
  with path.open("a") as file:
    file.write('{"a": 4')  # a kill in the middle of a line
  with RecordLog(path, HEADER) as log:
    assert log.records == [{"a": 1}, {"a": [2, 3]}]
    log.append([{"a": 5}])
  assert path.read_text().splitlines()[1:] == ['{"a": 1}', '{"a": [2, 3]}', '{"a": 5}']


@pytest.mark.parametrize("text", ['{"format": 1, "se', ""])
def test_a_file_without_a_whole_header_is_new(tmp_path, text):
  (tmp_path / "log").write_text(text)
  with RecordLog(tmp_path / "log", HEADER) as log:
    assert log.records == []


@pytest.mark.parametrize("text", ["another program's file", '{"other": 1}\n{"cut'])
def test_another_file_is_not_changed(tmp_path, text):
  (tmp_path / "log").write_text(text)
  with pytest.raises(UserError, match="choose another folder"):
    RecordLog(tmp_path / "log", HEADER)
  assert (tmp_path / "log").read_text() == text


def test_other_conditions_are_refused(tmp_path):
  RecordLog(tmp_path / "log", HEADER).close()
  with pytest.raises(UserError, match=r"log: has records with seed=0, not 1; choose another folder"):
    RecordLog(tmp_path / "log", HEADER | {"seed": 1})
  (tmp_path / "log").write_text("{}\n[1]\n")
  with pytest.raises(UserError, match="has a line that is not a JSON object"):
    RecordLog(tmp_path / "log", {})
  with pytest.raises(UserError, match="cannot be opened: No such file or directory"):
    RecordLog(tmp_path / "none" / "log", HEADER)
  (tmp_path / "link").symlink_to(tmp_path / "log")
  with pytest.raises(UserError, match="cannot be opened"):
    RecordLog(tmp_path / "link", HEADER)


def test_a_full_disk_loses_nothing(tmp_path):
  path = tmp_path / "log"
  with RecordLog(path, HEADER) as log:
    log.append([{"a": 1}])
    before = path.read_bytes()
    with mock.patch.object(os, "fsync", side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))):
      with pytest.raises(
        RunError, match=r"log: cannot be written: No space left on device; it keeps 1 records, and the same"
      ):
        log.append([{"a": 2}])
    assert path.read_bytes() == before
    log.append([{"a": 3}])
    assert log.records == [{"a": 1}, {"a": 3}]
