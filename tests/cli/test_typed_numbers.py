"""Options accept numbers as they are printed."""

from pathlib import Path

import pytest
from command_line import hushmote

PLAN = ("plan", "--values", "64", "--epsilon", "2", "--json")


class TestOptions:
    @pytest.mark.parametrize("devices", ["100,000", "100k", "1e5", "100 000", "10^5", "100,000 devices"])
    def test_read_whole_numbers(self, devices: str, tmp_path: Path):
        printed = [hushmote(*PLAN, "--devices", text, cwd=tmp_path) for text in ("100000", devices)]
        assert printed[0] == printed[1]

    def test_read_shares_and_errors_in_percent(self, tmp_path: Path):
        for option, share, percent in (("--share", "0.05", "5%"), ("--error", "0.05", "5 points")):
            more = ("--devices", "1000") if option == "--share" else ()
            printed = [hushmote(*PLAN, *more, option, text, cwd=tmp_path) for text in (share, percent)]
            assert printed[0] == printed[1]

    def test_read_epsilon_with_its_symbol(self, tmp_path: Path):
        plan = ("plan", "--values", "64", "--devices", "1000", "--json", "--epsilon")
        printed = {hushmote(*plan, text, cwd=tmp_path) for text in ("2", "2.0", "ε 2", "ε = 2", "2 nats")}
        assert len(printed) == 1

    def test_read_numbers_in_texts(self, tmp_path: Path):
        printed = [
            hushmote("budget", "histogram", "--devices", text, "--local", "1", cwd=tmp_path)
            for text in ("20000x2", "20,000x2")
        ]
        assert printed[0] == printed[1]
