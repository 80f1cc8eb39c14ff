"""The page's settings, and the fleets that they name."""

import pytest

from hushmote.web.settings import PageSettings


def statement_of(fleet: str) -> dict[str, dict[str, str]]:
    return {"statement": {"fleet": fleet}}


@pytest.mark.parametrize(
    ("fleet", "statement", "missing"),
    [
        (None, None, ""),
        ("home", None, ""),
        ("home", statement_of("home"), ""),
        ("shed", None, "shed"),
        (None, statement_of("attic"), "attic"),
        ("home", statement_of("attic"), "attic"),
    ],
)
def test_names_a_fleet_that_is_not_in_the_store(fleet, statement, missing):
    settings = PageSettings("sqlite:///x", fleet=fleet, statement=statement)
    message = f"no fleet {missing} in this store; its fleets: home, work" if missing else ""
    assert settings.missing_fleet_message(["home", "work"]) == message
