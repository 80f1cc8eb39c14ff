"""The page of peers.py: tables and plots of a run, as Markdown beside the numbers."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from hushmote.server.answers.figure import COLOURS, figure, plain, style

OURS = "hushmote"
ORDER = (
    OURS,
    "hushmote OLH",
    "hushmote GRR",
    "hushmote clipped",
    "pure-ldp OLH",
    "pure-ldp FLH",
    "pure-ldp HR",
    "pure-ldp OUE",
    "pure-ldp GRR",
    "multi-freq OLH",
    "multi-freq OUE",
    "multi-freq GRR",
)
# Colour tells the mechanism, marker and line the library: twelve colours nobody tells apart.
_MECHANISM = {
    "OLH": COLOURS[1],
    "GRR": COLOURS[2],
    "OUE": COLOURS[3],
    "HR": COLOURS[4],
    "FLH": COLOURS[5],
    "clipped": COLOURS[0],
    OURS: COLOURS[0],
}
_LIBRARY = {"hushmote": ("o", "-"), "pure-ldp": ("s", "--"), "multi-freq": ("^", ":")}

_THEORY: dict[str, Any] = {"color": "black", "linewidth": 1.2, "zorder": 4}

Cell = tuple[str, int, int, float]  # method, N, D, ε
Time = tuple[str, int, int]  # method, N, D
_INTRO = """# Frequencies, side by side with the peers

The same sample for every method; pure-ldp {pure}, multi-freq-ldpy {multi}; Python {python}, NumPy {numpy}.
Errors of {errors_when} ({errors_spent:,.0f} CPU seconds), times of {times_when} on {cpu}, {cores} cores,
{system} ({times_spent:,.0f} CPU seconds; load average {load:.1f} at their end). Made by
`python benchmarks/peers.py`; do not edit.

* **Sample.** Zipf with exponent 1.3 over D values. Its counts are the same in every run, in a new random
  order of the values: what is measured is the mechanism's error alone.
* **Error.** Mean over the D values of the squared error of the frequency, with its standard error over the
  runs. The number of runs is fixed beforehand, by theory: {runs}. The standard error is {typical:.1%} of the
  number at the median, {worst:.0%} at most.
* **Theory.** The formula's error for the same sample, without any run: ours from the mechanism's whole law
  and weights, OLH, OUE, GRR and HR up to ε = 1 by Wang et al. (USENIX Security 2017), FLH with what its own
  pool of {hashes} hash functions errs by. There is none for clipped estimates. Of the {known} measurements
  with a formula {within_one:.0%} are within one standard error of it, {within_two:.0%} within two, all
  within {furthest:.1f}; what is scaled from one measurement counts once.
* **hushmote** is what it picks itself for frequencies; `OLH` and `GRR` are its two mechanisms; `clipped` is
  its pick with the estimates clipped at zero and normalised, as multi-freq-ldpy always does. Clipping
  lowers the error where most values are rare, and biases every one of them.
* **Server time.** From a Python list of reports in memory to all D frequencies, for ours and for theirs: our
  reports are integers, theirs integers, pairs or arrays. Ours includes counting and all standard errors,
  which the peers do not give. `from its histogram` starts at the counts, which is what our store keeps.
  Set-up (FLH's matrix of hashes, HR's permutation) is not counted.
* **Client time.** One report: ours by the file that runs on boards, with its own generator on SHA-256; the
  peers' by NumPy's or Python's generator, which is not fit for privacy.
* **Times** are CPU seconds of one process on one thread, medians of {rounds} rounds in each of which all
  methods take their turn; a ratio is the median of the rounds' ratios.

