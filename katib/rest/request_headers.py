"""The headers of a request as the guard reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable

_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[\w.-]+))(?::(?P<port>\d+))?", re.ASCII)
_JOINED_BY = {"cookie": "; "}


class Headers:
    """Headers of a request; repeated ones are joined, so that a second Host cannot hide behind the first."""

    def __init__(self, raw: Iterable[tuple[bytes, bytes]]) -> None:
        self._values: dict[str, str] = {}
        for raw_name, raw_value in raw:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1").strip()
            between = _JOINED_BY.get(name, ", ")
            self._values[name] = f"{self._values[name]}{between}{value}" if name in self._values else value

    def get(self, name: str) -> str:
        """Return the value of a header, named in lower case; empty when it is absent."""
        return self._values.get(name, "")

    @property
    def host_name(self) -> str:
        """The name in the Host header, without port and brackets, in lower case; empty when it is malformed."""
        match = _HOST.fullmatch(self.get("host"))
        return (match["v6"] or match["name"]).lower() if match else ""

    @property
    def port(self) -> str:
        """The port in the Host header; empty when there is none, which is that of the scheme."""
        match = _HOST.fullmatch(self.get("host"))
        return (match["port"] or "") if match else ""
