"""The lines of a script that a runtime runs; here the runtime is the shell."""

from pathlib import Path

from refusals import fails

from hushmote.fleet.provisioning.board_runtimes import Runtime, RuntimeFault, run_script

SHELL = Runtime("sh", ("sh",))


def run(folder: Path, *lines: str) -> list[list[str]]:
    script = folder / "script.sh"
    script.write_text("\n".join(lines))
    return list(run_script(SHELL, script, (script,), "echo CODE 7", 60.0))


def test_yields_known_lines_until_the_end(tmp_path: Path):
    known = [["JOB", "1", "2"], ["TALLY", "3"]]
    assert run(tmp_path, "echo JOB 1 2", "echo noise", "echo TALLY 3", "echo END", "echo JOB 4") == known


def test_names_the_last_line_if_the_end_is_missing(tmp_path: Path):
    with fails("sh did not finish: CODE 7", RuntimeFault):
        run(tmp_path, "echo JOB 1 2")
