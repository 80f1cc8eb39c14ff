"""The tables that a new store has in PostgreSQL."""

from hushmote.server.store import Store, schema


class TestPartitions:
    def test_are_made_by_a_process_without_other_stores(self, postgres_url, monkeypatch):
        monkeypatch.setitem(schema.dedupe.dialect_kwargs, "postgresql_partition_by", None)  # as at its start
        parts = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'dedupe'::regclass"
        with Store(postgres_url) as store, store.reading() as connection:
            assert connection.exec_driver_sql(parts).scalar() == schema.DEDUPE_PARTS
