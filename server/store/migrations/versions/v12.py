"""Version 12: the time zone of an experiment's days, and the first day of its weeks."""

import sqlalchemy as sa
from alembic import op

revision = "12"
down_revision = "11"


def upgrade() -> None:
    """Upgrade from version 11; the days of all experiments stay those of UTC."""
    for name in ("day", "week"):
        op.add_column("experiment", sa.Column(name, sa.Text, nullable=False, server_default=""))
