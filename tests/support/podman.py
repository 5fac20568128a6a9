"""podman for tests: found, made to work where that takes settings, and an image from files of Debian's packages.

In sandboxes the limits that podman gives to containers are often above what is allowed, and its first runtime may not
work with the control groups there. What works is tried, and written into a configuration of its own.
"""

from __future__ import annotations

import fcntl
import functools
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

HERE = Path(__file__).parent
IMAGE = "localhost/katib-tests:1"
ONLY_ENTRYPOINT = "localhost/katib-tests-entrypoint:1"
_STAND_IN = (HERE / "stand_in_training.py").read_bytes()
OF_EXAMPLES = f"localhost/katib-tests-examples:{zlib.crc32(_STAND_IN):x}"
"""Stands for all images of Katib's examples; `make_image_of_examples` makes it."""

_PYTHON_PACKAGES = ("python3.11-minimal", "libpython3.11-minimal")
_LIMIT = 4096
_HYBRID = "/sys/fs/cgroup/unified"
"""Where the control groups of version 2 are on a machine that has those of version 1, too."""

_APPLETS = (
    "sh",
    "cat",
    "echo",
    "env",
    "false",
    "hostname",
    "id",
    "ls",
    "mkdir",
    "nc",
    "nslookup",
    "sleep",
    "touch",
    "true",
)

_MNIST = '''#!/usr/bin/python3
"""Stands for a training: the accuracy depends on the options."""
import sys

options = dict(word.lstrip("-").split("=", 1) for word in sys.argv[1:] if "=" in word)
accuracy = 1.0 - abs(float(options.get("lr", 0.02)) - 0.03)
lines = [
    f"{{metricName: accuracy, metricValue: {accuracy:.4f}}}",
    f"{{metricName: loss, metricValue: {1.0 - accuracy:.4f}}}",
    f"accuracy={accuracy:.4f}",
    f"loss={1.0 - accuracy:.4f}",
]
path = options.get("log-path")
with open(path, "a") if path else sys.stdout as file:
    for line in lines[:2] if path else lines[2:]:
        file.write(line + chr(10))
'''


@functools.cache
def environment(oci_runtime: str = "") -> dict[str, str]:
    """Return the variables with which podman works here.

    Args:
        oci_runtime: What podman is to run containers with, `crun` or `runc`; empty: the first that works.

    Raises:
        LookupError: It does not; with the reason.
    """
    for program in filter(None, ("podman", "iptables", oci_runtime)):
        if shutil.which(program) is None:
            raise LookupError(f"{program} is not installed (apt-get install {program})")
    problem = ""
    # Processes that run tests side by side look one after the other, and first at what another one has found.
    found = _temporary(f"podman-{oci_runtime}.json")
    with found.open("a+") as shared:
        fcntl.flock(shared, fcntl.LOCK_EX)
        make_images("podman")
        shared.seek(0)
        worked = shared.read()
        for variables in sorted(_ways(oci_runtime), key=lambda way: json.dumps(way) != worked):
            result = run("podman", "run", "--rm", "--network", "host", IMAGE, "/bin/true", variables=variables)
            if result.returncode == 0:
                shared.truncate(0)
                shared.write(json.dumps(variables))
                return variables
            problem = (result.stderr.strip().splitlines() or ["no word"])[-1]
    raise LookupError(f"podman cannot run a container here with {oci_runtime or 'any runtime'}: {problem}")


def _ways(oci_runtime: str) -> Iterator[dict[str, str]]:
    """Return variables that may make podman work, the plainest first."""
    for settings in _settings(oci_runtime):
        yield {"CONTAINERS_CONF": str(_written(settings))} if settings else {}
    if Path(_HYBRID).is_dir() and os.geteuid() == 0 and oci_runtime == "crun":
        path = f"{_without_hybrid_groups()}:{os.environ['PATH']}"
        for settings in _settings(oci_runtime):
            yield {"CONTAINERS_CONF": str(_written(settings)), "PATH": path}


def _without_hybrid_groups() -> Path:
    """Return a directory with a podman that does not see the control groups of version 2 beside those of version 1.

    crun refuses machines that have both. Only podman and what it starts see it so.
    """
    directory = _temporary("crun")
    directory.mkdir(exist_ok=True)
    hidden = f'umount {_HYBRID} && exec "$0" "$@"'
    draft = directory / f"podman.{os.getpid()}"
    draft.write_text(f"#!/bin/sh\nexec unshare --mount sh -c '{hidden}' {shutil.which('podman')} \"$@\"\n")
    draft.chmod(0o755)
    draft.replace(directory / "podman")
    return directory


