"""Escapes text for terminals, shells, Markdown and HTML.

Names of files and environments may come from others. A terminal would execute escape sequences in them, a
shell would split them into words, and Markdown and HTML would read marks.
"""

import html
import os
import re
import shlex

from moozi.core.errors import UserError

# Libraries whose license is the GPL.
_GPL = frozenset({"minatar", "atari"})
_MARKS = re.compile(r"[\\`*\[\]<>|&]|(?<![^\W_])_|_(?![^\W_])|~(?=~)|(?<=~)~")
_LINKS = re.compile(r"(?i)\b(https?|ftp|mailto|xmpp)(?=:)|\b(www)(?=\.)")


def printable(text: str) -> str:
  """Returns the text with `?` for each character that is not printable, except line feeds.

  Names in files may contain escape sequences, which a terminal would execute, marks that reverse the order
  of letters, and bytes that are not UTF-8.
  """
  return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def one_cell(text: str) -> str:
  """Returns the text as `printable` does, on one line."""
  return printable(text).replace("\n", "?")


def html_text(text: str) -> str:
  """Returns the text for HTML and SVG, also in attributes."""
  return html.escape(printable(text), quote=True)


def markdown_text(text: str) -> str:
  """Returns the text as one line of Markdown with marks, HTML and links escaped, also in a table's cell."""
  marked = _MARKS.sub(lambda found: "\\" + found[0], one_cell(text))
  return _LINKS.sub(lambda found: found[0] + "\\", marked)


def markdown_code(text: str) -> str:
  """Returns the text as a code span of Markdown, also in a table's cell."""
  return f"`{one_cell(text).replace('`', '?').replace('|', chr(92) + '|') or ' '}`"


def shell_command(*words: object) -> str:
  """Returns a command that a shell reads as these words, for printing."""
  return " ".join(_quoted(str(word)) for word in words)


def _quoted(word: str) -> str:
  if word.isprintable():
    return shlex.quote(word)
  # ANSI-C quoting, which bash and zsh read: line breaks, escape sequences, and bytes that are not UTF-8.
  return "$'" + "".join(c if c.isprintable() and c not in "'\\" else _bytes(c) for c in word) + "'"


def _bytes(character: str) -> str:
  return "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))


def pip_install(library: str) -> str:
  """Returns the command that installs the extra of MooZi for a library, such as `open_spiel` or `video`.

  Names of extras have hyphens: pip below 23.3 skips an extra with an underscore without an error.
  """
  return shell_command("pip", "install", f"moozi[{extra_of(library)}]")


def missing_package(where: str, package: str, library: str | None = None) -> UserError:
  """Returns the error that a package is missing.

  Args:
    library: its extra installs the package; None: the extra has the package's name.
  """
  library = library or package
  note = " (GPL)" if library in _GPL else ""
  return UserError(f"{where}: the package {package} is not installed; run {pip_install(library)}{note}")


def extra_of(library: str) -> str:
  """Returns the extra of MooZi that installs a library."""
  return library.replace("_", "-")
