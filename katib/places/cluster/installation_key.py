"""Key of the installation, which signs the tokens of the observation log.

It is in a Secret that is not filled in manually: the first process that needs it, the controller or a pod of the DB
manager, writes a random key, and all others use it. Writes compare and set, so concurrent first processes agree.

To replace it, keep it as `previous-key` and remove `key`; see docs/how-to/kubernetes.md.
"""

from __future__ import annotations

import base64
import binascii
import secrets
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from katib.engine.runtime.objects import Key, Kind, Object
from katib.errors import AlreadyExistsError, ConflictError, NotFoundError, UnavailableError, invalid
from katib.wire.rpc.pod_api import PodApi, server_of_pod
from katib.wire.rpc.tokens import MIN_KEY_BYTES, TokenSigner

SECRET = Kind("v1", "Secret")
SECRET_NAME = "katib-db-manager-key"  # noqa: S105 - the name of a Secret
KEY, PREVIOUS_KEY = "key", "previous-key"

_KEY_BYTES = 32
_ATTEMPTS = 5
_TIMEOUT_SECONDS = 10.0
_ORIGIN = "installation-key"
_REMOVE = "remove it and restart the DB manager, which makes one"
_FETCH = "let `katib db-manager-key` write it"


class Secrets(Protocol):
    """The required part of an object store: a client that knows only Secrets is enough."""

    def get(self, kind: Kind, key: Key) -> Object:
        """Return an object, or raise NotFoundError."""

    def create(self, obj: Object) -> Object:
        """Store a new object, or raise AlreadyExistsError."""

    def update(self, obj: Object) -> Object:
        """Replace an object, or raise ConflictError if it has changed."""


class PodSecrets:
    """Secrets of the cluster, from inside a pod. Implements `Secrets`."""

    def __init__(self, api: PodApi) -> None:
        self._api = api

    @classmethod
    def of_pod(cls) -> PodSecrets:
        """Return the Secrets of the cluster that this process runs in.

        Raises:
            UnavailableError: It does not run in a pod.
        """
        server = server_of_pod()
        if not server:
            raise UnavailableError("this is not a pod of a cluster: KUBERNETES_SERVICE_HOST is not set")
        return cls(PodApi(server, timeout_seconds=_TIMEOUT_SECONDS))

    def get(self, _kind: Kind, key: Key) -> Object:
        return self._api.request("GET", f"{_path(key.namespace)}/{key.name}")

    def create(self, obj: Object) -> Object:
        return self._api.request("POST", _path(Key.of(obj).namespace), obj, conflict=AlreadyExistsError)

    def update(self, obj: Object) -> Object:
        key = Key.of(obj)
        return self._api.request("PUT", f"{_path(key.namespace)}/{key.name}", obj)


def _path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/secrets"


def ensure_keys(store: Secrets, secret: Key) -> Sequence[bytes]:
    """Return the keys of an installation, the signing key first; create it if there is none.

    Raises:
        ForbiddenError: The Secret may not be read, or does not exist and may not be created.
        UnavailableError: The API server does not answer.
        InvalidError: An existing key is too short.
    """
    for _ in range(_ATTEMPTS):
        try:
            stored = store.get(SECRET, secret)
        except NotFoundError:
            stored = None
        keys = [] if stored is None else keys_in(stored)
        if stored is not None and (stored.get("data") or {}).get(KEY):
            return keys
        try:
            _write(store, secret, stored)
        except (AlreadyExistsError, ConflictError, NotFoundError):
            continue  # another process was first: use its key
    raise UnavailableError(f"Secret {secret}: it changes continually; find out which client writes it")


def keys_in(secret: Object) -> list[bytes]:
    """Return the keys in a Secret.

    Raises:
        InvalidError: A key is too short, or not readable.
    """
    data = secret.get("data") or {}
    where = f"Secret {Key.of(secret)}"
    return [_checked(_decoded(data[name]), f"{where}: data.{name}") for name in (KEY, PREVIOUS_KEY) if data.get(name)]


def write_keys(path: Path, keys: Sequence[bytes]) -> None:
    """Write keys to a file that only its owner can read."""
    path.touch(mode=0o600)
    path.write_text("".join(f"{base64.b64encode(key).decode()}\n" for key in keys))


def read_keys(path: Path) -> list[bytes]:
    """Return the keys in a file: one a line, base64, the signing key first.

    Raises:
        InvalidError: The file cannot be read, or contains no key.
    """
    try:
        lines = path.read_text().split()
    except OSError as error:
        raise invalid(str(path), f"cannot be read: {error.strerror}", _FETCH, _ORIGIN) from error
    if not lines:
        raise invalid(str(path), "it holds no key", _FETCH, _ORIGIN)
    return [_checked(_decoded(line), f"{path}:{number}") for number, line in enumerate(lines, start=1)]


class InstallationTokens:
    """Tokens of an installation, whose key is read on first use and then cached. Thread-safe.

    Args:
        may_make: Whether to create a missing key; False for readers.
    """

    def __init__(self, store: Secrets, secret: Key, *, may_make: bool = True) -> None:
        self._may_make = may_make
        self._store = store
        self._secret = secret
        self._lock = threading.Lock()
        self._tokens: TokenSigner | None = None

    def __call__(self) -> TokenSigner:
        """Return the signer of tokens. Raises as `ensure_keys`, and NotFoundError if there is no key to read."""
        with self._lock:
            if self._tokens is None:
                self._tokens = TokenSigner(self._keys())
            return self._tokens

    def _keys(self) -> Sequence[bytes]:
        if self._may_make:
            return ensure_keys(self._store, self._secret)
        keys = keys_in(self._store.get(SECRET, self._secret))
        if not keys:
            raise NotFoundError(f"Secret {self._secret} holds no key yet")
        return keys


def _write(store: Secrets, secret: Key, stored: Object | None) -> None:
    key = base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()
    if stored is None:
        metadata = {"namespace": secret.namespace, "name": secret.name}
        store.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {KEY: key}})
    else:
        store.update({**stored, "data": {**(stored.get("data") or {}), KEY: key}})


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _checked(key: bytes, where: str) -> bytes:
    if len(key) < MIN_KEY_BYTES:
        raise invalid(where, f"no key of at least {MIN_KEY_BYTES} bytes", _REMOVE, _ORIGIN)
    return key
