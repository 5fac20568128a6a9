"""What the caches of a cluster remember of objects that are not ours."""

from __future__ import annotations

from katib.api.defaults import with_defaults
from katib.api.types import Experiment
from katib.runtime.objects import Object

_KEPT = ("name", "namespace", "uid", "resourceVersion", "ownerReferences", "annotations", "deletionTimestamp")


def judged_part(job: Object) -> Object:
    """Return what of a job is looked at: who it is, whose, and its status. Of a foreign one, that it is there."""
    metadata = job["metadata"]
    owners = metadata.get("ownerReferences") or ()
    kept = {key: metadata[key] for key in _KEPT if key in metadata}
    if not any(owner.get("kind") == "Trial" for owner in owners):
        return {"metadata": {key: kept[key] for key in ("name", "namespace", "uid") if key in kept}}
    part = {"apiVersion": job.get("apiVersion", ""), "kind": job.get("kind", ""), "metadata": kept}
    return {**part, "status": job["status"]} if "status" in job else part


def decode_experiment(obj: Object) -> Experiment:
    """Return an experiment with defaults, also where no webhook has filled them in."""
    return with_defaults(Experiment.decode(obj))
