"""Settings of `hushmote page`, which are refused in one line before it listens."""

from pathlib import Path

from refusals import Refusal, refusals


class TestSettings:
    @refusals(
        ("--http 0.0.0.0:80", "0.0.0.0 can be reached from other machines; give --token-file FILE"),
        ("--http 0.0.0.0:80 --token-file none", "cannot read the token none: No such file"),
        ("--http 0.0.0.0:80 --token-file tokens --policy none.py", "cannot read none.py: No such file"),
        files={"tokens": "a-secret-of-a-reader-1234"},
        command="page",
    )
    def test_refusal_is_one_line(self, refusal: Refusal, tmp_path: Path):
        refusal.check(tmp_path)
