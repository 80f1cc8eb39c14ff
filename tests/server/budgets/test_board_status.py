"""A board's status as pasted text: JSON or a Python dict, alone or on the last line."""

import json

import pytest

from hushmote.server.budgets.board_status import StatusRefused, parse

STATUS = {
    "locked": None,
    "consent": True,
    "pending": 2,
    "sum": 3_000_000,
    "squares": 9_000_000_000_000,
    "experiments": {"door": {"state": "reporting", "reports": 3, "left": 5, "epsilon": 1_000_000}},
}


class TestParse:
    @pytest.mark.parametrize("text", [json.dumps(STATUS), repr(STATUS)], ids=["JSON", "Python"])
    @pytest.mark.parametrize("before", ["", ">>> client.status()\n", "[1, 2]\n"])
    def test_reads_the_last_line(self, text: str, before: str):
        status = parse(f"{before}{text}\n")
        assert (status.pending, status.consent, status.sum) == (2, True, 3_000_000)
        (door,) = status.experiments
        assert (door.name, door.made, door.left, door.days(0.5)) == ("door", 3, 5, 10)

    @pytest.mark.parametrize("text", ["", "[1, 2]", '"text"', "None", "{1: 2"])
    def test_rejects_other_values(self, text: str):
        with pytest.raises(StatusRefused, match="give a dict, as JSON or as Python prints it"):
            parse(text)
