from __future__ import annotations

import os
from pathlib import Path

from katib.places.machine.admission import HostCapacity
from katib.places.machine.admission.host import cpu_quotas, memory_limits


def test_the_machine_has_something() -> None:
    host = HostCapacity.detect()

    assert 0 < host.cpus <= (os.cpu_count() or 1)
    assert host.memory_bytes > 2**26
    assert host.gpus >= 0


def test_limits_of_all_groups_above_count(tmp_path: Path) -> None:
    group = tmp_path / "system/engine"
    group.mkdir(parents=True)
    (tmp_path / "system/cpu.max").write_text("150000 100000\n")
    (group / "cpu.max").write_text("max 100000\n")
    (tmp_path / "system/memory.max").write_text("max\n")
    (group / "memory.max").write_text("1048576\n")

    assert cpu_quotas(tmp_path, "/system/engine") == {tmp_path / "system": 1.5}
    assert memory_limits(tmp_path, "/system/engine") == {group: 1048576}
    assert cpu_quotas(tmp_path, "/other") == {}
    assert memory_limits(tmp_path, "/other") == {}


def test_the_first_version_of_control_groups_counts_too(tmp_path: Path) -> None:
    for file, text in (
        ("cpu/cpu.cfs_quota_us", "50000"),
        ("cpu/cpu.cfs_period_us", "100000"),
        ("memory/memory.limit_in_bytes", "9223372036854771712"),
    ):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)

    assert cpu_quotas(tmp_path, "/") == {tmp_path / "cpu": 0.5}
    assert memory_limits(tmp_path, "/") == {}
