# ruff: noqa: E501 (lines of prose)
"""Measure power cuts and wear on the runtime that is most like a board, and write its part of benchmarks/results/failures.md.

python firmware_tests/write_power_cuts.py
"""

import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import page_part
import run
import runtimes

TARGET = runtimes.ROOT / "benchmarks" / "results" / "failures.md"
_BEGIN, _END = (
    "<!-- power cuts: written by firmware_tests/write_power_cuts.py -->\n",
    "<!-- end of the power cuts -->",
)
FILES = (
    "measure_fat.py",
    "test_emulated_power_cuts.py",
    "test_power_cuts_esp32.py",
    "test_power_cuts_pico.py",
    "test_power_cuts_raw.py",
    "test_wear.py",
)
_MODES = {
    "raise": "the board stops at once",
    "silent": "the code runs on, nothing more reaches the chip",
    "eio": "every further operation fails",
}


def measure() -> tuple[str, dict[str, list[list[str]]]]:
    """Run the files on unix32f; return its version and {first word: fields of each printed line}."""
    by_name = {runtime.name: runtime for runtime in runtimes.find(install=True, pico=True)[0]}
    for name, command in (
        ("unix32f", "python firmware_tests/runtimes.py --install says why it is missing"),
        ("pico", "make pico"),
    ):
        if name not in by_name:
            sys.exit(f"{name} is needed: {command}")
    words = ("CUTS", "BLIPS", "BROKEN", "CONTROL", "WEAR", "IN PLACE")
    lines: dict[str, list[list[str]]] = {word: [] for word in words}
    with tempfile.TemporaryDirectory() as folder:
        staged = Path(folder) / "staged"
        run.stage(staged, run.ARCHITECTURES[0])
        (staged / FILES[0]).write_bytes((run.HERE / FILES[0]).read_bytes())
        tests = [run.TestFile.read(run.HERE / name) for name in FILES]
        with ThreadPoolExecutor() as pool:
            jobs = [
                pool.submit(
                    run.run_file, by_name["pico" if t.host else "unix32f"], t, run.ARCHITECTURES[0], staged
                )
                for t in tests
            ]
            outcomes = [job.result() for job in jobs]
    for test, outcome in zip(tests, outcomes, strict=True):
        if outcome.word != "passed":
            sys.exit(
                f"{test.path.name} {outcome.word} ({outcome.note}); nothing is written\n{outcome.output}"
            )
        for line in outcome.output.splitlines():
            word, *fields = line.split("|")
            if word in lines:
                lines[word].append(fields)
    return by_name["unix32f"].version, lines


def part(version: str, lines: dict[str, list[list[str]]]) -> str:
    """Return the page's section, from the on-device files' printed lines."""
    text = [
        f"Measured with `ldp_client`, compiled for boards, on MicroPython {version} (32 bits, single floats). The file systems are"
        " MicroPython's, on a NOR flash or disk in memory whose power the test cuts.",
        "",
        "The board provisions, enrolls three experiments, reports, sends, goes through an outage with unsent reports and a reboot,"
        " gets acknowledgements out of order, an opt-out and an opt-in with a reboot in between, and reports again. The power fails at **every** erase and"
        " program operation: before it, half-way through, and right after it. Afterwards:",
        "",
        "* the ledger has no more budget than before, and every report that was handed out is debited;",
        "* no report number is used for different bytes, and no unsent report is lost;",
        "* an opt-out is stored, and the reports that it dropped never reappear;",
        "* the board is not locked, and reports for exactly as long as its budget lasts.",
        "",
        "| storage | after the cut | operations in the lifetime | cuts | lost |",
        "|---|---|---|---|---|",
    ]
    text += [_cut_row(fields) for fields in lines["CUTS"]]
    for name, cuts, broken in lines["BLIPS"]:
        text.append(
            f"| {name} | an operation fails once, and the power fails one or two operations later | | {cuts} | {broken} |"
        )
    in_place = lines["IN PLACE"][0]
    text += [
        "",
        "* The emulated Pico runs MicroPython's real firmware for the RP2040 with its flash in a file (`make pico`).",
        "* `report()` reads the record back before it returns, so a board whose flash has lost power does not report.",
        "* **FAT does not write in order, so it gives no guarantee.** Use littlefs, which ESP32 and Pico firmware create"
        f" automatically. The failures on FAT: {_broken(lines['BROKEN'])}.",
        "* littlefs replaces a file as a whole, so a damaged slot is not the result of a power cut and could be the newest; the board locks"
        f" instead of reverting a debit. On raw flash whose slots are overwritten in place, {in_place[1]} of {in_place[0]} cuts"
        " lock the board, and none restores budget.",
        "",
        "The same test detects faulty clients:",
        "",
        "| fault | storage | cuts | detected |",
        "|---|---|---|---|",
    ]
    mistakes = {
        "DebitAfterSending": "debit after sending",
        "TrustAfterFailure": "continuing from a state that the flash rejected",
        "CountAfterFailure": "counting a failed commit",
    }
    text += [f"| {mistakes[f[0]]} | {f[1]} | {f[2]} | {f[3]} |" for f in lines["CONTROL"]]
    text += [
        "",
        "**Wear**, with three experiments in turn; a report means `report()` and `sent()`, two commits of the ledger. Flash is usually"
        " rated for 100,000 erases per block.",
        "",
        "| storage | reports | erases | erases per report | most-worn block | bytes programmed per report | record |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, reports, erases, worst, programmed, longest in lines["WEAR"]:
        per_report = int(erases) / int(reports)
        text.append(
            f"| {name} | {reports} | {erases} | {per_report:.3f} | {worst} erases | {programmed} | {longest} bytes |"
        )
    return "\n".join(["", *text, "", ""])


def _broken(lines: list[list[str]]) -> str:
    """Return the reasons with their counts over all storages."""
    counts: Counter[str] = Counter()
    for _, _, count, reason in lines:
        counts[reason.rpartition(": ")[2]] += int(count)
    return ", ".join(f"{reason} ({count})" for reason, count in counts.items()) or "nothing"


def _cut_row(fields: list[str]) -> str:
    name, mode, operations, cuts, broken = fields
    return f"| {name} | {_MODES[mode]} | {operations} | {cuts} | {broken} |"


def main() -> None:
    page_part.renew(TARGET, _BEGIN, _END, part(*measure()))


if __name__ == "__main__":
    main()
