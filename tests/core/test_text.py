"""Tests of text for terminals, shells, Markdown and HTML."""

import html
import re
import subprocess

import pytest
from markdown_it import MarkdownIt

from moozi.core.text import html_text, markdown_code, markdown_text, one_cell, printable, shell_command

HOSTILE = [
  "\x1b[2J\x1b]0;owned\x07",
  "<script>alert(1)</script><img src=x onerror=alert(1)>",
  "[click](https://evil.example) ![x](http://evil.example/x.png) https://evil.example www.evil.example",
  "a\nb\r\n# c | d",
  "\u202egnp.exe\u2066",
  "nul\0nul",
  "x" * 5000,
  "caf\udce9",
  "`code` ``more`` \\` *bold* _it_ __b__ ~~s~~ &amp; <!-- c --> \\",
  "- [ ] $x$ {{ x }} ${HOME} `id` $(id) ; rm -rf * ' \"",
]


def plain(tokens) -> set[str]:
  """Returns the types of all Markdown tokens."""
  return {token.type for token in tokens} | {t for token in tokens for t in plain(token.children or [])}


@pytest.mark.parametrize("text", HOSTILE)
def test_terminals_get_printable_characters_only(text):
  assert all(c.isprintable() or c == "\n" for c in printable(text))
  assert one_cell(text).isprintable()
  assert len(one_cell(text)) == len(text)


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_has_no_marks_from_text(text):
  """The page has the text as it is printed, and nothing that a browser would load or follow."""
  parser = MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough")
  tokens = parser.parse(f"| a |\n|---|\n| {markdown_text(text)} |\n")
  frame = {"table_open", "thead_open", "tr_open", "th_open", "inline", "text", "th_close", "tr_close"}
  frame |= {"thead_close", "tbody_open", "td_open", "td_close", "tbody_close", "table_close"}
  assert plain(tokens) <= frame | {"text_special"}
  cells = [token for token in tokens if token.type == "inline"]
  assert len(cells) == 2
  assert "".join(t.content for t in cells[1].children).strip() == one_cell(text).strip()
  assert not re.search(r"\w://", markdown_text(text))  # pages of GitHub make links of addresses


@pytest.mark.parametrize("text", [*HOSTILE, "", "|", "``", "a|b"])
def test_markdown_code_is_one_code_span(text):
  tokens = (
    MarkdownIt("commonmark", {"html": True})
    .enable("table")
    .parse(f"| a |\n|---|\n| {markdown_code(text)} |\n")
  )
  cells = [token for token in tokens if token.type == "inline"]
  assert [t.type for t in cells[1].children] == ["code_inline"]


@pytest.mark.parametrize("text", HOSTILE)
def test_html_has_no_marks_from_text(text):
  assert not set("<>\"'") & set(html_text(text))
  assert html.unescape(html_text(text)) == printable(text)
  html_text(text).encode("utf-8")


WORDS = [*HOSTILE, "here ü", "", "-x", "~", "it's", "a\\b", "\t", "$'x'"]


@pytest.mark.parametrize("shell", ["bash"])
def test_shell_reads_the_same_words(shell):
  words = [word.replace("\0", "") for word in WORDS]
  command = shell_command("printf", "%s\\0", *words)
  assert command.isprintable()
  done = subprocess.run([shell, "-c", command], capture_output=True, check=True)
  expected = [word.encode("utf-8", "surrogateescape") for word in words]
  assert done.stdout.split(b"\0")[:-1] == expected


def test_plain_words_are_not_quoted():
  assert shell_command("moozi", "train", "tiny/catch", "seed=1") == "moozi train tiny/catch seed=1"
  assert shell_command("tensorboard", "--logdir", "here ü") == "tensorboard --logdir 'here ü'"
