"""Text from files that may be printed."""


def printable(text: str) -> str:
  """Returns the text with `?` for each character that is not printable, except line breaks.

  Names in files may contain escape sequences, which a terminal would execute.
  """
  return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
