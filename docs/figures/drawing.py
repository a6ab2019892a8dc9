"""Draws boxes, arrows and text as SVG."""

from collections.abc import Sequence
from html import escape

# Each colour as (on a light page, on a dark page). The figure draws its own background, `ground`.
COLOURS = {
  "ground": ("#ffffff", "#17191c"),
  "ink": ("#1f2933", "#eceff1"),
  "muted": ("#52606d", "#aab4be"),
  "env": ("#fdf0c8", "#453914"),
  "net": ("#d9e9ff", "#17385c"),
  "data": ("#d8f5e0", "#143d25"),
  "search": ("#e9e2ff", "#372a66"),
  "none": ("#f1f3f5", "#2a2e33"),
  "accent": ("#b4530a", "#ffb86b"),
}


class Drawing:
  """A figure of `width` × `height` units, with a title and a description for screen readers."""

  def __init__(self, width: int, height: int, title: str, description: str):
    self._size, self._title, self._description = (width, height), title, description
    self._parts: list[str] = []

  def box(
    self, x: float, y: float, w: float, h: float, text: str = "", kind: str = "net", size: int = 15
  ) -> None:
    """Draws a rounded box with centred lines of text; of several lines, the first is bold."""
    self._parts.append(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="7" class="{kind} line"/>')
    lines = text.split("\n") if text else []
    for i, line in enumerate(lines):
      down = (i - (len(lines) - 1) / 2) * size * 1.25
      style = "bold" if i == 0 and len(lines) > 1 else ""
      self.text(
        x + w / 2, y + h / 2 + down + size * 0.35, line, size=size if i == 0 else size - 2, style=style
      )

  def plane(self, x: float, y: float, values: Sequence[Sequence[float]], size: float) -> None:
    """Draws a grid of square cells; a cell is the stronger coloured the larger its value, from 0 to 1."""
    w, h = len(values[0]) * size, len(values) * size
    self._parts.append(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" class="none line"/>')
    for row, line in enumerate(values):
      for column, value in enumerate(line):
        if value:
          place = f'x="{x + column * size:g}" y="{y + row * size:g}" width="{size:g}" height="{size:g}"'
          self._parts.append(f'<rect {place} class="cell" fill-opacity="{value:g}"/>')

  def circle(self, x: float, y: float, r: float, text: str = "", kind: str = "net", size: int = 14) -> None:
    self._parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{r:g}" class="{kind} line"/>')
    if text:
      self.text(x, y + size * 0.35, text, size=size)

  def text(
    self, x: float, y: float, text: str, size: int = 14, anchor: str = "middle", style: str = ""
  ) -> None:
    """Draws text with its baseline at y; `style` is bold, muted, accent, or several of these."""
    place = f'x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"'
    self._parts.append(f'<text {place} class="{style}">{escape(text)}</text>')

  def arrow(self, *points: tuple[float, float], style: str = "", head: bool = True) -> None:
    """Draws a line through the points; `style` is dashed, accent or both."""
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    end = ' marker-end="url(#head)"' if head and "accent" not in style else ""
    end = ' marker-end="url(#head-accent)"' if head and "accent" in style else end
    self._parts.append(f'<polyline points="{path}" class="arrow {style}"{end}/>')

  def svg(self) -> str:
    """Returns the figure as the text of an SVG file."""
    width, height = self._size
    light = "".join(f"--{name}:{pair[0]};" for name, pair in COLOURS.items())
    dark = "".join(f"--{name}:{pair[1]};" for name, pair in COLOURS.items())
    fills = "".join(f".{name}{{fill:var(--{name})}}" for name in ("env", "net", "data", "search", "none"))
    heads = "".join(
      f'<marker id="head{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
      f'orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="var(--{colour})"/></marker>'
      for name, colour in (("", "muted"), ("-accent", "accent"))
    )
    style = (
      f"svg{{{light}}}@media (prefers-color-scheme: dark){{svg{{{dark}}}}}{fills}"
      ".cell{fill:var(--accent)}.line{stroke:var(--muted);stroke-width:1.2}text{fill:var(--ink)}.bold{font-weight:600}"
      "text.muted{fill:var(--muted)}text.accent{fill:var(--accent)}.dashed{stroke-dasharray:5 4}"
      ".arrow{fill:none;stroke:var(--muted);stroke-width:1.6}"
      ".arrow.accent{stroke:var(--accent);stroke-width:2.4}"
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
    parts = [
      f'{head} aria-label="{escape(self._title)}" font-family="system-ui, sans-serif">',
      f"<title>{escape(self._title)}</title>",
      f"<desc>{escape(self._description)}</desc>",
      f"<style>{style}</style>",
      f"<defs>{heads}</defs>",
      f'<rect width="{width}" height="{height}" rx="8" fill="var(--ground)"/>',
      *self._parts,
      "</svg>",
    ]
    return "\n".join(parts) + "\n"
