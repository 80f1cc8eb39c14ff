"""Upgrade a store from each schema version to the next with Alembic scripts such as versions/v6.py.

A store's version is the number in its schema_version table, which changes together with the schema in one
transaction; Alembic does not keep a table there. Downgrades are not supported, because an older version may
be unable to store what a newer one wrote. To roll back, use the backup made before the upgrade.
"""

from pathlib import Path

from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import Script, ScriptDirectory
from sqlalchemy import Connection, update

from .. import schema


def scripts(current: int) -> list[Script]:
    """Return the migration scripts after a version, in order."""
    folder = ScriptDirectory(str(Path(__file__).parent))
    newest_first = list(folder.iterate_revisions("head", "base"))
    return [script for script in newest_first[::-1] if int(script.revision) > current]


def upgrade(connection: Connection, current: int) -> None:
    """Upgrade a store from version `current` to schema.VERSION within the connection's transaction."""
    with Operations.context(MigrationContext.configure(connection)):
        for script in scripts(current):
            script.module.upgrade()
    connection.execute(update(schema.schema_version).values(version=schema.VERSION))
