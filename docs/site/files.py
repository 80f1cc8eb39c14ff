"""The site's files: the pages of docs/, and what they link to beside it.

MkDocs knows one folder of pages. Here a page keeps its path from the project's folder, so that the links
between docs/, benchmarks/ and the files at the top are the same on the site as in a clone.

[a] [b] stays text, as elsewhere: mkdocstrings would take it for a link to a name of the code.
"""

from pathlib import Path

from markdown import Extension, Markdown
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

from hushmote.web.board.files import files as board_files

# Pages and pictures, and files that pages link to as they are.
PATTERNS = (
    "docs/*.md",
    "docs/*.png",
    "docs/*/*.png",
    "docs/site/*.css",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benchmarks/README.md",
    "benchmarks/results/*.md",
    "benchmarks/results/*.png",
    "deploy/**/*",
    "deploy/postgres/*",
    "device/*.py",
    "examples/*.ipynb",
    "examples/*.py",
    "examples/*.toml",
    "examples/*/*.c",
    "examples/*/*.md",
    "examples/channels/*.py",
    "locks/*.txt",
    "server/mechanisms/*.py",
    "tests/vectors.json",
    "tests/vectors_further.json",
)


class PlainBrackets(Extension):
    """Takes away what the plugin of mkdocstrings adds for brackets."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.inlinePatterns.deregister("mkdocs-autorefs", strict=False)


@event_priority(-100)  # after the plugins
def on_config(config: MkDocsConfig) -> None:
    config.markdown_extensions.append(PlainBrackets())  # pyright: ignore[reportArgumentType]


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Every file of PATTERNS in place of those of docs_dir; the theme's own stay."""
    root = Path(config.config_file_path).parent
    paths = sorted({path for pattern in PATTERNS for path in root.glob(pattern) if path.is_file()})
    theme = [file for file in files if file.src_dir != config.docs_dir]
    board = (_board_file(path, file, config) for path, file in board_files())
    return Files([*theme, *(_file(path.relative_to(root), config) for path in paths), *board])


def _board_file(path: str, file: Path, config: MkDocsConfig) -> File:
    """A file of the board in the browser, which stands in board/ with what it borrows from other folders."""
    root = str(Path(config.config_file_path).parent)
    target = f"board/{path}"
    made = File(f"web/board/static/{path}", root, config.site_dir, config.use_directory_urls, dest_uri=target)
    made.abs_src_path = str(file)
    return made


def _file(path: Path, config: MkDocsConfig) -> File:
    """A file of the project; docs/ is the site's top, and a folder's README.md its index."""
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
