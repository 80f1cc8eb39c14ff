"""Access control of the door."""

import pytest

from hushmote.fleet.door.access import LOOPBACK, Access
from hushmote.server.service.tokens import Tokens


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("localhost:9418", True),
        ("127.0.0.1", True),
        ("[::1]:9418", True),
        ("LOCALHOST", True),
        ("evil.example", False),
        ("localhost.evil.example:9418", False),
        ("evil@localhost.evil.example", False),
        ("[::1", False),
        ("", False),
    ],
)
def test_answers_only_to_its_names_on_loopback(host, allowed):
    assert Access(hosts=LOOPBACK).is_host_allowed({"host": host}) is allowed
    assert Access().is_host_allowed({"host": host})
    assert not Access(hosts=frozenset()).is_host_allowed({"host": host})


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        (None, True),
        ("http://127.0.0.1:9418", True),
        ("https://127.0.0.1:9418", True),  # a proxy terminates TLS
        ("https://board.example", True),
        ("https://board.example:444", False),
        ("http://board.example", False),
        ("https://evil.example", False),
        ("null", False),
        ("", False),
    ],
)
def test_allows_own_host_and_named_origins_only(origin, allowed):
    access = Access(origins=frozenset({"https://board.example"}))
    headers = {"host": "127.0.0.1:9418"} | ({} if origin is None else {"origin": origin})
    assert access.is_origin_allowed(headers) is allowed


@pytest.mark.parametrize(
    ("sent", "right"),
    [
        ("Bearer 0123456789abcdef", True),
        ("bearer  0123456789abcdef ", True),
        ("Bearer 0123456789abcdeF", False),
        ("Bearer", False),
        ("Basic 0123456789abcdef", False),
        ("0123456789abcdef", False),
        ("Bearer \xff\xfe", False),
        ("", False),
    ],
    ids=["right", "lower-case scheme", "wrong", "missing", "basic", "no scheme", "not ASCII", "empty"],
)
def test_compares_token(sent, right):
    access = Access(Tokens({"lora": "0123456789abcdef"}))
    assert access.has_valid_token({"authorization": sent}) is right
    assert not access.has_valid_token({})
    assert Access().has_valid_token({})
    assert "0123456789abcdef" not in repr(access)


def test_uses_forwarded_address_only_for_trusted_proxy():
    forwarded = ["192.0.2.66", "192.0.2.1, 198.51.100.9"]
    assert Access().address(("10.0.0.1", 5), forwarded) == "10.0.0.1"
    assert Access(trust_proxy=True).address(("10.0.0.1", 5), forwarded) == "198.51.100.9"
    assert Access(trust_proxy=True).address(("10.0.0.1", 5), []) == "10.0.0.1"
    assert Access().address(None, []) == ""
