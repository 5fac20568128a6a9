"""The repair of an old API server, on a program made up of just the parts that it looks at."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from tools.repair_api_server import (
    FAULTY,
    HEALTHY,
    MOVE_INTERFACE_DOWN,
    SERVER,
    GoFunctions,
    State,
    UnknownBinaryError,
    main,
    repaired_copy,
    state_of,
)

TEXT_ADDRESS, TEXT_OFFSET = 0x401000, 0x1000
PROLOGUE = bytes.fromhex("493b6610")
OFFSETS = {FAULTY: 0x40, HEALTHY: 0x100}


def program(*, start: bytes = PROLOGUE, version: bytes = b"v1.20.2", magic: int = 0xFFFFFFF0) -> bytes:
    """Return an ELF file with a text section, a table of functions and a version."""
    code = bytearray(b"\xcc" * 0x200)
    code[OFFSETS[FAULTY] : OFFSETS[FAULTY] + len(start)] = start
    table = function_table(magic)
    names = b"\0.text\0.gopclntab\0.shstrtab\0"
    content = bytes(code) + table + names + version
    offsets = [TEXT_OFFSET, TEXT_OFFSET + len(code), TEXT_OFFSET + len(code) + len(table)]
    headers_at = TEXT_OFFSET + len(content)
    headers = section(0, 0, 0, 0)
    headers += section(names.index(b".text"), TEXT_ADDRESS, offsets[0], len(code))
    headers += section(names.index(b".gopclntab"), 0x500000, offsets[1], len(table))
    headers += section(names.index(b".shstrtab"), 0, offsets[2], len(names))
    head = bytearray(TEXT_OFFSET)
    head[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<HH", head, 16, 2, 62)
    struct.pack_into("<Q", head, 0x28, headers_at)
    struct.pack_into("<HH", head, 0x3C, 4, 3)
    return bytes(head) + content + headers


def section(name: int, address: int, offset: int, size: int) -> bytes:
    return struct.pack("<IIQQQQIIQQ", name, 1, 0, address, offset, size, 0, 0, 1, 0)


def function_table(magic: int) -> bytes:
    names = b"\0" + b"\0".join(OFFSETS) + b"\0"
    names_at, functions_at = 72, 72 + len(names)
    functions, records = b"", b""
    for name, offset in OFFSETS.items():
        functions += struct.pack("<II", offset, 16 + len(records))
        records += struct.pack("<Ii", offset, names.index(b"\0" + name + b"\0") + 1)
    header = struct.pack("<IBBBB", magic, 0, 0, 1, 8)
    end = names_at + len(names)
    header += struct.pack("<8Q", len(OFFSETS), 0, TEXT_ADDRESS, names_at, end, end, end, functions_at)
    return header + names + functions + records


def folder(tmp_path: Path, binary: bytes) -> Path:
    source = tmp_path / "source"
    source.mkdir()
    (source / SERVER).write_bytes(binary)
    (source / "etcd").symlink_to("/usr/bin/etcd")
    (source / "kubectl").write_text("#!/bin/sh")
    return source


def test_the_faulty_function_is_made_to_jump_to_the_healthy_one(tmp_path: Path) -> None:
    target = tmp_path / "target"

    assert repaired_copy(folder(tmp_path, program()), target) is State.FAULTY

    binary = (target / SERVER).read_bytes()
    at = TEXT_OFFSET + OFFSETS[FAULTY]
    code = binary[at : at + 11]
    assert code[:7] == MOVE_INTERFACE_DOWN + b"\xe9"
    assert OFFSETS[FAULTY] + 11 + struct.unpack("<i", code[7:])[0] == OFFSETS[HEALTHY]
    assert binary[:at] + binary[at + 11 :] == program()[:at] + program()[at + 11 :]
    assert os.access(target / SERVER, os.X_OK)
    assert {path.name for path in target.iterdir()} == {SERVER, "etcd", "kubectl"}
    assert (target / "etcd").readlink() == Path("/usr/bin/etcd")


def test_a_repaired_server_is_known_and_left_as_it_is(tmp_path: Path) -> None:
    once, twice = tmp_path / "once", tmp_path / "twice"
    repaired_copy(folder(tmp_path, program()), once)

    assert repaired_copy(once, twice) is State.REPAIRED
    assert (once / SERVER).read_bytes() == (twice / SERVER).read_bytes()


@pytest.mark.parametrize(
    "binary",
    [
        pytest.param(program(version=b"v1.29.0"), id="newer Kubernetes"),
        pytest.param(program(magic=0xFFFFFFFA), id="older compiler"),
        pytest.param(program().replace(FAULTY, b"x" * len(FAULTY)), id="without the library"),
        pytest.param(b"#!/bin/sh", id="a script"),
    ],
)
def test_a_healthy_server_is_left_as_it_is(tmp_path: Path, binary: bytes) -> None:
    assert repaired_copy(folder(tmp_path, binary), tmp_path / "target") is State.HEALTHY
    assert (tmp_path / "target" / SERVER).read_bytes() == binary


@pytest.mark.parametrize(
    "binary",
    [
        pytest.param(program(start=b"\x90\x90\x90\x90"), id="another beginning"),
        pytest.param(program().replace(HEALTHY + b"\0", b"x" * len(HEALTHY) + b"\0"), id="nowhere to jump to"),
        pytest.param(program().replace(b".gopclntab", b".somewhere"), id="no table"),
    ],
)
def test_an_unknown_server_is_refused_and_nothing_is_copied(
    tmp_path: Path, binary: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = folder(tmp_path, binary), tmp_path / "target"

    assert main([str(source), str(target)]) == 1
    assert "use another" in capsys.readouterr().err
    assert not target.exists()


def test_the_copy_needs_a_folder_of_its_own(tmp_path: Path) -> None:
    source = folder(tmp_path, program())
    with pytest.raises(UnknownBinaryError, match="is the source itself"):
        repaired_copy(source, source)


def test_a_real_server_is_judged(tmp_path: Path) -> None:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        pytest.skip("KUBEBUILDER_ASSETS names no folder with a kube-apiserver")
    binary = (Path(assets) / SERVER).read_bytes()
    if state_of(binary) is State.HEALTHY:
        pytest.skip("this kube-apiserver needs no repair")

    assert GoFunctions(binary).address(FAULTY) != GoFunctions(binary).address(HEALTHY)
