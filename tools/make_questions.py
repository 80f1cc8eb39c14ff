"""Write the planned numbers into planning/std/*.toml and docs/questions.md: python tools/make_questions.py.

Each file's `every` and [planned] table are for a fleet of 20,000 devices that is asked only this question.
"""

import re
from pathlib import Path

from hushmote.cli.questions import SIZES
from hushmote.planning import library
from hushmote.planning.question_set import SetPlan, format_error, set_question

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "questions.md"
DEVICES = 20_000
_TABLE = re.compile(r"(?<=<!-- made by tools/make_questions.py -->\n).*?(?=\n\n|\Z)", re.DOTALL)


def plan_of(name: str, devices: int = DEVICES) -> SetPlan:
    """Return the plan of a question that is asked alone."""
    return SetPlan((set_question(library.question(name)),), devices)


def file_text(name: str) -> str:
    """Return a question's file with the numbers of its plan."""
    plan, text = plan_of(name), library.question_text(name)
    values = {
        "every": plan.every,
        "devices": DEVICES,
        "calls": plan.rhythm.calls,
        "error": f"{plan.all_reports(plan.questions[0]):.4g}",
    }
    for field, value in values.items():
        text = re.sub(rf"^{field} = .*$", f"{field} = {value}", text, count=1, flags=re.MULTILINE)
    return text


def questions_table() -> str:
    """Return the table of all questions with their errors."""
    rows = [["question", "reading", "asks", *(f"{size:,}" for size in SIZES)]]
    rows += [["---"] * len(rows[0])]
    for name in library.QUESTIONS:
        definition, plan = library.question(name), plan_of(name)
        comment = library.question_text(name).partition("\n")[0].removeprefix("# ")
        asks = ", ".join(f"`{ask}`" for ask in definition.asks) if name != "chip" else "each"
        errors = (plan.with_devices(size).error(plan.questions[0]) for size in SIZES)
        rows.append([f"`{name}`", comment, asks, *(f"±{format_error(error)}" for error in errors)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def sets_table() -> str:
    """Return the table of a yes-or-no question alone and in sets."""
    plan = plan_of("crashed")
    rows = [["questions", "first quarter", "last quarter", "if the budget were spent evenly"], ["---"] * 4]
    for size in plan.sizes:
        of_size = plan.of_size(plan.questions[0], size)
        question = of_size.questions[0]
        errors = (of_size.error(question, first=True), of_size.error(question), of_size.even_error(question))
        rows.append([str(size), *(f"±{format_error(error)}" for error in errors)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def page() -> str:
    """Return the text of the page with its tables."""
    tables = iter((questions_table(), sets_table()))
    return _TABLE.sub(lambda _: next(tables), PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    for name in library.QUESTIONS:
        path = Path(library.__file__).with_name("std") / f"{name}.toml"
        path.write_text(file_text(name), encoding="utf-8")
    library.question.cache_clear()
    if PAGE.exists():
        PAGE.write_text(page(), encoding="utf-8")
