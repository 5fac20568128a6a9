"""The JobSet of a TrainJob and its runtime, and the variables by which its nodes find each other.

Pure but for the ports that a wiring gives: on a cluster the first node listens on port 29500 of its own address, here
on the port of this job.

The order is that of Kubeflow Trainer: the template of the runtime, the patches of the TrainJob, then the fields of its
trainer and its initializers. Everything is read so that malformed parts count as not given; admission reports them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING
from typing import Any, Final

from katib.engine.runtime.objects import Object
from katib.places.machine.findings import containers_of, integer, mapping, mapping_at, mappings, text
from katib.places.machine.jobs.jobset.runtimes import Runtime
from katib.places.machine.jobs.jobset.spec import API_VERSION, host_name, subdomain_of
from katib.places.machine.jobs.kind import Wiring
from katib.places.machine.jobs.launchers import HOST_FILE_VARIABLES, amount_of, only_waits, with_resources_of

STEP_LABEL: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
NODE: Final = "node"
"""Name of the container that trains, and usually of its replicated job."""
INITIALIZERS: Final = {"dataset": "dataset-initializer", "model": "model-initializer"}
POLICIES: Final = ("torch", "mpi", "jax", "xgboost", "flux")
PATCHES: Final = ("runtimePatches", "podTemplateOverrides", "podSpecOverrides")
WORKSPACE_VOLUME: Final = "initializer"

_KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "replicatedJobs": "name",
    "schedulingGates": "name",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""Lists that are merged entry by entry, and the field that says which entries are the same. Others are replaced."""

_WHOLE: Final = frozenset({"volumes"})
"""Lists whose entries replace those of the same key: two sources cannot be one volume."""


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """A TrainJob with its runtime.

    Attributes:
        trainer: The replicated job whose container `node` gets the addresses of the others; empty when there is none.
        policy: Name of the ML policy; empty when there is none.
        processes: Processes for each node, as the policy gives it.
        hosts: How many hosts an MPI launcher finds in its host file.
        idle: Replicated jobs that are not started here, because they would only wait for an MPI launcher.
        shared: Path by which containers know the directory that initializers fill; empty when there is none.
        has_trainer: Whether the TrainJob has a trainer: without it the nodes get no addresses, as on a cluster.
    """

    jobset: Object
    runtime: Runtime
    trainer: str
    policy: str
    nodes: int
    processes: str
    gpus: int
    hosts: int
    idle: tuple[str, ...]
    shared: str
    has_trainer: bool

    @property
    def slots(self) -> int:
        """How many processes an MPI launcher may start."""
        return self.hosts * int(self.processes)

    @property
    def node(self) -> Mapping[str, Any] | None:
        """The container that trains; None when there is none."""
        jobs = (job for _, job in mappings(self.jobset["spec"]["replicatedJobs"]))
        return container_of(next((job for job in jobs if text(job.get("name")) == self.trainer), {}), NODE)


