"""Rules about a TrainJob and its runtime, and what they mean on one machine."""

from __future__ import annotations

import re
from typing import Final

from katib.api.wording import shown
from katib.local.findings import Findings, Part
from katib.local.jobs.jobset.resolve import (
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
from katib.local.jobs.jobset.rules import RUNTIME, RUNTIME_SPEC, TRAIN_JOB_SPEC, check_jobset_rules, check_spelled_out
from katib.local.jobs.jobset.runtimes import Runtime, unknown_runtime
from katib.local.jobs.structure import check_in_container, check_structure, has_structure
from katib.runtime.objects import Object
from katib.templates import has_placeholder
from katib.templates.devices import device_errors

MANAGER: Final = "trainer.kubeflow.org/trainjob-controller"
_CLUSTER: Final = "submit the experiment to Kubernetes"
_TORCHTUNE: Final = ["tune", "run"]
_PROCESS_WORDS: Final = ("auto", "cpu", "gpu")
_CONTAINER: Final = re.compile(
    r"spec\.replicatedJobs\[(?P<job>\d+)\]\.template\.spec\.template\.spec\.containers\[(?P<container>\d+)\]"
    r"(?:\.(?P<field>\w+)(?P<rest>.*))?"
)


def check_train_job(job: Part, runtime: Runtime | None) -> None:
    """Check a TrainJob and its runtime, but for the pod templates.

    Args:
        job: The TrainJob.
        runtime: Its runtime; None when there is none.
    """
    spec, reference = job["spec"], job["spec.runtimeRef.name"]
    trainer = spec["trainer"]
    check_structure(spec, TRAIN_JOB_SPEC, "TrainJob")
    _check_counts(spec, trainer)
    if trainer["resourcesPerNode"].is_given:
        check_in_container("resources", trainer["resourcesPerNode"])
    spec.run_by(MANAGER, "TrainJob")
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
    """Check a training runtime by itself. What depends on the TrainJob is checked with that.

    Args:
        runtime: The object; may be malformed.
        findings: Takes what is found, with paths in the object.
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
    """Find names of other nodes that the user wrote out and that are no hosts here.

    Args:
        training: A TrainJob with its runtime.
        spec: The spec of the TrainJob.
    """
    pattern = re.compile(rf"-({re.escape(training.trainer)}-0-\d+\b)")
    variables = {"torch": "$(PET_MASTER_ADDR)", "jax": "$(JAX_COORDINATOR_ADDRESS)", "xgboost": "$(DMLC_TRACKER_URI)"}
    remedy = f"use {variables.get(training.policy, '127.0.0.1')}"
    check_spelled_out(Part(training.node, spec["trainer"].path, spec.findings), pattern, "a node", remedy)


# --- places -----------------------------------------------------------------------------------------------------------


def written_at(job: Object, training: TrainingSet, place: str) -> str:
    """Return where a TrainJob says what stands at a place of its pod templates.

    Args:
        job: The TrainJob.
        training: The same with its runtime.
        place: Below the JobSet, such as `spec.replicatedJobs[0].template.spec.template.spec.containers[0].command`.

    Returns:
        A path in the TrainJob, or one behind the name of its runtime; empty for what a shipped runtime says.
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
