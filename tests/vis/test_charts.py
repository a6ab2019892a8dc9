"""Tests of the report's chart functions in Node, without a browser."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

CHARTS = Path(__file__).resolve().parents[2] / "moozi/vis/report_page/charts.js"
CASES = {
  "speeds": [*[100 + i % 7 for i in range(40)], 0],
  "losses": [*[1 - i / 100 for i in range(40)], 5000],
  "both": [*[100 + i % 7 for i in range(60)], 0, 130],
  "negative": [*[-50 - i % 7 for i in range(40)], -900],
  "flat": [3] * 40,
  "few": [1, 900],
  "none": [],
}


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_caption_names_the_side_of_the_points_beyond_the_axis(tmp_path):
  show = "for (const ys of Object.values(cases)) out.push(beyondText(ys, robustLimits(ys)));"
  script = f"const cases = {json.dumps(CASES)}, out = []; {show} console.log(JSON.stringify(out));"
  (tmp_path / "page.js").write_text(CHARTS.read_text("utf-8") + script)
  done = subprocess.run(
    ["node", tmp_path / "page.js"], capture_output=True, text=True, check=True, timeout=60
  )
  assert dict(zip(CASES, json.loads(done.stdout), strict=True)) == {
    "speeds": "; 1 point below the axis, down to 0.000",
    "losses": "; 1 point above the axis, up to 5,000",
    "both": "; 1 point above the axis, up to 130.0; 1 point below the axis, down to 0.000",
    "negative": "; 1 point below the axis, down to −900.0",
    "flat": "",
    "few": "",
    "none": "",
  }
