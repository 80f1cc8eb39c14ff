"""Version 3: when versions were published and until when their reports count; the check of a master key."""

import datetime
import time

import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = "2"

_GRACE_DAYS = 30


def upgrade() -> None:
    """From version 2: grace starts now, and any version may have been published before any other."""
    for column in (
        sa.Column("serial", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("master_check", sa.String(16)),
    ):
        op.add_column("fleet", column)
    for column in (
        sa.Column("first_serial", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("serial", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("counted_until", sa.String(10)),
    ):
        op.add_column("experiment", column)
    now = int(time.time())
    for table in ("fleet", "experiment"):
        op.execute(f"UPDATE {table} SET serial = {now}")
    today = datetime.datetime.fromtimestamp(now, datetime.UTC).date()
    bind = op.get_bind()
    for id_, current, expires in bind.execute(sa.text("SELECT id, current, expires FROM experiment")).all():
        if current and expires is None:
            continue
        start = today
        if current:  # its grace starts after its last day, which may be over
            start = max(today, datetime.date.fromisoformat(expires) + datetime.timedelta(1))
        until = start + datetime.timedelta(_GRACE_DAYS - 1)
        bind.execute(
            sa.text("UPDATE experiment SET counted_until = :until WHERE id = :id"),
            {"until": until.isoformat(), "id": id_},
        )
