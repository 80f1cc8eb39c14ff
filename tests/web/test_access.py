"""Access to the page with tokens, from foreign sites and under load, against the real process."""

import asyncio
import concurrent.futures
import contextlib
import datetime
import html
import http.client
import json
import os
import re
import socket
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from boards import ask_fleet, experiment
from browser import TOKEN, ask, paged, token_file
from command_line import hushmote
from log_witness import LOG
from refusals import fails
from running_aggregator import WAIT_S
from statements import KEPT
from statements import ask as ask_of_home
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from hushmote.fleet.statement import document, fleet_facts
from hushmote.fleet.statement import page as statement_page
from hushmote.fleet.statement.fleet_facts import StatementError
from hushmote.server.budgets import policy
from hushmote.server.errors import UsageError
from hushmote.server.log.entry import experiment_entry
from hushmote.server.service.http_access import is_loopback
from hushmote.server.service.log_files import LogFiles
from hushmote.server.service.tokens import check_token
from hushmote.server.store.log import StoredLog
from hushmote.server.store.number_set import NumberSet
from hushmote.server.store.store import Store, StoreError
from hushmote.server.wire.keys import FleetKeys
from hushmote.web.access import _local_path
from hushmote.web.frame import VIEWS
from hushmote.web.public_statement import PublicStatement

SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    url = f"sqlite:///{tmp_path_factory.mktemp('store') / 'store.sqlite'}"
    with Store(url) as store:
        ask_fleet(store, "home", experiment())
    return url


@pytest.fixture(scope="module")
def page(store):
    """Provide a page on the loopback address, without a token."""
    with paged(store) as page:
        yield page


@pytest.fixture(scope="module")
def locked(store, tmp_path_factory):
    """Provide a page that needs a token."""
    with paged(store, "--token-file", token_file(tmp_path_factory.mktemp("secret"))) as page:
        yield page


def is_served(page) -> bool:
    """Wait until the page is served, which may take minutes after thousands of requests."""
    for _ in range(200):
        with contextlib.suppress(TimeoutError):
            if ask(page)[0] == 200:
                return True
        time.sleep(0.1)
    return False


def cookie_of(page):
    status, headers, _ = ask(page, f"/?token={TOKEN}")
    assert (status, headers["location"]) == (303, "./")
    assert headers["set-cookie"].endswith("; HttpOnly; SameSite=Strict; Max-Age=2592000")
    assert TOKEN not in headers["set-cookie"]
    return headers["set-cookie"].split(";")[0]


def handshake(page, path=SOCKET, **headers):
    """Return a WebSocket handshake's status, which is 101 or that of the rejection."""
    hyphenated = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        url = page.replace("http", "ws") + path
        with connect(url, additional_headers=hyphenated, proxy=None, open_timeout=WAIT_S) as client:
            client.recv(WAIT_S)
            return 101
    except InvalidStatus as e:
        return e.response.status_code
    except ConnectionClosed as e:
        return e.code


PROTECTED = (
    *(path for _, path in VIEWS),
    "/experiment/home/temp",
    "/board/config.json",
    "/api/home/temp.json",
    "/v1/home/experiment",
    "/static/page.js",
    "/nowhere",
    "/_nicegui_ws/socket.io/?EIO=4&transport=polling",
    "/favicon.ico",
    "/what-is-asked",
    "/what-is-asked?statement",
    "//",
    "/%2e%2e/",
    "/healthz/",
    "/LOGIN",
)


PROXY = "127.0.0.2"


def ask_from(address, page, path="/", method="GET", **headers):
    """Return the status and body of a page's answer to a request from an address of this machine."""
    hyphenated = {name.replace("_", "-"): value for name, value in headers.items()}
    netloc = urlsplit(page).netloc
    connection = http.client.HTTPConnection(netloc, timeout=WAIT_S, source_address=(address, 0))
    with contextlib.closing(connection):
        connection.request(method, path, headers=hyphenated)
        answer = connection.getresponse()
        return answer.status, answer.read()


@pytest.fixture(scope="module")
def opened_log(tmp_path_factory):
    """Provide the audit log of the page that only a proxy can open."""
    return tmp_path_factory.mktemp("trusted") / "log"


@pytest.fixture(scope="module")
def trusting(store, opened_log):
    """Provide a page that only a proxy can open."""
    with paged(store, "--trusted-proxy", PROXY, environment={"HUSHMOTE_AUDIT_LOG": str(opened_log)}) as page:
        yield page


