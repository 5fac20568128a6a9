"""Releases: the section of the changelog, the files of the wheel, and the version that other files repeat."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

from katib.model.version import __version__
from tools import release
from tools.images import NAMES, ROOT
from tools.release import MOST_LINES, ReleaseError, compare, notes

SECTION = "# Changelog\n\n## [Unreleased]\n\n## [2.0.0] - 2026-01-02\n\n- New.\n\n## [1.0.0] - 2025-01-02\n\n- Old.\n"


def test_the_notes_of_a_release_are_its_section() -> None:
    assert notes(SECTION, "2.0.0") == "- New."


@pytest.mark.parametrize(
    ("changelog", "version", "cause"),
    [
        pytest.param(SECTION, "3.0.0", "has no section", id="no section"),
        pytest.param(SECTION, "1.0.0", "above the section", id="not the newest"),
        pytest.param(SECTION.replace("ed]\n", "ed]\n\n- More."), "2.0.0", "above the section", id="unreleased changes"),
        pytest.param(SECTION.replace("2026-01-02", "soon"), "2.0.0", 'the date "soon"', id="date"),
        pytest.param(SECTION.replace("- New.", ""), "2.0.0", "0 lines", id="empty"),
        pytest.param(SECTION.replace("New.", "New.\n" * 100), "2.0.0", f"1 to {MOST_LINES}", id="too long"),
    ],
)
def test_a_changelog_that_is_not_ready_is_refused(changelog: str, version: str, cause: str) -> None:
    with pytest.raises(ReleaseError, match=cause):
        notes(changelog, version)


def test_a_wheel_has_all_files_of_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "ROOT", tmp_path)
    package = tmp_path / "katib"
    package.mkdir()
    for name in ("code.py", "page.html", "README.md"):
        (package / name).touch()
    with zipfile.ZipFile(tmp_path / "katib.whl", "w") as wheel:
        for name in ("katib/code.py", "katib/old.py", "katib-1.dist-info/METADATA"):
            wheel.writestr(name, "")

    assert compare(tmp_path / "katib.whl") == ["missing: katib/page.html", "extra: katib/old.py"]


def test_the_version_is_the_same_everywhere() -> None:
    image = re.compile(rf"\bkatib/(?:{'|'.join(NAMES)}):(\d[\w.]*\d)")
    folders = (ROOT / name for name in ("docs", "images", "manifests"))
    files = [ROOT / "CONTRIBUTING.md", *(path for folder in folders for path in folder.rglob("*") if path.is_file())]
    chart = (ROOT / "manifests" / "chart" / "Chart.yaml").read_text()

    found = {path: set(image.findall(path.read_text(errors="ignore"))) for path in files}
    assert {str(path): tags for path, tags in found.items() if tags - {__version__}} == {}
    assert sum(map(bool, found.values())) > len(NAMES)
    assert f"version: {__version__}\nappVersion: {__version__}\n" in chart
