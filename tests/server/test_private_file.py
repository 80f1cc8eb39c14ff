"""Files with secrets, which only their owner may read."""

from pathlib import Path

import pytest

from hushmote.server.private_file import readable_by_others


class TestReadableByOthers:
    @pytest.mark.parametrize(
        ("mode", "readable"),
        [(0o100600, False), (0o100400, False), (0o100640, True), (0o100604, True), (0o100610, True)],
    )
    def test_depends_on_the_mode(self, mode: int, readable: bool):
        assert readable_by_others(Path("/etc/hushmote/page.token"), mode) == readable

    def test_trusts_only_files_from_systemd(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", "/run/credentials/hushmote")
        assert not readable_by_others(Path("/run/credentials/hushmote/page.token"), 0o100440)
        assert readable_by_others(Path("/run/credentials/other/page.token"), 0o100440)
