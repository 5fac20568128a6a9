"""Services of a cluster against a real API server: which objects come and go, and with which rights."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from katib.engine.controllers.kinds import CONFIG_MAP
from katib.engine.runtime.objects import Key, Kind
from katib.errors import ForbiddenError, NotFoundError
from katib.model.configuration import read_configuration
from katib.places.cluster.configuration.models import KatibConfig
from katib.places.cluster.services.plan import DEPLOYMENT, VOLUME_CLAIM
from katib.places.cluster.services.served import ClusterTiming
from suggestion_services.early_stopping.trial_status import TrialStatuses
from tests.support.api_server import ApiServer
from tests.support.cluster_services import EARLY, ServiceCluster, failure_of
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster

RIGHTS = [
    {
        "apiGroups": ["apps"],
        "resources": ["deployments"],
        "verbs": ["get", "list", "watch", "create", "update", "delete"],
    },
    {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list", "watch", "create", "update", "delete"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["get", "create", "delete"]},
    {"apiGroups": [""], "resources": ["persistentvolumeclaims", "persistentvolumes"], "verbs": ["get", "create"]},
    {
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["roles", "rolebindings"],
        "verbs": ["get", "create", "delete"],
    },
    {"apiGroups": ["kubeflow.org"], "resources": ["trials"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["kubeflow.org"], "resources": ["trials/status"], "verbs": ["get", "patch", "update"]},
]
"""What the controller needs for services. The last two are those it hands on to early stopping services."""


@pytest.fixture
def cluster(api_server: ApiServer) -> Iterator[ServiceCluster]:
    with ExitStack() as stack:
        yield ServiceCluster(api_server, stack)


def test_objects_come_and_go_with_exactly_the_rights_that_are_documented(cluster: ServiceCluster) -> None:
    services = cluster.services(cluster.user(RIGHTS))
    experiment = cluster.submit(earlyStopping=EARLY, resumePolicy="FromVolume")
    for _ in range(3):
        assert services.service_for(experiment) is None
    assert {f"{kind} demo-random" for kind in ("Deployment", "Service", "ServiceAccount", "Role", "RoleBinding")} <= (
        cluster.left()
    )

    services.release(experiment)
    services.release(experiment)
    eventually(lambda: not cluster.left())
    claims = cluster.store.list(Kind("v1", "PersistentVolumeClaim"), cluster.namespace).items
    assert [Key.of(claim).name for claim in claims] == ["demo-random"]


def test_checkpoints_get_the_volume_that_the_installation_describes(cluster: ServiceCluster) -> None:
    installed = yaml.safe_load(
        (Path(__file__).parents[2] / "manifests/components/config/katib-config.yaml").read_text()
    )
    cluster.config = read_configuration(KatibConfig, yaml.safe_dump(installed), "katib-config.yaml")
    services = cluster.services(cluster.user(RIGHTS))
    settings = [{"name": "suggestion_trial_dir", "value": "/checkpoints"}]
    assert services.service_for(cluster.submit("pbt", settings=settings)) is None

    claim = cluster.store.get(VOLUME_CLAIM, Key(cluster.namespace, "demo-pbt"))
    deployment = cluster.store.get(DEPLOYMENT, Key(cluster.namespace, "demo-pbt"))

    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim["spec"]["resources"] == {"requests": {"storage": "5Gi"}}
    assert [owner["kind"] for owner in claim["metadata"]["ownerReferences"]] == ["Suggestion"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["volumeMounts"] == [{"name": "suggestion-volume", "mountPath": "/opt/katib/data"}]
    assert container["env"] == [
        {"name": "KATIB_CHECKPOINT_ROOT", "value": "/opt/katib/data"},
        {"name": "KATIB_CHECKPOINT_NAMESPACE", "value": cluster.namespace},
    ]


@pytest.mark.slow
def test_all_goes_with_the_experiment(cluster: ServiceCluster) -> None:
    cluster.services().service_for(cluster.submit(earlyStopping=EARLY))
    cluster.store.delete(CONFIG_MAP, Key(cluster.namespace, "demo"))

    eventually(lambda: not cluster.left(), "the collection of garbage", seconds=180)


def test_a_missing_right_is_named(cluster: ServiceCluster) -> None:
    rights = [rule for rule in RIGHTS if rule["resources"] != ["serviceaccounts"]]
    services = cluster.services(cluster.user(rights), ClusterTiming(patience=1.0, retry=0.1))
    failure = failure_of(services, cluster.submit(earlyStopping=EARLY))

    assert ": ServiceAccount" in failure
    assert "serviceaccounts" in failure


def test_an_object_that_the_api_server_refuses_fails_with_its_words(cluster: ServiceCluster) -> None:
    failure = failure_of(cluster.services(), cluster.submit("refused"))

    assert "Deployment" in failure
    assert "containerPort" in failure


def test_a_stopped_trial_is_written_to_a_real_api_server(cluster: ServiceCluster, tmp_path: Path) -> None:
    statuses = statuses_of(cluster.user(RIGHTS[-2:]), cluster.namespace, tmp_path)
    cluster.trial("demo-1")
    statuses.stop("demo-1")
    statuses.stop("demo-1")

    assert {"Running", "EarlyStopped"} <= cluster.conditions_of("demo-1")
    with pytest.raises(NotFoundError, match="demo-2"):
        statuses.stop("demo-2")
    poor = cluster.user(RIGHTS[-2:-1])
    cluster.trial("demo-3")
    with pytest.raises(ForbiddenError, match="trials/status"):
        statuses_of(poor, cluster.namespace, tmp_path).stop("demo-3")


def statuses_of(kubeconfig: Path, namespace: str, directory: Path) -> TrialStatuses:
    """Return what a pod of this user would have."""
    config = yaml.safe_load(kubeconfig.read_text())
    (directory / "namespace").write_text(namespace)
    (directory / "token").write_text(config["users"][0]["user"]["token"])
    where = config["clusters"][0]["cluster"]
    authority = where.get("certificate-authority-data")
    ca = base64.b64decode(authority) if authority else Path(where["certificate-authority"]).read_bytes()
    (directory / "ca.crt").write_bytes(ca)
    return TrialStatuses(where["server"], directory, now=lambda: datetime.now(UTC))
