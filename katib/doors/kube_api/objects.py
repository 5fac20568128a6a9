"""Verbs of the API on the objects of a home, except watching. Called from threads that may block."""

from __future__ import annotations

import base64
import binascii
import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from katib.doors.kube_api.applying import ConflictsError, applied, updated
from katib.doors.kube_api.columns import value_at
from katib.doors.kube_api.derived import (
    DERIVED,
    TRAINER_FACTS,
    derived_object,
    derived_objects,
    trainer_facts,
    version_at,
)
from katib.doors.kube_api.patches import MERGE_PATCH, STRATEGIC_PATCH, patched
from katib.doors.kube_api.resources import EVENT, ServedResource
from katib.doors.kube_api.selectors import EVERYTHING, Selector
from katib.doors.kube_api.statuses import StatusError, bad_request, conflict, field_conflict, success
from katib.doors.kube_api.written_events import WrittenEvents
from katib.engine.controllers.kinds import CONFIG_MAP, EXPERIMENT, OPTIMIZATION_JOB
from katib.engine.runtime.objects import Key, Kind, ListSlice, Object
from katib.engine.stores import semantics
from katib.engine.stores.semantics import encode
from katib.errors import AlreadyExistsError, ConflictError, InvalidError, KatibError, NotFoundError, invalid
from katib.model.types import format_time
from katib.service.tuning.object_home import AdmittedObject, ObjectHome

Json = dict[str, Any]

