"""Checks a page's accessibility with axe-core, which `make axe` installs.

Source: https://github.com/dequelabs/axe-core.
"""

import json
import sys
from pathlib import Path

import pytest

from tests.vis.chromium import Page

_PATH = Path(sys.prefix) / "axe/node_modules/axe-core/axe.min.js"


def serious_findings(page: Page) -> list[str]:
  """Returns the serious and critical findings on a page: rule, element and reason. Opens all <details>."""
  if not _PATH.exists():
    pytest.fail(f"this test needs axe-core; `make axe` installs it with npm to {_PATH}")
  page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
  page.evaluate(f"{_PATH.read_text('utf-8')}; 0")
  found = page.evaluate(
    "axe.run(document, {resultTypes: ['violations']}).then(r => JSON.stringify(r.violations))"
  )
  return [
    f"{rule['id']} ({rule['impact']}): {node['html'][:100]}: {node['failureSummary']}"
    for rule in json.loads(found)
    if rule["impact"] in ("serious", "critical")
    for node in rule["nodes"]
  ]
