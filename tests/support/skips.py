"""Says at the end of a run of the tests what to install for those that were left out: a hook of pytest."""

from __future__ import annotations

from collections import Counter

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write a line for each package that is named: tests that were skipped have not passed."""
    skipped = (report.longrepr for report in terminalreporter.stats.get("skipped", ()))
    reasons = Counter(str(longrepr[2]).removeprefix("Skipped: ") for longrepr in skipped if isinstance(longrepr, tuple))
    for reason, count in sorted(reasons.items()):
        if "(Debian: " in reason:
            line = f"left out, {count} test{'s' * (count != 1)} that did not run: {reason}"
            terminalreporter.write_line(line, yellow=True)
