"""Entrypoints of images, for containers without `command`, read with the pull secrets of their pods.

A registry is first asked without credentials, so Secrets are read for private images only. The configuration of an
image is cached by its digest; the digest of a tag is requested each time, since tags move.
"""

from __future__ import annotations

import base64
import binascii
import json
import platform
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from threading import Lock
from typing import Any, NamedTuple

from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.errors import ForbiddenError, KatibError, NotFoundError, UnavailableError
from katib.places.cluster.admission.certificate_sources import SECRET
from katib.places.cluster.images.registry import DOCKER_HUB, ImageReference, ImageRegistry, RegistryCredentials
from katib.places.cluster.services.plan import SERVICE_ACCOUNT

PULL_SECRETS_ROLE = "katib-pull-secrets"
"""The ClusterRole that lets the controller read Secrets in namespaces where it is bound."""

SECONDS = 4.0
"""Limit for one image: less than the API server's timeout for the webhook of pods."""

_KEPT = 1_000
_ARCHITECTURE_LABEL = "kubernetes.io/arch"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_HUB_NAMES = (DOCKER_HUB, "index.docker.io", "registry-1.docker.io")
REMEDY = "write the image's entrypoint as command"


class ImageCommand(NamedTuple):
    """The command of an image: its entrypoint, and the default arguments of a container without any."""

    entrypoint: Sequence[str]
    arguments: Sequence[str]


class ImageCommands:
    """Finds the commands of images. Thread-safe."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._lock = Lock()
        self._kept: OrderedDict[tuple[ImageReference, str, RegistryCredentials | None], ImageCommand] = OrderedDict()

    def complete(self, pod: Mapping[str, Any], container: Mapping[str, Any], namespace: str) -> dict[str, Any]:
        """Return a container with its command filled in.

        Raises:
            UnavailableError: The command is not known now.
            InvalidError: The container names no image.
        """
        image = str(container.get("image") or "")
        try:
            found = self._command_of(ImageReference.of(image), pod, namespace)
        except (ForbiddenError, NotFoundError, UnavailableError) as error:
            raise UnavailableError(f"the entrypoint of {image} is not known: {error}") from error
        command = [*found.entrypoint, *(() if container.get("args") else found.arguments)]
        if not command:
            raise UnavailableError(f"{image} has no entrypoint")
        # Kubernetes expands `$(NAME)` in a pod's command, but not in an image's.
        return {**container, "command": [word.replace("$", "$$") for word in command]}

    def _command_of(self, reference: ImageReference, pod: Mapping[str, Any], namespace: str) -> ImageCommand:
        architecture = _architecture_of(pod)
        try:
            return self._ask(reference, None, architecture)
        except (ForbiddenError, NotFoundError) as error:  # some registries deny the existence of private images
            refusal: KatibError = error
        trouble: list[str] = []
        for credentials in self._credentials(reference, pod, namespace, trouble):
            with suppress(ForbiddenError, NotFoundError):
                return self._ask(reference, credentials, architecture)
        raise ForbiddenError("; ".join([str(refusal), *trouble]))

    def _ask(
        self, reference: ImageReference, credentials: RegistryCredentials | None, architecture: str
    ) -> ImageCommand:
        with ImageRegistry(reference, credentials, SECONDS) as registry:
            digest = registry.digest()
            key = (reference._replace(digest=digest, tag=""), architecture, credentials)
            with self._lock:
                if (kept := self._kept.get(key)) is not None:
                    return kept
            config = registry.config(digest, architecture).get("config") or {}
        command = ImageCommand(tuple(config.get("Entrypoint") or ()), tuple(config.get("Cmd") or ()))
        with self._lock:
            self._kept[key] = command
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return command

    def _credentials(
        self, reference: ImageReference, pod: Mapping[str, Any], namespace: str, trouble: list[str]
    ) -> Iterator[RegistryCredentials]:
        """Yield the credentials for a registry from the pull secrets of a pod, or else of its service account."""
        entries = pod.get("imagePullSecrets")
        if not entries:
            name = pod.get("serviceAccountName") or "default"
            account = self._read(SERVICE_ACCOUNT, Key(namespace, name), trouble) or {}
            entries = account.get("imagePullSecrets")
        for entry in entries or ():
            secret = self._read(SECRET, Key(namespace, str(entry.get("name"))), trouble)
            yield from credentials_in(secret or {}, reference)

    def _read(self, kind: Kind, key: Key, trouble: list[str]) -> Object | None:
        try:
            return self._store.get(kind, key)
        except ForbiddenError:
            remedy = f"bind ClusterRole {PULL_SECRETS_ROLE} in its namespace"
            trouble.append(f"the controller may not read {kind.kind} {key}: {remedy}")
        except NotFoundError:
            trouble.append(f"there is no {kind.kind} {key}")
        return None


def credentials_in(secret: Object, reference: ImageReference) -> list[RegistryCredentials]:
    """Return the credentials of a pull secret for an image, best match first; none if it is malformed."""
    found: list[tuple[int, RegistryCredentials]] = []
    data = secret.get("data") or {}
    with suppress(ValueError, AttributeError, TypeError, binascii.Error):
        if ".dockerconfigjson" in data:
            entries = json.loads(base64.b64decode(data[".dockerconfigjson"])).get("auths") or {}
        else:
            entries = json.loads(base64.b64decode(data.get(".dockercfg", "e30=")))
        for name, entry in entries.items():
            user, password = entry.get("username"), entry.get("password")
            if entry.get("auth"):
                user, _, password = base64.b64decode(entry["auth"]).decode().partition(":")
            if user and _fits(name, reference):
                found.append((len(name), RegistryCredentials(user, str(password or ""))))
    return [credentials for _, credentials in sorted(found, key=lambda one: -one[0])]


def _fits(name: str, reference: ImageReference) -> bool:
    """Return whether an entry of a pull secret matches an image: `https://host/v1/`, `host/path`, `*.host`."""
    host, _, path = name.partition("://")[2 * ("://" in name)].strip("/").partition("/")
    hosts = _HUB_NAMES if reference.host == DOCKER_HUB else (reference.host,)
    is_within = path in {"", "v1", "v2"} or f"{reference.repository}/".startswith(f"{path}/")
    return is_within and any(fnmatchcase(one, host) for one in hosts)


def _architecture_of(pod: Mapping[str, Any]) -> str:
    """Return the architecture that a pod requires of its node; else this process's, common to most clusters' nodes."""
    if named := (pod.get("nodeSelector") or {}).get(_ARCHITECTURE_LABEL):
        return str(named)
    affinity = (pod.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for rule in term.get("matchExpressions") or ():
            if rule.get("key") == _ARCHITECTURE_LABEL and rule.get("operator") == "In" and rule.get("values"):
                return str(rule["values"][0])
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)
