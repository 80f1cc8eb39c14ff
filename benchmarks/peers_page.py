"""The page of peers.py: tables and plots of a run, as Markdown beside the numbers."""

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from hushmote.server.answers.figure import COLOURS, figure, style

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

Key = tuple[str, int, int, float]
_INTRO = """# Frequencies, side by side with the peers

One run, one machine, the same sample for every method: {when}, {cpu}, {cores} cores, {system}, Python
{python}, NumPy {numpy}; pure-ldp {pure}, multi-freq-ldpy {multi}. Load average {before:.1f} at the start,
{load:.1f} at the end: others were using the machine, so times are CPU seconds of one process on one thread.
Made by `python benchmarks/peers.py` ({spent:.0f} CPU seconds); do not edit.

* **Sample.** Zipf with exponent 1.3 over D values, its counts rounded and the same in every run: what is
  measured is the mechanism's error alone.
* **Error.** Mean over the D values of the squared error of the frequency. The Monte Carlo error of a number
  is {typical:.0%} of it at the median, {worst:.0%} at most.
* **hushmote** is what it picks itself for frequencies; `OLH` and `GRR` are its two mechanisms; `clipped` is
  its pick with the estimates clipped at zero and normalised, as multi-freq-ldpy always does. Clipping
  lowers the error where most values are rare, and biases every one of them.
* **Server time.** From reports in memory, in the library's own form, to all D frequencies; ours includes
  counting and all standard errors, which the peers do not give. Set-up (FLH's matrix of hashes, HR's
  permutation) is not counted.
* **Client time.** One report: ours by the file that runs on boards, with its own generator on SHA-256; the
  peers' by NumPy's or Python's generator, which is not fit for privacy.

Marks: `*` measured on fewer reports and scaled by 1/N, exact for an unbiased estimator. `~` the peer's own
estimator on reports or support counts drawn from the mechanism's distribution. `>` time on fewer reports,
scaled linearly. No mark: measured in full. A ratio in parentheses is the peer's over **hushmote**'s; above
1, ours is better.
"""


def write_page(result: dict, folder: Path) -> None:
    """Write peers.md, peers_error.png and peers_time.png of a run's result into a folder."""
    rows: dict[Key, dict] = {
        (r["method"], r["reports"], r["domain"], r["epsilon"]): r for r in result["rows"]
    }
    domains = sorted({k[2] for k in rows})
    sizes = sorted({k[1] for k in rows})
    epsilons = sorted({k[3] for k in rows})
    about = result["machine"]
    spread = [r["mse_error"] / r["mse"] for r in rows.values()]
    parts = [
        _INTRO.format(
            when=about["date"][:10],
            pure=about["peers"]["pure-ldp"],
            multi=about["peers"]["multi-freq-ldpy"],
            before=about["load_average_before"],
            load=about["load_average"],
            spent=about["cpu_seconds"],
            typical=float(np.median(spread)),
            worst=max(spread),
            **{name: about[name] for name in ("cpu", "cores", "system", "python", "numpy")},
        )
    ]
    error_plot(rows, domains, sizes[0], epsilons, folder / "peers_error.png")
    time_plot(rows, domains, sizes, 1.0 if 1.0 in epsilons else epsilons[0], folder / "peers_time.png")
    parts.append("## Squared error\n\n![Squared error against ε](peers_error.png)\n")
    parts += [
        f"N = {people:,}, D = {domain:,}\n\n" + _error_table(rows, people, domain, epsilons)
        for people in sizes
        for domain in domains
    ]
    parts.append("## Server time\n\n![Time against N](peers_time.png)\n")
    parts += [f"D = {domain:,}, ε = 1\n\n" + _time_table(rows, domain, sizes) for domain in domains]
    parts.append("## Client time, microseconds for a report\n\n" + _client_table(rows, sizes[0], domains))
    (folder / "peers.md").write_text("\n".join(parts), encoding="utf-8")


def _table(head: list[str], lines: list[list[str]]) -> str:
    rows = [head, ["---", *["---:"] * (len(head) - 1)], *lines]
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def _ratio(x: float) -> str:
    return f"{x:.2f}" if x < 10 else f"{x:,.0f}"


