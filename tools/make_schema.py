"""Write docs/experiment.schema.json, with which editors complete and check an experiment's file.

python tools/make_schema.py

The types and limits are the model's; the descriptions are those of the table in docs/experiment-file.md.
"""

import json
import re
from pathlib import Path
from typing import Any

from hushmote.server.experiments.definition import Definition
from hushmote.server.mechanisms import MECHANISMS

DOCS = Path(__file__).parents[1] / "docs"
FILE = DOCS / "experiment.schema.json"
_ROW = re.compile(r"^\| (`.*?`) \|.*?\|.*?\| (.*) \|$", re.MULTILINE)
# Of fields whose validators read several forms.
_FORMS: dict[str, Any] = {
    "every": {"type": ["integer", "object"], "minimum": 1, "maximum": 1 << 24},
    "worse": {"type": ["string", "object"]},
    "worse_by": {"type": ["number", "object"]},
}


def _descriptions(table: str) -> dict[str, str]:
    """Return the meaning of each field in a table of docs/experiment-file.md."""
    texts: dict[str, str] = {}
    for names, meaning in _ROW.findall(table):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", meaning).replace("**", "")
        texts |= dict.fromkeys(re.findall(r"`\[?(\w+)\]?`", names), plain[:1].upper() + plain[1:] + ".")
    return texts


def _tidy(node: Any) -> Any:
    """Remove what editors do not need: titles, null as a default, docstrings of classes."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    if "anyOf" in node:
        forms = [form for form in map(_tidy, node["anyOf"]) if form.get("type") != "null"]
        if {"type": "number"} in forms:  # a Decimal, which TOML writes as a number
            forms = [{"type": "number"}]
        rest = _tidy({name: value for name, value in node.items() if name != "anyOf"})
        return rest | (forms[0] if len(forms) == 1 else {"anyOf": forms})
    drop = {"title", "description", "ge", "le"} | ({"default"} if node.get("default", 0) is None else set())
    return {name: _tidy(value) for name, value in node.items() if name not in drop}


def schema() -> dict[str, Any]:
    """Return the JSON schema of an experiment's file."""
    fields, _, budget = (DOCS / "experiment-file.md").read_text("utf-8").partition("| field of `[budget]`")
    result = _tidy(Definition.model_json_schema())
    properties = result["properties"]
    del properties["parameters"]
    properties |= _FORMS
    for mechanism in MECHANISMS.values():
        properties |= {name: {} for name in mechanism.parameters if name not in properties}
    for table, page in ((properties, fields), (result["$defs"]["ExperimentBudget"]["properties"], budget)):
        meaning = _descriptions(page)
        for name in table:
            table[name] |= {"description": meaning[name]}
    properties["$schema"] = {"type": "string", "description": "This schema's address, for editors."}
    # An own mechanism's name has a colon, and its parameters may have any names.
    del result["additionalProperties"]
    result["if"] = {"properties": {"mechanism": {"not": {"pattern": ":"}}}}
    result["then"] = {"propertyNames": {"enum": [*properties]}}
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Hushmote experiment"}
    return about | result


def text() -> str:
    """Return the file's content."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
