"""The structures of JobSets, TrainJobs and training runtimes, and the rules of a JobSet on one machine."""

from __future__ import annotations

import re
from typing import Final

from katib.api.wording import did_you_mean, shown
from katib.local.findings import Part
from katib.local.jobs.batch.job import check_job_rules
from katib.local.jobs.jobset.plan import ACTIONS
from katib.local.jobs.jobset.spec import COMPLETE, MANAGER, READY, job_template
from katib.local.jobs.structure import Structure, check_job_template, check_structure, structure
from katib.templates import has_placeholder

_METADATA: Final = structure(map="labels annotations")

JOB_SET_SPEC: Final[Structure] = structure(
    text="managedBy",
    integer="ttlSecondsAfterFinished",
    boolean="suspend",
    any="volumeClaimPolicies",
    replicatedJobs=[
        structure(text="name groupName", integer="replicas", job="template", dependsOn=[structure(text="name status")])
    ],
    network=structure(text="subdomain", boolean="enableDNSHostnames publishNotReadyAddresses"),
    successPolicy=structure(text="operator", texts="targetReplicatedJobs"),
    failurePolicy=structure(
        integer="maxRestarts",
        text="restartStrategy",
        rules=[
            structure(
                text="name action",
                texts="onJobFailureReasons onJobFailureMessagePatterns targetReplicatedJobs",
            )
        ],
    ),
    startupPolicy=structure(text="startupPolicyOrder"),
    coordinator=structure(text="replicatedJob", integer="jobIndex podIndex"),
)

_INITIALIZER: Final = structure(text="storageUri", env="env", secretRef=structure(text="name"))
_POD_PARTS: Final = structure(
    text="serviceAccountName priorityClassName",
    map="nodeSelector",
    any="affinity tolerations volumes initContainers containers schedulingGates imagePullSecrets securityContext",
)
_POD_TEMPLATE: Final = structure(metadata=_METADATA, spec=_POD_PARTS)
_JOB_TEMPLATE: Final = structure(metadata=_METADATA, spec=structure(template=_POD_TEMPLATE))
_PATCHED_JOBS: Final = structure(replicatedJobs=[structure(text="name", template=_JOB_TEMPLATE)])
_TARGETS: Final = [structure(text="name")]

TRAIN_JOB_SPEC: Final[Structure] = structure(
    text="managedBy",
    integer="activeDeadlineSeconds",
    boolean="suspend",
    map="labels annotations",
    runtimeRef=structure(text="name apiGroup kind"),
    initializer=structure(dataset=_INITIALIZER, model=_INITIALIZER),
    trainer=structure(
        text="image", texts="command args", env="env", integer="numNodes", any="numProcPerNode resourcesPerNode"
    ),
    runtimePatches=[
        structure(
            text="manager time",
            trainingRuntimeSpec=structure(template=structure(metadata=_METADATA, spec=_PATCHED_JOBS)),
        )
    ],
    podTemplateOverrides=[structure(text="manager", targetJobs=_TARGETS, **_POD_TEMPLATE)],
    podSpecOverrides=[{"targetJobs": _TARGETS, **_POD_PARTS}],
)

RUNTIME_SPEC: Final[Structure] = structure(
    any="podGroupPolicy",
    mlPolicy=structure(
        integer="numNodes",
        torch=structure(any="numProcPerNode elasticPolicy envInjection"),
        mpi=structure(integer="numProcPerNode", text="mpiImplementation sshAuthMountPath", boolean="runLauncherAsNode"),
        jax={},
        xgboost={},
        any="flux",
    ),
    template=structure(metadata=_METADATA, spec=JOB_SET_SPEC),
)

RUNTIME: Final[Structure] = structure(text="apiVersion kind", any="metadata status", spec=RUNTIME_SPEC)


EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"

_REASONS: Final = (
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
)
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_CLUSTER: Final = "submit the experiment to Kubernetes"


def check_jobset_rules(spec: Part) -> None:
    """Check the spec of a JobSet."""
    check_structure(spec, JOB_SET_SPEC, "JobSet")
    _check_replicated_jobs(spec["replicatedJobs"])
    names = [job["name"].text for job in spec["replicatedJobs"]]
    _check_dependencies(spec)
    spec["successPolicy.operator"].choice("All", "Any")
    _check_targets(spec["successPolicy.targetReplicatedJobs"], names)
    _check_failure(spec["failurePolicy"], names)
    spec["startupPolicy.startupPolicyOrder"].choice("AnyOrder", "InOrder")
    spec.at_least(ttlSecondsAfterFinished=0)
    spec["coordinator"].at_least(jobIndex=0, podIndex=0)
    spec.run_by(MANAGER, "JobSet")
    remedy = f"use an emptyDir or a path of this machine, or {_CLUSTER}"
    spec["volumeClaimPolicies"].refuse("volumes are not claimed on this machine", remedy, "jobset-unsupported")
    spec["network"].note("there is no cluster network here, so pods have no names in it")


