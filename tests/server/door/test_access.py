"""Who may use the door."""

import pytest

from hushmote.server.door.access import LOOPBACK, Access


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        (b"localhost:9418", True),
        (b"127.0.0.1", True),
        (b"[::1]:9418", True),
        (b"LOCALHOST", True),
        (b"evil.example", False),
        (b"localhost.evil.example:9418", False),
        (b"evil@localhost.evil.example", False),
        (b"[::1", False),
        (b"", False),
    ],
)
def test_on_loopback_only_its_own_names_are_answered(host, allowed):
    assert Access(hosts=LOOPBACK).host_allowed({b"host": host}) is allowed
    assert Access().host_allowed({b"host": host})
    assert not Access(hosts=frozenset()).host_allowed({b"host": host})


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        (None, True),
        (b"http://127.0.0.1:9418", True),
        (b"https://127.0.0.1:9418", True),  # a proxy speaks TLS for us
        (b"https://board.example", True),
        (b"https://board.example:444", False),
        (b"http://board.example", False),
        (b"https://evil.example", False),
        (b"null", False),
        (b"", False),
    ],
)
def test_web_pages_are_those_of_its_own_host_and_of_origins_that_were_named(origin, allowed):
    access = Access(origins=frozenset({"https://board.example"}))
    headers = {b"host": b"127.0.0.1:9418"} | ({} if origin is None else {b"origin": origin})
    assert access.origin_allowed(headers) is allowed


@pytest.mark.parametrize(
    ("sent", "right"),
    [
        (b"Bearer 0123456789abcdef", True),
        (b"bearer  0123456789abcdef ", True),
        (b"Bearer 0123456789abcdeF", False),
        (b"Bearer", False),
        (b"Basic 0123456789abcdef", False),
        (b"0123456789abcdef", False),
        (b"Bearer \xff\xfe", False),
        (b"", False),
    ],
)
def test_a_token_is_right_or_not(sent, right):
    access = Access(token="0123456789abcdef")
    assert access.token_right({b"authorization": sent}) is right
    assert not access.token_right({})
    assert Access().token_right({})
    assert "0123456789abcdef" not in repr(access)


def test_an_address_is_the_connections_own_unless_a_proxy_is_trusted():
    forwarded = {b"x-forwarded-for": b"192.0.2.1, 198.51.100.9"}
    assert Access().address(("10.0.0.1", 5), forwarded) == "10.0.0.1"
    assert Access(trust_proxy=True).address(("10.0.0.1", 5), forwarded) == "198.51.100.9"
    assert Access(trust_proxy=True).address(("10.0.0.1", 5), {}) == "10.0.0.1"
    assert Access().address(None, {}) == ""