_TRIES = 8
_PAGE = 500
_LOOK_SECONDS = 0.002
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """Target of a request.

    Attributes:
        namespace: Empty for all namespaces, and for cluster-scoped kinds.
        name: Empty for all objects.
        subresource: Empty, `status` or `log`.
    """

    resource: ServedResource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of a write.

    Attributes:
        dry_run: Whether to respond without storing anything.
        validation: Treatment of unknown fields: `Strict` refuses them, `Warn` names them, `Ignore` drops them.
        manager: Name of the field manager.
        force: Whether to take over fields of other managers, when applying.
    """

    dry_run: bool = False
    validation: str = "Warn"
    manager: str = ""
    force: bool = False


class WriteResult(NamedTuple):
    """Result of a write: the object or Status, and warnings for the author."""

    body: Object
    warnings: tuple[str, ...] = ()
    is_new: bool = False


RecentLines = dict[tuple[int, str], tuple[Object, bytes]]
"""Lines of a watch by the identity of an (immutable) object and its change, with the object."""


class ObjectService:
    """Reads and writes the objects of a home. Thread-safe, except for data that watches share on their event loop.

    Attributes:
        recent_lines: The most recent lines of watches, shared by all streams of a change.
    """

    def __init__(self, home: ObjectHome) -> None:
        self.home = home
        self.events = WrittenEvents(home.written)
        self.recent_lines: RecentLines = {}

    # --- reading ------------------------------------------------------------------------------------------------------

    def get(self, target: RequestTarget) -> Object:
        """Return an object.

        Raises:
            NotFoundError: There is none.
        """
        kind = target.resource.kind
        if kind == EVENT:
            with suppress(NotFoundError):
                return self.events.get(target.key)
        if kind in DERIVED:
            return derived_object(self.home, kind, target.key)
        try:
            return self.home.objects.get(kind, target.key)
        except NotFoundError:
            if (kind, target.key) == (CONFIG_MAP, TRAINER_FACTS):
                return trainer_facts()
            raise

    def texts(
        self,
        target: RequestTarget,
        selector: Selector = EVERYTHING,
        shape: Callable[[Object], Object] | None = None,
        *,
        limit: int = 0,
        token: str = "",
    ) -> tuple[list[str], Json]:
        """Return the JSON texts of objects, and the metadata of their list.

        Args:
            target: The target; its namespace restricts them.
            shape: Converts each object; None to return them as stored.
            limit: Maximum number; 0 for all.
            token: Continues a longer list.

        Raises:
            StatusError: The token is invalid.
        """
        kind = target.resource.kind
        if kind in DERIVED or (selector.name and target.namespace and not token):
            found = [obj for obj in self._few(target, selector) if selector.fits(obj)]
            return [encode(shape(obj) if shape else obj) for obj in found], {"resourceVersion": self.revision(target)}
        revision, place = _read_token(token) if token else ("", "")
        texts: list[str] = []
        while True:
            part = self._slice(target, selector, limit - len(texts) if limit else _PAGE, place)
            revision, place = revision or part.resource_version, part.place
            texts += part.bodies if shape is None and selector.is_by_index else _shaped(part.bodies, selector, shape)
            if not place or (limit and len(texts) >= limit):
                break
        return texts, {"resourceVersion": revision, **({"continue": _token(revision, place)} if place else {})}

    def pages(self, target: RequestTarget, selector: Selector = EVERYTHING) -> Iterator[list[Object]]:
        """Yield the selected objects a page at a time, each as of its own read."""
        if target.resource.kind in DERIVED:
            yield [obj for obj in self._few(target, selector) if selector.fits(obj)]
            return
        place = ""
        while True:
            part = self._slice(target, selector, _PAGE, place)
            yield list(filter(selector.fits, map(semantics.decode, part.bodies)))
            if not (place := part.place):
                return

    def _slice(self, target: RequestTarget, selector: Selector, limit: int, place: str) -> ListSlice:
        kind, namespace = target.resource.kind, target.namespace or None
        return self.home.objects.slice(kind, namespace, labels=selector.labels, limit=limit, place=place)

    def _few(self, target: RequestTarget, selector: Selector) -> list[Object]:
        """Return the objects of a derived kind, or the one named by a selector."""
        kind, namespace = target.resource.kind, target.namespace or None
        if kind in DERIVED:
            written = self.events.list(namespace) if kind == EVENT else []
            return [*derived_objects(self.home, kind, namespace), *written]
        with suppress(NotFoundError):
            return [self.home.objects.get(target.resource.kind, Key(target.namespace, selector.name))]
        return []

    def revision(self, target: RequestTarget) -> str:
        """Return the revision from which a watch shows every later change."""
        if target.resource.kind == EVENT:
            return str(version_at(datetime.now(UTC)))
        return self.home.objects.slice(target.resource.kind, "-", limit=1).resource_version

    # --- writing ------------------------------------------------------------------------------------------------------

    def create(self, target: RequestTarget, body: Json, options: WriteOptions) -> WriteResult:
        """Store a new object.

        Raises:
            AlreadyExistsError: Its name is taken.
            InvalidError: It is refused.
        """
        obj = identified(target, body)
        given = obj["metadata"].get("name")
        for attempt in range(_TRIES):
            name = given or semantics.generated_name(obj)
            try:
                return self._create({**obj, "metadata": {**obj["metadata"], "name": name}}, target, options)
            except AlreadyExistsError:
                if given or attempt == _TRIES - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _create(self, obj: Json, target: RequestTarget, options: WriteOptions) -> WriteResult:
        semantics.require_names(obj["metadata"])
        kind = target.resource.kind
        with suppress(NotFoundError):
            self.home.objects.get(kind, Key.of(obj))
            raise AlreadyExistsError(f"{kind.kind} {Key.of(obj)}: exists")
        admitted = self.home.admission.new(obj)
        warnings = _warnings(admitted, options)
        if options.dry_run:
            has_status = kind in self.home.status_kinds
            new = semantics.created(
                semantics.isolated(admitted.obj), str(uuid.uuid4()), datetime.now(UTC), has_status=has_status
            )
            return WriteResult(self.home.defaults.get(kind, dict)(new), warnings, is_new=True)
        create = self.events.create if kind == EVENT else self.home.written.create
        return WriteResult(create(admitted.obj), warnings, is_new=True)

    def update(self, target: RequestTarget, body: Json, options: WriteOptions) -> WriteResult:
        """Replace an object, or its status.

        Raises:
            ConflictError: It changed since it was read.
            InvalidError: The change is refused.
            NotFoundError: It is gone.
        """
        new = identified(target, body)
        old = self.get(target)
        if not new["metadata"].get("resourceVersion"):
            if target.resource.is_custom:
                semantics.updated(old, semantics.isolated(new), has_status=True)  # raises its errors
            new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        return self._replace(target, old, new, options)

    def patch(self, media_type: str, target: RequestTarget, patch: Any, options: WriteOptions) -> WriteResult:
        """Change an object, or its status.

        Raises:
            As `update`; StatusError if the kind does not support the media type.
        """
        if media_type == STRATEGIC_PATCH and target.resource.is_custom:
            remedy = "send application/merge-patch+json, application/json-patch+json or application/apply-patch+yaml"
            raise StatusError(415, f"{target.resource.title} takes no strategic merge patch; {remedy}")

        def attempt() -> WriteResult:
            old = self.get(target)
            result = patched(old, patch, media_type)
            if not isinstance(result, dict) or not isinstance(result.get("metadata"), dict):
                raise bad_request("the patch leaves no object with metadata")
            return self._replace(target, old, identified(target, result), options)

        is_object = media_type in (MERGE_PATCH, STRATEGIC_PATCH)
        names_revision = is_object and bool(value_at(patch, "metadata", "resourceVersion"))
        return attempt() if names_revision else self._again(target, attempt)

    def apply(self, target: RequestTarget, config: Any, options: WriteOptions) -> WriteResult:
        """Merge a manager's configuration into an object, or create it.

        Raises:
            StatusError: Other managers own fields with other values, or the manager is not named.
            As `update` and `create`.
        """
        wanted = identified(target, config)
        if not options.manager:
            raise StatusError(422, "fieldManager: it is required to apply; name who applies")
        if wanted["metadata"].get("managedFields"):
            raise bad_request("metadata.managedFields: it is written by the server; leave it out")

        def attempt() -> WriteResult:
            try:
                old: Object | None = self.get(target)
            except NotFoundError:
                old = None
            new = self._applied(target, old, wanted, options)
            if old is None:
                return self.create(RequestTarget(target.resource, target.namespace), new, options)
            new["metadata"].setdefault("resourceVersion", old["metadata"]["resourceVersion"])
            return self._replace(target, old, new, options, tracks=False)

        return self._again(target, attempt)

    def _applied(self, target: RequestTarget, old: Object | None, wanted: Json, options: WriteOptions) -> Json:
        now, is_keyed = format_time(datetime.now(UTC)), not target.resource.is_custom
        settled: Object | None = None
        if old is not None:
            merged = applied(old, wanted, options.manager, now, force=True, is_keyed=is_keyed)
            with suppress(InvalidError):  # raised again when storing
                settled = self.home.admission.changed(old, merged).obj
        try:
            return applied(old, wanted, options.manager, now, force=options.force, is_keyed=is_keyed, settled=settled)
        except ConflictsError as error:
            version = target.resource.kind.api_version
            causes = [(f'conflict with "{manager}" using {version}', path) for manager, path in error.conflicts]
            raise field_conflict(target.resource, target.name, causes) from error

    def _again(self, target: RequestTarget, attempt: Callable[[], WriteResult]) -> WriteResult:
        """Return the result of the first attempt without a conflict."""
        for _ in range(_TRIES):
            with suppress(ConflictError):
                return attempt()
        raise conflict(target.resource, target.name, ["it keeps changing; try again"])

    def _replace(
        self, target: RequestTarget, old: Object, new: Json, options: WriteOptions, *, tracks: bool = True
    ) -> WriteResult:
        uid, is_uid = new["metadata"].get("uid"), old["metadata"]["uid"]
        if uid not in (None, "", is_uid):
            cause = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {is_uid}"
            raise conflict(target.resource, target.name, [cause])
        if target.subresource == "status":
            _require_status(new.get("status"))
            if options.dry_run:
                return WriteResult(semantics.status_updated(old, semantics.isolated(new)) or old)
            return WriteResult(self.home.written.update_status(new))
        if tracks:
            now, is_keyed = format_time(datetime.now(UTC)), not target.resource.is_custom
            new = updated(old, new, options.manager, now, is_keyed=is_keyed)
        if options.dry_run and new["metadata"].get("resourceVersion") != old["metadata"]["resourceVersion"]:
            raise ConflictError(f"{semantics.describe(old)}: it changed since it was read")
        deleted_at = old["metadata"].get("deletionTimestamp")
        going = {**new, "metadata": {**new["metadata"], "deletionTimestamp": deleted_at}}
        if deleted_at is not None and semantics.is_finished(going):
            admitted = AdmittedObject(new)
        else:
            admitted = self.home.admission.changed(old, new)
        warnings = _warnings(admitted, options)
        if options.dry_run:
            has_status = target.resource.kind in self.home.status_kinds
            return WriteResult(
                semantics.updated(old, semantics.isolated(admitted.obj), has_status=has_status) or old, warnings
            )
        update = self.events.update if target.resource.kind == EVENT else self.home.written.update
        return WriteResult(update(admitted.obj), warnings)

    def delete(self, target: RequestTarget, delete_options: Mapping[str, Any], options: WriteOptions) -> WriteResult:
        """Delete an object.

        Raises:
            NotFoundError: There is none.
            StatusError: A precondition does not hold, or orphaning of dependents is requested.
        """
        old = self.get(target)
        self._require_preconditions(target, old, delete_options)
        if options.dry_run:
            return WriteResult(success(target.resource, target.name, old["metadata"]["uid"]))
        if target.resource.kind == EXPERIMENT:
            self._delete_experiment(old)
        else:
            owned = self._experiment_of(old)
            self.home.written.delete(target.resource.kind, target.key, uid=old["metadata"]["uid"])
            if owned is not None:
                self._delete_experiment(owned)
        with suppress(NotFoundError):
            left = self.get(target)
            if left["metadata"]["uid"] == old["metadata"]["uid"]:
                return WriteResult(left)  # it waits for its finalizers
        return WriteResult(success(target.resource, target.name, old["metadata"]["uid"]))

    def delete_all(
        self, target: RequestTarget, selector: Selector, delete_options: Mapping[str, Any], options: WriteOptions
    ) -> Sequence[Object]:
        """Delete the selected objects; return them as they were."""
        found = [obj for page in self.pages(target, selector) for obj in page]
        for obj in found:
            with suppress(NotFoundError):
                key = Key.of(obj)
                self.delete(RequestTarget(target.resource, key.namespace, key.name), delete_options, options)
        return found

    def _require_preconditions(self, target: RequestTarget, old: Object, delete_options: Mapping[str, Any]) -> None:
        if delete_options.get("propagationPolicy") == "Orphan" or delete_options.get("orphanDependents"):
            message = (
                "what an object owns is always deleted with it here; use propagationPolicy Background or Foreground"
            )
            raise StatusError(422, message)
        wanted = delete_options.get("preconditions") or {}
        for field, word in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            given, is_now = wanted.get(field), old["metadata"][field]
            if given not in (None, is_now):
                cause = f"the {word} in the precondition ({given}) does not match the {word} in record ({is_now})"
                raise conflict(target.resource, target.name, [cause])

    def _delete_experiment(self, old: Object) -> None:
        """Begin to delete an experiment with all its data, and return when its object is marked or gone.

        A background thread completes the deletion, after the last program of a trial has ended.
        """
        key, failures = Key.of(old), list[KatibError]()

        def delete() -> None:
            try:
                self.home.service.delete(key.namespace, key.name)
            except KatibError as error:
                failures.append(error)
                if not isinstance(error, NotFoundError):
                    _log.warning("An experiment is not deleted yet: %s", error)

        thread = threading.Thread(target=delete, name="delete-experiment", daemon=True)
        thread.start()
        while thread.is_alive() and self._stands(old):
            time.sleep(_LOOK_SECONDS)
        if failures and self._stands(old):
            raise failures[0]

    def _experiment_of(self, obj: Object) -> Object | None:
        """Return the experiment owned by an OptimizationJob; None if there is none, and for all other kinds."""
        if Kind.of(obj) == OPTIMIZATION_JOB:
            with suppress(NotFoundError):
                found = self.home.objects.get(EXPERIMENT, Key.of(obj))
                return found if obj["metadata"]["uid"] in semantics.owner_uids(found) else None
        return None

    def _stands(self, old: Object) -> bool:
        try:
            now = self.home.objects.get(EXPERIMENT, Key.of(old))
        except NotFoundError:
            return False
        return now["metadata"]["uid"] == old["metadata"]["uid"] and "deletionTimestamp" not in now["metadata"]


def identified(target: RequestTarget, body: Any) -> Json:
    """Return an object with the kind, namespace and name of its path; its own values must agree.

    Raises:
        StatusError: They differ.
    """
    if not isinstance(body, dict):
        raise bad_request(f"the body is a {type(body).__name__}, not an object")
    kind, metadata = target.resource.kind, body.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise bad_request("metadata: it is not a map")
    for name, wanted in (("apiVersion", kind.api_version), ("kind", kind.kind)):
        if body.get(name, wanted) != wanted:
            raise bad_request(f"{name}: {body[name]!r} in the body, {wanted} in the path")
    metadata = {name: value for name, value in (metadata or {}).items() if value not in (None, {}, [])}
    for name, wanted in (("namespace", target.namespace), ("name", target.name)):
        if wanted and metadata.get(name) not in (None, "", wanted):
            raise bad_request(f"metadata.{name}: {metadata[name]!r} in the body, {wanted} in the path")
        if wanted:
            metadata[name] = wanted
    if not target.resource.is_namespaced:
        metadata.pop("namespace", None)
    return {"apiVersion": kind.api_version, "kind": kind.kind, **body, "metadata": metadata}


def _require_status(status: Any) -> None:
    """Raise unless controllers can read a status."""
    conditions = (status or {}).get("conditions") or [] if isinstance(status, dict | None) else None
    if not isinstance(conditions, list):
        path = "status" if conditions is None else "status.conditions"
        raise invalid(
            path, f"a {type(conditions or status).__name__}", "give a map with a list of conditions", "value-type"
        )
    for index, condition in enumerate(conditions):
        for name in ("type", "status"):
            if not isinstance(value_at(condition, name), str):
                path = f"status.conditions[{index}].{name}"
                raise invalid(
                    path, "it is missing, or is not text", f"give the condition a {name}", "condition-missing"
                )


def _shaped(bodies: Sequence[str], selector: Selector, shape: Callable[[Object], Object] | None) -> Iterator[str]:
    for body in bodies:  # one after the other, so that each is still in the processor's cache
        obj = semantics.decode(body)
        if selector.fits(obj):
            yield body if shape is None else encode(shape(obj))


def _warnings(admitted: AdmittedObject, options: WriteOptions) -> tuple[str, ...]:
    if not admitted.unknown or options.validation == "Ignore":
        return admitted.notices
    lines = [f'unknown field "{error.path}": {error.cause}; {error.remedy}' for error in admitted.unknown]
    if options.validation == "Strict":
        raise bad_request(f"strict decoding error: {', '.join(lines)}")
    return (*lines, *admitted.notices)


def _token(revision: str, place: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([revision, place]).encode()).decode()


def _read_token(token: str) -> tuple[str, str]:
    try:
        revision, place = json.loads(base64.urlsafe_b64decode(token))
        if str(revision).isdecimal() and str(place).isdecimal():
            return str(revision), str(place)
    except (ValueError, TypeError, binascii.Error):
        pass
    raise bad_request("continue: it is not a token of this server; list again without it")
