"""Sections as a self-contained HTML page, as Markdown, and as picture files."""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Iterable
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from poolrl.paper.report import NOT_PRIVATE
from poolrl.paper.sections import Section

TITLE = "POOL, reproduced"

STYLE = """
:root { color-scheme: light dark; --ink: #1f2933; --paper: #ffffff; --line: #d9dee3; --quiet: #5f6c7b;
  --good: #1b7f4b; --bad: #b3261e; --open: #8a5a00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --paper: #15191d; --line: #36404a; --quiet: #a3b0bd;
  --good: #5fd39a; --bad: #ff8f86; --open: #f0bf5a; } }
body { color: var(--ink); background: var(--paper); font: 16px/1.5 system-ui, sans-serif; margin: 0 auto;
  max-width: 76rem; padding: 1rem 1.25rem 4rem; }
h1 { font-size: 1.8rem; margin-bottom: 0.2rem; } h2 { font-size: 1.25rem; margin-top: 2.4rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.875rem; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: 0.35rem 0.7rem; text-align: left; vertical-align: top; }
td { min-width: 5rem; } td:first-child { min-width: 11rem; }
figure { margin: 1rem 0; } img { background: #ffffff; border-radius: 6px; height: auto; max-width: 100%; }
nav a { margin-right: 1rem; } a { color: inherit; }
.notice { border-left: 4px solid var(--bad); padding: 0.3rem 0.9rem; }
.holds { color: var(--good); } .does-not-hold { color: var(--bad); } .undecided, .vacuous { color: var(--open); }
@media print { .scroll { overflow: visible; } body { max-width: none; font-size: 11px; } h2 { break-after: avoid; } }
"""


def page(parts: Iterable[Section]) -> str:
    """One HTML file that asks for nothing from outside."""
    parts = list(parts)
    links = "".join(f'<a href="#{_anchor(part)}">{html.escape(part.title)}</a> ' for part in parts if part.header)
    body = "\n".join(_html_section(part) for part in parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{TITLE}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head>\n<body><main><h1>{TITLE}</h1>"
        '<p>"Privacy Preserving Reinforcement Learning with One-Sided Feedback": its evaluation, run again, with a '
        f'verdict on each claim.</p><p class="notice">{html.escape(NOT_PRIVATE)}</p>'
        f"<details><summary>Contents</summary><nav>{links}</nav></details>\n{body}\n</main></body></html>\n"
    )


def markdown(parts: Iterable[Section]) -> str:
    """The same as Markdown, with pictures beside it in `figures/`."""
    lines = [
        f"# {TITLE}",
        "",
        "Written by `poolrl reproduce`, not by hand.",
        "",
        f"> {NOT_PRIVATE}",
    ]
    for part in parts:
        lines += ["", f"## {part.title}"]
        lines += [line for text in part.text for line in ("", text)]
        if part.figure:
            lines += ["", f"![{part.figure[1]}](figures/{part.figure[0]}.svg)"]
        if part.header:
            lines += ["", _row(part.header), _row(["---"] * len(part.header)), *(_row(row) for row in part.rows)]
    return "\n".join(lines) + "\n"


def save_figures(parts: Iterable[Section], folder: Path) -> None:
    """Every picture as SVG and PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in parts:
        if part.figure:
            name, _, figure = part.figure
            (folder / f"{name}.svg").write_bytes(_svg(figure))
            figure.savefig(folder / f"{name}.png", dpi=150)


def _html_section(part: Section) -> str:
    found = [f'<section id="{_anchor(part)}"><h2>{html.escape(part.title)}</h2>']
    found += [f"<p>{_inline(text)}</p>" for text in part.text]
    if part.figure:
        _, alt, figure = part.figure
        source = base64.b64encode(_svg(figure)).decode()
        found.append(f'<figure><img alt="{html.escape(alt)}" src="data:image/svg+xml;base64,{source}"></figure>')
    if part.header:
        head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in part.header)
        rows = "".join("<tr>" + "".join(f"<td>{_inline(cell)}</td>" for cell in row) + "</tr>" for row in part.rows)
        found.append(
            f'<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(part.title)}">'
            f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
        )
    return "".join([*found, "</section>"])


def _inline(text: str) -> str:
    """Escape, then the two marks of Markdown that sections use; a verdict gets its colour."""
    safe = html.escape(text)
    for verdict in ("holds", "does not hold", "undecided", "vacuous"):
        mark = f'<strong class="{verdict.replace(" ", "-")}">{verdict}</strong>'
        safe = safe.replace(f"**{verdict}**", mark)
    return re.sub(r"\*([^*]+)\*", r"<em>\1</em>", safe)


def _svg(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    # No date and no random names: drawn again from the same rows, a picture has the same bytes.
    with matplotlib.rc_context({"svg.hashsalt": "poolrl"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    figure.set_layout_engine("none")  # the layout is found, and finding it takes as long as drawing
    return buffer.getvalue()


def _anchor(part: Section) -> str:
    return re.sub(r"[^a-z0-9]+", "-", part.title.lower()).strip("-")


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
