"""A request's token, host and origin, as its headers say."""

import pytest

from hushmote.server.service.http_access import bearer, host_name, is_own_page


class TestBearer:
    @pytest.mark.parametrize(
        ("value", "token"),
        [("Bearer secret", "secret"), ("bEARER  secret ", "secret"), ("Bearer", ""), ("Basic secret", None)],
    )
    def test_is_the_token_of_this_scheme_only(self, value: str, token: str | None):
        assert bearer({"authorization": value}) == token

    def test_is_missing_without_a_header(self):
        assert bearer({}) is None


class TestHostName:
    @pytest.mark.parametrize(
        ("host", "name"),
        [("Page.example:9418", "page.example"), ("[::1]:80", "::1"), ("[::1", ""), ("", "")],
    )
    def test_is_the_name_without_the_port(self, host: str, name: str):
        assert host_name({"host": host}) == name


class TestOwnPage:
    @pytest.mark.parametrize(
        ("headers", "is_own"),
        [
            ({"host": "page.example"}, True),  # not a browser
            ({"host": "page.example", "origin": "https://Page.example"}, True),
            ({"host": "page.example", "origin": "https://page.example:8443"}, False),
            ({"host": "page.example", "origin": "https://other.example"}, False),
            ({"host": "page.example", "origin": "null"}, False),
        ],
    )
    def test_has_the_hosts_origin_or_none(self, headers: dict[str, str], is_own: bool):
        assert is_own_page(headers) is is_own
