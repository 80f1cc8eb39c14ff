"""Each real broker that boards and aggregators may use behaves as docs/survives.md says."""

import pytest
from broker_facts import ROWS
from broker_table import COLUMNS, columns_of_page


class TestBrokerTable:
    @pytest.mark.broker
    @pytest.mark.parametrize(
        "column",
        [
            pytest.param(
                column, id=column.title, marks=() if "mosquitto" in column.title else pytest.mark.long
            )
            for column in COLUMNS
        ],
    )
    def test_column_holds_at_the_broker(self, column):
        if missing := column.missing():
            pytest.skip(missing)
        assert column.facts() == columns_of_page()[column.title]

    def test_page_lists_every_broker_and_row(self):
        columns = columns_of_page()
        assert list(columns) == [column.title for column in COLUMNS]
        assert all(list(cells) == list(ROWS) and all(cells.values()) for cells in columns.values())
