"""Client of the OCI distribution API: manifests and configurations of images, read within a time limit.

A registry on loopback is asked without TLS, as containerd does; any other by HTTPS, with the system's authorities.
Authors of experiments choose the registry. Therefore tokens are requested by HTTPS only, and redirects are followed
only for the content of an image, which its digest verifies.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Self

import httpx

from katib.errors import ForbiddenError, NotFoundError, UnavailableError, invalid

_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
_ACCEPTED = {"Accept": ", ".join([*_INDEXES, *_MANIFESTS])}
_DIGEST_HEADER = "Docker-Content-Digest"

_KNOWN = {"manifests", "config", "rootfs"}
"""Fields of an index, of a manifest, of a configuration; one of them must be present."""

_MOST_BYTES = 4 << 20
_DIGEST = r"sha256:[0-9a-f]{64}"
_REFERENCE = re.compile(rf"(?P<name>[^@]+?)(?::(?P<tag>\w[\w.-]{{0,127}}))?(?:@(?P<digest>{_DIGEST}))?", re.ASCII)
_NAME = re.compile(r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*")
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')

DOCKER_HUB = "docker.io"


class RegistryCredentials(NamedTuple):
    """Credentials for one registry."""

    user: str
    password: str


class ImageReference(NamedTuple):
    """Reference of an image: the registry's host with port, the repository, and a tag or a digest.

    The digest takes precedence.
    """

    host: str
    repository: str
    tag: str
    digest: str

    @classmethod
    def of(cls, image: str) -> ImageReference:
        """Parse a reference as container runtimes do.

        Raises:
            InvalidError: It is malformed.
        """
        found = _REFERENCE.fullmatch(image)
        name = found["name"] if found else ""
        host, slash, repository = name.partition("/")
        if not slash or not ("." in host or ":" in host or host == "localhost"):
            host, repository = DOCKER_HUB, name if slash else f"library/{name}"
        if found is None or not _NAME.fullmatch(repository):
            raise invalid(
                "image", f"{image!r} is no reference of an image", "write registry/name:tag", "image-reference"
            )
        return cls(host, repository, found["tag"] or "latest", found["digest"] or "")


class ImageRegistry:
    """Connection to a registry for one image. Use as a context manager.

    Args:
        credentials: For a registry that requires them; None for anonymous access.
        seconds: Limit for all requests together.
    """

    def __init__(self, reference: ImageReference, credentials: RegistryCredentials | None, seconds: float) -> None:
        self._reference = reference
        self._credentials = credentials
        self._deadline = time.monotonic() + seconds
        self._seconds = seconds
        self._authorization: dict[str, str] = {}
        self._client = httpx.Client()
        host = "registry-1.docker.io" if reference.host == DOCKER_HUB else reference.host
        self._base = f"{'http' if _is_loopback(host) else 'https'}://{host}/v2/{reference.repository}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def digest(self) -> str:
        """Return the current digest of the tag.

        Raises:
            UnavailableError: The registry does not answer, or violates the protocol.
            ForbiddenError: The registry denies access.
            NotFoundError: It has no such image.
        """
        if self._reference.digest:
            return self._reference.digest
        head = self._ask("HEAD", f"manifests/{self._reference.tag}")[0].get(_DIGEST_HEADER, "")
        return head or _digest_of(self._ask("GET", f"manifests/{self._reference.tag}")[1])

    def config(self, digest: str, architecture: str) -> Mapping[str, Any]:
        """Return the configuration of an image; for a multi-platform image that of an architecture, or else the first.

        Raises: as `digest`.
        """
        manifest = self._content("manifests", digest)
        if "manifests" in manifest:
            images = [one for one in manifest["manifests"] if (one.get("platform") or {}).get("os") == "linux"]
            images.sort(key=lambda one: one["platform"].get("architecture") != architecture)
            if not images:
                raise UnavailableError(f"{self._reference.host} has no image for linux of this name")
            manifest = self._content("manifests", images[0]["digest"])
        return self._content("blobs", manifest["config"]["digest"])

    def _content(self, kind: str, digest: str) -> dict[str, Any]:
        body = self._ask("GET", f"{kind}/{digest}")[1]
        with suppress(ValueError):
            found = json.loads(body)
            if _digest_of(body) == digest and isinstance(found, dict) and _KNOWN & found.keys():
                return found
        raise UnavailableError(f"{self._reference.host} answers with something else than {digest}")

    def _ask(self, method: str, path: str) -> tuple[httpx.Headers, bytes]:
        """Return headers and body of a response, authenticating if the registry requires it."""
        url = f"{self._base}/{path}"
        status, headers, body = self._send(method, url, _ACCEPTED | self._authorization)
        if status == httpx.codes.UNAUTHORIZED and not self._authorization:
            self._authorize(headers.get("WWW-Authenticate", ""))
            status, headers, body = self._send(method, url, _ACCEPTED | self._authorization)
        self._check(status)
        return headers, body

    def _check(self, status: int) -> None:
        host, repository = self._reference.host, self._reference.repository
        if status in {httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}:
            raise ForbiddenError(f"{host} gives no access to {repository} ({status})")
        if status == httpx.codes.NOT_FOUND:
            raise NotFoundError(f"{host} has no image {repository}:{self._reference.digest or self._reference.tag}")
        if status != httpx.codes.OK:
            raise UnavailableError(f"{host} answers {status}")

    def _authorize(self, challenge: str) -> None:
        """Authenticate: request a token from the registry's token server, or use the credentials themselves."""
        scheme, _, rest = challenge.partition(" ")
        word = base64.b64encode(":".join(self._credentials or ()).encode()).decode()
        basic = {"Authorization": f"Basic {word}"} if self._credentials else {}
        if scheme.lower() != "bearer":
            self._authorization = basic
            return
        parameters = dict(_CHALLENGE.findall(rest))
        realm = parameters.get("realm", "")
        if self._base.startswith("https:") and not realm.startswith("https:"):
            raise UnavailableError(f"{self._reference.host} asks for a token of {realm!r}, which is not HTTPS")
        query = {"service": parameters.get("service", ""), "scope": f"repository:{self._reference.repository}:pull"}
        status, _, body = self._send("GET", str(httpx.URL(realm, params=query)), basic)
        self._check(status)
        with suppress(ValueError, AttributeError):
            answer = json.loads(body)
            self._authorization = {"Authorization": f"Bearer {answer.get('token') or answer.get('access_token')}"}

    def _send(self, method: str, url: str, headers: Mapping[str, str]) -> tuple[int, httpx.Headers, bytes]:
        body = b""
        try:
            is_content = "/blobs/" in url  # a registry may redirect to other storage; the digest verifies the content
            options: dict[str, Any] = {"timeout": self._left(), "follow_redirects": is_content}
            with self._client.stream(method, url, headers=dict(headers), **options) as response:
                for chunk in response.iter_bytes():
                    body += chunk
                    self._left()
                    if len(body) > _MOST_BYTES:
                        raise UnavailableError(f"{self._reference.host} answers with more than {_MOST_BYTES >> 20} MB")
                return response.status_code, response.headers, body
        except httpx.TimeoutException as error:
            raise self._is_late() from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UnavailableError(f"{self._reference.host} cannot be reached: {error}") from error

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise self._is_late()
        return left

    def _is_late(self) -> UnavailableError:
        return UnavailableError(f"{self._reference.host} does not answer within {self._seconds:g} s")


def _is_loopback(host: str) -> bool:
    name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
    with suppress(ValueError):
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    return name == "localhost"


def _digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
