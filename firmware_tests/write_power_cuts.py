# ruff: noqa: E501 (lines of prose)
"""Measure power cuts and wear on the runtime that is most like a board, and write docs/power-cuts.md.

python firmware_tests/write_power_cuts.py
"""

import ast
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import run
import runtimes

TARGET = runtimes.ROOT / "docs" / "power-cuts.md"
FILES = (
    "measure_fat.py",
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
    """Run the files on unix32f; returns its version and {first word: fields of each printed line}."""
    runtime = next((r for r in runtimes.find(install=True)[0] if r.name == "unix32f"), None)
    if runtime is None:
        sys.exit("unix32f is needed: python firmware_tests/runtimes.py --install says why it is missing")
    lines: dict[str, list[list[str]]] = {word: [] for word in ("CUTS", "BLIPS", "BROKEN", "CONTROL", "WEAR")}
    with tempfile.TemporaryDirectory() as folder:
        staged = Path(folder) / "staged"
        run.stage(staged, run.ARCHITECTURES[0])
        (staged / FILES[0]).write_bytes((run.HERE / FILES[0]).read_bytes())
        tests = [run.TestFile.read(run.HERE / name) for name in FILES]
        with ThreadPoolExecutor() as pool:
            jobs = [pool.submit(run.run_file, runtime, test, run.ARCHITECTURES[0], staged) for test in tests]
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
    return runtime.version, lines


def page(version: str, lines: dict[str, list[list[str]]]) -> str:
    """The document, from the lines that the on-device files printed."""
    text = [
        "# Power cuts and flash wear",
        "",
        "Written by `firmware_tests/write_power_cuts.py`; every number is measured, with `ldp_client` as compiled"
        f" for boards on MicroPython {version} (32 bits, single floats). The file systems are MicroPython's own, over"
        " a NOR flash or disk in memory whose power fails.",
        "",
        "The board's life that is cut: provision, enroll three experiments, report, send, an outage with several"
        " unsent reports and a reboot in it, acknowledgements out of order, opting out, a reboot, opting in, more"
        " reports. The power fails at **every** erase and program operation of it: before the operation, half-way"
        " through, and right after. Then the file system is mounted again and must hold:",
        "",
        "* the ledger holds no more budget than before, and no report was handed out that is not debited;",
        "* no report number ever comes with other bytes, no unsent report is lost;",
        "* opting out is not forgotten, and what it dropped never comes back;",
        "* the board works: it is not locked, and reports exactly as long as its budget lasts. A first provision"
        " that was cut short can be repeated without a flag.",
        "",
        "## The client",
        "",
        "| storage | after the cut | operations in the life | cuts | lost |",
        "|---|---|---|---|---|",
    ]
    text += [_cut_row(fields) for fields in lines["CUTS"] if not fields[0].startswith("FAT")]
    for name, cuts, broken in lines["BLIPS"]:
        text.append(
            f"| {name} | an operation fails once, the power one or two operations later | | {cuts} | {broken} |"
        )
    text += [
        "",
        "A board that runs on without power at its flash hands out nothing: a record is read back before its report"
        " leaves `report()`.",
        "",
        "## Clients with a mistake, under the same test",
        "",
        "| mistake | storage | cuts | found | what broke |",
        "|---|---|---|---|---|",
    ]
    mistakes = {
        "DebitAfterSending": "debit after sending",
        "TrustAfterFailure": "going on from what the flash did not take",
        "CountAfterFailure": "a failed commit is counted",
    }
    for name, storage, cuts, found, broken in lines["CONTROL"]:
        reasons = "; ".join(f"{reason} ({count})" for reason, count in ast.literal_eval(broken).items())
        text.append(f"| {mistakes[name]} | {storage} | {cuts} | {found} | {reasons or 'nothing'} |")
    text += [
        "",
        "Where one slot survives on littlefs, it is littlefs that replaces a file as a whole; the second slot is for"
        " storage that does not, and for a record that is damaged later.",
        "",
        "## FAT: no promise",
        "",
        "FAT keeps no such order. The same test, cut before and half-way through each sector write:",
        "",
        "| storage | after the cut | operations in the life | cuts | lost |",
        "|---|---|---|---|---|",
    ]
    text += [_cut_row(fields) for fields in lines["CUTS"] if fields[0].startswith("FAT")]
    text += ["", "What broke:", ""]
    text += [f"* {name}: {reason} ({count})" for name, _, count, reason in lines["BROKEN"]] or ["* nothing"]
    text += [
        "",
        "Use littlefs, which ESP32 and Pico firmware format by themselves.",
        "",
        "## Wear",
        "",
        "Three experiments in turn; a report is `report()` and `sent()`, two commits.",
        "",
        "| storage | reports | erases | erases per report | most-worn block | bytes programmed per report | record |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, reports, erases, worst, programmed, longest in lines["WEAR"]:
        each = int(erases) / int(reports)
        text.append(
            f"| {name} | {reports} | {erases} | {each:.3f} | {worst} erases | {programmed} | {longest} bytes |"
        )
    text += ["", "Flash is usually rated for 100,000 erases per block.", ""]
    return "\n".join(text)


def _cut_row(fields: list[str]) -> str:
    name, mode, operations, cuts, broken = fields
    return f"| {name} | {_MODES[mode]} | {operations} | {cuts} | {broken} |"


def main() -> None:
    TARGET.write_text(page(*measure()))
    print(f"wrote {TARGET.relative_to(runtimes.ROOT)}")


if __name__ == "__main__":
    main()
