"""The history of the log's tables, one file for each revision, run by Alembic (`katib.observations.schema`)."""
