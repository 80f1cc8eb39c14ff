"""Version 1, the first released: fleets, experiments, histograms, dedupe sets, rejects."""

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None


def upgrade() -> None:
    """From an empty database."""
    version = op.create_table("schema_version", sa.Column("version", sa.Integer, nullable=False))
    op.bulk_insert(version, [{"version": 1}])
    op.create_table(
        "fleet",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("keyed", sa.Boolean, nullable=False),
    )
    op.create_table(
        "experiment",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("fleet", sa.String(32), sa.ForeignKey("fleet.name"), nullable=False),
        sa.Column("name", sa.String(32), nullable=False),
        sa.Column("digest", sa.LargeBinary(4), nullable=False),
        sa.Column("sha256", sa.LargeBinary(32), nullable=False),
        sa.Column("payload", sa.LargeBinary(1024), nullable=False),
        sa.Column("current", sa.Boolean, nullable=False),
        sa.Column("expires", sa.String(10)),
        sa.UniqueConstraint("fleet", "digest"),
    )
    op.create_table(
        "histogram",
        sa.Column(
            "experiment", sa.Integer, sa.ForeignKey("experiment.id"), primary_key=True, autoincrement=False
        ),
        sa.Column("window", sa.String(13), primary_key=True),
        sa.Column("code", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("count", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "dedupe",
        sa.Column("fleet", sa.String(32), primary_key=True),
        sa.Column("experiment", sa.String(32), primary_key=True),
        sa.Column("device", sa.String(32), primary_key=True),
        sa.Column("numbers", sa.Text, nullable=False),
        sa.Column("accepted", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "reject",
        sa.Column("fleet", sa.String(32), primary_key=True),
        sa.Column("reason", sa.String(32), primary_key=True),
        sa.Column("count", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
