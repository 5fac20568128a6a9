"""A registry of images on loopback: Debian's package docker-registry."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.images import digest, image_config, layer_of
from tests.support.ports import free_port
from tests.support.waiting import eventually

USER, PASSWORD = "katib", "secret"
_PASSWORD_FILE = f"{USER}:$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n"

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"


@dataclass
class RunningRegistry:
    """A registry that runs.

    Attributes:
        host: With its port.
        directory: Holds what is pushed.
    """

    host: str
    directory: Path
    process: subprocess.Popen[bytes]

    def push(self, name: str, tag: str, files: Mapping[str, Path] | None = None, **commands: Sequence[str]) -> str:
        """Push an image for each architecture that is named, with its entrypoint, under one tag; return its digest."""
        layer, images = layer_of(files or {}), []
        for architecture, words in commands.items():
            config = image_config(layer, architecture, Entrypoint=list(words[:1]), Cmd=list(words[1:]))
            images.append(self._push_image(name, layer, json.dumps(config).encode(), architecture))
        if len(images) > 1:
            index = json.dumps({"schemaVersion": 2, "mediaType": _INDEX, "manifests": images}).encode()
            self._put(f"{name}/manifests/{tag}", index, _INDEX)
            return digest(index)
        manifest = self.request("GET", f"{name}/manifests/{images[0]['digest']}", headers={"Accept": _MANIFEST}).content
        self._put(f"{name}/manifests/{tag}", manifest, _MANIFEST)
        return str(images[0]["digest"])

    def _push_image(self, name: str, layer: bytes, config: bytes, architecture: str) -> dict[str, Any]:
        parts = []
        for kind, content in (("config", config), ("layer.tar", layer)):
            place = self.request("POST", f"{name}/blobs/uploads/").headers["Location"]
            self._put(str(httpx.URL(place).copy_merge_params({"digest": digest(content)})), content)
            media_type = "application/vnd.oci.image." + ("config.v1+json" if kind == "config" else "layer.v1.tar")
            parts.append({"mediaType": media_type, "digest": digest(content), "size": len(content)})
        manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": parts[0], "layers": parts[1:]}
        body = json.dumps(manifest).encode()
        self._put(f"{name}/manifests/{digest(body)}", body, _MANIFEST)
        platform = {"os": "linux", "architecture": architecture}
        return {"mediaType": _MANIFEST, "digest": digest(body), "size": len(body), "platform": platform}

    def _put(self, path: str, content: bytes, media_type: str = "application/octet-stream") -> None:
        self.request("PUT", path, content=content, headers={"Content-Type": media_type})

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request with the password."""
        url = path if path.startswith("http") else f"http://{self.host}/v2/{path}"
        return httpx.request(method, url, auth=(USER, PASSWORD), **options).raise_for_status()

    def stop(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()


@contextmanager
def running_registry(directory: Path, host: str = "", *, password: bool = False) -> Iterator[RunningRegistry]:
    """Run a registry, at a free port unless one is given; skips the test without the package."""
    if shutil.which("docker-registry") is None:
        pytest.skip("docker-registry is missing; install Debian's package of this name")
    host = host or f"127.0.0.1:{free_port()}"
    storage = {"filesystem": {"rootdirectory": str(directory / "images")}}
    config: dict[str, Any] = {"version": "0.1", "storage": storage, "http": {"addr": host}}
    if password:
        (directory / "htpasswd").write_text(_PASSWORD_FILE)
        config["auth"] = {"htpasswd": {"realm": "test", "path": str(directory / "htpasswd")}}
    (directory / "config.yml").write_text(json.dumps(config))
    with (directory / "log").open("w") as log:
        serving = ["docker-registry", "serve", str(directory / "config.yml")]
        process = subprocess.Popen(serving, stdout=subprocess.DEVNULL, stderr=log)
    registry = RunningRegistry(host, directory / "images", process)
    try:
        eventually(lambda: _answers(registry), "the registry", picture=(directory / "log").read_text)
        yield registry
    finally:
        registry.stop()


@contextmanager
def asking_for_tokens(registry: RunningRegistry, *, of_anybody: bool) -> Iterator[str]:
    """Serve a registry to those who bring a token, as the public ones do; yields the host, which gives tokens as well.

    Args:
        registry: What is served.
        of_anybody: Whether it gives tokens to those without the password.
    """
    password = f"Basic {base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            given = self.headers.get("Authorization")
            if self.path.startswith("/token?service=here&scope=repository%3Atrain%3Apull"):
                granted = of_anybody or given == password
                self._answer(200 if granted else 401, json.dumps({"token": "T"} if granted else {}).encode())
            elif given != "Bearer T":
                challenge = f'Bearer realm="http://{self.headers["Host"]}/token",service="here",scope="x"'
                self._answer(401, b"", {"WWW-Authenticate": challenge})
            else:
                accepted = {"Accept": self.headers["Accept"]}
                url = f"http://{registry.host}{self.path}"
                found = httpx.request(self.command, url, headers=accepted, auth=(USER, PASSWORD))
                digests = {name: found.headers[name] for name in ("Docker-Content-Digest",) if name in found.headers}
                self._answer(found.status_code, found.content, digests)

        do_HEAD = do_GET  # noqa: N815 - the library's name

        def _answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def pull_secret(name: str, host: str, user: str = USER, password: str = PASSWORD) -> dict[str, Any]:
    """Return a Secret as `kubectl create secret docker-registry` makes it, in namespace `team`."""
    auth = base64.b64encode(f"{user}:{password}".encode()).decode()
    content = base64.b64encode(json.dumps({"auths": {host: {"auth": auth}}}).encode()).decode()
    metadata = {"name": name, "namespace": "team"}
    data = {".dockerconfigjson": content}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/dockerconfigjson",
        "metadata": metadata,
        "data": data,
    }


def _answers(registry: RunningRegistry) -> bool:
    try:
        return registry.request("GET", "").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False
