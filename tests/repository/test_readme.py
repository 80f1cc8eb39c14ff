"""README.md in one folder with one store: its simulated month, its server, and a board that joins."""

import subprocess
import sys
from pathlib import Path

import page_blocks
import pytest
import run_page
from running_aggregator import HANGS_S

README = Path(__file__).parents[2] / "README.md"
# Follows the README's commands with those of docs/first-report.md for a board, here in an open fleet.
BOARD = """
<!-- setup: export HUSHMOTE_WIFI_PASSWORD=any-password -->
```sh
hushmote provision device desk --fleet home --open --wifi-ssid any --broker mqtt://localhost
```
<!-- background -->
```sh
hushmote board | tee board.txt
```
<!-- setup: until grep -q 'MicroPython, a board in software' board.txt; do sleep 0.2; done -->
```sh
hushmote flash board/port desk.settings.json --yes
```
<!-- setup: until grep -qE 'reports? made|no such experiment' board.txt; do sleep 0.2; done -->
```sh
grep -E 'room_temp: [0-9]* reports? made' board.txt
```
"""


@pytest.mark.broker
@pytest.mark.micropython
@pytest.mark.usefixtures("interpreter")
class TestReadme:
    def test_homes_board_finds_its_experiment(self, tmp_path: Path):
        text = README.read_text()
        month, server = text.index("\n## A month"), text.index("\n## On a server")
        page = tmp_path / "page.md"
        parts = (text[month : text.index("\n## Before")], text[server : text.index("\n## Where")], BOARD)
        page.write_text("\n".join(parts).replace("--devices 300000", "--devices 3000"))
        assert page_blocks.read(page.read_text()).faults == ()
        command = [sys.executable, run_page.__file__, str(page)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_S, check=False)
        if result.returncode == run_page.CANNOT:
            pytest.skip(result.stdout.strip())
        assert result.returncode == 0, result.stdout + result.stderr
