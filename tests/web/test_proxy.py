"""The page behind a real nginx that serves it under a path, and in a frame of another site."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import numpy as np
import pytest
from boards import ask_fleet
from browser import TOKEN, Browser, ask, paged, token_file
from command_line import hushmote
from designs import bell, number_payload
from nginx import NGINX, PATH, SETTINGS, proxied
from refusals import fails
from selenium.webdriver.common.by import By

from hushmote.device.ldp_client import Experiment
from hushmote.server.errors import UsageError
from hushmote.server.store.store import Store
from hushmote.simulator import vectorised
from hushmote.simulator.broker import free_port
from hushmote.web.relative import root
from hushmote.web.settings import parse_frame_ancestors

DAYS = ("2026-01-01", "2026-01-02", "2026-01-03")

behind_nginx = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the URL of a store with an open fleet and three days of reports."""
    url = f"sqlite:///{tmp_path_factory.mktemp('store') / 'store.sqlite'}"
    payload, rng = number_payload(64, 2, 0, 32_000, "temp"), np.random.default_rng(7)
    experiment = Experiment.parse(payload)
    with Store(url) as store:
        ask_fleet(store, "home", payload)
        (version,) = store.experiments("home")
        for day in DAYS:
            readings = rng.multinomial(20_000, bell(64, 30, 8))
            histogram = vectorised.histogram(experiment, readings, rng)
            counts = {(version.id, day, 0, int(c)): int(histogram[c]) for c in np.flatnonzero(histogram)}
            with store.ingest() as transaction:
                transaction.write({}, counts, {})
    return url


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return token_file(tmp_path_factory.mktemp("secret"))


@pytest.fixture(scope="module")
def locked(store: str, secret: Path) -> Iterator[str]:
    """Provide a page that needs a token and may be shown in frames."""
    with paged(store, "--token-file", secret, "--frame-ancestors", "self") as page:
        yield page


@pytest.fixture(scope="module")
def url(locked: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Provide the page's URL behind nginx, which ends with a slash."""
    with proxied(locked, tmp_path_factory.mktemp("nginx")) as url:
        yield url


def log_in(browser: Browser, url: str) -> None:
    """Open an address of the page, and type the token if the page asks for it."""
    browser.open(url)
    browser.until(lambda: "needs a token" in browser.text or "updated " in browser.text)
    if "needs a token" in browser.text:
        browser.find("[name=token]").send_keys(TOKEN)
        browser.find_by_name("Open the page").click()
        browser.says("updated ")
        browser.errors()  # the browser reports the form's status, 401


def addresses(browser: Browser, css: str) -> list[str]:
    """Return the absolute addresses of links."""
    return browser.script(f"return [...document.querySelectorAll({css!r})].map((link) => link.href)")


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/", "."), ("/plan", "."), ("/board/", ".."), ("/experiment/a/b", "../.."), ("/a%2Fb", ".")],
)
def test_root_is_relative_to_the_request(path: str, expected: str):
    assert root({"path": path.replace("%2F", "/"), "raw_path": path.encode()}) == expected
    assert urljoin(f"http://host/telemetry{path}", f"{expected}/") == "http://host/telemetry/"


