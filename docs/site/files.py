"""The site's files: the pages of docs/, and the files outside it that they link to.

MkDocs supports one folder of pages. Here a page keeps its path from the project's folder, so that the links
between docs/, benchmarks/ and the files at the top are the same on the site as in a clone.

[a] [b] stays text, as elsewhere: mkdocstrings would take it for a link to a name in the code.

A comment marks content that only the site has: <!-- buttons --> makes the next paragraph's links buttons,
<!-- board --> is the board in the browser. Links to the notebook lead to a page that has its answers, too.
"""

import re
from pathlib import Path

import tour
from markdown import Extension, Markdown
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from hushmote.web.board.files import files as board_files

# Pages and pictures, and files that pages link to as they are.
PATTERNS = (
    "docs/*.json",
    "docs/*.md",
    "docs/*.png",
    "docs/*.svg",
    "docs/*/*.png",
    "docs/site/*.css",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benchmarks/README.md",
    "benchmarks/results/*.md",
    "clients/c/**/*.[ch]",
    "clients/c/**/*.ino",
    "clients/c/**/*.md",
    "clients/README.md",
    "clients/esphome/README.md",
    "clients/js/README.md",
    "clients/esphome/*.yaml",
    "deploy/**/*",
    "deploy/postgres/*",
    "device/*.py",
    "examples/*.ipynb",
    "examples/*.py",
    "examples/*.toml",
    "examples/channels/*.py",
    "locks/*.txt",
    "server/mechanisms/*.py",
    "studies/README.md",
    "tests/vectors.json",
    "tests/vectors_further.json",
    "tests/vectors_groups.json",
    "tests/vectors_scale.json",
    "tests/vectors_text.json",
)

_NOTEBOOK, _TOUR = "examples/tour.ipynb", "examples/tour.md"
_BUTTONS = re.compile(r"<!-- buttons -->\n((?:.+\n)+)")
_BOARD = (
    '<iframe class="board" src="board/index.html" title="A board in this browser" loading="lazy"></iframe>'
)


class PlainBrackets(Extension):
    """An extension that removes the bracket syntax of the mkdocstrings plugin."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.inlinePatterns.deregister("mkdocs-autorefs", strict=False)


@event_priority(-100)  # after the plugins
def on_config(config: MkDocsConfig) -> None:
    """Add PlainBrackets to the Markdown extensions."""
    config.markdown_extensions.append(PlainBrackets())  # pyright: ignore[reportArgumentType]


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Return every file of PATTERNS instead of those of docs_dir; the theme's own stay."""
    root = Path(config.config_file_path).parent
    paths = sorted({path for pattern in PATTERNS for path in root.glob(pattern) if path.is_file()})
    theme = [file for file in files if file.src_dir != config.docs_dir]
    board = (_board_file(path, file, config) for path, file in board_files())
    made = Files([*theme, *(_file(path.relative_to(root), config) for path in paths), *board])
    if (root / _NOTEBOOK).is_file():
        shown = tour.page(root / _NOTEBOOK, root / "build" / "tour")
        made.append(File.generated(config, _TOUR, content=shown))
    return made


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page with what only the site has; links lead to the notebook's page, except on that page."""
    del config, files
    if page.file.src_uri == _TOUR:
        return markdown
    markdown = _BUTTONS.sub(lambda links: re.sub(r"(\]\([^)]*\))", r"\1{ .md-button }", links[1]), markdown)
    return markdown.replace("<!-- board -->", _BOARD).replace(f"{_NOTEBOOK})", f"{_TOUR})")


def _board_file(path: str, file: Path, config: MkDocsConfig) -> File:
    """Return a file of the board in the browser, which is in board/ with what it takes from other folders."""
    root = str(Path(config.config_file_path).parent)
    target = f"board/{path}"
    made = File(f"web/board/static/{path}", root, config.site_dir, config.use_directory_urls, dest_uri=target)
    made.abs_src_path = str(file)
    return made


def _file(path: Path, config: MkDocsConfig) -> File:
    """Return a file of the project; docs/ is the site's top, and a folder's README.md its index."""
    target = path.relative_to("docs") if path.parts[0] == "docs" else path
    if path.suffix == ".md":
        target = target.with_name("index.html" if path.stem == "README" else f"{path.stem}.html")
    return File(
        path.as_posix(),
        str(Path(config.config_file_path).parent),
        config.site_dir,
        config.use_directory_urls,
        dest_uri=target.as_posix().lower(),
    )