FORWARDED = {"Host": "hass.example:8123", "X_Forwarded_For": "192.0.2.1", "X_Forwarded_Proto": "https"}


class TestTrustedProxy:
    def test_only_its_requests_are_admitted(self, trusting):
        for path in PROTECTED:
            status, body = ask_from("127.0.0.1", trusting, path, Host="localhost", X_Forwarded_For=PROXY)
            assert (status, b"only through the proxy" in body) == (403, True), path
        assert handshake(trusting, X_Forwarded_For=PROXY, X_Real_IP=PROXY) == 403
        assert ask_from("127.0.0.1", trusting, "/healthz")[0] == 200
        for path in ("/", "/plan", "/api/home/temp.json"):
            assert ask_from(PROXY, trusting, path, **FORWARDED)[0] == 200, path

    def test_foreign_sites_cannot_write_through_it(self, trusting):
        own = ask_from(PROXY, trusting, "/plan", "POST", Origin="https://hass.example:8123", **FORWARDED)
        assert own[0] == 405
        foreign = ask_from(PROXY, trusting, "/plan", "POST", Origin="https://x.example", **FORWARDED)
        assert foreign[0] == 403

    def test_reader_is_logged_by_the_proxys_name(self, trusting, opened_log):
        for name in ("Zo\u00eb".encode().decode("latin-1"), "", "\x1b[31m" + "x" * 90):
            ask_from(PROXY, trusting, X_Remote_User_Name=name, **FORWARDED)
        ask_from("127.0.0.1", trusting, X_Remote_User_Name="nobody")
        readers = [json.loads(line)["who"] for line in opened_log.read_text().splitlines()]
        assert readers[-2:] == ["Zo\u00eb", ("[31m" + "x" * 90)[:64]]
        assert f"proxy {PROXY}" in readers
        assert "nobody" not in readers

    def test_others_may_have_a_token(self, store, tmp_path):
        with paged(store, "--trusted-proxy", PROXY, "--token-file", token_file(tmp_path)) as page:
            assert ask_from(PROXY, page, **FORWARDED)[0] == 200
            assert ask(page)[0] == 401
            assert ask(page, Authorization=f"Bearer {TOKEN}")[0] == 200

    def test_wrong_address_is_refused(self, tmp_path):
        message = hushmote("page", "--trusted-proxy", "supervisor", cwd=tmp_path, expect=1)
        assert "supervisor is not an address; give the proxy's IP address" in message