Marks: `*` measured on fewer reports and scaled by 1/N, exact for an unbiased estimator. `~` the peer's own
estimator on reports or support counts drawn from the mechanism's distribution. `>` time on fewer reports,
scaled linearly. No mark: measured in full. A ratio in parentheses is the method's over **hushmote**'s; above
1, ours is better.
"""


def write_page(result: dict, folder: Path) -> None:
    """Write peers.md, peers_error.png and peers_time.png of a run's result into a folder."""
    errors, times = result["errors"], result["times"]
    rows: dict[Cell, dict] = {
        (r["method"], r["reports"], r["domain"], r["epsilon"]): r for r in errors["rows"]
    }
    server: dict[Time, dict] = {(r["method"], r["reports"], r["domain"]): r for r in times["server"]}
    client: dict[tuple[str, int], dict] = {(r["method"], r["domain"]): r for r in times["client"]}
    sizes, domains, epsilons = (
        sorted({k[1] for k in rows}),
        sorted({k[2] for k in rows}),
        sorted({k[3] for k in rows}),
    )
    error_plot(rows, domains, sizes[0], epsilons, folder / "peers_error.png")
    time_plot(server, domains, sizes, folder / "peers_time.png")
    parts = [_intro(errors, times)]
    parts.append(
        "## Squared error\n\nMeasured ± standard error (ratio), theory.\n\n"
        "![Squared error against ε](peers_error.png)\n"
    )
    parts += [
        f"N = {people:,}, D = {domain:,}\n\n" + _error_table(rows, people, domain, epsilons)
        for people in sizes
        for domain in domains
    ]
    parts.append("## Server time\n\n![Time against N](peers_time.png)\n")
    parts += [f"D = {domain:,}, ε = 1\n\n" + _time_table(server, domain, sizes) for domain in domains]
    parts.append("## Client time, microseconds for a report\n\n" + _client_table(client, domains))
    (folder / "peers.md").write_text("\n".join(parts), encoding="utf-8")


def _intro(errors: dict, times: dict) -> str:
    rows, about = errors["rows"], times["machine"]
    runs = {r["domain"]: r["runs"] for r in rows}
    spread = [r["mse_error"] / r["mse"] for r in rows]
    least = min(r["reports"] for r in rows)
    known = [r for r in rows if r["theory"] and (r["mark"] != "*" or r["reports"] == least)]
    off = np.array([abs(r["mse"] - r["theory"]) / r["mse_error"] for r in known])
    return _INTRO.format(
        pure=about["peers"]["pure-ldp"],
        multi=about["peers"]["multi-freq-ldpy"],
        errors_when=errors["machine"]["date"][:10],
        errors_spent=errors["machine"]["cpu_seconds"],
        times_when=about["date"][:10],
        times_spent=about["cpu_seconds"],
        load=about["load_average"],
        rounds=times["rounds"],
        runs=", ".join(f"{number} at D = {domain:,}" for domain, number in sorted(runs.items())),
        typical=float(np.median(spread)),
        worst=max(spread),
        hashes=about["flh_hashes"],
        known=len(off),
        within_one=float((off < 1).mean()),
        within_two=float((off < 2).mean()),
        furthest=math.ceil(off.max() * 10) / 10,
        **{name: about[name] for name in ("cpu", "cores", "system", "python", "numpy")},
    )


def _table(head: list[str], lines: list[list[str]]) -> str:
    rows = [head, ["---", *["---:"] * (len(head) - 1)], *lines]
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def _bold(method: str) -> str:
    return f"**{method}**" if method == OURS else method


def _ratio(x: float) -> str:
    return f" ({x:.2f})" if x < 10 else f" ({x:,.0f})"


def _error_table(rows: dict[Cell, dict], people: int, domain: int, epsilons: list[float]) -> str:
    """A line for each method; for each ε the number with its error and ratio to ours, and the formula's."""
    lines = []
    for method in ORDER:
        line = [_bold(method)]
        for epsilon in epsilons:
            r, own = (rows[name, people, domain, epsilon] for name in (method, OURS))
            more = f" {r['mechanism']}" if method == OURS else _ratio(r["mse"] / own["mse"])
            line.append(f"{r['mark']}{r['mse']:.2e} ± {r['mse_error'] / r['mse']:.1%}{more}")
            line.append(f"{r['theory']:.2e}" if r["theory"] else "–")
        lines.append(line)
    return _table(["", *(head for e in epsilons for head in (f"ε = {e:g}", "theory"))], lines)


# Clipping takes no time worth mentioning.
_TIMED = tuple(method for method in ORDER if method != "hushmote clipped")
_FROM_HISTOGRAM = "hushmote, from its histogram"


def _time_table(rows: dict[Time, dict], domain: int, sizes: list[int]) -> str:
    lines = []
    for method in (OURS, _FROM_HISTOGRAM, *_TIMED[1:]):
        line = [_bold(method)]
        for people in sizes:
            r = rows[method, people, domain]
            ratio = "" if method == OURS else _ratio(r["ratio"])
            line.append(f"{r['mark']}{_seconds(r['seconds'])}{ratio}")
        lines.append(line)
    return _table(["", *(f"N = {n:,}" for n in sizes)], lines)


