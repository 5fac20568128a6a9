"""Effect of a write on one object: pure functions from the stored and the given object to the next stored one.

They follow the Kubernetes API server (protocol in `katib.engine.runtime.objects`), including two details that are easy
to forget: `generation` also grows when an object is marked for deletion, and a marked object accepts no new finalizers.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from operator import itemgetter
from typing import Any

import msgspec

from katib.engine.runtime.objects import Kind, Object
from katib.errors import ConflictError, NotFoundError, invalid
from katib.model.json_values import same_json
from katib.model.names import SUFFIX_ALPHABET
from katib.model.types import format_time

Json = dict[str, Any]

_SUFFIX_LENGTH = 5
_LONGEST_GENERATED_BASE = 63 - _SUFFIX_LENGTH

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS_SUBDOMAIN = re.compile(rf"{_DNS_LABEL.pattern}(\.{_DNS_LABEL.pattern})*")
_LONGEST_LABEL, _LONGEST_SUBDOMAIN = 63, 253

_UID = itemgetter("uid")

_SET_BY_STORE = ("uid", "creationTimestamp", "resourceVersion", "generation", "deletionTimestamp")

_checked = json.JSONEncoder(allow_nan=False, check_circular=False, separators=(",", ":")).encode
"""Encodes JSON strictly; msgspec's encoder is faster, but also accepts times and NaN."""

_encoded = msgspec.json.Encoder().encode
_decoded: Callable[[str | bytes], Any] = msgspec.json.Decoder().decode


def encode(obj: Object) -> str:
    """Return the JSON text of an isolated object."""
    try:
        return _encoded(obj).decode()
    except (ValueError, OverflowError):  # a lone surrogate, as a program may have printed it; a number of many digits
        return _checked(obj)


def decode(text: str) -> Json:
    try:
        obj: Json = _decoded(text)
    except ValueError:
        obj = json.loads(text)
    return obj


