"""The error tree in server/errors.py's docstring, and messages that list names."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import hushmote.server.errors as errors

ROOT = Path(__file__).parents[2]
CLASS = re.compile(r"^ *class (\w+)\(([^)]*)\):", re.MULTILINE)
PACKAGES = ("server", "planning", "fleet", "simulator", "studies", "cli", "web")


def docstring_tree() -> Iterator[tuple[str, str]]:
    """Yield each error and its base as shown in the docstring."""
    parents = ["HushmoteError"]
    for line in (errors.__doc__ or "").splitlines():
        if branch := re.match(r"    ((?:│   )*)[├└]── (\w+(?:, \w+)*)", line):
            depth = len(branch[1]) // 4
            del parents[depth + 1 :]
            names = [name for name in branch[2].split(", ") if name != "and"]
            yield from ((name, parents[depth]) for name in names)
            parents.append(names[0])


class TestTree:
    @pytest.mark.slow
    def test_docstring_matches_the_classes(self):
        bases = {
            name: {base.strip().rpartition(".")[2] for base in names.split(",")}
            for package in PACKAGES
            for path in (ROOT / package).rglob("*.py")
            for name, names in CLASS.findall(path.read_text(encoding="utf-8"))
        }
        tree = dict(docstring_tree())
        assert len(tree) > 35
        assert {name: base for name, base in tree.items() if base not in bases.get(name, ())} == {}
        # Every error with subclasses is in the tree.
        below = {base for mine in bases.values() for base in mine if base[0] != "_" and base in bases}
        below = {base for base in below if is_error(base, bases)}
        assert below - {*tree, "HushmoteError"} == set()


def is_error(name: str, bases: dict[str, set[str]]) -> bool:
    return name == "HushmoteError" or any(is_error(base, bases) for base in bases.get(name, ()))


class TestChooseName:
    def test_is_the_only_one_or_an_existing_one(self):
        assert errors.choose_name("fleet", None, ["home"], "in this store") == "home"
        assert errors.choose_name("fleet", "lab", ["home", "lab"], "in this store") == "lab"

    @pytest.mark.parametrize(
        ("name", "names", "message"),
        [
            (None, [], "name one fleet in this store; it has no fleet yet"),
            (None, ["home", "lab"], "name one fleet in this store; its fleets: home, lab"),
            ("shed", ["home", "lab"], "no fleet shed in this store; its fleets: home, lab"),
        ],
    )
    def test_lists_the_names_otherwise(self, name: str | None, names: list[str], message: str):
        with pytest.raises(errors.UsageError) as refused:
            errors.choose_name("fleet", name, names, "in this store")
        assert str(refused.value) == message