@behind_nginx
class TestProxyPath:
    def test_login_opens_the_requested_view(self, url: str, browser: Browser):
        log_in(browser, f"{url}plan?devices=500")
        assert browser.driver.current_url == f"{url}plan?devices=500"
        assert browser.errors() == []

    def test_login_keeps_the_fragment(self, url: str, browser: Browser):
        log_in(browser, f"{url}plan?devices=500#glossary")
        assert browser.driver.current_url == f"{url}plan?devices=500#glossary"

    def test_path_without_slash_leads_to_page(self, url: str, browser: Browser):
        log_in(browser, url.rstrip("/"))
        assert browser.driver.current_url == url

    def test_link_with_token_opens_a_view(self, url: str, browser: Browser):
        browser.open(f"{url}experiment/home/temp?token={TOKEN}")
        browser.says("updated ")
        assert browser.driver.current_url == f"{url}experiment/home/temp"
        (cookie,) = browser.driver.get_cookies()
        assert cookie["path"] == PATH.rstrip("/")

    def test_views_and_links_work(self, url: str, browser: Browser):
        log_in(browser, url)
        browser.find(".frame-link")
        views = addresses(browser, "#frame-views a")
        assert {urlsplit(view).path for view in views} == {
            PATH + name for name in ("", "releases", "budget", "plan", "board/")
        }
        for view in views:
            browser.open(view)
            if view.endswith("board/"):
                browser.says("runs in this browser")
                assert addresses(browser, "#frame-views a") == views
            else:
                browser.says("updated ")
            assert browser.errors() == [], view

    def test_charts_are_formatted_and_live(self, url: str, browser: Browser):
        log_in(browser, url)
        browser.find("a[href*='experiment/home/temp']").click()
        browser.until(lambda: browser.driver.current_url.startswith(f"{url}experiment/home/temp"))
        browser.until(lambda: " such intervals contain the true value" in browser.text_of("exact"))
        labels = "return document.querySelector('.experiment-chart svg').textContent"
        browser.until(lambda: "%" in browser.script(labels), "the axis has no %")
        assert browser.errors() == []

    def test_exports_are_downloaded(self, url: str, browser: Browser):
        log_in(browser, f"{url}experiment/home/temp")
        browser.until(lambda: "hushmote estimate" in browser.text_of("command-trend"))
        cookie = "; ".join(f"{c['name']}={c['value']}" for c in browser.driver.get_cookies())

        def files() -> list[str]:
            return [link for link in addresses(browser, "a[download]") if "#" not in link]

        browser.until(lambda: len(files()) >= 6)
        for file in files():
            assert file.startswith(f"{url}experiment/home/temp/"), file
            status, headers, body = ask(url, f"/{file.removeprefix(url)}", Cookie=cookie)
            assert (status, bool(body)) == (200, True), file
            assert headers["content-disposition"].startswith("attachment"), file

    def test_missing_page_links_to_the_answers(self, url: str, browser: Browser):
        log_in(browser, url)
        browser.open(f"{url}no/such/view")
        browser.says("There is nothing at this address.")
        browser.find_by_name("To the answers").click()
        browser.says("Fleet home")
        assert browser.driver.current_url == url

    def test_board_runs(self, url: str, browser: Browser):
        log_in(browser, url)
        browser.open(f"{url}board")
        browser.until(lambda: browser.driver.current_url == f"{url}board/")
        browser.find_by_name("Answers").click()
        browser.says("Fleet home")
        assert browser.driver.current_url == url

    @pytest.mark.parametrize("path", ["board", "plan/", "releases/", "static", "login?there=/plan"])
    def test_redirects_stay_below_the_path(self, url: str, path: str):
        headers = {"Authorization": f"Bearer {TOKEN}"}
        status, answer, _ = ask(url, f"/{path}", **headers)
        if status in (303, 307):
            assert urljoin(url + path, answer["location"]).startswith(url), answer["location"]
        else:
            assert status == 404


@behind_nginx
class TestProxyWithoutToken:
    @pytest.mark.parametrize(
        "settings", ["", "proxy_http_version 1.1; proxy_set_header X-Real-IP $remote_addr;"]
    )
    def test_is_refused(self, store: str, tmp_path: Path, settings: str):
        """By default, nginx sends the page's own address as the Host."""
        with paged(store) as page, proxied(page, tmp_path, settings=settings) as url:
            for path in ("", "api/home/temp.json", "plan"):
                status, _, body = ask(url, f"/{path}")
                assert (status, b"start the page with --token-file" in body) == (403, True), path


@behind_nginx
class TestProxyWithoutWebSockets:
    def test_page_says_what_the_proxy_must_pass_on(self, locked: str, browser: Browser, tmp_path: Path):
        with proxied(locked, tmp_path, settings="proxy_set_header Host $http_host;") as url:
            log_in(browser, url)
            browser.says("A proxy must pass on the headers Upgrade and Host.")


@behind_nginx
class TestTwoProxies:
    def test_login_views_and_links_work(self, url: str, browser: Browser, tmp_path: Path):
        with proxied(url.rstrip("/"), tmp_path, "/outer/path/") as outer:
            log_in(browser, f"{outer}experiment/home/temp")
            browser.until(lambda: " such intervals contain the true value" in browser.text_of("exact"))
            assert all(view.startswith(outer) for view in addresses(browser, "#frame-views a"))
            browser.open(f"{outer}board")
            browser.until(lambda: browser.driver.current_url == f"{outer}board/")
            assert browser.errors() == []


