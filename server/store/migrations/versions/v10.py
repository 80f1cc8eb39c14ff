"""Version 10: queued erasures, due rewrites, the time against which clocks are checked, and signatures."""

import sqlalchemy as sa
from alembic import op

revision = "10"
down_revision = "9"


def upgrade() -> None:
    """Upgrade from version 9; an erasure that was interrupted before the upgrade is not recognized as one.

    Until an experiment is added, clocks are checked only against the time at which counting last worked. An
    aggregator with the signing key signs experiments that have no signatures, as before.
    """
    op.create_table(
        "erasure",
        sa.Column("fleet", sa.String(32), primary_key=True),
        sa.Column("device", sa.String(32), primary_key=True),
        sqlite_with_rowid=False,
    )
    rewrite = op.create_table(
        "rewrite",
        sa.Column("erasures", sa.BigInteger, nullable=False),
        sa.Column("rewritten", sa.BigInteger, nullable=False),
    )
    op.bulk_insert(rewrite, [{"erasures": 0, "rewritten": 0}])
    op.add_column("counting", sa.Column("clock", sa.BigInteger))
    op.add_column("experiment", sa.Column("signatures", sa.LargeBinary(128)))
