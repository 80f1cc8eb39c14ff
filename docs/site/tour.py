"""examples/tour.ipynb with its outputs: run on the store of a demo, as a page in Markdown.

Jupyter's converter and kernel would be twenty packages more. A cell here is a few lines of Python, and every
answer can display itself: as HTML, a picture, or text.
"""

import ast
import base64
import contextlib
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_TOP = """*Run when this site was built, on the store that `make demo` leaves.
[The notebook itself](tour.ipynb) is for Jupyter.*"""

_STYLED = re.compile(r'<style scoped>.*?</style>|( border="1")? class="dataframe"')  # of pandas
_KEPT_S = 86_400  # by then answers may look different


def page(notebook: Path, kept: Path) -> str:
    """Return the notebook in Markdown, every cell run.

    Args:
        notebook: The file.
        kept: The folder that has an earlier run's page.
    """
    digest = hashlib.sha256(notebook.read_bytes() + Path(__file__).read_bytes()).hexdigest()[:16]
    found = kept / f"tour-{digest}.md"
    if not found.is_file() or found.stat().st_mtime < time.time() - _KEPT_S:
        text = _run(notebook)
        kept.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=kept, delete=False, encoding="utf-8") as file:
            file.write(text)
        os.replace(file.name, found)
    return found.read_text(encoding="utf-8")


def _run(notebook: Path) -> str:
    """Run a demo in a folder, then the notebook next to it in a separate process."""
    with tempfile.TemporaryDirectory() as folder:
        demo = [sys.executable, "-m", "hushmote", "demo", "--out", f"{folder}/out"]
        subprocess.run(demo, check=True, stdout=subprocess.DEVNULL)
        examples = Path(folder) / "examples"
        examples.mkdir()
        for file in notebook.parent.glob("*.toml"):
            (examples / file.name).write_bytes(file.read_bytes())
        run = [sys.executable, __file__, str(notebook)]
        return subprocess.run(run, check=True, cwd=examples, stdout=subprocess.PIPE, text=True).stdout


def _parts(cells: list[dict[str, list[str]]]) -> Iterator[str]:
    names: dict[str, object] = {}
    for number, cell in enumerate(cells):
        source = "".join(cell["source"])
        if str(cell["cell_type"]) == "markdown":
            yield source
        else:
            yield f"```python\n{source}\n```"
            yield from _shown(source, names)
        if not number:
            yield _TOP


def _shown(source: str, names: dict[str, object]) -> Iterator[str]:
    """Return what Jupyter would show below a cell: what it prints, and the value of its last line."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    value, printed = None, io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "tour.ipynb", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "tour.ipynb", "eval"), names)
    if printed.getvalue():
        yield f"```text\n{printed.getvalue().rstrip()}\n```"
    if picture := getattr(value, "_repr_png_", None):
        yield f"![What the cell draws](data:image/png;base64,{base64.b64encode(picture()).decode()})"
    elif html := getattr(value, "_repr_html_", None):
        whole = " ".join(line.strip() for line in html().splitlines())  # Markdown ends it at an empty one
        yield f"<div>{_STYLED.sub('', whole)}</div>"
    elif value is not None:
        yield f"```text\n{value!r}\n```"


if __name__ == "__main__":
    print("\n\n".join(_parts(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["cells"])))
