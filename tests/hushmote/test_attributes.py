"""Every public attribute exported by `import hushmote` is described in the code and in docs/python.md."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import hushmote

PAGE = (Path(__file__).parents[2] / "docs/python.md").read_text("utf-8")
EXPORTS = [getattr(hushmote, name) for name in hushmote.__all__]
CLASSES = sorted({one for one in EXPORTS if inspect.isclass(one)}, key=lambda one: one.__name__)


def own(one: type) -> list[type]:
    """Return the classes of ours in a class's hierarchy."""
    return [base for base in one.__mro__ if base.__module__.startswith("hushmote")]


def attributes(one: type) -> Iterator[str]:
    """Return the public names of a class: methods, properties and fields."""
    names = {name for base in own(one) for name in (*vars(base), *inspect.get_annotations(base))}
    yield from sorted(name for name in names if not name.startswith("_"))


def is_described(one: type, name: str) -> bool:
    """Whether a name has a docstring, or an entry in that of its class: `name: ...` or `name   ...`."""
    member = inspect.getattr_static(one, name, None)
    if isinstance(member, property | classmethod | staticmethod) or callable(member):
        return bool(inspect.getdoc(member))
    docs = "\n".join(base.__doc__ or "" for base in own(one))
    return re.search(rf"(?:^|[ ,.]){name}(?:(?:, \w+)*:|  )", docs, re.MULTILINE) is not None


@pytest.mark.parametrize("one", CLASSES, ids=lambda one: one.__name__)
class TestPublicAttributes:
    def test_have_a_docstring_or_an_entry(self, one: type):
        assert [name for name in attributes(one) if not is_described(one, name)] == []

    def test_are_on_the_page(self, one: type):
        code = " ".join(re.findall(r"`[^`\n]+`|```.*?```", PAGE, re.DOTALL))
        assert [name for name in attributes(one) if not re.search(rf"\b{name}\b", code)] == []
