"""The sources that a release is built from: the clone's tracked files, with this release's addresses."""

import os
import posixpath
import re
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

from .archives import read_tree, write_tree

# The address that the repository's files name; a build replaces it with the configured one.
_DEFAULT = re.compile(rb"(https://github\.com|github:/)/hushmote/hushmote(?P<embedded>-embedded)?(?![\w-])")
_LINK = re.compile(r"(?P<picture>!?)(?P<text>\[(?:[^\[\]]|\[[^\]]*\])*\])\((?P<target>[^()\s]+)\)")
_OTHER_SITE = re.compile(r"[a-z][a-z0-9+.-]*:|#|//")
_BOARD = "web/board/static/micropython"  # from npm; not tracked, but part of the wheel


class ReleaseError(Exception):
    """A release that cannot be built; the message says what to do."""


@dataclass(frozen=True)
class Source:
    """A copy of the tracked files.

    Args:
        folder: The copy.
        version: The version to release.
        repository_url: The address of the repository.
        embedded_url: The address of the repository for microcontrollers, hushmote-embedded.
        commit: The commit that was copied.
        is_clean: Whether the copy has exactly the commit's content.
    """

    folder: Path
    version: str
    repository_url: str
    embedded_url: str
    commit: str
    is_clean: bool

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def tree(self, folder: str) -> dict[str, bytes]:
        """Return the files of a folder, by their path in it."""
        return read_tree(self.folder / folder)

    def page(self, name: str) -> bytes:
        """Return a Markdown document with absolute links, for readers outside the repository."""
        return absolute_links(self.read(name).decode(), name, self.repository_url, self.version).encode()


def absolute_links(markdown: str, name: str, url: str, version: str) -> str:
    """Return a document of the repository with links to the released version's files.

    Args:
        markdown: The document.
        name: Its path in the repository.
        url: The address of the repository.
        version: The released version, whose tag is v and the version.
    """

    def absolute(link: re.Match[str]) -> str:
        target = link["target"]
        if not _OTHER_SITE.match(target):
            kind = "raw" if re.search(r"\.(png|svg)$", target) else "blob"
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
            target = f"{url}/{kind}/v{version}/{path}"
        # A picture may be the text of a link.
        return f"{link['picture']}{_LINK.sub(absolute, link['text'])}({target})"

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _LINK.sub(absolute, part) for part in parts)


def copy_source(root: Path, folder: Path) -> Source:
    """Copy a clone's tracked files, with the configured addresses in place of the default ones.

    Raises:
        ReleaseError: If the folder is not a clone, or an address is not one of a repository.
    """
    settings = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hushmote"]["release"]
    repository_url = _address(os.environ.get("REPOSITORY_URL") or settings["repository-url"])
    embedded = os.environ.get("EMBEDDED_URL") or settings.get("embedded-url") or f"{repository_url}-embedded"
    embedded_url = _address(embedded)
    names = [name for name in _git(root, "ls-files", "-z").split("\0") if (root / name).is_file()]
    names += [f"{_BOARD}/{path.name}" for path in sorted((root / _BOARD).glob("*"))]

    def configured(match: re.Match[bytes]) -> bytes:
        url = embedded_url if match["embedded"] else repository_url
        if match[1] == b"github:/":
            url = "github://" + "/".join(url.split("/")[-2:])
        return url.encode()

    write_tree(folder, {name: _DEFAULT.sub(configured, (root / name).read_bytes()) for name in names})
    version = re.search(r'VERSION = "(.*)"', (root / "hushmote" / "_version.py").read_text())
    assert version is not None
    return Source(
        folder,
        version[1],
        repository_url,
        embedded_url,
        _git(root, "rev-parse", "HEAD").strip(),
        not _git(root, "status", "--porcelain", "--untracked-files=no"),
    )


def _address(url: str) -> str:
    url = url.rstrip("/").removesuffix(".git")
    if not re.fullmatch(r"https://[\w.:-]+(/[\w.~-]+){2,}", url):
        raise ReleaseError(f"{url} is not a repository's address, such as https://example.org/owner/name")
    return url


def commit_time(root: Path) -> str:
    """Return the time of the newest commit, in seconds since 1970."""
    return _git(root, "log", "-1", "--format=%ct").strip()


def _git(root: Path, *arguments: str) -> str:
    result = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=False)
    if result.returncode:
        lines = result.stderr.strip().splitlines() or ["git failed"]
        raise ReleaseError(f"{lines[-1]}: a release is built from a git clone")
    return result.stdout