@behind_nginx
class TestFrame:
    def test_page_runs_in_a_frame_of_its_own_site(self, url: str, browser: Browser):
        browser.open(urljoin(url, "/frame"))
        frame = browser.driver.find_element(By.TAG_NAME, "iframe")
        browser.driver.switch_to.frame(frame)
        browser.find("[name=token]").send_keys(TOKEN)
        browser.find_by_name("Open the page").click()
        browser.says("Fleet home")
        browser.says("updated ")

    def test_page_runs_in_a_frame_of_another_site(
        self, store: str, secret: Path, browser: Browser, tmp_path: Path
    ):
        """Browsers trust localhost as if it used HTTPS, as nginx says here."""
        port = free_port()
        site, settings = f"http://localhost:{port}", SETTINGS.replace("$scheme", "https")
        with (
            paged(store, "--token-file", secret, "--frame-ancestors", site) as page,
            proxied(page, tmp_path, settings=settings, port=port),
        ):
            # The page's own address differs from the site's.
            browser.open(f"{site}/frame")
            browser.driver.switch_to.frame(browser.driver.find_element(By.TAG_NAME, "iframe"))
            browser.find("[name=token]").send_keys(TOKEN)
            browser.find_by_name("Open the page").click()
            browser.says("Fleet home")
            browser.find("a[href*='experiment/home/temp']").click()
            browser.find("#csv-dialect option[value=excel-eu]").click()
            browser.until(lambda: "hushmote estimate" in browser.text_of("command-trend"))
            link = next(link for link in addresses(browser, "a[download]") if ".csv" in link)
            fetch = "const [url, done] = arguments; fetch(url).then((a) => a.text()).then(done)"
            assert ";" in browser.driver.execute_async_script(fetch, link).splitlines()[0]
            browser.driver.switch_to.default_content()

    def test_other_sites_are_blocked(self, url: str, browser: Browser):
        browser.open(urljoin(url, "/frame").replace("127.0.0.1", "localhost"))
        browser.until(lambda: any("frame-ancestors" in error for error in browser.errors()))


SITE = "https://grafana.example:3000"


@pytest.fixture(scope="module")
def framed(store: str, secret: Path) -> Iterator[str]:
    with paged(store, "--token-file", secret, "--frame-ancestors", SITE) as page:
        yield page


class TestFrameAncestors:
    @pytest.mark.parametrize("path", ["/", "/board/", "/nowhere", "/login"])
    def test_policy_names_the_sites(self, framed: str, path: str):
        headers = ask(framed, path, Authorization=f"Bearer {TOKEN}")[1]
        policies = headers.get_all("content-security-policy", [])
        ancestors = [p.split("frame-ancestors ")[1].split(";")[0] for p in policies if "frame-anc" in p]
        assert ancestors == [SITE]
        assert headers["x-frame-options"] is None

    def test_cookie_works_in_frames_over_https(self, framed: str):
        link = f"/?token={TOKEN}"
        cookie = ask(framed, link, X_Forwarded_Proto="https")[1]["set-cookie"]
        assert "; SameSite=None; Secure; Partitioned;" in cookie
        assert "; SameSite=Strict;" in ask(framed, link)[1]["set-cookie"]

    @pytest.mark.parametrize(
        ("schemes", "is_https"), [("https, http", True), ("HTTPS", True), ("http, https", False)]
    )
    def test_first_of_several_schemes_is_the_browsers(self, framed: str, schemes: str, is_https: bool):
        cookie = ask(framed, f"/?token={TOKEN}", X_Forwarded_Proto=schemes)[1]["set-cookie"]
        assert ("; Secure;" in cookie) == is_https

    def test_form_says_that_frames_need_https(self, framed: str):
        words = b"only if this page uses HTTPS"
        assert words in ask(framed)[2]
        assert words not in ask(framed, X_Forwarded_Proto="https")[2]

    def test_accepts_sites_and_self(self):
        texts = ["self, https://Grafana.example:3000/", "'self'", "http://*.example.org http://10.0.0.7"]
        expected = ("'self'", "https://grafana.example:3000", "http://*.example.org", "http://10.0.0.7")
        assert parse_frame_ancestors(texts) == expected
        assert parse_frame_ancestors([]) == ()

    @pytest.mark.parametrize(
        "text",
        ["*", "none", "grafana.example", "https://a/path", "https:", "ftp://a", "https://a;b", "https://é"],
    )
    def test_refuses_other_values(self, text: str):
        with fails("^--frame-ancestors .* is not a site; give its scheme and name", UsageError):
            parse_frame_ancestors([text])

    def test_command_refuses_before_it_starts(self, tmp_path: Path):
        output = hushmote("page", "--frame-ancestors", "*", cwd=tmp_path, expect=1)
        assert "--frame-ancestors * is not a site" in output
        assert len(output.splitlines()) == 1


class TestCookie:
    def test_cookies_of_other_paths_do_not_lock_out(self, locked: str):
        name, value = ask(locked, f"/?token={TOKEN}")[1]["set-cookie"].split(";")[0].split("=")
        for cookie in (f"{name}={value}; {name}=other", f"{name}=other; {name}={value}"):
            assert ask(locked, "/api/home/temp.json", Cookie=cookie)[0] == 200
        assert ask(locked, "/api/home/temp.json", Cookie=f"{name}=other")[0] == 401

    def test_login_address_is_never_the_target(self, locked: str):
        status, _, body = ask(locked, "/login")
        assert (status, b'value="/"' in body) == (401, True)