def _ratio_table(
    rows: dict[Key, dict],
    heads: list[str],
    cells: list[tuple[int, int, float]],
    field: str,
    write: Callable[[dict], str],
    methods: Iterable[str],
) -> str:
    """A line for each method, a column for each (N, D, ε): the number, and its ratio to ours in brackets."""
    lines = []
    for method in methods:
        line = [f"**{method}**" if method == OURS else method]
        for cell in cells:
            r, own = (rows[name, *cell] for name in (method, OURS))
            ratio = "" if method == OURS else f" ({_ratio(r[field] / own[field])})"
            line.append(f"{write(r)}{ratio}")
        lines.append(line)
    return _table(heads, lines)


def _error_table(rows: dict[Key, dict], people: int, domain: int, epsilons: list[float]) -> str:
    def write(r: dict) -> str:
        picked = f" {r['mechanism']}" if r["method"] == OURS else ""
        return f"{r['mse_mark']}{r['mse']:.2e}{picked}"

    heads = ["", *(f"ε = {e:g}" for e in epsilons)]
    return _ratio_table(rows, heads, [(people, domain, e) for e in epsilons], "mse", write, ORDER)


def _timed() -> list[str]:
    """Methods whose times are told: clipping takes none worth mentioning."""
    return [method for method in ORDER if method != "hushmote clipped"]


def _time_table(rows: dict[Key, dict], domain: int, sizes: list[int]) -> str:
    def write(r: dict) -> str:
        return f"{r['time_mark']}{_seconds(r['server_s'])}"

    heads = ["", *(f"N = {n:,}" for n in sizes)]
    return _ratio_table(rows, heads, [(n, domain, 1.0) for n in sizes], "server_s", write, _timed())


def _seconds(x: float) -> str:
    if x < 0.9995:
        return f"{x * 1000:.2g} ms" if x < 0.01 else f"{x * 1000:.0f} ms"
    return f"{x:.1f} s" if x < 100 else f"{x:,.0f} s"


def _client_table(rows: dict[Key, dict], people: int, domains: list[int]) -> str:
    def write(r: dict) -> str:
        return f"{r['client_s'] * 1e6:.1f}"

    heads = ["ε = 1", *(f"D = {d:,}" for d in domains)]
    return _ratio_table(rows, heads, [(people, d, 1.0) for d in domains], "client_s", write, _timed())


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
    rows: dict[Key, dict], domains: list[int], people: int, epsilons: list[float], path: Path
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
            bottom.set_yticks([0.25, 0.5, 1, 2, 4], ["¼", "½", "1", "2", "4"])
            style(top, f"D = {domain:,}", f"N = {people:,}", "ε", "mean squared error" * (not number))
            style(bottom, "", "", "ε", "the same over the black line" * (not number))
        _legend(panels[len(domains) - 1], ORDER, True)


def time_plot(
    rows: dict[Key, dict], domains: list[int], sizes: list[int], epsilon: float, path: Path
) -> None:
    """Server time against N on logarithmic axes, one panel for each D; what is extrapolated is hollow."""
    shown = tuple(m for m in ORDER if m != "hushmote clipped")
    times = [r["server_s"] for r in rows.values() if r["epsilon"] == epsilon]
    with figure(path, len(domains)) as (_, panels):
        for axes, domain in zip(panels, domains, strict=True):
            for method in shown:
                measured = [rows[method, n, domain, epsilon] for n in sizes]
                look = _look(method)
                line: dict[str, Any] = look | {"marker": ""}
                axes.plot(sizes, [r["server_s"] for r in measured], **line)
                for n, r in zip(sizes, measured, strict=True):
                    fill = "white" if r["time_mark"] else look["color"]
                    axes.plot([n], [r["server_s"]], markerfacecolor=fill, **look)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_ylim(10 ** math.floor(math.log10(min(times))), 10 ** math.ceil(math.log10(max(times))))
            style(
                axes,
                f"D = {domain:,}",
                f"ε = {epsilon:g}; hollow: extrapolated",
                "reports N",
                "CPU seconds" * (axes is panels[0]),
            )
        _legend(panels[-1], shown, False)
