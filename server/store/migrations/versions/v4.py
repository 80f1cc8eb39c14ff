"""Version 4: what an experiment's readings are in, why they are asked for, and by whom."""

import sqlalchemy as sa
from alembic import op

revision = "4"
down_revision = "3"


def upgrade() -> None:
    """From version 3, which kept none of these: they are empty until the experiment is added again."""
    for name in ("unit", "purpose", "owner"):
        op.add_column("experiment", sa.Column(name, sa.Text, nullable=False, server_default=""))