def training_set(train_job: Object, runtime: Runtime) -> TrainingSet:
    """Return a TrainJob with its runtime.

    Args:
        train_job: The TrainJob; may be malformed or hold placeholders.
        runtime: Its runtime; the same.
    """
    spec, metadata = mapping(train_job.get("spec")), mapping(train_job.get("metadata"))
    trainer, ml_policy = mapping(spec.get("trainer")), mapping(runtime.spec.get("mlPolicy"))
    policy = next((name for name in POLICIES if ml_policy.get(name) is not None), "")
    template = _patched(mapping_at(runtime.spec, "template"), spec)
    jobs = [job for _, job in mappings(mapping_at(template, "spec").get("replicatedJobs"))]
    nodes = integer(trainer.get("numNodes")) or integer(ml_policy.get("numNodes"))
    trains = next((text(job.get("name")) for job in jobs if _step(job) == "trainer"), "")
    nodes = nodes or max((_parallelism(job) for job in jobs if text(job.get("name")) == trains), default=1)
    as_node = policy == "mpi" and mapping_at(ml_policy, "mpi").get("runLauncherAsNode") is True
    jobs = [_overridden(job, spec, nodes, policy, launcher_is_node=as_node) for job in jobs]
    of_trainer = next((job for job in jobs if text(job.get("name")) == trains), {})
    resources = mapping((container_of(of_trainer, NODE) or {}).get("resources"))
    idle = tuple(text(job.get("name")) for job in jobs if policy == "mpi" and _waits_for_launcher(job))
    jobs = _without_idle(jobs, idle, trains, mapping(trainer.get("resourcesPerNode")))
    jobs, shared = _with_shared_directory(jobs)
    own = {**mapping(template.get("spec")), "replicatedJobs": jobs}
    if spec.get("suspend") is not None:
        own["suspend"] = spec["suspend"]
    if shared:
        own.pop("volumeClaimPolicies", None)
    amounts = {**mapping(resources.get("limits")), **mapping(resources.get("requests"))}
    gpus = sum(int(amount_of(value)) for name, value in amounts.items() if "gpu" in str(name).lower())
    return TrainingSet(
        jobset={
            "apiVersion": API_VERSION,
            "kind": "JobSet",
            "metadata": {
                **{key: metadata[key] for key in ("name", "namespace", "uid") if key in metadata},
                "labels": {
                    **mapping_at(template, "metadata.labels"),
                    **mapping(metadata.get("labels")),
                    **mapping(spec.get("labels")),
                },
                "annotations": {
                    **mapping_at(template, "metadata.annotations"),
                    **mapping(spec.get("annotations")),
                },
            },
            "spec": own,
        },
        runtime=runtime,
        trainer=trains,
        policy=policy,
        nodes=nodes,
        processes=_processes(policy, trainer, mapping(ml_policy.get(policy)), resources, gpus),
        gpus=gpus,
        hosts=max(nodes - 1, 1) + 1 if as_node else nodes,
        idle=idle,
        shared=shared,
        has_trainer=isinstance(spec.get("trainer"), Mapping),
    )


# --- the parts of a template ------------------------------------------------------------------------------------------


def _step(job: Mapping[str, Any]) -> str:
    return text(mapping_at(job, "template.metadata.labels").get(STEP_LABEL))


def _parallelism(job: Mapping[str, Any]) -> int:
    return integer(mapping_at(job, "template.spec").get("parallelism")) or 1