class TestToken:
    def test_protects_everything(self, locked):
        from nicegui import __version__

        for path in (*PROTECTED, f"/_nicegui/{__version__}/static/nicegui.js"):
            for method in ("GET", "HEAD", "POST", "PUT", "OPTIONS"):
                status, _, body = ask(locked, path, method)
                assert status == 401, (method, path)
                assert b"home" not in body.replace(b"/v1/home/experiment", b"").replace(b"/home/temp", b"")

    def test_protects_websocket(self, locked):
        assert handshake(locked) == 403
        assert handshake(locked, Cookie="hushmote_1=x; hushmote=y") == 403
        assert handshake(locked, Cookie=cookie_of(locked)) == 101

    def test_cookie_gives_access_to_everything(self, locked):
        cookie = cookie_of(locked)
        for path in ("/", "/api/home/temp.json", "/static/page.js", "/plan"):
            assert ask(locked, path, Cookie=cookie)[0] == 200, path

    def test_cookie_is_secure_behind_https(self, locked):
        _, headers, _ = ask(locked, f"/?token={TOKEN}", X_Forwarded_Proto="https")
        assert "; SameSite=Strict; Secure; " in headers["set-cookie"]

    def test_programs_send_token_in_header(self, locked):
        status, headers, body = ask(locked, "/api/home/temp.json", Authorization=f"Bearer {TOKEN}")
        assert (status, headers["set-cookie"]) == (200, None)
        assert json.loads(body)["experiment"] == "temp"
        start = time.monotonic()
        status, _, body = ask(locked, "/api/home/temp.json", Authorization=f"Bearer {TOKEN}x")
        assert (status, time.monotonic() - start > 0.9) == (401, True)
        assert body == b"That is not this page's token.\n"
        assert ask(locked, "/api/home/temp.json", Authorization=f"Basic {TOKEN}")[0] == 401

    def test_health_check_needs_no_token(self, locked):
        assert ask(locked, "/healthz")[::2] == (200, b'{"healthy": true}\n')

    def test_login_redirects_to_requested_page(self, locked):
        status, _, body = ask(locked, "/experiment/home/temp?x=1&y=%3Cb%3E")
        assert status == 401
        assert b'value="/experiment/home/temp?x=1&amp;y=%3Cb%3E"' in body
        form = f"token={TOKEN}&there=%2Fexperiment%2Fhome%2Ftemp%3Fx%3D1"
        status, headers, _ = ask(locked, "/login", "POST", form, Origin=locked)
        assert (status, headers["location"]) == (303, "./experiment/home/temp?x=1")

    def test_wrong_token_is_rejected_after_a_second(self, locked):
        start = time.monotonic()
        status, _, body = ask(locked, "/?token=wrong")
        assert (status, time.monotonic() - start > 0.9) == (401, True)
        assert b"That is not this page&#x27;s token." in body

    def test_many_wrong_tokens_lock_nobody_out(self, locked):
        stopped, too_many = threading.Event(), threading.Event()

        def guess(_):
            while not stopped.is_set():
                if ask(locked, "/login", "POST", "token=x")[0] == 429:
                    too_many.set()

        bearer = {"Authorization": f"Bearer {TOKEN}"}
        with concurrent.futures.ThreadPoolExecutor(60) as pool:
            guessing = pool.map(guess, range(60))
            try:
                assert too_many.wait(WAIT_S)
                for _ in range(10):  # nearly all the time, the maximum number of guesses is pending
                    assert ask(locked, Cookie=cookie_of(locked))[0] == 200
                    assert ask(locked, "/login", "POST", f"token={TOKEN}")[0] == 303
                    assert ask(locked, "/api/home/temp.json", **bearer)[0] == 200
            finally:
                stopped.set()
            list(guessing)

    @pytest.mark.parametrize("token", ["", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "\x00", "é" * 20])
    def test_rejects_similar_texts(self, locked, token):
        form = f"token={token}".encode()
        assert ask(locked, "/login", "POST", form)[0] in (401, 429)

    def test_reader_types_token_once(self, locked, browser):
        browser.open(locked + "/plan")
        browser.says("This page needs a token.")
        browser.find("[name=token]").send_keys("wrong")
        browser.find_by_name("Open the page").click()
        browser.says("That is not this page's token.")
        browser.find("[name=token]").send_keys(TOKEN)
        browser.find_by_name("Open the page").click()
        browser.says("updated ")
        assert browser.driver.current_url == locked + "/plan"
        browser.open(locked)
        browser.says("Fleet home")


COUNTED, DEVICE = 48_123, "k3f9x1q7d2"
KEYS = FleetKeys((bytes(range(32)),), bytes(31) + b"\x05")


def write_statement(folder, windows):
    """Make a keyed fleet's store with one device's reports; return its URL and its public statement."""
    url, file = f"sqlite:///{folder / 'statement.sqlite'}", folder / "public.json"
    with Store(url) as store:
        ask_of_home(store, KEPT.replace("How warm", "<script>alert(1)</script> How warm"), keyed=True)
        ask_of_home(store, KEPT.replace("room_temp", "bath"), windows=windows)
        with store.ingest() as transaction:
            transaction.write({("home", "bath", DEVICE): NumberSet().add(1)}, {}, {})
        firmware = policy.policy_for(8, 1e-6, ["room_temp", "bath"])
        (folder / "policy.json").write_text(json.dumps(firmware.to_dict()))
        now = datetime.datetime.now(datetime.UTC)
        facts = fleet_facts.read(store, "home", None, folder / "policy.json", now)
        for path, public in ((file, True), (folder / "whole.json", False)):
            path.write_text(json.dumps(document.sign(document.document(facts, public=public), KEYS)))
    return url, file


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_statement(tmp_path_factory.mktemp("statement"), {"2026-11-20": COUNTED})


@pytest.fixture(scope="module")
def public_page(files, tmp_path_factory):
    """Provide a page that needs a token but shows everyone the statement."""
    file = token_file(tmp_path_factory.mktemp("secret"))
    with paged(files[0], "--token-file", file, "--what-is-asked", files[1]) as page:
        yield page


def says(page, words) -> bool:
    """Wait until a reader without a token sees these words."""
    end = time.monotonic() + WAIT_S
    while words not in ask(page, "/what-is-asked")[2]:
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