def check_peers(spec: Part) -> None:
    """Find names of other pods that a JobSet's containers spell out and that are no hosts here."""
    names = [re.escape(job["name"].text) for job in spec["replicatedJobs"] if job["name"].text]
    pattern = re.compile(rf"-((?:{'|'.join(names)})-\d+-\d+)\b")
    for job in spec["replicatedJobs"] if names else ():
        pod = job["template.spec.template.spec"]
        for container in [container for field in ("initContainers", "containers") for container in pod[field]]:
            check_spelled_out(container, pattern, "a pod", f"use 127.0.0.1, or {_CLUSTER}")


def check_spelled_out(container: Part, pattern: re.Pattern[str], whose: str, remedy: str) -> None:
    """Find the host name of a pod that a container spells out.

    Args:
        container: The container.
        pattern: Its group finds the name.
        whose: What the pod is, in words.
        remedy: What to do.
    """
    values = [value for entry in container["env"] if isinstance(value := entry["value"].value, str)]
    words = {field: [word.value for word in container[field].words] for field in ("command", "args")} | {"env": values}
    for field, said in words.items():
        if match := next(filter(None, map(pattern.search, said)), None):
            cause = f"the host name of {whose}, as in {shown(match.group(1))}, leads nowhere on this machine"
            container[field].error(cause, remedy, "jobset-peer-name")
            return


def _check_replicated_jobs(jobs: Part) -> None:
    if not list(jobs) and not has_placeholder(jobs.value):
        jobs.error("it is missing or empty", "give at least one", "jobset-empty")
    seen: set[str] = set()
    for job in jobs:
        name = job["name"]
        if not name.require("name the replicated job"):
            pass
        elif name.text and not _NAME.fullmatch(name.text):
            cause = f"{shown(name.text)} is not a valid DNS label"
            name.error(cause, "use lower case letters, digits and hyphens", "jobset-name")
        elif name.text in seen:
            name.error(f"{shown(name.text)} is used twice", "give it a name of its own", "jobset-name")
        seen.add(name.text)
        job.at_least(replicas=0)
        check_job_template(job["template"])
        if not job["template.spec.template"].require("give the pod template"):
            continue
        rules = job_template(job.value)
        if (job["template.spec.completions"].integer or 1) > 1:
            rules["completions"] = 1  # whose metrics count is for the labels of primary pods to say
        check_job_rules(Part(rules, job["template.spec"].path, job.findings))
        parts = (job["template"], job["template.spec.template"])
        if any(EXCLUSIVE in part["metadata.annotations"].fields for part in parts):
            cause = "a Job cannot have a part of this machine to itself"
            remedy = f"remove the annotation {EXCLUSIVE}, or {_CLUSTER}"
            job["template.metadata.annotations"].error(cause, remedy, "jobset-unsupported")


def _check_dependencies(spec: Part) -> None:
    in_order = spec["startupPolicy.startupPolicyOrder"].value == "InOrder"
    earlier: list[str] = []
    for job in spec["replicatedJobs"]:
        for dependency in job["dependsOn"]:
            name = dependency["name"]
            if in_order:
                remedy = "remove it, or the startupPolicy"
                dependency.error("startupPolicy InOrder already says the order", remedy, "jobset-depends-on")
            if name.text and name.text not in earlier:
                cause = f"no replicated job before this one is named {shown(name.text)}"
                remedy = "remove it: the first one cannot depend on others"
                name.error(cause, did_you_mean(name.text, earlier) if earlier else remedy, "jobset-depends-on")
            dependency["status"].choice(READY, COMPLETE)
        earlier.append(job["name"].text)


def _check_failure(policy: Part, names: list[str]) -> None:
    policy.at_least(maxRestarts=0)
    strategy = policy["restartStrategy"]
    if strategy.value == "InPlaceRestart":
        strategy.error("pods are not restarted in place here", "use Recreate", "jobset-unsupported")
    else:
        strategy.choice("Recreate", "BlockingRecreate")
    for rule in policy["rules"]:
        rule["action"].require(f"give one of {', '.join(ACTIONS)}")
        rule["action"].choice(*ACTIONS)
        _check_targets(rule["targetReplicatedJobs"], names)
        for reason in rule["onJobFailureReasons"].words:
            reason.choice(*_REASONS)
        for pattern in rule["onJobFailureMessagePatterns"].words:
            if not _is_pattern(pattern.value):
                cause = f"{shown(pattern.value)} is not a valid regular expression"
                pattern.error(cause, "write a regular expression", "jobset-pattern")


def _is_pattern(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return has_placeholder(pattern)
    return True


def _check_targets(targets: Part, names: list[str]) -> None:
    for target in targets.words:
        if target.text and target.text not in names:
            cause = f"there is no replicated job {shown(target.text)}"
            target.error(cause, did_you_mean(target.text, names), "jobset-target")
