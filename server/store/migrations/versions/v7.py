"""Version 7: an experiment's words have the questions that its finding answers."""

import sqlalchemy as sa
from alembic import op

revision = "7"
down_revision = "6"


def upgrade() -> None:
    """From version 6; without a question, what is usual of its kind is told."""
    op.add_column("experiment", sa.Column("asked", sa.Text, nullable=False, server_default=""))
