"""The page: all results one under the other. It fetches nothing, and its policy forbids that."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from html import escape

from hack.benchmarks.report.bars import plots
from hack.benchmarks.report.tables import Table, number_in, parts
from hack.benchmarks.results import Kept
from sidecar.commands.progress import in_words

STYLE = """
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1f2328; --faint: #59636e; --edge: #d1d9e0; --ours: #1b6ca8; --peer: #c2571a; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #0d1117; --ink: #e6edf3; --faint: #9198a1; --edge: #3d444d; --ours: #4c9fdc; --peer: #e5894f; }
}
body { background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 70rem; margin: 0 auto; padding: 1rem 1.5rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-top: 1px solid var(--edge); padding-top: 1rem; }
.about, .legend { color: var(--faint); } .wide { overflow-x: auto; } code { overflow-wrap: anywhere; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--edge); text-align: left; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
svg { display: block; max-width: 100%; height: auto; margin: 1rem 0; } svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
svg .title { font-weight: 600; } svg .ours { fill: var(--ours); } svg .peer { fill: var(--peer); }
.legend b { display: inline-block; width: .8em; height: .8em; }
.legend .ours { background: var(--ours); } .legend .peer { background: var(--peer); }
"""


def page(results: Sequence[Kept]) -> str:
    latest = max(result.date for result in results)
    body = "\n".join(section(result) for result in results)
    links = ", ".join(f'<a href="#{escape(result.command)}">{escape(result.command)}</a>' for result in results)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'"/>
<title>csi-node-sidecar, measured</title>
<style>{STYLE}</style>
</head>
<body>
<h1>csi-node-sidecar, measured</h1>
<p class="about">The last result of each measurement, the latest of {escape(said(latest))}: {links}.
The figures compare programs on one machine, and do not predict a cluster.</p>
<p class="legend"><b class="ours"></b> csi-node-sidecar <b class="peer"></b> csi-provisioner</p>
{body}
</body>
</html>
"""


def section(result: Kept) -> str:
    shown = "\n".join(table(part) if isinstance(part, Table) else paragraph(part) for part in parts(result.text))
    line = shlex.join(["hack/bench", *result.words])
    about = f"<code>{escape(line)}</code>, {escape(said(result.date))}, took {escape(in_words(result.seconds))}"
    return f"""<section id="{escape(result.command)}">
<h2>{escape(result.command)}</h2>
<p class="about">{about}.<br/>{facts(result.versions)}.<br/>{facts(result.machine)}.</p>
{shown}
</section>"""


def facts(told: Mapping[str, str]) -> str:
    return "; ".join(f"{escape(name)} {escape(value)}" for name, value in told.items())


def said(date: str) -> str:
    return f"{date[:10]} {date[11:16]} UTC"


def table(shown: Table) -> str:
    head = "".join(f"<th>{text(cell)}</th>" for cell in shown.head)
    rows = "".join(f"<tr>{''.join(_cell(cell) for cell in row)}</tr>\n" for row in shown.rows)
    drawn = "\n".join(plots(shown))
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table></div>\n{drawn}'


def _cell(cell: str) -> str:
    kind = ' class="number"' if number_in(cell) is not None else ""
    return f"<td{kind}>{text(cell)}</td>"


def paragraph(lines: str) -> str:
    return f"<p>{'<br/>'.join(text(line) for line in lines.splitlines())}</p>"


def text(markdown: str) -> str:
    """Code and emphasis, which is all that the measurements write."""
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(markdown))
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", marked)
