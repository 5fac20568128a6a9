"""The table of Katib's DB manager."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql, postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    time = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
    op.create_table(
        "observation_logs",
        sa.Column("trial_name", sa.String(255), nullable=False),
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("time", time.with_variant(postgresql.TIMESTAMP(precision=6), "postgresql")),
        sa.Column("metric_name", sa.String(255), nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("observation_logs")
