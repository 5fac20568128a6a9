"""The structures of JobSets, TrainJobs and training runtimes."""

from __future__ import annotations

from typing import Final

from katib.local.jobs.structure import Structure, structure

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
