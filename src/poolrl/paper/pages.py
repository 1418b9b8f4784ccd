"""Sections as a self-contained HTML page, as Markdown, and as picture files."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterable
from pathlib import Path

import matplotlib
from jinja2 import Environment, PackageLoader
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from poolrl.paper.report import SEEDED_NOTICE
from poolrl.paper.sections import Section

TITLE = "POOL, reproduced"


def html_page(parts: Iterable[Section]) -> str:
    """One HTML file that asks for nothing from outside."""
    templates = Environment(loader=PackageLoader("poolrl.paper"), autoescape=True, trim_blocks=True)
    templates.filters |= {"anchor": _anchor, "encoded": _encoded, "marked": _marked}
    page = templates.get_template("reproduction.html")
    return page.render(title=TITLE, notice=SEEDED_NOTICE, parts=list(parts)) + "\n"


def markdown(parts: Iterable[Section]) -> str:
    """The same as Markdown, with pictures beside it in `figures/`."""
    lines = [f"# {TITLE}", "", "Written by `poolrl reproduce`, not by hand.", "", f"> {SEEDED_NOTICE}"]
    for part in parts:
        lines += ["", f"## {part.title}"]
        if part.picture:
            lines += ["", f"![{part.picture.alt}](figures/{part.picture.name}.svg)"]
        lines += [line for text in part.text for line in ("", text)]
        if part.header:
            lines += ["", _row(part.header), _row(["---"] * len(part.header)), *(_row(row) for row in part.rows)]
    return "\n".join(lines) + "\n"


def save_figures(parts: Iterable[Section], folder: Path) -> None:
    """Every picture as SVG and PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in parts:
        if part.picture:
            (folder / f"{part.picture.name}.svg").write_bytes(svg(part.picture.figure))
            part.picture.figure.savefig(folder / f"{part.picture.name}.png", dpi=150)


def svg(figure: Figure) -> bytes:
    """The picture without a date and without random names, so that the same rows give the same bytes."""
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "poolrl"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    figure.set_layout_engine("none")  # the layout is found, and finding it takes as long as drawing
    return buffer.getvalue()


def _encoded(figure: Figure) -> str:
    return base64.b64encode(svg(figure)).decode()


def _marked(text: str) -> Markup:
    """Escape, then the two marks of Markdown that sections use; a verdict gets its colour."""
    safe = str(escape(text))
    for verdict in ("holds", "does not hold", "undecided", "vacuous"):
        strong = f'<strong class="{verdict.replace(" ", "-")}">{verdict}</strong>'
        safe = safe.replace(f"**{verdict}**", strong)
    return Markup(re.sub(r"\*([^*]+)\*", r"<em>\1</em>", safe))


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
