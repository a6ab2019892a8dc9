"""Finds the code blocks, anchors and links of documentation pages."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
  page
  for pattern in ("*.md", "docs/*.md", "docs/*/*.md", "experiments/*/*.md")
  for page in ROOT.glob(pattern)
  if page.name != "CHANGELOG.md"
)
COMMENTS = ("file", "append", "setup", "no-run")
_BLOCK = re.compile(
  r"^<!-- (?P<comment>[\w-]+): (?P<value>.*?) -->$|^```(?P<kind>\w*)\n(?P<text>.*?)^```$",
  re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
  """A code block of a page, or a `setup` comment.

  Attributes:
    kind: the fence's language, or `setup`.
    text: the code; for `setup`, a command that the page does not show.
    line: the line number in the page.
    file: (name, whether to append) if the block is written to a file instead of being run.
    is_run: false if the page has a `no-run` comment.
  """

  kind: str
  text: str
  line: int
  file: tuple[str, bool] | None = None
  is_run: bool = True


def blocks(page: Path) -> Iterator[Block]:
  """Yields the page's blocks in order. A comment on the line before a fence says how the block is treated:

  `<!-- file: NAME -->` writes it to a file, `<!-- append: NAME -->` adds it to one, `<!-- no-run: REASON -->`
  skips it. `<!-- setup: COMMAND -->` runs a command that the page does not show.
  """
  text = page.read_text("utf-8")
  file, is_run = None, True
  for match in _BLOCK.finditer(text):
    line = text.count("\n", 0, match.start()) + 1
    comment, value = match["comment"], match["value"]
    if comment == "setup":
      yield Block("setup", value, line)
    elif comment in ("file", "append"):
      file = (value, comment == "append")
    elif comment == "no-run":
      is_run = False
    elif comment is None:
      yield Block(match["kind"], match["text"], line, file, is_run)
      file, is_run = None, True


def anchors(page: Path) -> set[str]:
  """Returns a page's anchors: those of its headings, as in GitHub and MyST, and those of `<a id=…>`."""
  text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
  found: set[str] = set(re.findall(r'<a id="([^"]+)"', text))
  for heading in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE):
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
    found.add(slug if slug not in found else f"{slug}-1")
  return found


def links(page: Path) -> list[tuple[str, str]]:
  """Returns (target, anchor) of each link or image of a page that refers to a file of the repository."""
  text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
  targets = re.findall(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)", text)
  return [tuple(t.partition("#")[::2]) for t in targets if not re.match(r"[a-z]+:", t)]  # type: ignore[misc]
