"""`hushmote store merge`: a dry run changes nothing, and an interrupted erasure is finished first."""

import json
from pathlib import Path

from boards import ask_fleet, experiment, reports
from command_line import hushmote
from sqlalchemy import update

from hushmote.server.ingest import pipeline as ingest
from hushmote.server.ingest.clock import now
from hushmote.server.store import Store, schema
from hushmote.server.store.erase import is_rewrite_due
from hushmote.server.wire import topics

URLS = ("sqlite:///all.sqlite", "sqlite:///site.sqlite")


def is_due(folder: Path) -> bool:
    with Store(f"sqlite:///{folder / 'all.sqlite'}") as store, store.reading() as connection:
        return is_rewrite_due(connection)


def test_finishes_an_interrupted_erasure_unless_it_is_dry(tmp_path: Path):
    temp = experiment()
    for name in ("all", "site"):
        with Store(f"sqlite:///{tmp_path / name}.sqlite") as store:
            ask_fleet(store, "home", temp)
            topic = topics.report_topic("home", f"board-of-{name}")
            sent = [(topic, report) for report in reports(f"board-of-{name}", temp, 3)]
            assert ingest.ingest(store, sent, ingest.fleets(store, None), now()).accepted == 3
            if name == "all":
                with store.engine.begin() as connection:
                    connection.execute(update(schema.rewrite).values(erasures=schema.rewrite.c.rewritten + 1))
    dry = json.loads(hushmote("store", "merge", *URLS, "--dry-run", "--json", cwd=tmp_path))
    assert (dry["dry_run"], dry["experiments"][0]["reports"]) == (True, 3)
    assert is_due(tmp_path)
    merged = json.loads(hushmote("store", "merge", *URLS, "--json", cwd=tmp_path))
    assert merged == dry | {"dry_run": False}
    assert not is_due(tmp_path)