def pod_of(job: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping_at(job, "template.spec.template.spec")


def container_of(job: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Return a container of a replicated job, None if there is no container of this name."""
    return next((c for c in containers_of(pod_of(job)) if c.get("name") == name), None)


def _with_pod(job: Mapping[str, Any], pod: Mapping[str, Any]) -> dict[str, Any]:
    template = {**mapping_at(job, "template.spec.template"), "spec": pod}
    spec = {**mapping_at(job, "template.spec"), "template": template}
    return {**job, "template": {**mapping_at(job, "template"), "spec": spec}}


# --- patches ----------------------------------------------------------------------------------------------------------


def _patched(template: Mapping[str, Any], spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Lay the patches over the runtime's template, in their order; older forms of them count too."""
    for _, patch in mappings(spec.get("runtimePatches")):
        template = _merged(template, mapping_at(patch, "trainingRuntimeSpec.template"))
    older = [(field, item) for field in PATCHES[1:] for _, item in mappings(spec.get(field))]
    for field, item in older:
        targets = [text(target.get("name")) for _, target in mappings(item.get("targetJobs"))]  # none means all
        pod = {key: value for key, value in item.items() if key not in {"targetJobs", "manager"}}
        patch = {"template": {"spec": {"template": {"spec": pod} if field == "podSpecOverrides" else pod}}}
        jobs = [
            _merged(job, patch) if not targets or text(job.get("name")) in targets else job
            for _, job in mappings(mapping_at(template, "spec").get("replicatedJobs"))
        ]
        template = {**template, "spec": {**mapping(template.get("spec")), "replicatedJobs": jobs}}
    return template


def _merged(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping with a patch laid over it: mappings are merged, null removes, entries of lists meet by name."""
    result = dict(base)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = _merged(result[key], value)
        elif key in _KEYS and isinstance(value, list) and isinstance(result.get(key), list):
            result[key] = _merged_list(result[key], value, _KEYS[key], whole=key in _WHOLE)
        else:
            result[key] = value
    return result


def _merged_list(base: Sequence[Any], patch: Sequence[Any], key: str, *, whole: bool = False) -> list[Any]:
    """Return a list of mappings with those of a patch laid over the entries that have the same key; new ones follow.

    Args:
        key: The field that says which entries are the same.
        whole: Entries replace each other instead of being merged.
    """
    result = list(base)
    places = {name: i for i, item in enumerate(result) if (name := _name_of(item, key))}
    for item in patch:
        place = places.get(_name_of(item, key))
        if place is None:
            result.append(item)
        else:
            result[place] = item if whole else _merged(result[place], item)
    return result


def _name_of(item: object, key: str) -> str:
    """Return the text under a key; empty if there is none, as in a malformed list."""
    value = item.get(key) if isinstance(item, Mapping) else None
    return value if isinstance(value, str) else ""


# --- what the TrainJob says itself ------------------------------------------------------------------------------------


def _overridden(
    job: Mapping[str, Any], spec: Mapping[str, Any], nodes: int, policy: str, *, launcher_is_node: bool
) -> Mapping[str, Any]:
    step, trainer = _step(job), mapping(spec.get("trainer"))
    if policy == "mpi" and text(job.get("name")) == NODE and step != "trainer":
        return _in_parallel(job, max(nodes - 1, 1) if launcher_is_node else nodes)
    if step == "trainer":
        job = {**job, "replicas": 1} if policy == "mpi" else _in_parallel(job, nodes)
        return _with_trainer(job, trainer)
    for kind, name in INITIALIZERS.items():
        given = mapping_at(spec, "initializer").get(kind)
        if step == name:
            job = {**job, "replicas": 1}
            return _with_initializer(job, name, given) if isinstance(given, Mapping) else job
    return job


def _in_parallel(job: Mapping[str, Any], count: int) -> dict[str, Any]:
    return _merged({**job, "replicas": 1}, {"template": {"spec": {"parallelism": count, "completions": count}}})


def _with_trainer(job: Mapping[str, Any], trainer: Mapping[str, Any]) -> Mapping[str, Any]:
    node = container_of(job, NODE)
    if node is None:
        return job
    changed = dict(node)
    for field in ("image", "command", "args"):
        if trainer.get(field):
            changed[field] = trainer[field]
    if trainer.get("env"):
        changed["env"] = _merged_list(_items(node.get("env")), _items(trainer["env"]), "name", whole=True)
    if isinstance(trainer.get("resourcesPerNode"), Mapping):
        changed["resources"] = _merged(mapping(node.get("resources")), trainer["resourcesPerNode"])
    return _with_container(job, changed)


def _with_initializer(job: Mapping[str, Any], name: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
    container = container_of(job, name)
    if container is None:
        return job
    uri = [{"name": "STORAGE_URI", "value": given["storageUri"]}] if given.get("storageUri") else []
    env = _merged_list(_items(container.get("env")), [*uri, *_items(given.get("env"))], "name", whole=True)
    changed = {**container, "env": env}
    if given.get("secretRef"):
        changed["envFrom"] = [*_items(container.get("envFrom")), {"secretRef": given["secretRef"]}]
    return _with_container(job, changed)


def _with_container(job: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    containers = [changed if c.get("name") == changed["name"] else c for c in containers_of(pod_of(job))]
    return _with_pod(job, {**pod_of(job), "containers": containers})


def _items(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


# --- one machine ------------------------------------------------------------------------------------------------------


def _waits_for_launcher(job: Mapping[str, Any]) -> bool:
    """Return whether a replicated job only holds hosts for an MPI launcher."""
    node = container_of(job, NODE)
    return text(job.get("name")) == NODE and node is not None and _step(job) != "trainer" and only_waits(node)


def _without_idle(
    jobs: Sequence[Mapping[str, Any]], idle: Sequence[str], launcher: str, per_node: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """Leave out the replicated jobs that only hold hosts; the launcher requests the resources of their nodes."""
    nodes = []
    for job in jobs:
        node = container_of(job, NODE)
        if text(job.get("name")) in idle and node is not None:
            node = {**node, "resources": _merged(mapping(node.get("resources")), per_node)}
            nodes.append((pod_of(_with_container(job, node)), _parallelism(job)))
    found: list[Mapping[str, Any]] = []
    for job in jobs:
        if text(job.get("name")) in idle:
            continue
        is_launcher = nodes and text(job.get("name")) == launcher
        changed = _with_pod(job, with_resources_of(pod_of(job), nodes)) if is_launcher else job
        waits_for = [d for _, d in mappings(job.get("dependsOn")) if d.get("name") not in idle]
        others = {key: value for key, value in changed.items() if key != "dependsOn"}
        found.append({**others, **({"dependsOn": waits_for} if waits_for else {})})
    return found


def _with_shared_directory(jobs: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], str]:
    """Take the volume that initializers fill out of the pods, and return the path by which they know it.

    On a cluster it is a claimed volume; here it is a directory of the trial that its pods share.
    """
    if not any(_step(job) in INITIALIZERS.values() for job in jobs):
        return list(jobs), ""
    shared = ""
    found: list[Mapping[str, Any]] = []
    for job in jobs:
        pod = dict(pod_of(job))
        containers = []
        for container in containers_of(pod):
            mounts = [mount for _, mount in mappings(container.get("volumeMounts"))]
            own = [mount for mount in mounts if mount.get("name") == WORKSPACE_VOLUME]
            shared = shared or next((text(mount.get("mountPath")) for mount in own), "")
            kept = {k: v for k, v in container.items() if k != "volumeMounts"}
            others = [mount for mount in mounts if mount not in own]
            containers.append({**kept, **({"volumeMounts": others} if others else {})})
        volumes = [v for _, v in mappings(pod.pop("volumes", None)) if v.get("name") != WORKSPACE_VOLUME]
        pod |= {"containers": containers, **({"volumes": volumes} if volumes else {})}
        found.append(_with_pod(job, pod))
    return found, shared


# --- numbers ----------------------------------------------------------------------------------------------------------


def _processes(
    policy: str, trainer: Mapping[str, Any], ml: Mapping[str, Any], resources: Mapping[str, Any], gpus: int
) -> str:
    """Return how many processes a node runs, as text; `auto` leaves it to torchrun to count GPUs."""
    given = trainer.get("numProcPerNode", ml.get("numProcPerNode"))
    if policy == "mpi":
        count = integer(given) or 1
        return str(gpus if count == 1 and gpus > 1 else count)
    wanted = "auto" if given is None else str(given)
    if wanted not in {"auto", "cpu"} or (wanted == "auto" and gpus):
        return wanted
    requests, limits = mapping(resources.get("requests")), mapping(resources.get("limits"))
    cores = amount_of(requests.get("cpu", limits.get("cpu", 0)))
    return str(max(1, int(cores.to_integral_value(ROUND_CEILING))))


# --- what its nodes find in their environment -------------------------------------------------------------------------


PORT: Final = 29500

ADDRESSES: Final[Mapping[str, str]] = {
    "torch": "PET_MASTER_ADDR and PET_MASTER_PORT",
    "jax": "JAX_COORDINATOR_ADDRESS",
    "xgboost": "DMLC_TRACKER_URI and DMLC_TRACKER_PORT",
}
"""By policy, the variables with the address of the first node."""

RESERVED: Final[Mapping[str, tuple[str, ...]]] = {
    "torch": ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"),
    "xgboost": ("DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER"),
    "mpi": (
        "OMPI_MCA_orte_default_hostfile",
        "OMPI_MCA_orte_keep_fqdn_hostnames",
        "OMPI_MCA_orte_set_default_slots",
        "OMPI_MCA_plm_rsh_args",
    ),
}
"""By policy, the variables that a user cannot set."""


def node_variables(training: TrainingSet, index: int, wiring: Wiring) -> dict[str, str]:
    if training.policy == "torch":
        host, port = _first(training, wiring)
        return {
            "PET_NNODES": str(training.nodes),
            "PET_NPROC_PER_NODE": training.processes,
            "PET_NODE_RANK": str(index),
            "PET_MASTER_ADDR": host,
            "PET_MASTER_PORT": port,
        }
    if training.policy == "jax":
        return {
            "JAX_NUM_PROCESSES": str(training.nodes),
            "JAX_PROCESS_ID": str(index),
            "JAX_COORDINATOR_ADDRESS": ":".join(_first(training, wiring)),
        }
    if training.policy == "xgboost":
        host, port = _first(training, wiring)
        return {
            "DMLC_TRACKER_URI": host,
            "DMLC_TRACKER_PORT": port,
            "DMLC_TASK_ID": str(index),
            "DMLC_NUM_WORKER": str(training.nodes * max(1, training.gpus)),
        }
    if training.policy == "mpi":
        return {
            **HOST_FILE_VARIABLES,
            "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
            "OMPI_MCA_orte_set_default_slots": training.processes,
            "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
        }
    return {}


def _first(training: TrainingSet, wiring: Wiring) -> tuple[str, str]:
    host = host_name(training.jobset, training.trainer or NODE, 0, 0)
    address = wiring.address(f"{host}.{subdomain_of(training.jobset)}", PORT)
    return address.host, str(address.port)