def _copied(value: Any, path: str) -> Any:
    """Return a deep copy with JSON types only."""
    with suppress(TypeError, ValueError, OverflowError):
        copy = _decoded(_encoded(value))
        if copy == value:  # so it had JSON types only
            return copy
    try:
        return decode(_checked(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise invalid(path, f"not JSON: {error}", "use only text, numbers, lists and maps", "not-json") from error


def isolated(obj: Object) -> Json:
    """Return a deep copy with JSON types only, checked to be an object that can be stored.

    Raises:
        InvalidError: It is not JSON, lacks a kind, or its metadata is malformed.
    """
    copy: Json = _copied(obj, "object")
    _require_object(copy)
    return copy


def given_uid(obj: Object) -> str:
    """Return the given uid of a new object, empty if it has none that is valid."""
    uid = obj["metadata"].get("uid")
    return uid if isinstance(uid, str) else ""


def created(obj: Json, uid: str, now: datetime, *, has_status: bool) -> Json:
    """Return a new object as stored, except for its revision."""
    metadata = obj["metadata"]
    for name in _SET_BY_STORE:
        metadata.pop(name, None)
    require_names(metadata)
    metadata["uid"] = uid
    metadata["creationTimestamp"] = format_time(now)
    metadata["generation"] = 1
    if has_status:
        obj.pop("status", None)
    return obj


def updated(stored: Object, obj: Json, *, has_status: bool) -> Json | None:
    """Return an object with everything but its status replaced, still with its old revision; None if nothing changes.

    Raises:
        ConflictError, NotFoundError, InvalidError: As `ObjectStore.update`.
    """
    _require_same(stored, obj)
    if "deletionTimestamp" in stored["metadata"]:
        _require_no_new_finalizers(stored, obj)
    if has_status:
        obj.pop("status", None)
        if "status" in stored:
            obj["status"] = stored["status"]
    kept = stored["metadata"]
    for name in _SET_BY_STORE:
        obj["metadata"].pop(name, None)
        if name in kept:
            obj["metadata"][name] = kept[name]
    if same_json(stored, obj):
        return None
    if not same_json({**stored, "metadata": {}}, {**obj, "metadata": {}}):
        obj["metadata"]["generation"] = kept["generation"] + 1
    return obj


def patched(stored: Object, obj: Json, changes: Json) -> Json:
    """Return an object with changes merged in, for `updated`; it must have the identity and revision of `obj`.

    Raises:
        NotFoundError, ConflictError, InvalidError: As `ObjectStore.patch`.
    """
    _require_same(stored, obj)
    following: Json = merged(stored, changes)
    following["metadata"] = {**following["metadata"], "resourceVersion": stored["metadata"]["resourceVersion"]}
    _require_object(following)
    return following


def merged(value: Any, patch: Any) -> Any:
    """Return a JSON value with a merge patch applied (RFC 7386); the arguments are not modified."""
    if not isinstance(patch, dict):
        return patch
    following = dict(value) if isinstance(value, dict) else {}
    for name, change in patch.items():
        if change is None:
            following.pop(name, None)
        else:
            following[name] = merged(following.get(name), change)
    return following


def require_patch(changes: Any) -> Json:
    """Return a deep copy of changes, checked to be a merge patch of an object.

    Raises:
        InvalidError: They are not a JSON map, or change a fixed field.
    """
    copy = _copied(changes, "patch")
    if not isinstance(copy, dict) or not isinstance(copy.get("metadata", {}), dict):
        raise invalid("patch", "not a map of fields", "name the fields to change, such as spec", "patch-type")
    metadata = copy.get("metadata", {})
    fixed = sorted(metadata.keys() & {*_SET_BY_STORE, "name", "namespace"})
    if named := [*sorted(copy.keys() & {"apiVersion", "kind", "status"}), *map("metadata.".__add__, fixed)]:
        raise invalid(named[0], "cannot be changed by a patch", "leave it out", "patch-field")
    return copy


def status_updated(stored: Object, obj: Json) -> Json | None:
    """Return an object with its status replaced, still with its old revision; None if nothing changes.

    Raises:
        ConflictError, NotFoundError: As `ObjectStore.update_status`.
    """
    _require_same(stored, obj)
    following = dict(stored)
    following.pop("status", None)
    if "status" in obj:
        following["status"] = obj["status"]
    return None if same_json(stored, following) else following


def marked_for_deletion(stored: Object, now: datetime) -> Json | None:
    """Return an object marked for deletion, still with its old revision; None if it is marked already."""
    metadata = stored["metadata"]
    if "deletionTimestamp" in metadata:
        return None
    marked = {**metadata, "deletionTimestamp": format_time(now), "generation": metadata["generation"] + 1}
    return {**stored, "metadata": marked}


def generated_name(obj: Object) -> str:
    """Return a name made of the object's `generateName` and a random suffix.

    Raises:
        InvalidError: It has none.
    """
    base = obj["metadata"].get("generateName")
    if not isinstance(base, str) or not base:
        raise invalid("metadata.name", "missing", "give the object a name or a generateName", "name-missing")
    suffix = "".join(random.choices(SUFFIX_ALPHABET, k=_SUFFIX_LENGTH))
    return base[:_LONGEST_GENERATED_BASE] + suffix


def is_finished(obj: Object) -> bool:
    """Return whether an object was marked for deletion and has no finalizer left."""
    return "deletionTimestamp" in obj["metadata"] and not has_finalizers(obj)


def has_finalizers(obj: Object) -> bool:
    """Return whether owners of finalizers have to act before the object may be removed."""
    return bool(obj["metadata"].get("finalizers"))


def owner_uids(obj: Object) -> tuple[str, ...]:
    references = obj["metadata"].get("ownerReferences")
    return tuple(dict.fromkeys(map(_UID, references))) if references else ()


def _require_object(obj: Any) -> None:
    if not isinstance(obj, dict):
        raise invalid("object", f"a {type(obj).__name__}", "give a map with apiVersion, kind and metadata", "not-a-map")
    for name in ("apiVersion", "kind"):
        if not isinstance(obj.get(name), str) or not obj[name]:
            raise invalid(
                name, f"{obj.get(name)!r} is not a name", f"say which {name} the object is of", "kind-missing"
            )
    metadata = obj.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise invalid("metadata", f"a {type(metadata).__name__}", "give a map with a name", "metadata-type")
    _require_metadata(metadata)


def _require_metadata(metadata: Json) -> None:
    for name in ("labels", "annotations"):
        texts, path = metadata.get(name) or {}, f"metadata.{name}"
        if not isinstance(texts, dict):
            raise invalid(path, f"a {type(texts).__name__}", "give a map of texts", "metadata-type")
        for key, text in texts.items():
            if not isinstance(text, str):
                raise invalid(f"{path}[{key}]", f"{text!r} is no text", "put it in quotes", "metadata-type")
    finalizers = metadata.get("finalizers") or []
    if not isinstance(finalizers, list) or set(map(type, finalizers)) - {str}:
        raise invalid("metadata.finalizers", f"{finalizers!r}", "give a list of names", "metadata-type")
    references = metadata.get("ownerReferences") or []
    if not isinstance(references, list):
        raise invalid("metadata.ownerReferences", f"{references!r}", "give a list of references", "metadata-type")
    for index, reference in enumerate(references):
        if not isinstance(reference, dict) or not isinstance(reference.get("uid"), str) or not reference["uid"]:
            path = f"metadata.ownerReferences[{index}].uid"
            raise invalid(path, "missing", "name the owner as it was stored, with its uid", "owner-uid-missing")


def require_names(metadata: Json) -> None:
    """Raise unless name and namespace are valid.

    Raises:
        InvalidError: They are not DNS names.
    """
    name, namespace = metadata["name"], metadata.get("namespace", "")
    if not isinstance(name, str) or len(name) > _LONGEST_SUBDOMAIN or not _DNS_SUBDOMAIN.fullmatch(name):
        remedy = f"use lower case letters, digits, '-' and '.', at most {_LONGEST_SUBDOMAIN}"
        raise invalid("metadata.name", f"{name!r} is not a DNS name", remedy, "name-dns")
    if namespace == "":
        return
    if not isinstance(namespace, str) or len(namespace) > _LONGEST_LABEL or not _DNS_LABEL.fullmatch(namespace):
        remedy = f"use lower case letters, digits and '-', at most {_LONGEST_LABEL}"
        raise invalid("metadata.namespace", f"{namespace!r} is not a DNS label", remedy, "namespace-dns")


def _require_same(stored: Object, obj: Json) -> None:
    """Raise unless `obj` is an edit of `stored`, based on its latest revision."""
    kept, given = stored["metadata"], obj["metadata"]
    if given.get("uid", kept["uid"]) != kept["uid"]:
        raise NotFoundError(
            f"{describe(stored)}: uid {given['uid']} is gone, another object has its name; read the new one"
        )
    version = given.get("resourceVersion")
    if not version:
        remedy = "read the object and update what was read"
        raise invalid("metadata.resourceVersion", "missing in an update", remedy, "revision-missing")
    if version != kept["resourceVersion"]:
        raise ConflictError(
            f"{describe(stored)}: revision {version} is not the latest, {kept['resourceVersion']}; read it again"
        )


def _require_no_new_finalizers(stored: Object, obj: Json) -> None:
    known = stored["metadata"].get("finalizers") or []
    for finalizer in obj["metadata"].get("finalizers") or []:
        if finalizer not in known:
            cause = f"{finalizer!r} added while the object is being deleted"
            raise invalid("metadata.finalizers", cause, "leave it out", "finalizer-on-deletion")


def describe(obj: Object) -> str:
    """Return the name of an object in messages: `Trial team/a-1`."""
    metadata = obj["metadata"]
    return f"{Kind.of(obj).kind} {metadata.get('namespace', '')}/{metadata.get('name', '')}"
