"""Generate `katib/wire/rpc/_generated` and the stubs of the custom algorithm's example from `proto/` (`make proto`).

The stubs use a descriptor pool of their own. With the default pool, importing them next to the official Katib SDK,
which registers the same message names, would fail.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
TARGET = ROOT / "katib" / "wire" / "rpc" / "_generated"
EXAMPLE = ROOT / "examples" / "custom-algorithm"
PACKAGE = "katib.wire.rpc._generated"

_IMPORT = re.compile(r"^import (\w+_pb2 as)", re.MULTILINE)
"""The compiler's form of an import of another stub: as a top-level module, which ours are not."""


def main() -> int:
    """Generate all stubs; return the exit code of the compiler."""
    sources = sorted(PROTO.glob("*.proto"))
    code: int = protoc.main(
        [
            "protoc",
            f"-I{PROTO}",
            f"--python_out={TARGET}",
            f"--pyi_out={TARGET}",
            *map(str, sources),
        ]
    )
    for module in (source.stem for source in sources):
        _replace(TARGET / f"{module}_pb2.py", "_descriptor_pool.Default()", "POOL")
        _replace(
            TARGET / f"{module}_pb2.py",
            "from google.protobuf import descriptor_pool as _descriptor_pool\n",
            f"from {PACKAGE} import POOL\n",
        )
    for path in sorted(TARGET.glob("*_pb2*.py*")):
        path.write_text(_IMPORT.sub(rf"from {PACKAGE} import \1", path.read_text()))
    include = f"-I{PROTO}"
    return code or int(
        protoc.main(
            ["protoc", include, f"--python_out={EXAMPLE}", f"--grpc_python_out={EXAMPLE}", f"{PROTO}/api.proto"]
        )
    )


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    if old not in text:
        raise SystemExit(f"{path}: the compiler no longer writes {old!r}; adapt tools/generate_stubs.py")
    path.write_text(text.replace(old, new))


if __name__ == "__main__":
    sys.exit(main())
