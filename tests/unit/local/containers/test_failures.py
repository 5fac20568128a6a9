"""The messages are those of podman 4.3 with crun and runc, of podman 5, and of docker 20 and 28."""

from __future__ import annotations

import pytest

from katib.places.machine.containers.arguments import RuntimeProgram
from katib.places.machine.containers.failures import pull_failure, start_failure
from katib.places.machine.pods.image_runs import ImageRun, Pull
from tests.support.golden import Golden

PODMAN, DOCKER = RuntimeProgram.PODMAN, RuntimeProgram.DOCKER
RUN = ImageRun("box", "train:1", entrypoint=("train",))

PULL_DENIED = (
    "docker: Error response from daemon: pull access denied for train, repository does not exist or may require "
    "'docker login': denied: requested access to the resource is denied\n\n"
    "Run 'docker run --help' for more information\n"
)


ABSENT = ("container-command", 'command "train" is not in image "train:1"')
FORBIDDEN = ("container-command", 'command "train" of image "train:1" may not be executed')
LIMITS = ("container-limits", 'podman cannot limit image "train:1"')
FAILURES = {
    "podman with crun, no such command": (
        PODMAN,
        127,
        (
            "Error: crun: executable file `train` not found in $PATH: No such file or directory: "
            "OCI runtime attempted to invoke a command that was not found\n"
        ),
        ABSENT,
    ),
    "podman with runc, no such command": (
        PODMAN,
        127,
        (
            'Error: runc: runc create failed: unable to start container process: exec: "train": executable file not '
            "found in $PATH: OCI runtime attempted to invoke a command that was not found\n"
        ),
        ABSENT,
    ),
    "podman, no program": (
        PODMAN,
        126,
        "Error: crun: open executable: Permission denied: OCI permission denied\n",
        FORBIDDEN,
    ),
    "catatonit, no program": (PODMAN, 1, "ERROR (catatonit:6): failed to exec pid1: Permission denied\n", FORBIDDEN),
    "tini, no such command": (DOCKER, 127, "[FATAL tini (7)] exec train failed: No such file or directory\n", ABSENT),
    "another processor": (
        PODMAN,
        1,
        "ERROR (catatonit:2): failed to exec pid1: Exec format error\n",
        ("container-command", 'command "train" of image "train:1" is not a program of this machine'),
    ),
    "docker, no such command": (
        DOCKER,
        127,
        (
            "docker: Error response from daemon: failed to create task for container: failed to create shim task: OCI "
            'runtime create failed: runc create failed: unable to start container process: exec: "train": executable '
            "file not found in $PATH: unknown.\n\nRun 'docker run --help' for more information\n"
        ),
        ABSENT,
    ),
    "podman, no such image in the registry": (
        PODMAN,
        125,
        "Error: initializing source docker://train:1: reading manifest 1 in train: manifest unknown\n",
        ("image-missing", 'image "train:1" cannot be pulled: initializing source'),
    ),
    "podman, no registry": (
        PODMAN,
        125,
        (
            'Error: short-name "train:1" did not resolve to an alias and no unqualified-search registries are defined '
            'in "/etc/containers/registries.conf"\n'
        ),
        ("image-missing", 'image "train:1" cannot be pulled: short-name "train:1" did not resolve'),
    ),
    "podman, registry away": (
        PODMAN,
        125,
        "Error: initializing source docker://x/train:1: pinging container registry x: Get dial tcp: i/o timeout\n",
        ("image-pull", 'image "train:1" cannot be pulled: initializing source'),
    ),
    "docker, denied": (DOCKER, 125, PULL_DENIED, ("image-missing", 'image "train:1" cannot be pulled')),
    "docker, no daemon": (
        DOCKER,
        125,
        (
            "docker: Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?\n"
            "See 'docker run --help'.\n"
        ),
        ("container-runtime-down", "docker does not answer: Cannot connect"),
    ),
    "podman, limits of the process": (
        PODMAN,
        126,
        "Error: crun: setrlimit `RLIMIT_NOFILE`: Operation not permitted: OCI permission denied\n",
        LIMITS,
    ),
    "podman, no program for its network": (
        PODMAN,
        126,
        "Error: netavark: No such file or directory (os error 2)\n",
        ("container-network", 'podman cannot set up the network of image "train:1": netavark: No such file'),
    ),
    "podman, no controller": (
        PODMAN,
        126,
        "Error: OCI runtime error: crun: the requested cgroup controller `cpu` is not available\n",
        LIMITS,
    ),
    "podman, rootless without ids": (
        PODMAN,
        125,
        (
            "Error: copying system image from manifest list: writing blob: adding layer with blob: potentially "
            "insufficient UIDs or GIDs available in user namespace\n"
        ),
        ("container-user-ids", 'podman has too few user ids for image "train:1"'),
    ),
    "anything else": (
        PODMAN,
        125,
        "Error: something that is not known\n",
        ("container-start", 'podman cannot start image "train:1": something that is not known'),
    ),
}


