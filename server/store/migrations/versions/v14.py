"""Version 14: the log of questions, its checkpoints and the witnesses' signatures."""

import sqlalchemy as sa
from alembic import op

revision = "14"
down_revision = "13"


def upgrade() -> None:
    """Upgrade from version 13; nothing has been logged yet."""
    op.create_table(
        "log_entry",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("key", sa.String(128), nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "log_checkpoint",
        sa.Column("size", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("note", sa.Text, nullable=False),
    )
    op.create_table(
        "log_cosignature",
        sa.Column(
            "size",
            sa.BigInteger,
            sa.ForeignKey("log_checkpoint.size"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("line", sa.Text, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
    )