class TestPublicStatement:
    def test_is_readable_without_login(self, public_page, files):
        status, headers, body = ask(public_page, "/what-is-asked")
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert headers["cache-control"] == "no-store"
        assert headers["set-cookie"] is None
        # Remove the marks around texts that the owner has yet to write.
        text = html.unescape(re.sub(r"</?mark[^>]*>", "", body.decode()))
        whole = json.loads(files[1].read_text())
        for answers in (*whole["statement"]["label"].values(), [whole["signature"]]):
            assert all(answer in text for answer in answers), answers
        assert len(whole["statement"]["board_files"]) > 5
        for board_file in whole["statement"]["board_files"]:
            assert f"<td>{board_file['sha256']}</td>" in text
        assert "The owner has changed" not in text
        assert "cannot be looked up" not in text
        assert ask(public_page, "/what-is-asked", "HEAD")[::2] == (200, b"")
        assert b'<a href="./what-is-asked">What is asked of your device</a>' in ask(public_page)[2]
        assert b"what-is-asked" in ask(public_page, Cookie=cookie_of(public_page))[2]

    def test_shows_one_key_and_the_rest_on_request(self, public_page, files):
        visible, _, details = ask(public_page, "/what-is-asked")[2].decode().partition("<details")
        whole = json.loads(files[1].read_text())
        assert re.findall(r"[0-9a-f]{40,}", visible) == [whole["announce_key"]]
        assert whole["signature"] in details
        assert "<details" not in statement_page.html(whole)  # a printed statement shows everything

    def test_download_is_signed_document(self, public_page, files):
        status, headers, body = ask(public_page, "/what-is-asked?statement")
        assert (status, json.loads(body)) == (200, json.loads(files[1].read_text()))
        assert headers["content-disposition"] == 'attachment; filename="hushmote-home-statement.json"'

    def test_has_the_log_if_there_is_one(self, public_page, files):
        assert ask(public_page, "/log/checkpoint")[0] == 404
        assert b"checkpoint" not in ask(public_page, "/what-is-asked")[2]
        with Store(files[0]) as store:
            log = StoredLog(store)
            log.append(LOG, lambda _: [experiment_entry("home", "room_temp", b"{}")], 100)
        status, headers, body = ask(public_page, "/log/checkpoint")
        assert (status, body.decode()) == (200, str(log.checkpoint))
        assert headers["content-type"] == "text/plain; charset=utf-8"
        assert ask(public_page, "/log/tile/entries/000.p/1")[0] == 200
        link = '<a href="log/checkpoint">Public log of all questions</a>'
        assert link in ask(public_page, "/what-is-asked")[2].decode()
        assert ask(public_page, "/log/checkpoint", "POST")[0] == 401
        assert ask(public_page, "/log")[0] == 401

    def test_other_paths_need_token(self, public_page):
        similar = ("/what-is-asked/", "/what-is-asked/x", "//what-is-asked", "/./what-is-asked")
        encoded = ("/what-is-aske%64", "/%77hat-is-asked", "/what-is-asked%3Fstatement", "/what-is-asked;x")
        protected = [path for path in PROTECTED if not path.startswith("/what-is-asked")]
        odd = ("/What-is-asked", "/plan/../what-is-asked", "/what-is-asked%00")
        for path in (*similar, *encoded, *odd, *protected):
            for method in ("GET", "HEAD"):
                assert ask(public_page, path, method)[0] == 401, (method, path)
        for method in ("POST", "PUT", "OPTIONS", "DELETE", "PATCH"):
            assert ask(public_page, "/what-is-asked", method)[0] == 401, method
        assert handshake(public_page) == 403
        assert handshake(public_page, path="/what-is-asked") == 403

    def test_has_no_counts_and_no_devices(self, public_page, files):
        everything = files[1].with_name("whole.json").read_text()
        assert f"{COUNTED:,}" in everything
        for query in ("", "?statement"):
            body = ask(public_page, f"/what-is-asked{query}")[2].decode()
            for hidden in (f"{COUNTED:,}", str(COUNTED), DEVICE, "b19", "reported"):
                # Match whole words, because hashes contain any short run of hexadecimal digits.
                assert not re.search(rf"\b{hidden}\b", body), hidden

    def test_escapes_experiments_text(self, public_page):
        body = ask(public_page, "/what-is-asked")[2]
        assert b"<script" not in body
        assert b"&lt;script&gt;alert(1)&lt;/script&gt; How warm" in body

    def test_lists_changes_in_store(self, files, tmp_path):
        url, file = write_statement(tmp_path, {})
        changed = KEPT.replace("room_temp", "bath").replace("bins = 32", "bins = 16")
        with paged(url, "--what-is-asked", file) as page:
            assert ask(page, "/what-is-asked", Host="evil.example")[0] == 403
            with Store(url) as store:
                ask_of_home(store, KEPT.replace("room_temp", "bath").replace("400d", "900d"))
            assert says(page, b"since then: bath.")
            with Store(url) as store:
                ask_of_home(store, changed)
                ask_of_home(store, KEPT.replace("room_temp", "attic"))
                store.withdraw_experiment("home", "room_temp")
            assert says(page, b"The owner has changed the questions since then: attic, bath, room_temp.")

    def test_reports_unreadable_store(self, files):
        class UnreadableStore:
            async def ask(self, *_):
                raise StoreError("it is gone")

        live: Any = UnreadableStore()
        statement = PublicStatement(
            document.read_public(files[1]), live, LogFiles("sqlite:///absent/store.sqlite")
        )
        assert b"currently not possible to check" in asyncio.run(statement.answer("")).body

    def test_invalid_file_gives_one_line(self, files):
        text, whole = files[1].read_text(), json.loads(files[1].with_name("whole.json").read_text())
        statement = json.loads(text)["statement"]
        both, other = statement | whole["statement"], statement | {"label": 1}
        for content, message in (
            (
                json.dumps(whole),
                "contains counts: make a public one with `hushmote statement write --public`",
            ),
            (json.dumps({"statement": both, "unsigned": ""}), "contains counts"),
            (text.replace("How warm", "How cold"), "was altered after it was signed"),
            (json.dumps({"statement": other, "unsigned": ""}), "is not a statement, or is damaged"),
            (text[:-9], "is not a statement, or is damaged"),
        ):
            path = files[1].with_name("wrong.json")
            path.write_text(content)
            with fails(f"^{path} {message}", StatementError):
                document.read_public(path)

    def test_fleet_must_be_shown_and_in_store(self, files):
        url, file = files
        start = ("page", "--http", "127.0.0.1:0", "--what-is-asked", file)
        output = hushmote(*start, "--store", url, "--fleet", "shed", cwd=file.parent, expect=1)
        assert output.endswith("public.json is not a statement for fleet shed; write one for that fleet\n")
        with Store(f"sqlite:///{file.with_name('other.sqlite')}") as other:
            other.add_fleet("shed", keyed=False)
        output = hushmote(*start, "--store", "sqlite:///other.sqlite", cwd=file.parent, expect=1)
        assert "no fleet home in this store; its fleets: shed" in output


