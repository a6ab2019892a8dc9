"""Reads the answer on an experiment's page."""

import re


def sentences_of(page: str) -> list[str]:
  """Returns the sentences of the answer, each on one line.

  Args:
    page: the text of README.md, with a paragraph that starts with `**Answer.**`.
  """
  answer = " ".join(page.split("**Answer.**")[1].split("\n\n")[0].split())
  return re.split(r"(?<=[.?!]) (?=[A-Z`])", answer)
