"""Mutation rules: the small changes that `mutants.py` makes to Python, C and JavaScript.

| rule | change |
|---|---|
| comparison | `<` becomes `>=`, `==` becomes `!=`, `in` becomes `not in`, and the reverse |
| boundary | `<` becomes `<=`, `>` becomes `>=`, and the reverse; `+ 1` or `- 1` is removed |
| early exit | the condition of an `if` that only returns, raises, continues or breaks becomes false |
| default | a parameter's or field's default is negated, or increased by 1 |
| dropped call | a statement that commits, syncs, resets, clears, closes, flushes or acknowledges is removed |
| logic | `and` becomes `or`, `not` is removed, and the reverse |
| scale | `*` becomes `/`, and the reverse |
"""

import ast
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

_OPPOSITES = {
    "<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "==", "===": "!==", "!==": "===",
    "in": "not in", "not in": "in", "is": "is not", "is not": "is",
    "and": "or", "or": "and", "&&": "||", "||": "&&", "*": "/", "/": "*",
}  # fmt: skip
_NEIGHBOURS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_COMPARISON = re.compile(r"not\s+in|is\s+not|[<>=!]=|[<>]|\bin\b|\bis\b")
_LOGIC, _SCALE = re.compile(r"\band\b|\bor\b"), re.compile(r"[*/]")
_STATE_CALL = re.compile(r"(^|_)(commit|f?sync|reset|clear|close|flush|acknowledge|rollback)(_|$)")
_EXITS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of one place in a file.

    Attributes:
        file: The path from the repository's root.
        function: The function or class around the change, or "module".
        rule: The mutation rule.
        start: Index of the first changed character.
        end: Index after the last changed character.
        new: The text that replaces them.
        words: The change in one line, which identifies the mutant.
    """

    file: str
    function: str
    rule: str
    start: int
    end: int
    new: str
    words: str

    def apply(self, source: str) -> str:
        """Return the source with the change."""
        return source[: self.start] + self.new + source[self.end :]


def mutants_of(file: str, source: str) -> list[Mutant]:
    """Return all mutants of a file in Python, C or JavaScript, in the order of their lines."""
    edits = _PythonEdits(source) if file.endswith(".py") else _text_edits(source)
    functions = _functions(file, source)
    mutants: dict[str, Mutant] = {}
    for rule, start, end, new in sorted(edits, key=lambda edit: edit[1:3]):
        around = bisect_right(functions, start, key=lambda function: function[0])
        function = functions[around - 1][1] if around else "module"
        before = source[source.rfind("\n", 0, start) + 1 : start].lstrip()
        after = source[end : (source + "\n").index("\n", end)].rstrip()
        old_line, new_line = (" ".join((before + text + after).split()) for text in (source[start:end], new))
        words = f"{file} {function}: {old_line} -> {new_line}"
        while words in mutants:
            words += " (again)"
        mutants[words] = Mutant(file, function, rule, start, end, new, words)
    return list(mutants.values())


_Edit = tuple[str, int, int, str]  # rule, start, end, new text
_DEFINITIONS = {
    ".py": re.compile(r"^ *(?:async )?(?:def|class) (\w+)", re.M),
    ".js": re.compile(
        r"^ *(?:export )?(?:static )?(?:async )?(?:function |class )?[*#]*(\w+) *\([^()]*\) *\{", re.M
    ),
    ".c": re.compile(r"^(?!#)\w[\w \*]*?\**(\w+)\([^;]*?\{$", re.M),
}


def is_valid(mutant: Mutant, source: str) -> bool:
    """Return whether a mutant of a Python file is a different program; True for other languages."""
    if not mutant.file.endswith(".py"):
        return True
    try:
        return ast.dump(ast.parse(mutant.apply(source))) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def _functions(file: str, source: str) -> list[tuple[int, str]]:
    """Return where each function or class begins, and its name."""
    pattern = _DEFINITIONS[Path(file).suffix]
    found = ((match.start(), match[1]) for match in pattern.finditer(source))
    return [(start, name) for start, name in found if name not in ("if", "for", "while", "switch", "catch")]


class _PythonEdits:
    """The edits of a Python module, by its syntax tree."""

    def __init__(self, source: str):
        self._source = source
        self._lines = source.splitlines()
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def __iter__(self) -> Iterator[_Edit]:
        return self._walk(ast.parse(self._source))

    def _walk(self, node: ast.AST) -> Iterator[_Edit]:
        if isinstance(node, ast.If) and re.search(r"TYPE_CHECKING|__name__", ast.unparse(node.test)):
            return
        yield from self._operator_edits(node)
        yield from self._statement_edits(node)
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns"):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        yield from self._walk(child)

    def _operator_edits(self, node: ast.AST) -> Iterator[_Edit]:
        match node:
            case ast.Compare(left=left, comparators=[right]):
                yield from self._operator("comparison", left, right, _COMPARISON)
            case ast.BoolOp(values=values):
                for left, right in pairwise(values):
                    yield from self._operator("logic", left, right, _LOGIC)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield "logic", self._first(node), self._first(operand), ""
            case ast.BinOp(op=ast.Mult() | ast.Div(), left=left, right=right):
                yield from self._operator("scale", left, right, _SCALE)
            case ast.BinOp(op=ast.Add() | ast.Sub(), left=left, right=ast.Constant(value=1) as right):
                yield "boundary", self._last(left), self._last(right), ""
            case _:
                pass

    def _statement_edits(self, node: ast.AST) -> Iterator[_Edit]:
        match node:
            case ast.If(test=test, body=[statement], orelse=[]) if isinstance(statement, _EXITS):
                yield "early exit", *self._range(test), "False"
            case ast.Expr(value=ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) as call):
                if _STATE_CALL.search(name):
                    yield "dropped call", *self._range(call), "pass"
            case ast.arguments(defaults=defaults, kw_defaults=kw_defaults):
                yield from self._defaults((*defaults, *kw_defaults))
            case ast.ClassDef(body=body):
                yield from self._defaults([field.value for field in body if isinstance(field, ast.AnnAssign)])
            case _:
                pass

    def _operator(
        self, rule: str, left: ast.expr, right: ast.expr, pattern: re.Pattern[str]
    ) -> Iterator[_Edit]:
        if found := pattern.search(self._source, self._last(left), self._first(right)):
            text = " ".join(found[0].split())
            yield rule, *found.span(), _OPPOSITES[text]
            if text in _NEIGHBOURS:
                yield "boundary", *found.span(), _NEIGHBOURS[text]

    def _defaults(self, values: Iterable[ast.expr | None]) -> Iterator[_Edit]:
        for value in values:
            match value:
                case ast.Constant(value=bool() as on):
                    yield "default", *self._range(value), str(not on)
                case ast.Constant(value=int() | float() as number):
                    yield "default", *self._range(value), repr(number + 1)
                case _:
                    pass

    def _range(self, node: ast.expr) -> tuple[int, int]:
        return self._first(node), self._last(node)

    def _first(self, node: ast.expr) -> int:
        return self._index(node.lineno, node.col_offset)

    def _last(self, node: ast.expr) -> int:
        return self._index(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def _index(self, line: int, byte: int) -> int:
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:byte].decode())


_NOT_CODE = re.compile(
    r"/\*.*?\*/|//[^\n]*"  # comments
    r'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|`(?:\\.|[^`\\])*`'  # strings
    r"|^[ \t]*#(?:\\\n|[^\n])*",  # the preprocessor's lines
    re.S | re.M,
)
_TEXT_RULES = (
    ("comparison", re.compile(r"(?<= )([<>=!]=?=?)(?= )"), None),
    ("logic", re.compile(r"(?<=\s)(&&|\|\|)(?=\s)"), None),
    ("logic", re.compile(r"(?<=[(\s])!(?=[\w(])"), ""),
    ("scale", re.compile(r"(?<=[\w)\]] )[*/](?= [\w(])"), None),
    ("boundary", re.compile(r"(?<=[\w)\]]) [+-] 1\b(?![.\w])"), ""),
)
_EARLY_EXIT = re.compile(
    r"\bif \((?=((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)\s*\{?\s*(?:return|continue|break|throw|goto)\b)"
)
_CALL_STATEMENT = re.compile(
    r"(?<=[;{}\n)])(\s*)((?:await |\(void\))?[\w.>-]*?(\w+)\((?:[^();]|\((?:[^();]|\([^();]*\))*\))*\);)"
)


def _text_edits(source: str) -> Iterator[_Edit]:
    code = _NOT_CODE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), source)
    for rule, pattern, new in _TEXT_RULES:
        for found in pattern.finditer(code):
            if new is not None or found[0] in _OPPOSITES:
                yield rule, found.start(), found.end(), _OPPOSITES[found[0]] if new is None else new
            if found[0] in _NEIGHBOURS:
                yield "boundary", found.start(), found.end(), _NEIGHBOURS[found[0]]
    for found in _EARLY_EXIT.finditer(code):
        yield "early exit", found.end(), found.end() + len(found[1]), "0"
    for found in _CALL_STATEMENT.finditer(code):
        if _STATE_CALL.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", found[3]).lower()):
            yield "dropped call", found.start(2), found.end(2), ";"
