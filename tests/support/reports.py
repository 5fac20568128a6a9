"""Pages in one file, read back."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from typing import Any


def data_of(text: str) -> dict[str, Any]:
    """Return what the scripts of a report get: figures by name, and the trials."""
    [packed] = re.findall(r'<script type="application/gzip" id="data">([^<]*)</script>', text)
    found: dict[str, Any] = json.loads(gzip.decompress(b64decode(packed)))
    return found
