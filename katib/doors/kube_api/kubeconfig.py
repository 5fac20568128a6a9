"""The kubeconfig of this server: its address, its token and the certificate to trust, for its owner only.

The certificate is kept beside it (`katib.doors.rest.kept_certificate`), so that copies of the file stay valid over
restarts.
"""

from __future__ import annotations

import base64
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from katib.errors import NotFoundError
from katib.model.files.whole_files import write_whole
from katib.service.tuning.service import DEFAULT_NAMESPACE

KUBECONFIG = "kubeconfig"
_CONTEXT = "katib"


def write_kubeconfig(directory: Path, url: str, authority: bytes, token: str | None) -> Path:
    """Write the file, for its owner only, and return its path."""
    cluster = {"server": url, "certificate-authority-data": base64.b64encode(authority).decode()}
    context = {"cluster": _CONTEXT, "user": _CONTEXT, "namespace": DEFAULT_NAMESPACE}
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": _CONTEXT,
        "clusters": [{"name": _CONTEXT, "cluster": cluster}],
        "contexts": [{"name": _CONTEXT, "context": context}],
        "users": [{"name": _CONTEXT, "user": {"token": token} if token else {}}],
    }
    path = directory / KUBECONFIG
    write_whole(path, yaml.safe_dump(config, sort_keys=False), is_private=True)
    return path


def earlier_port(directory: Path) -> int:
    """Return the port in the file, so that copies of it stay valid; 0 if there is none."""
    try:
        config = yaml.safe_load((directory / KUBECONFIG).read_text())
        return urlsplit(config["clusters"][0]["cluster"]["server"]).port or 0
    except (OSError, ValueError, LookupError, TypeError, AttributeError, yaml.YAMLError):
        return 0


def line_to_copy(directory: Path) -> str:
    """Return the shell command that makes clients use the server of a data directory.

    Raises:
        NotFoundError: No server has run there.
    """
    path = (directory / KUBECONFIG).absolute()
    if not path.is_file():
        raise NotFoundError(f"{path}: there is no such file; start `katib serve`, which writes it")
    return f"export KUBECONFIG={shlex.quote(str(path))}"
