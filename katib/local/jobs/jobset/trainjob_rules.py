"""Rules about a TrainJob and its runtime, and what they mean on one machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from katib.api.wording import shown
from katib.local.findings import Findings, integer, is_given, mapping, mappings, text, texts
from katib.local.jobs.jobset.environment import RESERVED
from katib.local.jobs.jobset.resolve import (
    INITIALIZERS,
    NODE,
    PATCHES,
    POLICIES,
    STEP_LABEL,
    container_of,
    training_set,
)
from katib.local.jobs.jobset.resolve import TrainingSet as _TrainingSet
from katib.local.jobs.jobset.rules import check_jobset_rules, spelled_out
from katib.local.jobs.jobset.runtimes import Runtime, unknown_runtime
from katib.local.jobs.jobset.structure import (
    RUNTIME,
    RUNTIME_SPEC,
    TRAIN_JOB_SPEC,
    check_resources,
    check_structure,
)
from katib.runtime.objects import Object
from katib.templates import has_placeholder
from katib.templates.devices import device_errors

MANAGER: Final = "trainer.kubeflow.org/trainjob-controller"
_CLUSTER = "submit the experiment to Kubernetes"
_TORCHTUNE = ["tune", "run"]
_PROCESS_WORDS = ("auto", "cpu", "gpu")
_CONTAINER = re.compile(
    r"spec\.replicatedJobs\[(?P<job>\d+)\]\.template\.spec\.template\.spec\.containers\[(?P<container>\d+)\]"
    r"(?:\.(?P<field>\w+)(?P<rest>.*))?"
)


def check_train_job(job: Object, path: str, findings: Findings, runtime: Runtime | None) -> None:
    """Check a TrainJob and its runtime, but for the pod templates.

    Args:
        job: The TrainJob; may be malformed or hold placeholders.
        path: Where it stands.
        findings: Takes what is found.
        runtime: Its runtime; None when there is none.
    """
    spec, place = mapping(job.get("spec")), f"{path}.spec"
    check_structure(job.get("spec"), TRAIN_JOB_SPEC, place, findings, "TrainJob")
    trainer = mapping(spec.get("trainer"))
    _check_counts(spec, place, findings)
    if is_given(trainer.get("resourcesPerNode")):
        check_resources(trainer["resourcesPerNode"], f"{place}.trainer.resourcesPerNode", findings)
    findings.managed_by(spec.get("managedBy"), MANAGER, f"{place}.managedBy", "TrainJob")
    if spec.get("suspend") is True:
        findings.notice(f"{place}.suspend", "every trial starts suspended and waits until its TrainJob is resumed")
    _check_patches(spec, place, findings)
    reference = mapping(spec.get("runtimeRef")).get("name")
    if not is_given(reference):
        cause, remedy = "it is missing", "name a runtime, such as torch-distributed"
        findings.error(f"{place}.runtimeRef.name", cause, remedy, "job-field-missing")
    elif runtime is not None:
        _check_with_runtime(job, place, findings, runtime)
    elif error := unknown_runtime(job, f"{place}.runtimeRef"):
        findings.error(error.path, error.cause, error.remedy, error.origin)
    elif has_placeholder(reference):
        findings.notice(f"{place}.runtimeRef.name", "which runtime it is is known only when a trial starts")


def check_runtime(runtime: Object, findings: Findings) -> None:
    """Check a training runtime by itself. What depends on the TrainJob is checked with that.

    Args:
        runtime: The object; may be malformed.
        findings: Takes what is found, with paths in the object.
    """
    check_structure(runtime, RUNTIME, "", findings, "training runtime")
    if not is_given(runtime.get("spec")):
        findings.error("spec", "it is missing", "write what the runtime is", "job-field-missing")
    if not findings.errors:
        spec = mapping(runtime.get("spec"))
        _check_policy(mapping(spec.get("mlPolicy")), "spec.mlPolicy", findings)
        template = mapping(mapping(spec.get("template")).get("spec"))
        # Whether initializers fill a claimed volume is known with the TrainJob.
        jobset = {key: value for key, value in template.items() if key != "volumeClaimPolicies"}
        check_jobset_rules(jobset, "spec.template.spec", findings)
        findings.errors += device_errors(jobset, "spec.template.spec")


def is_readable(job: Object) -> bool:
    """Return whether a TrainJob has the structure of one, so that it can be laid over its runtime."""
    findings = Findings()
    check_structure(job.get("spec"), TRAIN_JOB_SPEC, "spec", findings, "TrainJob")
    return not findings.errors


def _check_counts(spec: Mapping[str, Any], path: str, findings: Findings) -> None:
    trainer = mapping(spec.get("trainer"))
    for field in ("numNodes", "numProcPerNode"):
        number = integer(trainer.get(field))
        if number is not None and number < 1:
            findings.error(f"{path}.trainer.{field}", f"{number} is less than 1", "give 1 or more", "train-job-count")
    processes = trainer.get("numProcPerNode")
    is_word = isinstance(processes, str) and (processes in _PROCESS_WORDS or processes.isdecimal())
    if is_given(processes) and integer(processes) is None and not is_word and not has_placeholder(processes):
        cause = f"{shown(processes)} is not a number of processes"
        findings.error(f"{path}.trainer.numProcPerNode", cause, "give a whole number, or auto", "train-job-count")
    seconds = integer(spec.get("activeDeadlineSeconds"))
    if seconds is not None and seconds < 1:
        cause = f"{seconds} is less than 1"
        findings.error(f"{path}.activeDeadlineSeconds", cause, "give 1 or more", "train-job-count")


def _check_patches(spec: Mapping[str, Any], path: str, findings: Findings) -> None:
    """Refuse patches of variables that the TrainJob has fields for."""
    for i, patch in mappings(spec.get("runtimePatches")):
        template = mapping(mapping(patch.get("trainingRuntimeSpec")).get("template"))
        for j, job in mappings(mapping(template.get("spec")).get("replicatedJobs")):
            pod = mapping(mapping(mapping(mapping(job.get("template")).get("spec")).get("template")).get("spec"))
            place = f"{path}.runtimePatches[{i}].trainingRuntimeSpec.template.spec.replicatedJobs[{j}]"
            _check_patched_pod(pod, f"{place}.template.spec.template.spec", findings)
    for i, item in mappings(spec.get("podTemplateOverrides")):
        _check_patched_pod(mapping(item.get("spec")), f"{path}.podTemplateOverrides[{i}].spec", findings)
    for i, item in mappings(spec.get("podSpecOverrides")):
        _check_patched_pod(item, f"{path}.podSpecOverrides[{i}]", findings)


def _check_patched_pod(pod: Mapping[str, Any], path: str, findings: Findings) -> None:
    own = {NODE: "trainer.env", **{name: f"initializer.{kind}.env" for kind, name in INITIALIZERS.items()}}
    for i, container in mappings(pod.get("containers")):
        name = text(container.get("name"))
        if is_given(container.get("env")) and name in own:
            cause = f"variables of the container {shown(name)} cannot be patched"
            findings.error(f"{path}.containers[{i}].env", cause, f"give them in {own[name]}", "train-job-patch")


# --- with the runtime -------------------------------------------------------------------------------------------------


def _check_with_runtime(job: Object, path: str, findings: Findings, runtime: Runtime) -> None:
    place = f"{path}.runtimeRef({runtime.name}).spec"
    if not runtime.is_shipped:
        before = len(findings.errors)
        check_structure(runtime.spec, RUNTIME_SPEC, place, findings, "training runtime")
        if len(findings.errors) > before:
            return
    _check_policy(mapping(runtime.spec.get("mlPolicy")), f"{place}.mlPolicy", findings)
    if is_given(runtime.spec.get("podGroupPolicy")):
        findings.notice(f"{place}.podGroupPolicy", "the pods of a job start together here anyway")
    if not is_readable(job):
        return
    training = training_set(job, runtime)
    jobset = {key: value for key, value in training.jobset["spec"].items() if key != "suspend"}
    check_jobset_rules(jobset, f"{place}.template.spec", findings)
    _check_trainer(mapping(job.get("spec")), path, findings, training)
    _check_initializers(mapping(job.get("spec")), path, findings, training)
    if training.shared:
        why = "what initializers fetch goes to a directory of the trial that its pods share"
        findings.notice(f"{path}.initializer", why)


def _check_policy(policy: Mapping[str, Any], path: str, findings: Findings) -> None:
    given = [name for name in POLICIES if policy.get(name) is not None]
    if len(given) > 1:
        findings.error(path, f"it has {' and '.join(given)}", "keep one of them", "runtime-policy")
    if "flux" in given:
        findings.error(f"{path}.flux", "Flux does not run on this machine", f"use mpi, or {_CLUSTER}", "runtime-policy")
    implementation = text(mapping(policy.get("mpi")).get("mpiImplementation"))
    if implementation not in {"", "OpenMPI"}:
        cause = f"{shown(implementation)} is not started here"
        findings.error(f"{path}.mpi.mpiImplementation", cause, f"use OpenMPI, or {_CLUSTER}", "runtime-policy")
    torch = mapping(policy.get("torch"))
    if is_given(torch.get("elasticPolicy")):
        why = "the number of nodes does not change while a job runs here"
        findings.notice(f"{path}.torch.elasticPolicy", why)
    if is_given(torch.get("envInjection")):
        cause = "other containers than node are not told about the nodes here"
        findings.error(f"{path}.torch.envInjection", cause, f"remove it, or {_CLUSTER}", "runtime-policy")


def _check_trainer(spec: Mapping[str, Any], path: str, findings: Findings, training: _TrainingSet) -> None:
    trainer = mapping(spec.get("trainer"))
    jobs = {text(job.get("name")): job for job in training.jobset["spec"]["replicatedJobs"]}
    node = container_of(jobs.get(training.trainer, {}), NODE)
    reference = f"{path}.runtimeRef({training.runtime.name})"
    if node is None:
        cause = f"no replicated job with the label {STEP_LABEL}: trainer has a container {NODE}"
        remedy = "label the replicated job that trains, and name its container so"
        findings.error(f"{reference}.spec.template.spec.replicatedJobs", cause, remedy, "runtime-trainer")
        return
    if texts(node.get("command"))[:2] == _TORCHTUNE and len(texts(node.get("command"))) == len(_TORCHTUNE):
        cause = "the arguments of torchtune are not generated here"
        findings.error(f"{path}.trainer.command", cause, "write the whole command out", "train-job-torchtune")
    if training.policy and not training.is_told:
        why = "without it the nodes are told nothing about each other, as on a cluster; `trainer: {}` is enough"
        findings.notice(f"{path}.trainer", why)
    reserved = RESERVED.get(training.policy, ())
    for i, entry in mappings(trainer.get("env")):
        if entry.get("name") in reserved:
            cause = f"{entry['name']} is set for each node by the policy {training.policy}"
            findings.error(f"{path}.trainer.env[{i}].name", cause, "remove it", "train-job-reserved")


def check_node_names(training: _TrainingSet, path: str, findings: Findings) -> None:
    """Find names of other nodes that the user wrote out and that are no hosts here.

    Args:
        training: A TrainJob with its runtime.
        path: Where its spec stands.
        findings: Takes what is found.
    """
    jobs = [job for _, job in mappings(training.jobset["spec"]["replicatedJobs"])]
    node = container_of(next((job for job in jobs if text(job.get("name")) == training.trainer), {}), NODE)
    if node is None:
        return
    pattern = re.compile(rf"-({re.escape(training.trainer)}-0-\d+\b)")
    told = {"torch": "$(PET_MASTER_ADDR)", "jax": "$(JAX_COORDINATOR_ADDRESS)", "xgboost": "$(DMLC_TRACKER_URI)"}
    remedy = f"use {told[training.policy]}" if training.policy in told else "use 127.0.0.1"
    if found := spelled_out(node, pattern):
        field, name = found
        cause = f"the host name of a node, as in {shown(name)}, leads nowhere on this machine"
        findings.error(f"{path}.trainer.{field}", cause, remedy, "jobset-peer-name")


def _check_initializers(spec: Mapping[str, Any], path: str, findings: Findings, training: _TrainingSet) -> None:
    jobs: Sequence[Mapping[str, Any]] = training.jobset["spec"]["replicatedJobs"]
    for kind, name in INITIALIZERS.items():
        containers = [found for job in jobs if (found := container_of(job, name)) is not None]
        given = is_given(mapping(spec.get("initializer")).get(kind))
        if given and not containers:
            cause = f"the runtime {training.runtime.name} has no replicated job with a container {name}"
            remedy = "use a runtime that has one, or fetch the data in the trainer"
            findings.error(f"{path}.initializer.{kind}", cause, remedy, "train-job-initializer")


# --- places -----------------------------------------------------------------------------------------------------------


def written_at(job: Object, training: _TrainingSet, place: str) -> str:
    """Return where a TrainJob says what stands at a place of its pod templates.

    Args:
        job: The TrainJob.
        training: The same with its runtime.
        place: Below the JobSet, such as `spec.replicatedJobs[0].template.spec.template.spec.containers[0].command`.

    Returns:
        A path in the TrainJob, or one behind the name of its runtime; empty for what a shipped runtime says.
    """
    trainer = mapping(mapping(job.get("spec")).get("trainer"))
    match = _CONTAINER.match(place)
    if match is not None:
        replicated = training.jobset["spec"]["replicatedJobs"][int(match["job"])]
        container = mapping(replicated["template"]["spec"]["template"]["spec"]["containers"][int(match["container"])])
        field, rest = match["field"] or "", match["rest"] or ""
        if replicated.get("name") == training.trainer and container.get("name") == NODE:
            if field in {"command", "args", "image"} and (trainer.get(field) or field == "command"):
                return f"spec.trainer.{field}{rest}"
            if field == "resources" and trainer.get("resourcesPerNode"):
                return f"spec.trainer.resourcesPerNode{rest}"
            if field == "env" and (own := _own_variable(trainer, container, rest)):
                return own
    if not training.runtime.is_shipped:
        return f"spec.runtimeRef({training.runtime.name}).spec.template.{place}"
    patched = next((field for field in PATCHES if mapping(job.get("spec")).get(field)), "")
    is_image = match is not None and match["field"] == "image"
    return f"spec.{patched}" if patched and not is_image else ""


def _own_variable(trainer: Mapping[str, Any], container: Mapping[str, Any], rest: str) -> str:
    match = re.match(r"\[(\d+)\](.*)", rest)
    if match is None:
        return "spec.trainer.env" if trainer.get("env") else ""
    name = mapping(container["env"][int(match[1])]).get("name")
    names = [entry.get("name") for _, entry in mappings(trainer.get("env"))]
    return f"spec.trainer.env[{names.index(name)}]{match[2]}" if name in names else ""
