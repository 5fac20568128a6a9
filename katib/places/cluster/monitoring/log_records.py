"""Structured logs: one JSON object a line, with a record's fields beside its message.

Records logged during a reconcile carry `controller`, `key` and `reconcile_id`, whichever module logs them.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from katib.engine.runtime.controller import current_reconcile

_PLAIN = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{key: value for key, value in vars(record).items() if key not in _PLAIN},
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class ReconcileFields(logging.Filter):
    """Adds the fields of the current reconcile to a record. Existing fields take precedence."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True: every record is written."""
        for name, value in current_reconcile().items():
            vars(record).setdefault(name, value)
        return True


def log_json(level: int) -> None:
    """Send all records to stderr as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(ReconcileFields())
    logging.basicConfig(level=level, handlers=[handler], force=True)
