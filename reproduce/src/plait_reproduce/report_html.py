"""The report as one HTML page with its styles and plots inside, for screen and paper."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from plait_reproduce.experiment import FAMILIES
from plait_reproduce.report import check_cells, how_to_read, ran, render, summary
from plait_reproduce.results import Result
from plait_reproduce.verdict import CONTRADICTED, HOLDS, NOT_SEEN, RULE, WEAKLY

# A sign beside every verdict: colour alone fails in grey print and with colour blindness.
SIGNS = {HOLDS: "●", WEAKLY: "◐", NOT_SEEN: "○", CONTRADICTED: "✕"}
CLASSES = {HOLDS: "holds", WEAKLY: "weakly", NOT_SEEN: "unseen", CONTRADICTED: "against"}

STYLE = """
:root { --ink: #1b1b1b; --soft: #5b5b5b; --line: #d9d9d9; --wash: #f6f7f8; }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; color: var(--ink); background: #fff;
       max-width: 1080px; margin: 0 auto; padding: 24px 28px 64px; }
h1 { font-size: 30px; line-height: 1.2; margin: 12px 0 8px; } h2 { font-size: 23px; margin: 52px 0 4px; }
h3 { font-size: 18px; margin: 0 0 4px; } p { margin: 8px 0; max-width: 46em; } a { color: #00558b; }
table { border-collapse: collapse; margin: 10px 0; font-size: 14px; }
th, td { text-align: left; vertical-align: top; padding: 4px 12px 4px 0; border-bottom: 1px solid var(--line); }
th { font-weight: 600; color: var(--soft); } td.n, th.n { text-align: right; white-space: nowrap; }
.all td:first-child, .verdict { white-space: nowrap; } .all td { padding-right: 16px; }
.facts th { width: 9em; font-weight: 500; }
section { border-top: 2px solid var(--ink); margin-top: 34px; padding-top: 10px; }
.head { display: flex; gap: 16px; align-items: baseline; justify-content: space-between; flex-wrap: wrap; }
.verdict { font-weight: 600; font-size: 14px; padding: 1px 8px; border: 1.5px solid; border-radius: 12px; }
.all .verdict { border: 0; padding: 0; }
.holds { color: #00694c; } .weakly { color: #00558b; } .unseen { color: #5b5b5b; } .against { color: #a83e00; }
.claim { font-size: 17px; } .note { color: var(--soft); font-size: 14px; }
.plots { display: flex; flex-wrap: wrap; gap: 8px 28px; } figure { margin: 10px 0; max-width: 100%; }
figure svg { max-width: 100%; height: auto; display: block; } figcaption { font-size: 13px; color: var(--soft); }
code { font: 13px ui-monospace, "DejaVu Sans Mono", monospace; background: var(--wash); padding: 1px 4px; }
.wide { overflow-x: auto; } nav { font-size: 14px; margin: 10px 0 18px; } nav a { margin-right: 14px; }
@media print {
  body { font-size: 10pt; max-width: none; padding: 0; } a { color: inherit; text-decoration: none; }
  nav { display: none; } h2 { break-after: avoid; break-before: page; } section { break-inside: auto; }
  .head, .claim, figure, tr, .facts { break-inside: avoid; } .head, .claim { break-after: avoid; }
  table { font-size: 8.5pt; line-height: 1.35; } .facts td, .facts th { padding-top: 2px; padding-bottom: 2px; }
  .claim { font-size: 11pt; } .note { font-size: 9pt; } figcaption { font-size: 8.5pt; } section { margin-top: 18px; }
  h2 + section { margin-top: 8px; } figure { margin: 6px 0; } figure svg { max-width: 16.5cm; max-height: 7cm; }
  .title { break-after: avoid; } @page { margin: 16mm; }
}
"""


def write_page(file: Path, results: Sequence[Result]) -> None:
    """Writes the page; its plots are drawn into it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(page(results), encoding="utf-8")


def page(results: Sequence[Result]) -> str:
    families = [
        (family, list(family_results))
        for family, family_results in groupby(results, key=lambda result: str(result["family"]))
    ]
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>The papers' claims in miniature</title><style>{STYLE}</style></head><body>",
        "<h1>The papers' claims in miniature</h1>",
        f"<p>{text(summary(results))}</p><p>{text(how_to_read())}</p>",
        "<nav>" + "".join(f'<a href="#{family}">{text(FAMILIES[family])}</a>' for family, _ in families) + "</nav>",
        _overview(results),
        f'<p class="note">{marked(RULE)}</p>',
    ]
    for family, family_results in families:
        parts.append(f'<h2 id="{family}">{text(FAMILIES[family])}</h2>')
        parts += [_section(result) for result in family_results]
    return "\n".join([*parts, "</body></html>", ""])


def _overview(results: Sequence[Result]) -> str:
    rows = "".join(
        f'<tr><td><a href="#{result["id"]}">{result["id"]}</a></td><td>{text(result["claim"])}</td>'
        f"<td>{text(result['paper'])}</td><td>{text(result['ours'])}</td><td>{_verdict(result['verdict'])}</td></tr>"
        for result in results
    )
    head = "<tr><th></th><th>claim</th><th>paper</th><th>here</th><th>verdict</th></tr>"
    return f'<div class="wide"><table class="all"><thead>{head}</thead><tbody>{rows}</tbody></table></div>'


def _section(result: Result) -> str:
    facts = {
        "the paper": result["paper"], "here": result["ours"], "measure": result["measure"],
        "expected": result["expects"], "data": ", ".join(result["sets"]) or "none",
        "what differs": result["differs"], "run": ran(result),
    }  # fmt: skip
    listed = "".join(f"<tr><th>{name}</th><td>{text(value)}</td></tr>" for name, value in facts.items())
    command = f"<tr><th>command</th><td><code>{text(result['command'])}</code></td></tr>"
    checks = _table(
        ["check", "value", "95% interval", "bar", "verdict"], [check_cells(check) for check in result["checks"]]
    )
    tables = "".join(
        f'<p class="note title">{text(table["title"])}</p>{_table(table["header"], table["rows"])}'
        for table in result["tables"]
    )
    figures = "".join(
        f"<figure>{inline_svg(figure, result['id'] + f'-{number}')}"
        f"<figcaption>{text(figure['title'])}</figcaption></figure>"
        for number, figure in enumerate(result["figures"], 1)
    )
    notes = "".join(f'<p class="note">{text(note)}</p>' for note in result["notes"])
    return (
        f'<section id="{result["id"]}"><div class="head"><h3>{result["id"]}</h3>{_verdict(result["verdict"])}</div>'
        f'<p class="claim">{text(result["claim"])}</p><table class="facts">{listed}{command}</table>'
        f'{checks}<div class="plots">{figures}</div>{tables}{notes}</section>'
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}{_align(cell, tag)}>{text(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    return f'<div class="wide"><table><thead>{row(header, "th")}</thead><tbody>{body}</tbody></table></div>'


def _align(cell: str, tag: str) -> str:
    """Right-aligns numbers and intervals, and keeps them on one line."""
    number = r"[-+]?[\d,.]+(%|x| [kMG]?B)?"
    return ' class="n"' if tag == "td" and re.fullmatch(f"{number}( to {number})?", cell) else ""


def _verdict(verdict: str) -> str:
    return f'<span class="verdict {CLASSES[verdict]}">{SIGNS[verdict]} {verdict}</span>'


def text(value: str) -> str:
    return html.escape(" ".join(str(value).split()))


def marked(value: str) -> str:
    """Escapes text and turns *stars* into emphasis."""
    return re.sub(r"\*([^*]+)\*", r"<em>\1</em>", text(value))


def inline_svg(figure: dict[str, Any], prefix: str) -> str:
    """The figure as SVG for a page: without the file header, and with ids that no other figure has."""
    svg = render(figure, "svg", metadata={"Date": None}).decode()
    body = svg[svg.index("<svg") : svg.rindex("</svg>") + len("</svg>")]
    body = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', body)
    body = re.sub(r'(xlink:href="#|url\(#)([^")]+)', rf"\1{prefix}-\2", body)
    return re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
