"""Standings are made again, their figures rounded; texts lose what one of the two databases does not keep."""

import re

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_UNKEPT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_TEXTS = (
    ("meta", "key", "value"),
    ("tracks", "name", "title"),
    ("tracks", "name", "about"),
    ("scorers", "id", "label"),
    ("submissions", "id", "note"),
    ("jobs", "id", "reason"),
)


def upgrade() -> None:
    connection = op.get_bind()
    connection.execute(sa.text("DELETE FROM standings"))
    for name, key, column in _TEXTS:
        table = sa.table(name, sa.column(key), sa.column(column))
        for row in connection.execute(sa.select(table)).all():
            if _UNKEPT.search(row[1]):
                mended = _UNKEPT.sub("\N{REPLACEMENT CHARACTER}", row[1])
                connection.execute(sa.update(table).where(table.c[key] == row[0]).values({column: mended}))


def downgrade() -> None:
    op.execute("DELETE FROM standings")
