"""Sphinx builds the site with this file; `make docs` runs it. The source folder is the repository.

The same Markdown files are read on the site and in the repository, so links are relative paths between files.
A link to a file that is not a page (code, a configuration, results) points to a copy of the file on the site.
"""

import html
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import guess_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.application import Sphinx

from moozi import __version__

ROOT = Path(__file__).resolve().parent.parent

project = "MooZi"
version = release = __version__
copyright = "the MooZi contributors, Apache-2.0"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
extensions += ["sphinx_copybutton"]
root_doc = "docs/index"
include_patterns = ["docs/**.md", "experiments/*/*.md", "experiments/*/results/table.md"]
include_patterns += ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "zoo/*/*/card.md"]
exclude_patterns = [".*", ".venv", "runs", "build", "site", "experiments/*/results/*/**"]
default_role = "code"
nitpicky = False

myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"

html_theme = "furo"
html_title = f"MooZi {version}"
html_logo = html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_search_scorer = "docs/scorer.js"
html_css_files, html_js_files = ["site.css"], ["site.js"]
html_show_sphinx = False
html_copy_source = html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}
# A copy button leaves out the prompts of an interactive session.
copybutton_prompt_text, copybutton_prompt_is_regexp = r">>> |\.\.\. |\$ ", True

napoleon_custom_sections = ["Source", "Departures"]
napoleon_use_ivar = True
autodoc_typehints = "description"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"


def _copied(env: Any) -> set[str]:
  """Returns the paths, relative to the repository, of the linked files that are not pages."""
  if not hasattr(env, "moozi_copied"):
    env.moozi_copied = set()
  return env.moozi_copied


def _link_files(app: Sphinx, doctree: nodes.document) -> None:
  """Replaces each link to a file of the repository by a link to its copy below source/."""
  docname = app.env.docname
  for node in list(doctree.findall(addnodes.download_reference)):
    path = (ROOT / docname).parent / node["reftarget"]
    path = Path(os.path.normpath(path))
    if not path.is_file() or not path.is_relative_to(ROOT):
      continue
    relative = path.relative_to(ROOT).as_posix()
    _copied(app.env).add(relative)
    uri = os.path.relpath(f"source/{relative}.html", Path(docname).parent)
    link = nodes.reference("", "", *node.children, refuri=uri, internal=True)
    node.replace_self(link)


def _complete(app: Sphinx, docname: str, source: list[str]) -> None:
  """Adds a title to generated tables, and marks the zoo's cards as pages outside the table of contents."""
  if docname.endswith("/results/table"):
    source[0] = f"# {docname.split('/')[-3]}: table\n\n{source[0]}"
  elif docname.startswith("zoo/"):
    source[0] = f"---\norphan: true\n---\n\n{source[0]}"


def _source_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
  for relative in sorted(_copied(app.env)):
    text = (ROOT / relative).read_text("utf-8")
    try:
      body = highlight(text, guess_lexer_for_filename(relative, text), HtmlFormatter())
    except ClassNotFound:
      body = f'<div class="highlight"><pre>{html.escape(text)}</pre></div>'
    title = html.escape(relative)
    yield f"source/{relative}", {"title": title, "body": f"<h1>{title}</h1>{body}"}, "page.html"


def _leave_out_of_search(app: Sphinx, env: Any) -> None:
  """Leaves pages for other readers than users out of the full-text search; their titles are still found."""
  for docname in env.found_docs:
    if docname == "CHANGELOG" or docname.startswith(("docs/decisions/", "experiments/", "zoo/")):
      env.metadata[docname]["no-search"] = ""


def _forget_modules_without_source(app: Sphinx, env: Any) -> None:
  """Leaves out what viewcode would list with a dead link, such as the module of a named tuple's `__new__`."""
  found = env._viewcode_modules
  env._viewcode_modules = {name: entry for name, entry in found.items() if entry}


def _split_sections(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
  """Rewrites a docstring's one-line sections (`Raises: …`) in napoleon's form: a title and indented text."""

  def split(match: re.Match[str]) -> str:
    words = " ".join(match[2].split())
    body = re.sub(r"\. (?=\w+Error: )", ".\n  ", words)
    return f"\n{match[1]}:\n  {body}"

  names = "Raises|Returns|Yields|Source|Departures"
  text = re.sub(rf"^({names}): (.+(?:\n +.+)*)", split, "\n".join(lines), flags=re.MULTILINE)
  lines[:] = text.replace("|", r"\|").replace("**", r"\*\*").splitlines()


def _redirect(app: Sphinx, error: Exception | None) -> None:
  """Writes a page at the site's root that redirects to the first page."""
  if error is None and app.builder.format == "html":
    page = '<!doctype html><title>MooZi</title><meta http-equiv="refresh" content="0; url=docs/index.html">'
    (Path(app.outdir) / "index.html").write_text(f'{page}<a href="docs/index.html">MooZi</a>\n')


def setup(app: Sphinx) -> dict[str, bool]:
  app.connect("source-read", _complete)
  app.connect("doctree-read", _link_files, priority=100)  # before Sphinx copies these files as downloads
  app.connect("env-updated", _leave_out_of_search)
  app.connect("env-updated", _forget_modules_without_source)
  app.connect("html-collect-pages", _source_pages)
  app.connect("autodoc-process-docstring", _split_sections, priority=400)  # before napoleon
  app.connect("build-finished", _redirect)
  return {"parallel_read_safe": False}
