"""Text as each kind of output needs it: names of files and environments come from outside.

A terminal would execute escape sequences, a shell would split words, and Markdown would read marks. Every
output passes such text through one of these functions; HTML and SVG take `html.escape(printable(text))`.
"""

import os
import shlex


def printable(text: str) -> str:
  """Returns the text with `?` for each character that is not printable, except line breaks.

  Names in files may contain escape sequences, which a terminal would execute, marks that reverse the order
  of letters, and bytes that are not UTF-8.
  """
  return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def one_cell(text: str) -> str:
  """Returns the text as `printable` does, on one line."""
  return printable(text).replace("\n", "?")


def shell_command(*words: object) -> str:
  """Returns a command that a shell reads as these words. Every command that is printed is made here."""
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


def extra_of(library: str) -> str:
  """Returns the extra of MooZi that installs a library."""
  return library.replace("_", "-")
