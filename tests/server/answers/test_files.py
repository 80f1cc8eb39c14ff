"""Output folders are created, or rejected in one line before results are computed."""

import os
from pathlib import Path

import pytest

from hushmote.server.answers.files import output_folder
from hushmote.server.errors import UsageError


def test_creates_all_missing_folders(tmp_path: Path):
    for _ in range(2):  # it may exist already
        output_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_rejects_a_file_and_a_folder_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot create the folder"):
        output_folder(tmp_path / "file")
    # Root may write into any folder.
    monkeypatch.setattr(os, "access", lambda path, mode: (path, mode) != (tmp_path, os.W_OK))
    with pytest.raises(UsageError, match=f"cannot write into the folder {tmp_path}"):
        output_folder(tmp_path)
