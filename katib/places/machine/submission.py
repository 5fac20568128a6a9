"""The gate of one machine: what its collectors, its processes and its size allow."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import yaml

from katib.engine.algorithm_services.refusals import refusals
from katib.engine.runtime.objects import Key, Kind, Object
from katib.errors import FieldError
from katib.model.algorithms import AlgorithmCatalog
from katib.model.checkpoints import DIRECTORY_VARIABLE, checkpoint_directory
from katib.model.templates.devices import device_errors
from katib.model.types import CollectorKind, Experiment, ExperimentSpec
from katib.model.wording import shown
from katib.places.machine.admission import HostCapacity, check_job
from katib.places.machine.findings import Findings, Part, containers_of, mapping
from katib.places.machine.jobs.kind import Composed, JobKind, KnowsPeers, check_pod_labels
from katib.places.machine.jobs.kinds import CHECK_RUNTIME, JobKinds
from katib.places.machine.jobs.networks import PUSHES_NOTHING, may_be_named
from katib.places.machine.pods.requests import GPU_RESOURCES
from katib.places.machine.program import program_annotations
from katib.service.tuning.submission import FindObject, Home, workspace_of

if TYPE_CHECKING:
    from katib.places.machine.slurm.admission import SlurmGate

_COLLECTOR_PATH = "spec.metricsCollectorSpec.collector.customCollector"


class LocalHome(Home):
    """What one machine says of experiments.

    Args:
        capacity: What trials may ask for.
        prewarm: Starts the service of an algorithm before it is needed.
        slurm: Asks Slurm where trials are its jobs; None: they run here.
    """

    def __init__(
        self,
        capacity: HostCapacity,
        prewarm: Callable[[str], None] = lambda _algorithm: None,
        slurm: SlurmGate | None = None,
    ) -> None:
        self._capacity = capacity
        self._slurm = slurm
        self.places_trials = slurm is not None
        self._prewarm = prewarm

    def check(
        self, source: Mapping[str, Any], path: str, experiment: Experiment, find: FindObject
    ) -> tuple[Sequence[FieldError], Sequence[str]]:
        """Return what keeps the object from running here, and what will be done otherwise than elsewhere."""
        host, kinds, spec, job = self._capacity, JobKinds(find), experiment.spec, dict(source)
        errors, notices = check_job(job, path, host=host, workspace=workspace_of(experiment), kinds=kinds)
        kind = kinds.get(Kind.of(source))
        templates = [] if kind is None else list(kind.templates(job).values())
        pods = [template for template, _ in templates]
        errors += _custom_collector_errors(spec, [mapping(pod.get("spec")) for pod in pods], host)
        if kind is not None:
            errors += _errors_of_kind(kind, Part(job, path), spec, pods if host.names_pods else [])
        if self._slurm is not None and not errors:
            refusals, warnings = self._slurm.check(Kind.of(source), templates, path, spec)
            errors, notices = [*errors, *refusals], [*notices, *warnings]
        unmounted = [] if host.runs_images else _checkpoint_notices(job, path, spec)
        return errors, [*notices, *unmounted, *_card_notices(pods, path, host)]

    def check_job(self, job: Mapping[str, Any], find: FindObject) -> tuple[Sequence[FieldError], Sequence[str]]:
        """Return what keeps a job without an experiment from running here, and what will be done otherwise."""
        own = {name: part for name, part in job.items() if name not in ("metadata", "status")}
        return check_job(own, "", host=self._capacity, kinds=JobKinds(find))

    def check_algorithms(self, experiment: Experiment, catalog: AlgorithmCatalog) -> Sequence[FieldError]:
        """Return what the services of its algorithms, which run here, would refuse."""
        return refusals(experiment, catalog)

    def annotations(self, source: Mapping[str, Any], experiment: Experiment) -> Mapping[str, str]:
        """Return what is kept of the files of the program, so that a change is seen when it is run again."""
        return program_annotations(source, experiment)

    def check_runtime(self, runtime: Mapping[str, Any], place: str) -> Sequence[FieldError]:
        """Return what is wrong with a training runtime that no TrainJob refers to yet."""
        findings = Findings()
        CHECK_RUNTIME.load()(runtime, findings)
        return [replace(error, path=f"{place}{error.path}") for error in findings.errors]

    def primary_labels(self, source: Mapping[str, Any], find: FindObject) -> Mapping[str, str]:
        """Return the labels of the pod that prints metrics where its job does not say them by itself; else nothing."""
        name = Kind(str(source.get("apiVersion")), str(source.get("kind")))
        kind: object = JobKinds(find).get(name)
        return kind.primary_labels(dict(source)) if isinstance(kind, Composed) else {}

    def shipped_config_map(self, key: Key) -> Object | None:
        """Return a ConfigMap that came with the package."""
        return shipped_config_map(key)

    def prewarm(self, algorithm: str) -> None:
        """Have the service of an algorithm come up."""
        self._prewarm(algorithm)


def _card_notices(pods: Sequence[Mapping[str, Any]], path: str, host: HostCapacity) -> list[str]:
    """Return how trials get cards of their own, where there are cards and no template of a pod asks for any."""
    written = json.dumps(pods, default=str)
    if not pods or not host.gpus or any(f'"{name}"' in written for name in GPU_RESOURCES):
        return []
    sees = "see none" if host.runs_images else "share those that no trial has leased"
    way = f"resources.limits of a container with {GPU_RESOURCES[0]}: 1 leases one to each trial"
    return [f"{path}: no GPU is requested, so trials {sees}; {way}"]


def _checkpoint_notices(job: Object, path: str, spec: ExperimentSpec) -> list[str]:
    """Return what to do about a checkpoint directory that the template does not mention: nothing is mounted here."""
    directory = checkpoint_directory(spec.algorithm).rstrip("/")
    written = json.dumps(job, default=str)
    if not directory or directory in written or DIRECTORY_VARIABLE in written:
        return []
    way = f"write it into command, args or env, where it is replaced, or have the program read {DIRECTORY_VARIABLE}"
    return [f"{path}: {directory} is not mentioned, and nothing is mounted here; {way}"]


def _errors_of_kind(
    kind: JobKind, job: Part, spec: ExperimentSpec, pods: Sequence[Mapping[str, Any]]
) -> list[FieldError]:
    """Return that the labels of primary pods select none, so that no metrics would ever be read.

    And which names of pods lead nowhere because the collector keeps these on the machine's network.
    """
    template, metrics = spec.trial_template, spec.metrics_collector_spec
    if template is not None and template.primary_pod_labels:
        labels = Part(template.primary_pod_labels, "spec.trialTemplate.primaryPodLabels", job.findings)
        check_pod_labels(kind.pod_labels(job.value), labels)
    keeps_on_host = metrics is not None and metrics.kind not in PUSHES_NOTHING
    if keeps_on_host and isinstance(kind, KnowsPeers) and may_be_named(kind.kind, pods):  # else found in any case
        kind.check_peer_names(job)
    return job.findings.errors


def _custom_collector_errors(
    spec: ExperimentSpec, pods: Sequence[Mapping[str, Any]], host: HostCapacity
) -> list[FieldError]:
    """Return what keeps a collector that the user describes from running beside the containers of these pods."""
    metrics = spec.metrics_collector_spec
    custom = metrics.collector.custom_collector if metrics and metrics.collector else None
    if metrics is None or metrics.kind != CollectorKind.CUSTOM or not custom:
        return []
    taken = {container.get("name") for pod in pods for container in containers_of(pod)}
    errors = device_errors(custom, _COLLECTOR_PATH)
    if custom.get("name") in taken:
        cause = f"{shown(custom.get('name'))} is the name of a container of the trial"
        errors.append(FieldError(f"{_COLLECTOR_PATH}.name", cause, "give it a name of its own", "pod-name-twice"))
    pod = {**(pods[0] if pods else {}), "restartPolicy": "Never", "initContainers": [], "containers": [custom]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": copy.deepcopy(pod)}}}
    place = "job.spec.template.spec.containers[0]"
    found, _ = check_job(job, "job", host=host)
    return errors + [
        FieldError(_COLLECTOR_PATH + error.path.removeprefix(place), error.cause, error.remedy, error.origin)
        for error in found
        if error.path.startswith(place)
    ]


SHIPPED: Final = Key("kubeflow", "trial-templates")


def shipped_config_maps() -> list[Object]:
    """Return the ConfigMaps with templates that came with the package."""
    return [_read()]


def shipped_config_map(key: Key) -> Object | None:
    """Return the ConfigMap of this name that came with the package; None for any other."""
    return _read() if key == SHIPPED else None


@cache
def _read() -> Object:
    found: dict[str, Any] = yaml.safe_load(files("katib.places.machine").joinpath("trial-templates.yaml").read_text())
    return found
