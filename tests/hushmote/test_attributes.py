"""Every public attribute exported by `import hushmote` is described in the code and in docs/python.md."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import hushmote

PAGE = (Path(__file__).parents[2] / "docs/python.md").read_text("utf-8")
EXPORTS = [getattr(hushmote, name) for name in hushmote.__all__]
CLASSES = sorted({export for export in EXPORTS if inspect.isclass(export)}, key=lambda cls: cls.__name__)


def own_classes(cls: type) -> list[type]:
    """Return hushmote's classes in a class's hierarchy."""
    return [base for base in cls.__mro__ if base.__module__.startswith("hushmote")]


def attributes(cls: type) -> Iterator[str]:
    """Return a class's public names: methods, properties and fields."""
    names = {name for base in own_classes(cls) for name in (*vars(base), *inspect.get_annotations(base))}
    yield from sorted(name for name in names if not name.startswith("_"))


def is_described(cls: type, name: str) -> bool:
    """Return whether a name has a docstring or an entry, `name: ...` or `name   ...`, in its class's."""
    member = inspect.getattr_static(cls, name, None)
    if isinstance(member, property | classmethod | staticmethod) or callable(member):
        return bool(inspect.getdoc(member))
    docs = "\n".join(base.__doc__ or "" for base in own_classes(cls))
    return re.search(rf"(?:^|[ ,.]){name}(?:(?:, \w+)*:|  )", docs, re.MULTILINE) is not None


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
class TestPublicAttributes:
    def test_have_a_docstring_or_an_entry(self, cls: type):
        assert [name for name in attributes(cls) if not is_described(cls, name)] == []

    def test_are_on_the_page(self, cls: type):
        code = " ".join(re.findall(r"`[^`\n]+`|```.*?```", PAGE, re.DOTALL))
        assert [name for name in attributes(cls) if not re.search(rf"\b{name}\b", code)] == []
