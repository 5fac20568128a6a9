"""Images of one file, made without a builder."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def image_config(layer: bytes, architecture: str = "amd64", **config: Any) -> dict[str, Any]:
    """Return the configuration of an image with one layer; `config` holds such as `Entrypoint`."""
    layers = {"type": "layers", "diff_ids": [digest(layer)]}
    return {"architecture": architecture, "os": "linux", "config": config, "rootfs": layers}


def layer_of(files: Mapping[str, Path]) -> bytes:
    """Return a layer with programs, by their path in the image."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, path in files.items():
            tar.add(path, name)
    return content.getvalue()


def archive(reference: str, files: Mapping[str, Path], entrypoint: Sequence[str] = ()) -> bytes:
    """Return an image as a file that `docker load` and `ctr images import` take."""
    layer = layer_of(files)
    config = json.dumps(image_config(layer, **({"Entrypoint": list(entrypoint)} if entrypoint else {}))).encode()
    manifest = [{"Config": "config.json", "RepoTags": [reference], "Layers": ["layer.tar"]}]
    parts = {"layer.tar": layer, "config.json": config, "manifest.json": json.dumps(manifest).encode()}
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, part in parts.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(part)
            tar.addfile(entry, io.BytesIO(part))
    return content.getvalue()


def digest(content: bytes) -> str:
    """Return the digest of a blob."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
