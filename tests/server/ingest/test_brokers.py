"""Brokers that boards and aggregators may meet: each, really run, holds what docs/survives.md says of it."""

import pytest
from broker_facts import ROWS
from broker_table import COLUMNS, columns_of_page


@pytest.mark.broker
@pytest.mark.parametrize(
    "column",
    [
        pytest.param(column, id=column.title, marks=() if "mosquitto" in column.title else pytest.mark.long)
        for column in COLUMNS
    ],
)
def test_a_broker_holds_what_its_column_says(column):
    if lacks := column.lacks():
        pytest.skip(lacks)
    assert column.facts() == columns_of_page()[column.title]


def test_the_page_has_every_broker_and_every_row():
    columns = columns_of_page()
    assert list(columns) == [column.title for column in COLUMNS]
    assert all(list(cells) == list(ROWS) and all(cells.values()) for cells in columns.values())
