"""examples/tour.ipynb runs from start to end on the demo's store, and is stored without outputs."""

import ast
import json
from pathlib import Path

import matplotlib
import pytest
from matplotlib.figure import Figure

TOUR = json.loads((Path(__file__).parents[2] / "examples" / "tour.ipynb").read_text("utf-8"))
CODE = ["".join(cell["source"]) for cell in TOUR["cells"] if cell["cell_type"] == "code"]


def show(code: str, names: dict[str, object]) -> object:
    """Run a cell and return the value of its last line, which a notebook would show."""
    tree = ast.parse(code)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, "tour.ipynb", "exec"), names)
        return None
    tree.body.pop()
    exec(compile(tree, "tour.ipynb", "exec"), names)
    return eval(compile(ast.Expression(last.value), "tour.ipynb", "eval"), names)


def test_tour_is_stored_without_outputs():
    cells = [cell for cell in TOUR["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)


@pytest.mark.slow
def test_tour_runs_and_uses_every_method(
    after_demo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(after_demo)
    backend = matplotlib.get_backend()
    names: dict[str, object] = {}
    outputs = [show(code, names) for code in CODE]
    assert matplotlib.get_backend() == backend
    assert "a trend needs at least 2 windows with reports; air_temp has 1" in capsys.readouterr().out
    figures = [output for output in outputs if isinstance(output, Figure)]
    assert len(figures) == 3
    assert all(figure._repr_png_().startswith(b"\x89PNG") for figure in figures)  # type: ignore[attr-defined]
    tables = [
        output for output in outputs if hasattr(output, "_repr_html_") and not isinstance(output, Figure)
    ]
    assert len(tables) > 10
    assert all("<table" in table._repr_html_() for table in tables)  # type: ignore[attr-defined]
    methods = ("share", "quantile", "mean", "top", "histogram", "cdf", "change_since", "trend", "to_pandas")
    for method in methods:
        assert any(f".{method}(" in code for code in CODE), method
