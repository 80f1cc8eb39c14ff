"""`hushmote store merge`: a dry run changes nothing, and an interrupted erasure is finished first."""

import json
from pathlib import Path

from boards import experiment_payload
from command_line import hushmote
from filled_store import fill
from sqlalchemy import update

from hushmote.server.store import Store, schema
from hushmote.server.store.erase import is_rewrite_due

URLS = ("sqlite:///all.sqlite", "sqlite:///site.sqlite")


def is_due(folder: Path) -> bool:
    with Store(f"sqlite:///{folder / 'all.sqlite'}") as store, store.reading() as connection:
        return is_rewrite_due(connection)


def test_finishes_an_interrupted_erasure_unless_it_is_dry(tmp_path: Path):
    payload = experiment_payload(window="day")
    for name, day in (("all", "2026-11-20"), ("site", "2026-11-21")):
        with Store(f"sqlite:///{tmp_path / name}.sqlite") as store:
            fill(store, "home", payload, {day: 100})
            if name == "all":
                with store.engine.begin() as connection:
                    connection.execute(update(schema.rewrite).values(erasures=schema.rewrite.c.rewritten + 1))
    dry = json.loads(hushmote("store", "merge", *URLS, "--dry-run", "--json", cwd=tmp_path))
    assert (dry["dry_run"], dry["experiments"][0]["reports"]) == (True, 100)
    assert is_due(tmp_path)
    merged = json.loads(hushmote("store", "merge", *URLS, "--json", cwd=tmp_path))
    assert merged == dry | {"dry_run": False}
    assert not is_due(tmp_path)
