"""What a check has found: errors, and notices that are said once for all places they apply to."""

from __future__ import annotations

from dataclasses import dataclass, field

from katib.errors import FieldError


@dataclass(slots=True)
class Findings:
    """Collects errors and notices in the order they are found."""

    errors: list[FieldError] = field(default_factory=list)
    _notices: dict[str, list[str]] = field(default_factory=dict)

    def error(self, path: str, cause: str, remedy: str, origin: str) -> None:
        """Add an error."""
        self.errors.append(FieldError(path, cause, remedy, origin))

    def notice(self, path: str, why: str) -> None:
        """Add a notice: a sentence without full stop that says what is different here."""
        self._notices.setdefault(why, []).append(path)

    @property
    def notices(self) -> list[str]:
        """Every notice once, as `path, path: sentence`."""
        return [f"{', '.join(dict.fromkeys(paths))}: {why}" for why, paths in self._notices.items()]
