from __future__ import annotations

from pathlib import Path

import pytest

from katib.engine.algorithm_services.config import ServicesConfig
from katib.errors import InvalidError, TerminalError
from katib.model.configuration import read_configuration
from katib.places.machine.containers import RuntimeChoice, choose, chosen, runs_images
from katib.places.machine.containers.arguments import RuntimeProgram
from katib.places.machine.containers.choice import docker_abilities, podman_abilities, writes_pid_files
from tests.support.golden import Golden

INFO = '{"host": {"cgroupControllers": ["cpu", "memory"], "cgroupVersion": "v2", "security": {"rootless": true}}}'


def program(directory: Path, name: str, script: str) -> None:
    (directory / name).write_text(f"#!/bin/sh\n{script}\n")
    (directory / name).chmod(0o755)


def environ(directory: Path) -> dict[str, str]:
    return {"PATH": f"{directory}", "KATIB_TOKEN": "secret"}


def test_the_command_line_wins_over_the_configuration_and_nothing_means_never() -> None:
    config = ServicesConfig(containers="docker")

    assert chosen("podman", config) is RuntimeChoice.PODMAN
    assert chosen(None, config) is RuntimeChoice.DOCKER
    assert chosen(None, ServicesConfig()) is RuntimeChoice.NEVER


def test_a_word_that_is_none_of_them_is_refused_in_the_configuration(golden: Golden) -> None:
    with pytest.raises(InvalidError) as caught:
        read_configuration(ServicesConfig, "containers: lxc", "katib.yaml")

    (error,) = caught.value.errors
    assert error.origin == "config-containers"
    golden(error)


def test_never_asks_no_runtime(tmp_path: Path) -> None:
    program(tmp_path, "podman", "exit 1")

    assert choose(RuntimeChoice.NEVER, environ(tmp_path), tmp_path) is None
    assert not runs_images(RuntimeChoice.NEVER, environ(tmp_path))


def test_auto_takes_the_first_that_answers_and_none_where_none_does(tmp_path: Path) -> None:
    program(tmp_path, "podman", "echo broken >&2; exit 125")
    assert choose(RuntimeChoice.AUTO, environ(tmp_path), tmp_path) is None

    program(tmp_path, "docker", "echo '{}'")
    found = choose(RuntimeChoice.AUTO, environ(tmp_path), tmp_path)
    assert found is not None
    assert found.program is RuntimeProgram.DOCKER

    program(tmp_path, "podman", f"echo '{INFO}'")
    found = choose(RuntimeChoice.AUTO, environ(tmp_path), tmp_path)
    assert found is not None
    assert (found.program, found.path) == (RuntimeProgram.PODMAN, f"{tmp_path}/podman")
    assert found.abilities.limits == {"cpu", "memory"}
    assert "KATIB_TOKEN" not in found.environment


def test_one_that_is_not_installed_is_said_with_the_one_that_is(tmp_path: Path, golden: Golden) -> None:
    with golden.raises(TerminalError):
        choose(RuntimeChoice.PODMAN, environ(tmp_path), tmp_path)

    program(tmp_path, "docker", "exit 0")
    with golden.raises(TerminalError):
        choose(RuntimeChoice.PODMAN, environ(tmp_path), tmp_path)


def test_one_that_does_not_answer_is_said_with_its_own_words(tmp_path: Path, golden: Golden) -> None:
    program(tmp_path, "docker", """echo '{"ServerErrors": ["Cannot connect to the Docker daemon at x."]}'; exit 1""")
    program(tmp_path, "podman", "echo 'Error: cannot set up namespace' >&2; exit 125")

    with golden.raises(TerminalError):
        choose(RuntimeChoice.DOCKER, environ(tmp_path), tmp_path)
    with golden.raises(TerminalError):
        choose(RuntimeChoice.PODMAN, environ(tmp_path), tmp_path)


def test_limits_are_those_that_the_account_may_set() -> None:
    def limits(rootless: bool, version: str, *controllers: str) -> set[str]:
        host = {"security": {"rootless": rootless}, "cgroupVersion": version, "cgroupControllers": list(controllers)}
        return set(podman_abilities({"host": host}, has_init=True, has_names=True).limits)

    assert limits(False, "v1", "cpu", "memory", "pids") == {"cpu", "memory"}
    assert limits(True, "v1", "cpu", "memory") == set()
    assert limits(True, "v2", "memory", "pids") == {"memory"}
    assert docker_abilities({"CpuCfsQuota": False, "MemoryLimit": True}).limits == {"memory"}


@pytest.mark.parametrize(
    ("program", "version", "is_remote", "expected"),
    [
        pytest.param(RuntimeProgram.PODMAN, "4.3.1", False, True, id="podman 4"),
        pytest.param(RuntimeProgram.PODMAN, "5.0.0-rc1", False, True, id="podman 5"),
        pytest.param(RuntimeProgram.PODMAN, "3.0.1", False, False, id="podman 3"),
        pytest.param(RuntimeProgram.PODMAN, "5.0.0", True, False, id="podman of another machine"),
        pytest.param(RuntimeProgram.PODMAN, "", False, False, id="unknown version"),
        pytest.param(RuntimeProgram.DOCKER, "28.0", False, False, id="docker"),
    ],
)
def test_only_a_podman_of_this_machine_writes_down_what_has_started(
    program: RuntimeProgram, version: str, is_remote: bool, expected: bool
) -> None:
    info = {"host": {"serviceIsRemote": is_remote}, "version": {"Version": version}}

    assert writes_pid_files(program, info) is expected


def test_what_a_killed_engine_noted_about_containers_is_gone(tmp_path: Path) -> None:
    program(tmp_path, "podman", """echo '{"version": {"Version": "4.3.1"}}'""")
    left = tmp_path / "data" / "run" / "containers" / "box-1" / "pid"
    left.parent.mkdir(parents=True)
    left.touch()

    found = choose(RuntimeChoice.PODMAN, environ(tmp_path), tmp_path / "data")

    assert found is not None
    assert left.exists()  # the engine may not have the data directory yet
    assert found.prepared().notes == left.parent.parent
    assert not left.exists()
