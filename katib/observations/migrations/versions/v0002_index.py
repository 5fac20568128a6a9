"""An index for reading one trial: without it each read scans the readings of all trials."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the index."""
    op.create_index("observation_logs_by_metric", "observation_logs", ["trial_name", "metric_name", "time", "id"])


def downgrade() -> None:
    """Drop the index."""
    op.drop_index("observation_logs_by_metric", "observation_logs")
