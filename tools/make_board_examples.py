"""Write web/board/static/examples.json, the browser board's experiments without a broker.

    .venv/bin/python tools/make_board_examples.py

Each experiment contains the bytes that a server would publish.
"""

import json
import tomllib
from pathlib import Path

from hushmote.server.experiments.definition import Definition

FILE = Path(__file__).parents[1] / "web" / "board" / "static" / "examples.json"
# Title, the slider's initial reading, definition.
EXAMPLES = (
    (
        "How warm is your room?",
        20.5,
        """
        name = "room_temp"
        purpose = "How warm are rooms in the evening? To choose the size of the next heater."
        type = "number"
        unit = "°C"
        low = 10
        high = 26
        bins = 16
        mechanism = "grr"
        epsilon = 2
        budget = {rule = "sum", cap = 8}
        """,
    ),
    (
        "How long is your commute?",
        7,
        """
        name = "commute"
        purpose = "How far do people travel to work? To decide where bus lines should start."
        type = "number"
        unit = "km"
        low = 0
        high = 32
        bins = 16
        mechanism = "olh"
        epsilon = 1
        budget = {rule = "sum", cap = 4}
        """,
    ),
    (
        "Is a window open?",
        None,
        """
        name = "window_open"
        purpose = "How often are windows left open in winter?"
        type = "bool"
        epsilon = 1
        budget = {rule = "count", cap = 3}
        """,
    ),
    (
        "Which mode is the thermostat in?",
        None,
        """
        name = "heating_mode"
        purpose = "Which thermostat modes are used? To design the next control panel."
        type = "choice"
        labels = ["off", "eco", "comfort", "boost", "away"]
        epsilon = 2
        budget = {rule = "count", cap = 3}
        """,
    ),
)


def examples() -> str:
    """Return the file's text."""
    rows = []
    for title, reading, text in EXAMPLES:
        fields = tomllib.loads(text) | {"owner": "examples@example.org", "expires": "9999-12-31"}
        definition = Definition.model_validate(fields)
        row = {"title": title, "purpose": definition.purpose, "unit": definition.unit}
        row |= {"reading": reading, "payload": definition.payload().decode()}
        rows.append(json.dumps(row, ensure_ascii=False))
    return "[\n" + ",\n".join(rows) + "\n]\n"


if __name__ == "__main__":
    FILE.write_text(examples())
