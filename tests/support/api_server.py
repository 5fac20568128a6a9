"""A real Kubernetes API server for tests.

`KUBECONFIG` names a cluster to use. Otherwise `KUBEBUILDER_ASSETS` names a folder with etcd and kube-apiserver (the
convention of envtest), which are started on free ports of this machine and stopped at the end, together with
kube-controller-manager where the folder has it: it collects garbage and runs Jobs. Without either, tests are skipped.

An API server started here can be stopped, started again and made to forget old revisions; a foreign one cannot, and
tests that want it are skipped.
"""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.ports import free_port
from tests.support.server_kinds import await_garbage_collection, exists, install_our_kinds, install_test_kinds
from tests.support.waiting import end_of, eventually

if TYPE_CHECKING:
    from katib.places.cluster.client import ApiConnection

CONTROLLER_MANAGER = "kube-controller-manager"
ADMIN, MANAGER = "admin", "controller-manager"
_USERS = {ADMIN: ("admin", "system:masters"), MANAGER: ("system:kube-controller-manager", "system:authenticated")}


class ApiServer:
    """An API server and its admin's kubeconfig.

    Attributes:
        kubeconfig: Of a user who may do everything.
        owned: Whether it may be stopped and compacted: it was started here.
        processes: What was started here, by the names of the programs.
    """

    def __init__(self, kubeconfig: Path, *, owned: bool, folder: Path) -> None:
        self.kubeconfig = kubeconfig
        self.owned = owned
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._folder = folder
        self._connection: ApiConnection | None = None

    @property
    def admin(self) -> ApiConnection:
        """A connection for the test's own doings, shared by all tests."""
        if self._connection is None:
            self._connection = self.connect()
        return self._connection

    def connect(self, kubeconfig: Path | None = None) -> ApiConnection:
        """Open a new connection, as the admin or as somebody else; the caller closes it."""
        from katib.places.cluster.client import open_connection

        return open_connection(kubeconfig or self.kubeconfig)

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create what does not exist yet, as the admin; return it as it is then."""
        from katib.errors import AlreadyExistsError

        try:
            return self.admin.request("POST", path, body=body)
        except AlreadyExistsError:
            return self.admin.request("GET", f"{path}/{body['metadata']['name']}")

    def namespace(self, name: str) -> str:
        """Make sure that a namespace is there; return its name."""
        self.create("/api/v1/namespaces", {"metadata": {"name": name}})
        return name

    def delete_namespace(self, name: str) -> None:
        """Begin to delete a namespace; it is gone a moment later where a controller-manager runs."""
        self.admin.request("DELETE", f"/api/v1/namespaces/{name}")

    def user(self, name: str, rules: Sequence[Mapping[str, Any]], namespace: str = "default") -> Path:
        """Make a service account that may do just this; return its kubeconfig.

        Args:
            name: Of the account and of its role.
            rules: As in a ClusterRole, for the whole cluster.
            namespace: Where the account lives.
        """
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
        subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
        metadata = {"metadata": {"name": name}}
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        self.create(accounts, metadata)
        role = self.create(f"{rbac}/clusterroles", {**metadata, "rules": list(rules)})
        self.admin.request("PUT", f"{rbac}/clusterroles/{name}", body={**role, "rules": list(rules)})
        self.create(f"{rbac}/clusterrolebindings", {**metadata, "roleRef": reference, "subjects": [subject]})
        self.await_rights(name, rules, namespace)
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = self.admin.request("POST", f"{accounts}/{name}/token", body=request)["status"]["token"]
        return self._kubeconfig_of(name, token)

    def await_rights(
        self, name: str, rules: Sequence[Mapping[str, Any]], namespace: str = "default", *, within: str = ""
    ) -> None:
        """Wait until a service account has rights: what decides gets roles and bindings by watches of its own.

        Args:
            name: Of the account.
            rules: As in a Role.
            namespace: Where the account lives.
            within: The namespace where it has these rights; empty for the whole cluster.
        """
        user = f"system:serviceaccount:{namespace}:{name}"
        eventually(lambda: all(self._allows(user, rule, within) for rule in rules), f"the rights of {user}")

    def _allows(self, user: str, rule: Mapping[str, Any], namespace: str) -> bool:
        """Whether a user has the first right of a rule."""
        if "resources" not in rule:
            return True
        resource, _, subresource = rule["resources"][0].partition("/")
        attributes = {
            "group": rule["apiGroups"][0],
            "resource": resource,
            "subresource": subresource,
            "verb": rule["verbs"][0],
            "name": next(iter(rule.get("resourceNames", ())), ""),
            "namespace": namespace,
        }
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
        spec = {"user": user, "resourceAttributes": attributes}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool(self.admin.request("POST", path, body={**review, "spec": spec})["status"]["allowed"])

    def forget_user(self, name: str, namespace: str = "default") -> None:
        """Delete what `user` made."""
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        for path in (
            f"{rbac}/clusterrolebindings/{name}",
            f"{rbac}/clusterroles/{name}",
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}",
        ):
            self.admin.request("DELETE", path)

    def stop(self) -> None:
        """Stop answering."""
        self._refuse()

    def start(self) -> None:
        """Answer again; return when it does."""
        self._refuse()

    def compact(self) -> None:
        """Have etcd forget all revisions but the newest. The API server's own memory of changes may still know them."""
        self._refuse()

    def expire(self) -> None:
        """Make every watch from an older revision fail with 410 Gone."""
        self.stop()
        self.compact()
        self.start()

    def settle(self) -> None:
        """Wait until the controllers have caught up with an outage, if there was one."""

    def close(self) -> None:
        """Stop what was started."""
        if self._connection is not None:
            self._connection.close()

    def _refuse(self) -> None:
        pytest.skip("needs an API server of its own: unset KUBECONFIG and set KUBEBUILDER_ASSETS")

    def _kubeconfig_of(self, user: str, token: str) -> Path:
        """Write a kubeconfig for a token, with the cluster of the admin's."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        context = next(each for each in config["contexts"] if each["name"] == config["current-context"])
        config["users"] = [{"name": user, "user": {"token": token}}]
        config["contexts"] = [{**context, "context": {**context["context"], "user": user}}]
        path = self._folder / f"{user}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        path.chmod(0o600)
        return path


class LocalApiServer(ApiServer):
    """An API server of our own, made of the binaries in a folder.

    Args:
        assets: Where etcd and kube-apiserver are.
        folder: For data, certificates and logs.
    """

    def __init__(self, assets: Path, folder: Path) -> None:
        super().__init__(folder / "admin.kubeconfig", owned=True, folder=folder)
        self._assets = assets
        self._etcd_port, self._peer_port, self._port = (free_port() for _ in range(3))
        self._version = _version(assets)
        self._is_behind = False
        self._write_secrets()

    def start_all(self) -> None:
        """Start everything; kinds are installed before the garbage collector looks for them, as it seldom does."""
        self._run(
            "etcd",
            f"--data-dir={self._folder}/etcd",
            "--unsafe-no-fsync",
            f"--listen-client-urls={self._etcd}",
            f"--advertise-client-urls={self._etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{self._peer_port}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{self._peer_port}",
            f"--initial-cluster=default=http://127.0.0.1:{self._peer_port}",
        )
        self.start()
        self._is_behind = self._has_manager
        self.settle()

    def stop(self) -> None:
        """End the API server; etcd and the controller-manager stay."""
        self._end("kube-apiserver")

    def start(self) -> None:
        """Start the API server and wait until it is ready and serves the kinds of tests and of ours."""
        gates = ["--feature-gates=TTLAfterFinished=true"] if self._version == (1, 20) else []
        plugins = [] if self._has_manager else ["--disable-admission-plugins=ServiceAccount"]
        self._run(
            "kube-apiserver",
            f"--etcd-servers={self._etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={self._folder}",
            f"--token-auth-file={self._folder}/tokens.csv",
            "--authorization-mode=RBAC",
            "--endpoint-reconciler-type=none",
            "--allow-privileged",
            "--service-cluster-ip-range=10.200.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._folder}/sa.key",
            f"--service-account-signing-key-file={self._folder}/sa.key",
            *gates,
            *plugins,
        )
        eventually(lambda: _is_ready(self), "kube-apiserver", picture=end_of(self._log_of("kube-apiserver")))
        install_test_kinds(self)  # after a restart they are there, but it may be a moment until they are served
        install_our_kinds(self)
        self._is_behind = CONTROLLER_MANAGER in self.processes

    def settle(self) -> None:
        """Start the controller-manager anew: one that was left alone for a while may need minutes to collect again."""
        if self._is_behind:
            self._end(CONTROLLER_MANAGER)
            self._start_manager()
            eventually(lambda: exists(self, "/api/v1/namespaces/default/serviceaccounts/default"), CONTROLLER_MANAGER)
            await_garbage_collection(self)
            self._is_behind = False

    def compact(self) -> None:
        """Have etcd forget."""
        every_key = {"key": base64.b64encode(b"\0").decode(), "range_end": base64.b64encode(b"\0").decode()}
        answer = self._ask_etcd("range", {**every_key, "count_only": True})
        self._ask_etcd("compaction", {"revision": answer["header"]["revision"], "physical": True})

    def close(self) -> None:
        """Stop everything."""
        super().close()
        for name in (CONTROLLER_MANAGER, "kube-apiserver", "etcd"):
            self._end(name)

    @property
    def _etcd(self) -> str:
        return f"http://127.0.0.1:{self._etcd_port}"

    @property
    def _has_manager(self) -> bool:
        return (self._assets / CONTROLLER_MANAGER).exists()

    def _start_manager(self) -> None:
        old = ["--port=0"] if self._version < (1, 24) else []
        self._run(
            CONTROLLER_MANAGER,
            f"--kubeconfig={self._folder}/{MANAGER}.kubeconfig",
            f"--service-account-private-key-file={self._folder}/sa.key",
            f"--root-ca-file={self._folder}/apiserver.crt",
            "--use-service-account-credentials",
            "--leader-elect=false",
            "--controllers=*,-nodeipam",
            "--secure-port=0",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            *old,
        )

    def _ask_etcd(self, call: str, body: Mapping[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(f"{self._etcd}/v3/kv/{call}", json.dumps(body).encode())
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def _run(self, name: str, *arguments: str) -> None:
        with self._log_of(name).open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [self._assets / name, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _end(self, name: str) -> None:
        process = self.processes.pop(name, None)
        if process is None:
            return
        process.terminate()
        try:
            process.wait(1)  # all state is in etcd; the API server would wait long for its watchers to go
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _log_of(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _write_secrets(self) -> None:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        (self._folder / "sa.key").write_bytes(key.private_bytes(*pem))
        lines = []
        for file, (user, group) in _USERS.items():
            token = secrets.token_hex(16)
            lines.append(f'{token},{user},{file},"{group}"\n')
            config = {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [
                    {
                        "name": "test",
                        "cluster": {
                            "server": f"https://127.0.0.1:{self._port}",
                            "certificate-authority": f"{self._folder}/apiserver.crt",
                        },
                    }
                ],
                "users": [{"name": file, "user": {"token": token}}],
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": file}}],
                "current-context": "test",
            }
            (self._folder / f"{file}.kubeconfig").write_text(json.dumps(config))
        (self._folder / "tokens.csv").write_text("".join(lines))


@pytest.fixture(scope="session")
def api_server() -> Iterator[ApiServer]:
    """An API server with the kinds of the tests; the same for the whole session."""
    folder = Path(tempfile.mkdtemp(prefix="api-server-"))
    server: ApiServer | None = None
    try:
        if os.environ.get("KUBECONFIG"):
            server = ApiServer(Path(os.environ["KUBECONFIG"]), owned=False, folder=folder)
            install_test_kinds(server)
            await_garbage_collection(server)
        elif os.environ.get("KUBEBUILDER_ASSETS"):
            assets = Path(os.environ["KUBEBUILDER_ASSETS"])
            if not (assets / "kube-apiserver").exists():
                pytest.skip(f"KUBEBUILDER_ASSETS={assets} has no kube-apiserver")
            server = local = LocalApiServer(assets, folder)
            local.start_all()
        else:
            pytest.skip("no Kubernetes: set KUBECONFIG (any cluster) or KUBEBUILDER_ASSETS (etcd and kube-apiserver)")
        yield server
    finally:
        if server is not None:
            server.close()
        shutil.rmtree(folder, ignore_errors=True)


def _is_ready(server: LocalApiServer) -> bool:
    from katib.errors import KatibError

    if not (server._folder / "apiserver.crt").exists() or not _listens(server._port):
        return False
    try:
        return b"".join(server.admin.stream("/readyz", read_timeout_seconds=10).chunks()) == b"ok"
    except KatibError:
        return False


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _version(assets: Path) -> tuple[int, int]:
    answer = subprocess.run([assets / "kube-apiserver", "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"v(\d+)\.(\d+)", answer.stdout)
    return (int(found[1]), int(found[2])) if found else (1, 99)