class TestForeignSites:
    def test_unknown_host_name_is_rejected(self, page):
        for host in ("evil.example", "evil.example:9419", "127.0.0.1.evil.example", "", "["):
            assert ask(page, Host=host)[0] in (400, 403), host
        for host in ("localhost", "127.0.0.1:1", "[::1]:9419"):
            assert ask(page, Host=host)[0] == 200, host

    @pytest.mark.parametrize(
        "header", ["X-Forwarded-For", "X-Forwarded-Proto", "X-Real-IP", "Forwarded", "Via"]
    )
    def test_proxied_request_without_token_is_rejected(self, page, locked, header):
        status, _, body = ask(page, **{header: "1"})
        assert (status, b"start the page with --token-file." in body) == (403, True)
        assert handshake(page, **{header: "1"}) == 403
        assert ask(page, "/healthz", **{header: "1"})[0] == 200
        assert ask(locked, Cookie=cookie_of(locked), **{header: "1"})[0] == 200

    def test_websocket_is_rejected(self, page):
        assert handshake(page) == 101
        assert handshake(page, Origin=page) == 101
        for origin in ("https://evil.example", "null", "http://localhost:1", "http://127.0.0.1.evil.example"):
            assert handshake(page, Origin=origin) == 403, origin

    def test_form_is_rejected(self, page, locked):
        assert ask(page, "/v1/home/report/d", "POST", b"x", Origin="https://evil.example")[0] == 403
        form = f"token={TOKEN}"
        assert ask(locked, "/login", "POST", form, Origin="https://evil.example")[0] == 403

    @pytest.mark.parametrize(
        "target",
        ["https://evil.example", "//evil.example", "/\\evil.example", "\\\\evil", "evil", "", "/\r\nX: y"],
    )
    def test_login_redirects_only_to_this_page(self, target):
        path = _local_path(target)
        assert path.startswith("/")
        assert not path.startswith(("//", "/\\"))
        assert "\r" not in path
        assert "\n" not in path

    def test_every_response_has_security_headers(self, page, locked):
        for where, path in (
            (page, "/"),
            (page, "/static/page.js"),
            (page, "/x"),
            (locked, "/"),
            (page, "/healthz"),
        ):
            headers = ask(where, path)[1]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "same-origin"
            policy = headers["content-security-policy"]
            assert "frame-ancestors 'none'" in policy
            assert "default-src 'none'" in policy
            scripts = policy.split("script-src ")[1].split(";")[0]
            assert "'unsafe-inline'" not in scripts
            assert "server" not in headers

    def test_each_page_has_new_nonce_on_its_scripts(self, page):
        nonces = set()
        for _ in range(2):
            _, headers, body = ask(page)
            nonce = headers["content-security-policy"].split("'nonce-")[1].split("'")[0]
            assert body.count(b"<script ") == body.count(f'<script nonce="{nonce}"'.encode()) > 3
            nonces.add(nonce)
        assert len(nonces) == 2


def read_until_closed(socket):
    """Read until the connection is closed or no more data arrives."""
    while True:
        socket.recv(WAIT_S)


class TestNamedTokens:
    """Each reader has a separate token, which can be revoked without a restart."""

    ADA, BEN = "ada-0123456789abcdef", "ben-0123456789abcdef"

    @pytest.fixture
    def file(self, tmp_path):
        path = tmp_path / "page.token"
        path.touch(0o600)
        path.write_text(f"ada {self.ADA}\nben {self.BEN}\n")
        return path

    @pytest.fixture
    def named_page(self, store, file, tmp_path):
        log = {"HUSHMOTE_AUDIT_LOG": str(tmp_path / "audit.jsonl")}
        with paged(store, "--token-file", file, environment=log) as page:
            yield page

    def revoke_ada(self, file):
        file.write_text(f"ben {self.BEN}\n")

    @staticmethod
    def cookie(page, token):
        status, headers, _ = ask(page, f"/?token={token}")
        assert status == 303
        return headers["set-cookie"].split(";")[0]

    def test_removed_line_revokes_one_readers_access(self, named_page, file):
        ada, ben = self.cookie(named_page, self.ADA), self.cookie(named_page, self.BEN)
        assert ask(named_page, Cookie=ada)[0] == ask(named_page, Cookie=ben)[0] == 200
        self.revoke_ada(file)
        assert ask(named_page, Cookie=ada)[0] == 401
        assert ask(named_page, "/api/home/temp.json", Authorization=f"Bearer {self.ADA}")[0] == 401
        assert ask(named_page, f"/?token={self.ADA}")[0] == 401
        assert ask(named_page, Cookie=ben)[0] == 200

    def test_removed_token_closes_websocket(self, named_page, file):
        url = named_page.replace("http", "ws") + SOCKET
        with connect(
            url, additional_headers={"Cookie": self.cookie(named_page, self.ADA)}, proxy=None
        ) as socket:
            socket.recv(WAIT_S)
            self.revoke_ada(file)
            socket.send("40")
            with pytest.raises(ConnectionClosed):
                read_until_closed(socket)

    def test_audit_log_names_readers(self, named_page, tmp_path):
        for _ in range(3):
            ask(named_page, Cookie=self.cookie(named_page, self.ADA))
        ask(named_page, "/api/home/temp.json", Authorization=f"Bearer {self.BEN}")
        ask(named_page, "/?token=wrong")
        text = (tmp_path / "audit.jsonl").read_text()
        entries = [json.loads(line) for line in text.splitlines()]
        assert [entry["who"] for entry in entries] == ["ada", "ben"]
        assert {entry["action"] for entry in entries} == {"open page"}
        assert all(set(entry) == {"at", "who", "action"} for entry in entries)
        assert self.ADA not in text