def run(
    program: str, *words: str, variables: Mapping[str, str] | None = None, data: bytes | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a client to its end."""
    environment = {**os.environ, **(variables or {})}
    result = subprocess.run(
        [shutil.which(program, path=environment.get("PATH")) or program, *words],
        env=environment,
        input=data,
        stdin=None if data is not None else subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )
    return subprocess.CompletedProcess(words, result.returncode, result.stdout.decode(), result.stderr.decode())


def has_python() -> bool:
    """Return whether the image has a Python, which it has where that of Debian is installed."""
    return bool(_python_files())


def _settings(oci_runtime: str) -> list[str]:
    limits = [f"{name}={_LIMIT}:{_LIMIT}" for name in ("nofile", "nproc")]
    ulimits = f"[containers]\ndefault_ulimits = {limits!r}\n".replace("'", '"')
    runtime = f'[engine]\nruntime = "{oci_runtime or "runc"}"\n'
    return [runtime, ulimits + runtime] if oci_runtime else ["", ulimits, runtime, ulimits + runtime]


def _written(settings: str) -> Path:
    path = _temporary(f"{zlib.crc32(settings.encode()):x}.conf")
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(settings)
    draft.replace(path)
    return path


def _temporary(name: str) -> Path:
    return Path(tempfile.gettempdir()) / f"katib-tests-{os.getuid()}-{name}"


def make_images(program: str) -> None:
    """Make the images of the tests, unless they are there.

    Raises:
        LookupError: They cannot be made; with the reason.
    """
    if run(program, "image", "inspect", ONLY_ENTRYPOINT).returncode == 0:
        return
    busybox = shutil.which("busybox")
    if busybox is None:
        raise LookupError("busybox is not installed (apt-get install busybox-static)")
    layer = _layer(Path(busybox))
    changes = ('CMD ["/bin/echo", "loss=0.5"]', "WORKDIR /work", "ENV FROM_IMAGE=1", "ENV GREETING=hello")
    _import(program, layer, IMAGE, *changes)
    _import(program, layer, ONLY_ENTRYPOINT, 'ENTRYPOINT ["/bin/echo", "entry"]', 'CMD ["loss=0.25"]')


def make_image_of_examples(program: str) -> None:
    """Make an image with a program in all places where the examples of Katib look for theirs.

    Raises:
        LookupError: It cannot be made; with the reason.
    """
    if run(program, "image", "inspect", OF_EXAMPLES).returncode == 0:
        return
    busybox = shutil.which("busybox")
    if busybox is None or not has_python():
        raise LookupError(f"busybox or Debian's Python is not installed (apt-get install {' '.join(_PYTHON_PACKAGES)})")
    places = ("opt/mnist/mnist.py", "opt/train.py", "work/run_trial.py", "work/RunTrial.py")
    [events] = (HERE / "event_files" / "tensorflow2" / "test").iterdir()
    files = {**dict.fromkeys(places, _STAND_IN), "opt/events": events.read_bytes()}
    _import(program, _layer(Path(busybox), files), OF_EXAMPLES, "WORKDIR /work")


def with_stand_in(text: str) -> str:
    """Return an example of Katib with the image that stands for its own."""
    return re.sub(r"example\.com/[\w.-]+:latest", OF_EXAMPLES, text)


def _import(program: str, layer: bytes, image: str, *changes: str) -> None:
    words = [word for change in changes for word in ("--change", change)]
    result = run(program, "import", *words, "-", image, data=layer)
    if result.returncode:
        raise LookupError(f"{program} cannot import an image: {result.stderr.strip()}")


def _layer(busybox: Path, further: Mapping[str, bytes] = MappingProxyType({})) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as tar:
        tar.add(busybox, "bin/busybox", recursive=False)
        for name in _APPLETS:
            _link(tar, f"bin/{name}", "busybox")
        for directory, mode in (("tmp", 0o1777), ("etc", 0o755), ("work", 0o777), ("opt", 0o755)):
            _directory(tar, directory, mode)
        _file(tar, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\nworker:x:1000:1000::/tmp:/bin/sh\n")
        for name, text in {"opt/mnist/mnist.py": _MNIST.encode(), **further}.items():
            _file(tar, name, text)
        for path in _python_files():
            tar.add(path, path.lstrip("/"), recursive=False)
        if has_python():
            _link(tar, "usr/bin/python3", "python3.11")
    return buffer.getvalue()


@functools.cache
def _python_files() -> tuple[str, ...]:
    listed = [line for package in _PYTHON_PACKAGES for line in _lines("dpkg", "-L", package)]
    files = [path for path in listed if Path(path).is_file() and "/doc/" not in path and "/man/" not in path]
    if "/usr/bin/python3.11" not in files:
        return ()
    libraries = [word for line in _lines("ldd", "/usr/bin/python3.11") for word in line.split() if word.startswith("/")]
    return (*files, *(str(Path(path)) for path in libraries))


def _lines(*command: str) -> Sequence[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    except OSError:
        return ()


def _link(tar: tarfile.TarFile, name: str, target: str) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    tar.addfile(info)


def _directory(tar: tarfile.TarFile, name: str, mode: int) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.mode = tarfile.DIRTYPE, mode
    tar.addfile(info)


def _file(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o755
    tar.addfile(info, io.BytesIO(data))
