"""The paths of --output, which are checked before anything is computed."""

import sys
from pathlib import Path

import pytest
from refusals import fails

from hushmote.cli.output import PICTURES, check_paths
from hushmote.server.extras import ExtraMissing


def test_only_pictures_need_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    table, picture = tmp_path / "a.csv", tmp_path / "a.PNG"
    assert check_paths([table], ".csv", *PICTURES) == (table,)
    with fails("a picture needs the extra plots", ExtraMissing):
        check_paths([table, picture], ".csv", *PICTURES)
