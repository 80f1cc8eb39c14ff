"""A missing optional package is named before it is imported."""

import pytest

from hushmote.server import extras


class TestRequire:
    def test_names_the_extra_and_the_alternative(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(extras, "is_installed", lambda module: module != "nats")
        extras.require("matplotlib", "a picture")
        with pytest.raises(extras.ExtraMissing) as missing:
            extras.require("nats", "nats://")
        assert str(missing.value) == "nats:// needs the extra nats: pip install 'hushmote[nats]'"
        with pytest.raises(extras.ExtraMissing, match=r"'hushmote\[nats\]', or use --source$"):
            extras.require("nats", "nats://", "use --source")

    def test_finds_packages_without_importing_them(self):
        assert extras.is_installed("pytest")
        assert not extras.is_installed("no_such_package")