class TestStart:
    @pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.org", "[::]"])
    def test_other_machines_need_token(self, host, tmp_path):
        output = hushmote("page", "--http", f"{host}:9419", cwd=tmp_path, expect=1)
        assert "can be reached from other machines; give --token-file FILE" in output

    @pytest.mark.parametrize("token", ["", "short", "two words are no token at all", "schlüssel-schlüssel"])
    def test_rejects_invalid_token(self, token):
        with pytest.raises(UsageError, match="token of 16 or more letters and digits"):
            check_token(token, Path("token"))

    def test_rejects_unusable_options(self, page, store, tmp_path):
        used_address, nice = urlsplit(page).netloc, os.nice(0)
        for arguments, words in (
            (["--token-file", str(tmp_path / "none")], "cannot read the token"),
            (
                ["--http", used_address],
                f"cannot listen at {used_address} (Address already in use): choose another address with "
                "--http",
            ),
            (["--http", "nonsense"], "must be host:port"),
            (["--store", "nonsense"], "not a store"),
            (["--aggregator", "nonsense"], "is not an aggregator's address"),
            (["--store", store, "--fleet", "nope"], "no fleet nope in this store; its fleets: home"),
        ):
            output = hushmote("page", "--http", "127.0.0.1:0", *arguments, cwd=tmp_path, expect=1)
            assert words in output
        assert os.nice(0) == nice, "the test process has lowered its priority"

    def test_recognizes_loopback(self):
        assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
        assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "localhost.example", "")))


class TestLoad:
    def test_long_requests_are_rejected(self, page):
        assert ask(page, "/_nicegui_ws/socket.io/", "POST", b"x" * (3 << 20))[0] == 413
        with contextlib.suppress(OSError):
            assert ask(page, "/" + "x" * 100_000)[0] in (400, 404, 414, 431)
        assert ask(page)[0] == 200

    def test_page_survives_thousands_of_requests(self, store):
        """The page still answers after five seconds of requests, at least 1,000, from four threads."""
        kinds = [
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n",
            b"GET /api/home/temp.json HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /static/page.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50,
            b"nonsense\r\n\r\n",
            b"POST /v1/home/report/d HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n\r\nxx",
        ]
        with paged(store, "--fleet", "home") as page:
            address = ("127.0.0.1", urlsplit(page).port)
            end = time.monotonic() + 5
            sent = [0] * 4

            def flood(n):
                while (now := time.monotonic()) < end or (sum(sent) <= 1000 and now < end + WAIT_S):
                    with contextlib.suppress(OSError), socket.create_connection(address, 2) as s:
                        for _ in range(10):
                            s.sendall(kinds[sent[n] % len(kinds)])
                            sent[n] += 1

            threads = [threading.Thread(target=flood, args=(n,)) for n in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sum(sent) > 1000
            assert is_served(page), "the page is no longer served"
            assert handshake(page) == 101
            assert resident_mib(store, "--fleet") < 600

    def test_number_of_sockets_is_limited(self, store):
        """Pings are disabled, because a client that answers one late would be closed and free its slot."""
        program = "from hushmote.web import limits; limits.MAX_SOCKETS = 8; from nicegui import app, core"
        program += "; app.on_startup(lambda: setattr(core.sio.eio, 'ping_interval', 3600))"
        program += "; from hushmote.cli.main import main; main()"
        with paged(store, program=("-c", program)) as page, contextlib.ExitStack() as stack:
            url, refused = page.replace("http", "ws") + SOCKET, 0
            for _ in range(12):
                try:
                    client = connect(url, proxy=None, open_timeout=WAIT_S, close_timeout=0.1)
                    assert '"pingInterval":3600000' in str(stack.enter_context(client).recv(WAIT_S))
                except (InvalidStatus, ConnectionClosed):
                    refused += 1
            assert refused == 4
            assert ask(page)[0] == 200


def resident_mib(*words):
    """Return the memory of the only process started with these arguments."""
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if set(words) <= set(command.read_text().split("\0")):
                match = re.search(r"VmRSS:\s+(\d+) kB", command.with_name("status").read_text())
                assert match is not None
                return int(match[1]) / 1024
    raise AssertionError(words)


class TestWithoutBroker:
    def test_board_counts_in_browser(self, page):
        config = json.loads(ask(page, "/board/config.json")[2])
        assert (config["door"], config["result"]) == (None, None)
        assert ask(page, "/v1/home/experiment")[0] == 404


class TestResult:
    def test_is_json_and_missing_result_gives_error(self, page):
        status, _, body = ask(page, "/api/home/temp.json")
        assert status == 200
        assert json.loads(body)["experiment"] == "temp"
        status, _, body = ask(page, "/api/home/none.json")
        assert status == 404
        assert json.loads(body) == {"error": "no experiment none in fleet home; its experiments: temp"}