def _seconds(x: float) -> str:
    if x < 0.9995:
        return f"{x * 1000:.2g} ms" if x < 0.01 else f"{x * 1000:.0f} ms"
    return f"{x:.1f} s" if x < 100 else f"{x:,.0f} s"


def _client_table(rows: dict[tuple[str, int], dict], domains: list[int]) -> str:
    lines = []
    for method in _TIMED:
        cells = [rows[method, domain] for domain in domains]
        texts = (f"{r['seconds'] * 1e6:.1f}" + ("" if method == OURS else _ratio(r["ratio"])) for r in cells)
        lines.append([_bold(method), *texts])
    return _table(["ε = 1", *(f"D = {d:,}" for d in domains)], lines)


def _look(method: str) -> dict[str, Any]:
    library, _, mechanism = method.partition(" ")
    marker, line = _LIBRARY[library]
    own = method == OURS
    return {
        "color": _MECHANISM[mechanism or OURS],
        "marker": marker,
        "linestyle": line,
        "linewidth": 2.6 if own else 1.2,
        "markersize": 7 if own else 5,
        "zorder": 5 if own else 3,
    }


def _legend(axes: Axes, methods: tuple[str, ...], theory: bool) -> None:
    handles = [Line2D([], [], label=m, **_look(m)) for m in methods]
    if theory:
        handles.append(Line2D([], [], label="4e^ε / (e^ε - 1)² / N", **_THEORY))
    axes.legend(handles=handles, frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.01, 0.5))


def error_plot(
    rows: dict[Cell, dict], domains: list[int], people: int, epsilons: list[float], path: Path
) -> None:
    """Squared error against ε, one column for each D; below, over the optimum of large domains."""
    best = {e: 4 * math.exp(e) / math.expm1(e) ** 2 / people for e in epsilons}
    with figure(path, len(domains), 2) as (_, panels):
        for number, domain in enumerate(domains):
            top, bottom = panels[number], panels[number + len(domains)]
            for method in ORDER:
                values = [rows[method, people, domain, e]["mse"] for e in epsilons]
                top.plot(epsilons, values, **_look(method))
                ratios = [value / best[e] for value, e in zip(values, epsilons, strict=True)]
                bottom.plot(epsilons, ratios, **_look(method))
            at = np.geomspace(min(epsilons), max(epsilons), 60)
            top.plot(at, 4 * np.exp(at) / np.expm1(at) ** 2 / people, **_THEORY)
            bottom.plot(at, np.ones_like(at), **_THEORY)
            bottom.set_ylim(0.25, 6)
            for axes in (top, bottom):
                axes.set_yscale("log")
                axes.set_xscale("log")
                axes.minorticks_off()
                axes.set_xticks(epsilons, [f"{e:g}" for e in epsilons])
            plain(top.yaxis)
            bottom.set_yticks([0.25, 0.5, 1, 2, 4], ["¼", "½", "1", "2", "4"])
            style(top, f"D = {domain:,}", f"N = {people:,}", "ε", "mean squared error" * (not number))
            style(bottom, "", "", "ε", "the same over the black line" * (not number))
        _legend(panels[len(domains) - 1], ORDER, True)


def time_plot(rows: dict[Time, dict], domains: list[int], sizes: list[int], path: Path) -> None:
    """Server time against N on logarithmic axes, one panel for each D; what is extrapolated is hollow."""
    times = [r["seconds"] for (method, _, _), r in rows.items() if method in _TIMED]
    with figure(path, len(domains)) as (_, panels):
        for axes, domain in zip(panels, domains, strict=True):
            for method in _TIMED:
                measured = [rows[method, n, domain] for n in sizes]
                look = _look(method)
                line: dict[str, Any] = look | {"marker": ""}
                axes.plot(sizes, [r["seconds"] for r in measured], **line)
                for n, r in zip(sizes, measured, strict=True):
                    fill = "white" if r["mark"] else look["color"]
                    axes.plot([n], [r["seconds"]], markerfacecolor=fill, **look)
            axes.set_xscale("log")
            axes.set_yscale("log")
            plain(axes.xaxis, "{:,.0f}".format)
            plain(axes.yaxis)
            axes.set_ylim(10 ** math.floor(math.log10(min(times))), 10 ** math.ceil(math.log10(max(times))))
            style(
                axes,
                f"D = {domain:,}",
                "ε = 1, from a list of reports; hollow: extrapolated",
                "reports N",
                "CPU seconds" * (axes is panels[0]),
            )
        _legend(panels[-1], _TIMED, False)
