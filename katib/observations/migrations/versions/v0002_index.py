"""An index for reading one trial: without it each read scans the readings of all trials."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the index, unless a run that was killed on MySQL, which does not undo, got that far."""
    name, columns = "observation_logs_by_metric", ["trial_name", "metric_name", "time", "id"]
    if all(index["name"] != name for index in sa.inspect(op.get_bind()).get_indexes("observation_logs")):
        op.create_index(name, "observation_logs", columns)


def downgrade() -> None:
    """Drop the index."""
    op.drop_index("observation_logs_by_metric", "observation_logs")
