"""Real PostgreSQL and MySQL servers from the packages of this machine, each in a directory and on a port of its own.

A server is started once for all tests of a process and ends with it. What is not installed is skipped with a reason.
MariaDB stands for MySQL, which many distributions no longer pack; where `mysqld` is MySQL's own, it is used instead.
"""

from __future__ import annotations

import atexit
import functools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.ports import free_port
from tests.support.waiting import eventually

PASSWORD = "s3cr:t/p@ss wörd?"  # what has to be quoted in a URL
QUOTED_PASSWORD = "s3cr%3At%2Fp%40ss%20w%C3%B6rd%3F"
USER = "katib"

_START_SECONDS = 180.0
_POSTGRESQL = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin")
_numbers = count()
S = TypeVar("S", bound="SqlServerProcess")


class SqlServerProcess:
    """A server that can be killed, frozen and started again. Its data survives all of that.

    Attributes:
        scheme: Of URLs that lead to it.
        port: On the loopback address.
        certificate: Signed by itself.
    """

    scheme: str
    package_user: str

    def __init__(self) -> None:
        self.port = free_port()
        self._directory = Path(tempfile.mkdtemp(prefix=f"katib-{self.scheme}-", dir="/tmp"))
        self._process: subprocess.Popen[bytes] | None = None
        self.certificate = self._directory / "tls.crt"
        self._key = self._directory / "tls.key"
        make_certificate(self.certificate, self._key)
        self._directory.chmod(0o755)
        if os.geteuid() == 0:  # these servers refuse to run as root
            owner = pwd.getpwnam(self.package_user)
            for path in (self._directory, self.certificate, self._key):
                os.chown(path, owner.pw_uid, owner.pw_gid)

    def start(self) -> None:
        """Start it and wait until it takes logins."""
        deadline = time.monotonic() + _START_SECONDS
        while self._process is None or not self._answers():
            assert time.monotonic() < deadline, (self._directory / "server.log").read_text()[-2000:]
            if self._process is None or self._process.poll() is not None:
                self._launch()  # again, when what was killed still holds its memory
            time.sleep(0.02)

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def _launch(self) -> None:
        with (self._directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(self._as_user(self._command()), stdout=log, stderr=log, cwd="/")

    def kill(self) -> None:
        """End it at once, as a power cut does."""
        self._signal(signal.SIGKILL)
        self._end()

    def stop(self) -> None:
        """End it as an administrator does: sessions are told, then closed."""
        self._signal(signal.SIGINT if self.scheme == "postgresql" else signal.SIGTERM)
        self._end()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it answer nothing while its connections stay open."""
        self._signal(signal.SIGSTOP)
        eventually(lambda: all(_is_stopped(pid) for pid in self._pids()))  # some threads continue for a moment
        try:
            yield
        finally:
            self._signal(signal.SIGCONT)

    def remove(self) -> None:
        """End it and delete its data."""
        with suppress(ProcessLookupError):
            self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def url(self, database: str = "", *, user: str = USER, password: str = QUOTED_PASSWORD, query: str = "") -> str:
        """Return the URL of a database of this server."""
        return f"{self.scheme}://{user}:{password}@127.0.0.1:{self.port}/{database}{query and '?' + query}"

    def new_database(self) -> str:
        """Make an empty database that belongs to `USER`; return its name."""
        name = f"katib_{next(_numbers)}"
        self.create_database(name)
        return name

    def create_database(self, name: str) -> None:
        raise NotImplementedError

    def sql(self, statement: str, database: str = "") -> list[tuple[str, ...]]:
        """Run statements as administrator with the server's own client; return the rows as text."""
        done = subprocess.run(
            self._as_user(self._client(database)), input=statement.encode(), capture_output=True, check=False, cwd="/"
        )
        assert done.returncode == 0, done.stderr.decode()
        return [tuple(line.split("\t")) for line in done.stdout.decode().splitlines()]

    def _command(self) -> Sequence[str | Path]:
        raise NotImplementedError

    def _client(self, database: str) -> Sequence[str | Path]:
        raise NotImplementedError

    def _answers(self) -> bool:
        try:
            with closing(socket.create_connection(("127.0.0.1", self.port), 1)):
                pass
            self.sql("SELECT 1")
        except (OSError, AssertionError):
            return False
        return True

    def _as_user(self, command: Sequence[str | Path], death: str = "KILL") -> list[str]:
        """Run as the package's user where we are root; end when this process ends, however that happens."""
        user = ["--reuid", self.package_user, "--regid", self.package_user, "--init-groups"]
        return ["setpriv", *(user if os.geteuid() == 0 else []), "--pdeathsig", death, *map(str, command)]

    def _signal(self, number: signal.Signals) -> None:
        """Send to the server and all its children: PostgreSQL is a process per session."""
        for pid in self._pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _pids(self) -> list[int]:
        assert self._process is not None
        return [self._process.pid, *_children(self._process.pid)]

    def _end(self) -> None:
        if self._process is not None:
            self._process.wait(60)
            self._process = None


class PostgresqlProcess(SqlServerProcess):
    """PostgreSQL without the waits for the disk that only a power cut would justify."""

    scheme = "postgresql"
    package_user = "postgres"

    def __init__(self, programs: Path) -> None:
        super().__init__()
        self._programs = programs
        self._data = self._directory / "data"
        initdb = [programs / "initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
        subprocess.run(self._as_user([*initdb, "--locale=C.UTF-8"]), check=True, capture_output=True, cwd="/")
        (self._data / "pg_hba.conf").write_text("local all postgres trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
        self.start()
        self.sql(f"CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'")

    def create_database(self, name: str) -> None:
        self.sql(f"CREATE DATABASE {name} OWNER {USER}")

    def _signal(self, number: signal.Signals) -> None:
        if number == signal.SIGINT and self._process is not None:
            os.kill(self._process.pid, number)  # the postmaster tells its children itself
        else:
            super()._signal(number)

    def _command(self) -> Sequence[str | Path]:
        options = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self._directory,
            "ssl": "on",
            "ssl_cert_file": self.certificate,
            "ssl_key_file": self._key,
            "max_connections": 30,
            "fsync": "off",  # what a killed server wrote is safe with the kernel
            "superuser_reserved_connections": 3,
            "timezone": "Asia/Kolkata",  # not UTC, so that a session that relies on the server's zone is found out
        }
        return [
            self._programs / "postgres",
            "-D",
            self._data,
            *(word for name, value in options.items() for word in ("-c", f"{name}={value}")),
        ]

    def _client(self, database: str) -> Sequence[str | Path]:
        plain = ["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--field-separator=\t"]
        where = ["-h", self._directory, "-p", str(self.port), "-U", "postgres", "-d", database or "postgres"]
        return [self._programs / "psql", *plain, "-v", "ON_ERROR_STOP=1", *where]


class MysqlProcess(SqlServerProcess):
    """MariaDB, or MySQL where that is installed."""

    scheme = "mysql"
    package_user = "mysql"

    def __init__(self, server: Path) -> None:
        super().__init__()
        self._server = server
        self._data = self._directory / "data"
        self._socket = self._directory / "socket"
        subprocess.run(self._as_user(self._install()), check=True, capture_output=True, cwd="/")
        self.start()
        self.sql(f"CREATE USER {USER}@'%' IDENTIFIED BY '{PASSWORD}'")

    @property
    def is_mariadb(self) -> bool:
        return self._server.name == "mariadbd"

    def create_database(self, name: str) -> None:
        # Not utf8mb4: what a table holds must not depend on how the database was made.
        self.sql(f"CREATE DATABASE {name} CHARACTER SET latin1; GRANT ALL ON {name}.* TO {USER}@'%'")

    def _install(self) -> Sequence[str | Path]:
        if not self.is_mariadb:
            return [self._server, "--no-defaults", "--initialize-insecure", f"--datadir={self._data}"]
        method = "--auth-root-authentication-method=normal"
        return ["mariadb-install-db", "--no-defaults", f"--datadir={self._data}", method, "--skip-test-db"]

    def _command(self) -> Sequence[str | Path]:
        return [
            self._server,
            "--no-defaults",
            f"--datadir={self._data}",
            f"--tmpdir={self._data}",  # a server that starts empties it, and another one may run
            f"--socket={self._socket}",
            f"--pid-file={self._directory / 'pid'}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            f"--ssl-cert={self.certificate}",
            f"--ssl-key={self._key}",
            "--max-connections=30",
            "--innodb-flush-log-at-trx-commit=2",  # what a killed server wrote is safe with the kernel
            "--default-time-zone=+05:30",
            "--innodb-buffer-pool-size=64M",
            *(["--mysqlx=OFF"] if not self.is_mariadb else []),
        ]

    def _client(self, database: str) -> Sequence[str | Path]:
        name = "mariadb" if self.is_mariadb else "mysql"
        plain = ["--no-defaults", "--batch", "--skip-column-names", "--default-character-set=utf8mb4"]
        return [name, *plain, "-u", "root", f"--socket={self._socket}", *([database] if database else [])]


def postgresql() -> PostgresqlProcess:
    """Return the running PostgreSQL of this test process; skip the test where none is installed."""
    programs = [found for pattern in _POSTGRESQL for found in sorted(Path("/").glob(pattern[1:]))]
    if not programs:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    return _postgresql(programs[-1])


def mysql() -> MysqlProcess:
    """Return the running MariaDB or MySQL of this test process; skip the test where none is installed."""
    found = shutil.which("mariadbd", path=_PATH) or shutil.which("mysqld", path=_PATH)
    if found is None:
        pytest.skip("neither MariaDB nor MySQL is installed (Debian: mariadb-server)")
    return _mysql(Path(found))


SERVERS = (pytest.param(postgresql, id="postgresql"), pytest.param(mysql, id="mysql"))

_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"


@functools.cache
def _postgresql(programs: Path) -> PostgresqlProcess:
    return _kept(PostgresqlProcess(programs))


@functools.cache
def _mysql(server: Path) -> MysqlProcess:
    return _kept(MysqlProcess(server))


def _kept(server: S) -> S:
    atexit.register(server.remove)
    return server


def make_certificate(certificate: Path, key: Path) -> None:
    """Write a certificate for the loopback address that is signed by itself."""
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a server of the tests")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(name, name, private.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    form = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    key.write_bytes(private.private_bytes(serialization.Encoding.PEM, *form))
    key.chmod(0o600)


def _is_stopped(pid: int) -> bool:
    """Return whether every thread of a process is stopped, or it is gone."""
    try:
        stats = [(task / "stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return not Path(f"/proc/{pid}").exists()
    return all(stat.rpartition(")")[2].split()[0] in "TtZ" for stat in stats)


def _children(pid: int) -> list[int]:
    with suppress(FileNotFoundError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []
