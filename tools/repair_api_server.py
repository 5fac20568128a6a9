"""Repair an old kube-apiserver that dies as soon as a custom resource is stored.

Run `python tools/repair_api_server.py SOURCE_DIR TARGET_DIR`: it copies a folder of Kubernetes binaries and mends the
kube-apiserver in the copy, where it needs it.

The fault: Kubernetes up to 1.20 brings json-iterator with reflect2 before 1.0.2. That version walks maps with the
runtime's private iterator, whose layout changed in Go 1.18. Built with Go 1.18 or newer, as Debian 12 builds it, the
server crashes (SIGSEGV) when it marshals the content of a custom resource. Binaries of the Kubernetes project were
built with older compilers and are healthy.

The cure: `(*frozenConfig).Marshal` of json-iterator is made to jump to `encoding/json.Marshal`, which promises the same
result. Both take an interface and return a slice and an error; the method has its receiver in the first register, so
the jump is preceded by moving the interface down by one. Where the functions are tells Go's table of functions
(pclntab), which every Go binary carries. A binary that is healthy is left as it is; one that has the fault but not the
form known here is refused.
"""

from __future__ import annotations

import shutil
import struct
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

SERVER = "kube-apiserver"
FAULTY = b"k8s.io/kubernetes/vendor/github.com/json-iterator/go.(*frozenConfig).Marshal"
HEALTHY = b"encoding/json.Marshal"
FAULTY_VERSION = b"v1.20."
MOVE_INTERFACE_DOWN = bytes.fromhex("4889d84889cb")  # mov rax, rbx; mov rbx, rcx: the register ABI of Go on amd64
PROLOGUES = (bytes.fromhex("493b6610"), bytes.fromhex("4c8d6424"))  # the stack check that begins a Go function
PCLNTAB_MAGICS = {0xFFFFFFF0: "Go 1.18", 0xFFFFFFF1: "Go 1.20"}

_ELF = b"\x7fELF\x02\x01"
_AMD64 = 62
_JUMP_BYTES = 5


class State(Enum):
    """What a binary is like."""

    HEALTHY = "healthy"
    FAULTY = "faulty"
    REPAIRED = "repaired"


class UnknownBinaryError(Exception):
    """This tool does not know how to change what it was given."""


@dataclass(frozen=True, slots=True)
class Section:
    """One section of an ELF file: where it is in memory and in the file."""

    address: int
    offset: int
    size: int


def main(arguments: list[str]) -> int:
    """Copy and repair; return the exit code."""
    if len(arguments) != 2:  # noqa: PLR2004 - source and target
        print("usage: repair_api_server.py SOURCE_DIR TARGET_DIR", file=sys.stderr)
        return 2
    try:
        state = repaired_copy(Path(arguments[0]), Path(arguments[1]))
    except (UnknownBinaryError, OSError) as error:
        print(f"repair_api_server.py: {error}", file=sys.stderr)
        return 1
    print(f"{Path(arguments[1]) / SERVER}: was {state.value}, is usable")
    return 0


def repaired_copy(source: Path, target: Path) -> State:
    """Copy a folder of binaries and repair the API server in the copy; return what it was like before.

    Raises:
        UnknownBinaryError: It has the fault in a form not known here; nothing is copied.
        OSError: A file cannot be read or written.
    """
    if target.resolve() == source.resolve():
        raise UnknownBinaryError(f"{target}: is the source itself; name another folder for the copy")
    binary = bytearray((source / SERVER).read_bytes())
    state = state_of(binary)
    if state is State.FAULTY:
        repair(binary)
    target.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        if path.name != SERVER and not path.is_dir():
            _copy(path, target / path.name)
    unfinished = target / f".{SERVER}"
    unfinished.write_bytes(binary)
    unfinished.chmod(0o755)
    unfinished.replace(target / SERVER)
    return state


def state_of(binary: bytes | bytearray) -> State:
    """Return whether an API server has the fault.

    Raises:
        UnknownBinaryError: It has the parts that make it, but in a form not known here.
    """
    if FAULTY + b"\0" not in binary or FAULTY_VERSION not in binary or not binary.startswith(_ELF):
        return State.HEALTHY
    table = GoFunctions(binary)
    if not table.is_known:
        return State.HEALTHY  # an older compiler: its maps have the layout that the library expects
    start = table.file_offset(table.address(FAULTY))
    code = bytes(binary[start : start + len(MOVE_INTERFACE_DOWN) + _JUMP_BYTES])
    if code == _redirection(table):
        return State.REPAIRED
    if code.startswith(PROLOGUES):
        return State.FAULTY
    raise UnknownBinaryError(f"{SERVER}: {FAULTY.decode()} begins with {code.hex()}, which is not known; use another")


def repair(binary: bytearray) -> None:
    """Redirect the faulty function."""
    table = GoFunctions(binary)
    start = table.file_offset(table.address(FAULTY))
    code = _redirection(table)
    binary[start : start + len(code)] = code


def _redirection(table: GoFunctions) -> bytes:
    """Return the machine code that turns the faulty function into a jump to the healthy one."""
    after = table.address(FAULTY) + len(MOVE_INTERFACE_DOWN) + _JUMP_BYTES
    return MOVE_INTERFACE_DOWN + b"\xe9" + struct.pack("<i", table.address(HEALTHY) - after)


class GoFunctions:
    """The addresses of a Go program's functions by name, from its pclntab of Go 1.18 and newer.

    Raises:
        UnknownBinaryError: The file is no amd64 ELF file with such a table.
    """

    def __init__(self, binary: bytes | bytearray) -> None:
        self._binary = binary
        sections = _sections(binary)
        try:
            self._text, table = sections[".text"], sections[".gopclntab"]
        except KeyError as error:
            raise UnknownBinaryError(f"{SERVER}: it has no section {error}; use another") from None
        self._table = table.offset
        (magic,) = struct.unpack_from("<I", binary, self._table)
        self.is_known = magic in PCLNTAB_MAGICS
        header = struct.unpack_from("<8Q", binary, self._table + 8)
        self._count, _, self._start, self._names, self._names_end, _, _, self._functions = header

    def address(self, name: bytes) -> int:
        """Return where a function begins in memory."""
        names = self._table + self._names
        found = self._binary.find(b"\0" + name + b"\0", names, self._table + self._names_end)
        if found >= 0:
            for index in range(self._count):
                functions = self._table + self._functions
                entry, record = struct.unpack_from("<II", self._binary, functions + 8 * index)
                if struct.unpack_from("<i", self._binary, functions + record + 4)[0] == found + 1 - names:
                    return int(self._start + entry)
        raise UnknownBinaryError(f"{SERVER}: it has no function {name.decode()}; use another")

    def file_offset(self, address: int) -> int:
        """Return where in the file the code at an address is."""
        return address - self._text.address + self._text.offset


def _sections(binary: bytes | bytearray) -> dict[str, Section]:
    """Return the sections of an ELF file by name."""
    if not binary.startswith(_ELF) or struct.unpack_from("<H", binary, 18)[0] != _AMD64:
        raise UnknownBinaryError(f"{SERVER}: it is no program for 64-bit Linux on amd64; use another")
    (start,) = struct.unpack_from("<Q", binary, 0x28)
    count, names_index = struct.unpack_from("<HH", binary, 0x3C)
    headers = [struct.unpack_from("<IIQQQQIIQQ", binary, start + 64 * index) for index in range(count)]
    names = headers[names_index][4]
    sections = {}
    for name, _, _, address, offset, size, *_ in headers:
        begin = names + name
        sections[binary[begin : binary.index(b"\0", begin)].decode()] = Section(address, offset, size)
    return sections


def _copy(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    shutil.copy2(source, target, follow_symlinks=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
