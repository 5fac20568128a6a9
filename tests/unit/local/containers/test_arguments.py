from __future__ import annotations

import itertools
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from katib.places.machine.containers.arguments import Abilities, RuntimeProgram, remove_words, run_line
from katib.places.machine.pods.image_runs import ImageRun, Mount, Pull

ALL = Abilities()


def words(
    run: ImageRun, program: RuntimeProgram = RuntimeProgram.PODMAN, abilities: Abilities = ALL, **taken: str
) -> list[str]:
    return list(run_line(program, abilities, run, "box-1", {"owner": "me"}, taken)[0])


def values(found: list[str], option: str) -> list[str]:
    return [value for word, value in itertools.pairwise(found) if word == option]


def test_the_smallest_line_is_attached_labelled_and_removes_its_container() -> None:
    assert words(ImageRun("box", "train:1")) == [
        *("run", "--rm", "--name", "box-1", "--pull", "missing", "--log-driver", "none", "--quiet", "--init"),
        *("--label", "owner=me", "--network", "host", "--security-opt", "label=disable", "train:1"),
    ]
    assert "--quiet" not in words(ImageRun("box", "train:1"), RuntimeProgram.DOCKER)


def test_a_client_that_can_writes_down_that_the_first_process_started() -> None:
    line, _ = run_line(RuntimeProgram.PODMAN, ALL, ImageRun("box", "i"), "box-1", {}, (), Path("/run/box-1.pid"))

    assert values(list(line), "--pidfile") == ["/run/box-1.pid"]


@pytest.mark.parametrize(
    ("entrypoint", "arguments", "expected"),
    [
        pytest.param((), (), ["i"], id="all of the image"),
        pytest.param((), ("a", "b"), ["i", "a", "b"], id="arguments for its entry point"),
        pytest.param(("c",), (), ["--entrypoint", "c", "i"], id="another entry point"),
        pytest.param(("c", "d"), ("a",), ["--entrypoint", "c", "i", "d", "a"], id="another with its own arguments"),
    ],
)
def test_command_and_arguments_replace_what_kubernetes_replaces(
    entrypoint: tuple[str, ...], arguments: tuple[str, ...], expected: list[str]
) -> None:
    assert words(ImageRun("box", "i", entrypoint=entrypoint, arguments=arguments))[-len(expected) :] == expected


def test_variables_go_through_the_client_unless_it_would_obey_them() -> None:
    environment = {
        "KEY": "secret",
        "PATH": "/x",
        "DOCKER_HOST": "tcp://x",
        "LD_PRELOAD": "y",
        "MINE": "1",
        "LC_ALL": "C",
    }

    run = ImageRun("box", "i", environment=environment)
    line, passed = run_line(RuntimeProgram.PODMAN, ALL, run, "box-1", {}, {"MINE"})

    assert values(list(line), "--env") == [
        *("KEY", "DOCKER_HOST=tcp://x", "LC_ALL=C", "LD_PRELOAD=y", "MINE=1", "PATH=/x")
    ]
    assert passed == {"KEY": "secret"}


def test_mounts_are_bind_mounts_and_a_colon_in_a_path_does_not_divide_it() -> None:
    sealed = (Mount(Path("/c"), "/d", read_only=True), Mount(Path("/e:f"), "/g", read_only=True))

    found = words(ImageRun("box", "i", mounts=(Mount(Path("/a"), "/b"), *sealed)))

    assert values(found, "--volume") == ["/a:/b", "/c:/d:ro"]
    assert values(found, "--mount") == ["type=bind,source=/e:f,target=/g,readonly"]


def test_limits_are_given_where_the_runtime_can_keep_them() -> None:
    run = ImageRun("box", "i", cpus=Decimal("0.500"), memory_bytes=2**30)

    assert values(words(run), "--cpus") == ["0.5"]
    assert values(words(run), "--memory") == [str(2**30)]
    assert "--memory" not in words(run, abilities=Abilities(limits=frozenset({"cpu"})))


def test_cards_are_named_as_each_runtime_names_them() -> None:
    run = ImageRun("box", "i", gpus=("0", "2"))

    assert values(words(run), "--device") == ["nvidia.com/gpu=0", "nvidia.com/gpu=2"]
    assert values(words(run, RuntimeProgram.DOCKER), "--gpus") == ['"device=0,2"']


def test_rights_are_those_of_the_template() -> None:
    run = ImageRun(
        "box",
        "i",
        user="1000:2000",
        groups=(5,),
        capabilities_added=("SYS_PTRACE",),
        capabilities_dropped=("ALL",),
        read_only=True,
        privileged=True,
        no_new_privileges=True,
    )

    found = words(run)

    assert values(found, "--user") == ["1000:2000"]
    assert values(found, "--group-add") == ["5"]
    assert values(found, "--cap-drop") == ["ALL"]
    assert values(found, "--cap-add") == ["SYS_PTRACE"]
    assert values(found, "--security-opt") == ["label=disable", "no-new-privileges"]
    assert {"--read-only", "--privileged"} <= set(found)


def test_its_name_leads_to_this_machine_on_its_network_and_all_its_names_to_it_on_one_of_its_own() -> None:
    run = ImageRun("box", "i", hostname="j-a-0-0", aliases=("j", "j-a-0-0.j", "j"), network="katib-j")
    on_host, alone = words(replace(run, hostname="a" * 62 + "-b", network="host")), words(run)

    assert values(on_host, "--hostname") == ["a" * 62]
    assert f"--add-host={'a' * 62}:127.0.0.1" in on_host
    assert values(on_host, "--network-alias") == []
    assert values(alone, "--network-alias") == ["j-a-0-0", "j", "j-a-0-0.j"]
    assert not any(word.startswith("--add-host") for word in alone)


def test_an_image_is_pulled_as_the_template_says_and_runs_without_a_first_process_where_there_is_none() -> None:
    found = words(ImageRun("box", "i", pull=Pull.NEVER, working_directory="/w"), abilities=Abilities(init=False))

    assert values(found, "--pull") == ["never"]
    assert values(found, "--workdir") == ["/w"]
    assert "--init" not in found


def test_the_end_by_force() -> None:
    assert remove_words(RuntimeProgram.PODMAN, "a", "b") == (
        *("rm", "--force", "--volumes", "--time", "0", "--ignore", "a", "b"),
    )
    assert remove_words(RuntimeProgram.DOCKER, "a") == ("rm", "--force", "--volumes", "a")
