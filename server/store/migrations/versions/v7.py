"""Version 7: an experiment's description has the questions that its finding answers."""

import sqlalchemy as sa
from alembic import op

revision = "7"
down_revision = "6"


def upgrade() -> None:
    """Upgrade from version 6; an experiment without a question gets the usual finding of its kind."""
    op.add_column("experiment", sa.Column("asked", sa.Text, nullable=False, server_default=""))
