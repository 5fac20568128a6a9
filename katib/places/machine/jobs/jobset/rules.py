"""The structures and the rules of JobSets, TrainJobs and training runtimes, and their meaning on one machine."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from katib.engine.runtime.objects import Object
from katib.model.templates import has_placeholder
from katib.model.templates.devices import device_errors
from katib.model.wording import did_you_mean, shown
from katib.places.machine.findings import (
    Findings,
    Part,
    Structure,
    check_in_container,
    check_job_template,
    check_structure,
    has_structure,
    structure,
)
from katib.places.machine.jobs.batch.job import check_job_rules
from katib.places.machine.jobs.gang.spec import ACTIONS, COMPLETE, READY
from katib.places.machine.jobs.jobset.resolve import (
    INITIALIZERS,
    NODE,
    PATCHES,
    POLICIES,
    RESERVED,
    STEP_LABEL,
    TrainingSet,
    container_of,
    training_set,
)
from katib.places.machine.jobs.jobset.runtimes import Runtime, unknown_runtime
from katib.places.machine.jobs.jobset.spec import MANAGER, job_template

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
    check_structure(spec, JOB_SET_SPEC, "JobSet")
    _check_replicated_jobs(spec["replicatedJobs"])
    names = [job["name"].text for job in spec["replicatedJobs"]]
    _check_dependencies(spec)
    spec["successPolicy.operator"].choice("All", "Any")
    _check_targets(spec["successPolicy.targetReplicatedJobs"].words, names)
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
        pattern: Its group finds the name.
        whose: The kind of pod, in words.
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
        _check_targets(rule["targetReplicatedJobs"].words, names)
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


def _check_targets(targets: Iterable[Part], names: list[str]) -> None:
    for target in targets:
        if target.text and target.text not in names:
            cause = f"there is no replicated job {shown(target.text)}"
            target.error(cause, did_you_mean(target.text, names), "jobset-target")


# --- TrainJobs --------------------------------------------------------------------------------------------------------


TRAIN_JOB_MANAGER: Final = "trainer.kubeflow.org/trainjob-controller"
_TORCHTUNE: Final = ["tune", "run"]
_PROCESS_WORDS: Final = ("auto", "cpu", "gpu")
_CONTAINER: Final = re.compile(
    r"spec\.replicatedJobs\[(?P<job>\d+)\]\.template\.spec\.template\.spec\.containers\[(?P<container>\d+)\]"
    r"(?:\.(?P<field>\w+)(?P<rest>.*))?"
)


def check_train_job(job: Part, runtime: Runtime | None) -> None:
    """Check a TrainJob and its runtime, but for the pod templates."""
    spec, reference = job["spec"], job["spec.runtimeRef.name"]
    trainer = spec["trainer"]
    check_structure(spec, TRAIN_JOB_SPEC, "TrainJob")
    _check_counts(spec, trainer)
    if trainer["resourcesPerNode"].is_given:
        check_in_container("resources", trainer["resourcesPerNode"])
    spec.run_by(TRAIN_JOB_MANAGER, "TrainJob")
    for pod in _patched_pods(spec):
        _check_patched_pod(pod)
    if not reference.require("name a runtime, such as torch-distributed"):
        return
    if runtime is not None:
        _check_with_runtime(job, runtime)
    elif error := unknown_runtime(job.value, spec["runtimeRef"].path):
        job.findings.errors.append(error)
    elif has_placeholder(reference.value):
        reference.notice("which runtime it is is known only when a trial starts")


def check_runtime(runtime: Object, findings: Findings) -> None:
    """Check a training runtime by itself. Rules that depend on the TrainJob are checked with it.

    Args:
        runtime: The object; may be malformed.
        findings: Collects findings, with paths in the object.
    """
    whole = Part(runtime, "", findings)
    check_structure(whole, RUNTIME, "training runtime")
    whole["spec"].require("write what the runtime is")
    if not findings.errors:
        _check_policy(whole["spec.mlPolicy"])
        template = whole["spec.template.spec"]
        # Whether initializers fill a claimed volume is known with the TrainJob.
        jobset = {key: part.value for key, part in template.fields.items() if key != "volumeClaimPolicies"}
        check_jobset_rules(Part(jobset, template.path, findings))
        findings.errors += device_errors(jobset, template.path)


def is_readable(job: Object) -> bool:
    """Return whether a TrainJob has the structure of one, so that it can be laid over its runtime."""
    return has_structure(job.get("spec"), TRAIN_JOB_SPEC)


def _check_counts(spec: Part, trainer: Part) -> None:
    processes = trainer["numProcPerNode"]
    for part in (trainer["numNodes"], processes, spec["activeDeadlineSeconds"]):
        if part.integer is not None and part.integer < 1:
            part.error(f"{part.integer} is less than 1", "give 1 or more", "train-job-count")
    value = processes.value
    is_word = isinstance(value, str) and (value in _PROCESS_WORDS or value.isdecimal())
    if processes.is_given and processes.integer is None and not is_word and not has_placeholder(value):
        cause = f"{shown(value)} is not a number of processes"
        processes.error(cause, "give a whole number, or auto", "train-job-count")


def _patched_pods(spec: Part) -> list[Part]:
    runtimes = [patch["trainingRuntimeSpec.template.spec.replicatedJobs"] for patch in spec["runtimePatches"]]
    return [
        *(job["template.spec.template.spec"] for jobs in runtimes for job in jobs),
        *(item["spec"] for item in spec["podTemplateOverrides"]),
        *spec["podSpecOverrides"],
    ]


def _check_patched_pod(pod: Part) -> None:
    """Refuse patches of variables that the TrainJob has fields for."""
    own = {NODE: "trainer.env", **{name: f"initializer.{kind}.env" for kind, name in INITIALIZERS.items()}}
    for container in pod["containers"]:
        if (name := container["name"].text) in own:
            cause = f"variables of the container {shown(name)} cannot be patched"
            container["env"].refuse(cause, f"give them in {own[name]}", "train-job-patch")


# --- with the runtime -------------------------------------------------------------------------------------------------


def _check_with_runtime(job: Part, runtime: Runtime) -> None:
    spec, findings = job["spec"], job.findings
    of_runtime = Part(runtime.spec, f"{spec.path}.runtimeRef({runtime.name}).spec", findings)
    if not runtime.is_shipped:
        before = len(findings.errors)
        check_structure(of_runtime, RUNTIME_SPEC, "training runtime")
        if len(findings.errors) > before:
            return
    _check_policy(of_runtime["mlPolicy"])
    of_runtime["podGroupPolicy"].note("the pods of a job start together here anyway")
    if not is_readable(job.value):
        return
    names = [job["name"].text for job in of_runtime["template.spec.replicatedJobs"]]
    patched = [patch["trainingRuntimeSpec.template.spec.replicatedJobs"] for patch in spec["runtimePatches"]]
    for targets in [*patched, *(override["targetJobs"] for field in PATCHES[1:] for override in spec[field])]:
        _check_targets([target["name"] for target in targets], names)
    training = training_set(job.value, runtime)
    jobset = {key: value for key, value in training.jobset["spec"].items() if key != "suspend"}
    check_jobset_rules(Part(jobset, of_runtime["template.spec"].path, findings))
    jobs = training.jobset["spec"]["replicatedJobs"]
    _check_trainer(spec["trainer"], of_runtime["template.spec.replicatedJobs"], training)
    for kind, name in INITIALIZERS.items():
        if all(container_of(replicated, name) is None for replicated in jobs):
            cause = f"the runtime {runtime.name} has no replicated job with a container {name}"
            remedy = "use a runtime that has one, or fetch the data in the trainer"
            spec["initializer"][kind].refuse(cause, remedy, "train-job-initializer")
    if training.shared:
        spec["initializer"].notice("what initializers fetch goes to a directory of the trial that its pods share")


def _check_policy(policy: Part) -> None:
    given = [name for name in POLICIES if policy[name].value is not None]
    if len(given) > 1:
        policy.error(f"it has {' and '.join(given)}", "keep one of them", "runtime-policy")
    if "flux" in given:
        policy["flux"].error("Flux does not run on this machine", f"use mpi, or {_CLUSTER}", "runtime-policy")
    implementation = policy["mpi.mpiImplementation"]
    if implementation.text not in {"", "OpenMPI"}:
        cause = f"{shown(implementation.text)} is not started here"
        implementation.error(cause, f"use OpenMPI, or {_CLUSTER}", "runtime-policy")
    policy["torch.elasticPolicy"].note("the number of nodes does not change while a job runs here")
    cause = "other containers than node do not get the addresses of nodes here"
    policy["torch.envInjection"].refuse(cause, f"remove it, or {_CLUSTER}", "runtime-policy")


def _check_trainer(trainer: Part, jobs_of_runtime: Part, training: TrainingSet) -> None:
    node = training.node
    if node is None:
        cause = f"no replicated job with the label {STEP_LABEL}: trainer has a container {NODE}"
        remedy = "label the replicated job that trains, and name its container so"
        jobs_of_runtime.error(cause, remedy, "runtime-trainer")
        return
    if [word.value for word in Part(node, "")["command"].words] == _TORCHTUNE:
        cause = "the arguments of torchtune are not generated here"
        trainer["command"].error(cause, "write the whole command out", "train-job-torchtune")
    if training.policy and not training.has_trainer:
        trainer.notice("without it the nodes get no addresses of each other, as on a cluster; `trainer: {}` is enough")
    for entry in trainer["env"]:
        if (name := entry["name"].value) in RESERVED.get(training.policy, ()):
            cause = f"{name} is set for each node by the policy {training.policy}"
            entry["name"].error(cause, "remove it", "train-job-reserved")


def check_node_names(training: TrainingSet, spec: Part) -> None:
    """Find names of other nodes that the user wrote out and that are no hosts here."""
    pattern = re.compile(rf"-({re.escape(training.trainer)}-0-\d+\b)")
    variables = {"torch": "$(PET_MASTER_ADDR)", "jax": "$(JAX_COORDINATOR_ADDRESS)", "xgboost": "$(DMLC_TRACKER_URI)"}
    remedy = f"use {variables.get(training.policy, '127.0.0.1')}"
    check_spelled_out(Part(training.node, spec["trainer"].path, spec.findings), pattern, "a node", remedy)


# --- places -----------------------------------------------------------------------------------------------------------


def written_at(job: Object, training: TrainingSet, place: str) -> str:
    """Return the place in a TrainJob of a place in its pod templates.

    Args:
        training: The same with its runtime.
        place: Below the JobSet, such as `spec.replicatedJobs[0].template.spec.template.spec.containers[0].command`.

    Returns:
        A path in the TrainJob, or one behind the name of its runtime; empty for fields of a shipped runtime.
    """
    spec, match = Part(job, "")["spec"], _CONTAINER.match(place)
    trainer = spec["trainer"]
    if match is not None:
        replicated = training.jobset["spec"]["replicatedJobs"][int(match["job"])]
        container = Part(replicated, "")["template.spec.template.spec"].value["containers"][int(match["container"])]
        field, rest = match["field"] or "", match["rest"] or ""
        if replicated.get("name") == training.trainer and Part(container, "")["name"].value == NODE:
            if field in {"command", "args", "image"} and (trainer[field].value or field == "command"):
                return f"{trainer.path}.{field}{rest}"
            if field == "resources" and trainer["resourcesPerNode"].value:
                return f"{trainer.path}.resourcesPerNode{rest}"
            if field == "env" and (own := _own_variable(trainer["env"], container["env"], rest)):
                return own
    if not training.runtime.is_shipped:
        return f"spec.runtimeRef({training.runtime.name}).spec.template.{place}"
    patched = next((field for field in PATCHES if spec[field].value), "")
    is_image = match is not None and match["field"] == "image"
    return f"spec.{patched}" if patched and not is_image else ""


def _own_variable(own: Part, entries: list[object], rest: str) -> str:
    match = re.match(r"\[(\d+)\](.*)", rest)
    if match is None:
        return own.path if own.value else ""
    name = Part(entries[int(match[1])], "")["name"].value
    found = (entry for entry in own if entry["name"].value == name)
    return next((f"{entry.path}{match[2]}" for entry in found), "")
