"""The documentation site builds, every link has a target, and nothing is fetched from other servers."""

import contextlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import browsing
from browser_board import require_micropython, serve_folder
from markdown import Markdown
from markdown_it import MarkdownIt
from run_once import once

from hushmote.web.board.fetch import CannotFetch, fetch

ROOT = Path(__file__).parents[2]
PATTERNS = ("docs/*.md", "*.md", "*s/README.md", "clients/*/README.md")
PAGES = [path for pattern in PATTERNS for path in sorted(ROOT.glob(pattern))]
# Elements on which both Markdown renderers must agree.
PARTS = {"h1", "h2", "h3", "h4", "p", "ul", "ol", "li", "table", "tr", "th", "td", "pre", "blockquote", "img"}
# Attributes whose URLs a browser fetches automatically.
FETCHED = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src")}


class Html(HTMLParser):
    """A page's tags, counted, and the names and URLs in their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.named: list[tuple[str, str, str]] = []  # (tag, attribute, value)
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.named += [(tag, name, value or "") for name, value in attrs if name in ("href", "id", "src")]


def build(folder: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a folder with a mkdocs.yml, in strict mode and in a separate process."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=folder,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "LINKED_PACKAGES": f"{sys.prefix}/linked"},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        with contextlib.suppress(CannotFetch):
            fetch()  # before the site is built, because it includes the board
        built = build(ROOT, folder)
        assert built.returncode == 0, built.stderr

    return once(tmp_path_factory, "site", make)


# A dead link -> the build's message.
DEAD_LINKS = {
    "[a](none.md)": "'docs/none.md' is not found",
    "[a](#none)": "no such anchor",
    "[a](other.md#none)": "does not contain an anchor",
    "![a](none.png)": "'docs/none.png' is not found",
    "[a](../locks)": "unrecognized relative link",
}


class TestSite:
    @pytest.mark.slow
    def test_has_every_page_in_its_search_index(self, site: Path):
        pages = {page.with_suffix(".html").name for page in (ROOT / "docs").glob("*.md")}
        assert pages <= {page.name for page in site.glob("*.html")}
        links = {
            entry["location"].partition("#")[0]
            for entry in json.loads((site / "search/search_index.json").read_text())["docs"]
        }
        assert pages - {"index.html"} <= links

    @pytest.mark.slow
    def test_fetches_nothing_from_other_servers(self, site: Path):
        elsewhere = [
            (page.name, value)
            for page in site.rglob("*.html")
            for tag, name, value in Html(page.read_text()).named
            if (tag, name) in FETCHED and re.match(r"(https?:)?//", value)
        ]
        assert elsewhere == []
        for style in site.rglob("*.css"):
            assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", style.read_text()), style.name

    @pytest.mark.slow
    def test_pages_references_exist(self, site: Path):
        """Check links, pictures, scripts and styles in the HTML; MkDocs checks only links in Markdown."""
        missing = []
        for page in site.rglob("*.html"):
            if page.name == "404.html":  # its paths start at the server's root, since it is shown at any URL
                continue
            for tag, name, value in Html(page.read_text()).named:
                path = value.partition("#")[0]
                if name != "id" and path and ":" not in path and not (page.parent / path).exists():
                    missing.append((page.name, tag, value))
        assert missing == []

    @pytest.mark.slow
    def test_describes_public_python_names(self, site: Path):
        import hushmote
        import hushmote.server.accounting as accounting

        ids = {value for _, name, value in Html((site / "python.html").read_text()).named if name == "id"}
        classes = {f"hushmote.{name}" for name in hushmote.__all__} - {
            "hushmote.__version__",
            "hushmote.open",
        }
        assert classes <= ids
        described = {value.replace("accounting.compose.compose", "accounting.compose") for value in ids}
        names = {f"hushmote.server.accounting.{name}" for name in accounting.__all__}
        assert names - described == {"hushmote.server.accounting.THEOREMS"}  # a constant without a docstring
        assert {
            "hushmote.server.estimate.estimate.estimate",
            "hushmote.device.ldp_client.Client.report",
        } <= ids

    @pytest.mark.slow
    def test_has_tour_with_its_outputs(self, site: Path):
        page = (site / "examples/tour.html").read_text()
        tags = Html(page).tags
        assert tags["table"] > 10
        assert tags["img"] == page.count("data:image/png;base64,") == 3
        assert "a trend needs at least 2 windows with reports" in page
        assert 'href="examples/tour.html"' in (site / "python.html").read_text()

    @pytest.mark.slow
    def test_start_page_has_three_buttons(self, site: Path):
        assert (site / "index.html").read_text().count('class="md-button"') == 3

    def test_board_on_start_page_reports_without_server(self, site: Path, tmp_path: Path):
        require_micropython()
        with serve_folder(site) as url, browsing(tmp_path) as chromium:
            chromium.open(f"{url}index.html")
            chromium.find_by_name("Try it in this browser").click()
            chromium.driver.switch_to.frame(chromium.find("iframe.board"))
            chromium.until(lambda: chromium.find("#yes").is_displayed(), "the board is ready")
            chromium.find("#yes").click()
            chromium.find("#report").click()
            chromium.says("One report was made.")
            chromium.driver.switch_to.default_content()
            assert chromium.errors() == []

    @pytest.mark.slow
    def test_dead_link_stops_build(self, tmp_path: Path):
        settings, _, _ = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")
        (tmp_path / "mkdocs.yml").write_text(settings)
        (tmp_path / "docs/site").mkdir(parents=True)
        for file in ("files.py", "site.css", "tour.py"):
            (tmp_path / "docs/site" / file).write_text((ROOT / "docs/site" / file).read_text())
        (tmp_path / "docs/other.md").write_text("# Other\n")
        page = tmp_path / "docs/index.md"
        fine = "[b](other.md#other) and no links: T[a][y], [at least 1] [default: 16]"
        page.write_text("# A page\n\n" + "\n\n".join([fine, *DEAD_LINKS]))
        built = build(tmp_path, tmp_path / "site")
        assert built.returncode != 0
        assert [link for link, complaint in DEAD_LINKS.items() if complaint not in built.stderr] == []
        assert built.stderr.count("WARNING ") == len(DEAD_LINKS)  # only these stop the build


def parts(html: str) -> dict[str, int]:
    return {tag: n for tag, n in Html(html).tags.items() if tag in PARTS}


def on_the_site(text: str) -> str:
    extensions = ["admonition", "attr_list", "tables", "pymdownx.highlight", "pymdownx.superfences"]
    settings = {"pymdownx.highlight": {"use_pygments": False}}
    return Markdown(extensions=extensions, extension_configs=settings).convert(text)


def elsewhere(text: str) -> str:
    return MarkdownIt("commonmark").enable("table").render(text)


class TestMarkdown:
    @pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
    def test_page_reads_the_same_in_both_dialects(self, page: Path):
        """The site's Markdown needs an empty line before a list, and an indent of four spaces inside it."""
        text = page.read_text()
        assert parts(on_the_site(text)) == parts(elsewhere(text))

    def test_detects_list_missed_by_the_site(self):
        assert parts(on_the_site("one\n* two\n")) != parts(elsewhere("one\n* two\n"))


class TestGlossary:
    def test_defines_each_word_once_and_every_reference(self):
        page = (ROOT / "docs" / "glossary.md").read_text()
        bold = re.findall(r"\*\*(.+?)\*\*", page)
        entries = [word.strip(" .").lower() for entry in bold for word in entry.split(", ")]
        assert [word for word, n in Counter(entries).items() if n > 1] == []
        referred = {word.lower() for word in re.findall(r"(?<!\*)\*([^*\n]+)\*(?!\*)", page)}
        missing = [word for word in referred if not any(word.removesuffix("s") in entry for entry in entries)]
        assert missing == ["italics"]
