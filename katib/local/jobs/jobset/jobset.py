"""JobSet as a kind of job: its plan, and the names, labels and hosts of its pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from katib.local.findings import Part, integer, mapping, mapping_at, mappings
from katib.local.jobs.batch.job import BatchJob
from katib.local.jobs.jobset.plan import plan
from katib.local.jobs.jobset.rules import check_jobset_rules, check_peers
from katib.local.jobs.jobset.spec import (
    API_VERSION,
    PREFIX,
    REPLICATED_JOB_LABEL,
    JobSetSpec,
    child_job,
    job_labels,
    job_template,
    subdomain_of,
)
from katib.local.jobs.kind import NewPod, PodLabels, PodStart, Wiring, names_in_domain
from katib.runtime.objects import Kind, Object

JOB_SET = Kind(API_VERSION, "JobSet")

_SET_LATER: Final = (
    "coordinator",
    "global-replicas",
    "group-name",
    "job-global-index",
    "job-key",
    "jobset-name",
    "jobset-uid",
    "replicatedjob-replicas",
    "restart-attempt",
)
"""Labels of `job_labels` that are known only when the job runs."""


class JobSet:
    """The kind JobSet. Fits `katib.local.jobs.kind.JobKind`."""

    kind = JOB_SET

    plan = staticmethod(plan)

    def pod(self, job: Object, start: PodStart, wiring: Wiring) -> NewPod:
        """Describe a pod of one of its Jobs, as the controllers of JobSet and Job make it."""
        replicated, index = JobSetSpec.of(job).replicated_job(start.role)
        pod = BatchJob().pod(child_job(job, replicated, index), start, wiring)
        marks = job_labels(job, replicated, index, start.details.get("attempt", 0))
        return replace(
            pod,
            path=replicated.path,
            labels={**pod.labels, **marks},
            annotations={**pod.annotations, **marks},
            aliases=_aliases(job, pod.hostname),
        )

    def check(self, job: Part) -> None:
        """Find what keeps a JobSet from running here, but for its pod templates."""
        check_jobset_rules(job["spec"])

    def variables_with_addresses(self, _job: Object) -> str:
        """Return nothing: a JobSet gives its pods no addresses."""
        return ""

    def check_peer_names(self, job: Part) -> None:
        """Find names of pods that are spelled out, which lead nowhere on the network of this machine."""
        check_peers(job["spec"])

    def templates(self, job: Object) -> Mapping[str, tuple[Mapping[str, Any], int]]:
        """Return the pod templates of its replicated jobs with the pods that run together."""
        found: dict[str, tuple[Mapping[str, Any], int]] = {}
        for position, item in mappings(mapping(job.get("spec")).get("replicatedJobs")):
            spec = mapping_at(item, "template.spec")
            replicas, parallelism = integer(item.get("replicas")), integer(spec.get("parallelism"))
            count = (1 if replicas is None else replicas) * (1 if parallelism is None else parallelism)
            found[f"spec.replicatedJobs[{position}].template.spec.template"] = (mapping(spec.get("template")), count)
        return found

    def pod_labels(self, job: Object) -> Sequence[PodLabels]:
        """Return the labels of its pods, for each replicated job that has any."""
        found = []
        for _, item in mappings(mapping(job.get("spec")).get("replicatedJobs")):
            replicas, (pods,) = integer(item.get("replicas", 1)), BatchJob().pod_labels({"spec": job_template(item)})
            if replicas == 0:
                continue
            indexes = range(replicas) if replicas and replicas > 0 else None
            marks = {REPLICATED_JOB_LABEL: str(item.get("name")), f"{PREFIX}/job-index": indexes}
            later = dict.fromkeys(f"{PREFIX}/{name}" for name in _SET_LATER)
            found.append(PodLabels({**pods.own, **marks}, {**pods.others, **later}))
        return found


def _aliases(jobset: Object, host: str) -> tuple[str, ...]:
    """Return the names of a pod on a cluster, of which one leads to all pods of the JobSet."""
    if not host or jobset["spec"].get("network", {}).get("enableDNSHostnames") is False:
        return ()
    subdomain, namespace = subdomain_of(jobset), jobset["metadata"].get("namespace", "")
    return (subdomain, *names_in_domain(subdomain, namespace), *names_in_domain(host, subdomain, namespace))