@pytest.mark.parametrize(("program", "code", "output", "expected"), FAILURES.values(), ids=FAILURES)
def test_each_failure_has_its_cause_and_a_remedy(
    program: RuntimeProgram, code: int, output: str, expected: tuple[str, str]
) -> None:
    error = start_failure(program, RUN, code, f"earlier line\n{output}")

    assert error is not None
    assert (error.origin, error.cause[: len(expected[1])]) == expected
    assert "\n" not in str(error)
    assert error.remedy


def test_an_image_that_must_not_be_pulled_is_named_with_the_command_that_pulls_it(golden: Golden) -> None:
    run = ImageRun("box", "train:1", pull=Pull.NEVER)

    podman = start_failure(PODMAN, run, 125, "Error: train:1: image not known\n")
    docker = start_failure(DOCKER, run, 125, "docker: Error response from daemon: No such image: train:1.\n")

    golden(podman)
    golden(docker)


@pytest.mark.parametrize(
    ("code", "output"),
    [
        pytest.param(1, "Error: no data\n", id="a program that fails with the word of podman"),
        pytest.param(127, "sh: train: not found\n", id="a shell that finds no command"),
        pytest.param(125, "Error: early\nlast line\n", id="a program that says more"),
        pytest.param(126, "", id="silence"),
    ],
)
def test_a_program_that_fails_by_itself_has_run(code: int, output: str) -> None:
    assert start_failure(PODMAN, RUN, code, output) is None


@pytest.mark.parametrize("code", [125, 126, 127])
def test_a_program_that_started_and_ends_with_the_words_of_the_client_failed_itself(code: int) -> None:
    output = "Error: image not known\n"

    assert start_failure(PODMAN, RUN, code, output) is not None
    assert start_failure(PODMAN, RUN, code, output, has_started=True) is None


def test_a_first_process_that_cannot_become_the_program_has_started_in_vain() -> None:
    output = "ERROR (catatonit:6): failed to exec pid1: No such file or directory\n"
    error = start_failure(PODMAN, RUN, 127, output, has_started=True)

    assert error is not None
    assert error.origin == "container-command"


@pytest.mark.parametrize(
    ("program", "output"),
    [
        pytest.param(
            PODMAN,
            "Trying to pull train:1...\nError: initializing source docker://x/train:1: pinging container registry x\n",
            id="podman, no registry",
        ),
        pytest.param(
            DOCKER,
            "Error response from daemon: pull access denied for train, repository does not exist\n",
            id="docker, no such image",
        ),
        pytest.param(
            DOCKER,
            "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?\n",
            id="docker, no service",
        ),
        pytest.param(PODMAN, "Error: writing blob: no space left on device\n", id="something else"),
        pytest.param(PODMAN, "", id="nothing at all"),
    ],
)
def test_an_image_that_cannot_be_pulled_is_named_with_what_the_client_says(
    program: RuntimeProgram, output: str, golden: Golden
) -> None:
    golden(str(pull_failure(program, RUN, output)))


def test_an_image_that_is_here_and_is_always_asked_for_is_said_to_be_here(golden: Golden) -> None:
    error = pull_failure(
        RuntimeProgram.PODMAN, RUN, "Error: initializing source docker://train:1: no such host", is_here=True
    )

    golden(error)
