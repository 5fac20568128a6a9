"""Prepare a release (run by `make package` and `make release`).

`python -m tools.release package` builds the sdist and, from it, the wheel into `dist`; checks that the wheel has all
files of the packages; installs it in an empty environment, and runs the commands of `docs/get-started.md` there.
`python -m tools.release tag` checks the tree, the version and the changelog, does the same, and makes the annotated
tag `vVERSION` in this clone. Nothing is pushed.
"""

# ruff: noqa: S603  # the programs are the developer's own, and on the PATH

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

from katib.model.version import __version__
from tests.support.doc_blocks import run_page

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
PAGE = ROOT / "docs" / "get-started.md"
PACKAGES = ("katib", "suggestion_services", "metrics_collector", "hydra_plugins")
MOST_LINES = 60
"""Length of a section of the changelog: it is read by users before an upgrade; details are in git."""

_HOOKS = "import sys; from setuptools import build_meta as backend; getattr(backend, sys.argv[1])(sys.argv[2])"


class ReleaseError(Exception):
    """The release cannot be made; the message names the reason."""


def main(arguments: Sequence[str]) -> int:
    """Build and try out the package, or tag the release."""
    try:
        tag() if "tag" in arguments else package()
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


def package() -> None:
    """Build sdist and wheel, compare the wheel with the tree, and use it.

    Raises:
        ReleaseError: A file is missing in the wheel or is too much, or a command failed.
    """
    with tempfile.TemporaryDirectory(prefix="katib-package-") as name:
        folder = Path(name)
        wheel = build(folder)
        if differences := compare(wheel):
            raise ReleaseError("\n".join([f"{wheel.name} differs from the tree:", *differences]))
        print(f"{wheel.name} has all files of the packages", flush=True)
        try_out(wheel, folder)
    print(f"{wheel.name} was installed in an empty environment, and the commands of {PAGE.relative_to(ROOT)} work")


def build(folder: Path) -> Path:
    """Build the sdist from a copy of the tree, then the wheel from the sdist; return the wheel."""
    backend, source = folder / "backend", folder / "source"
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    _run([sys.executable, "-m", "pip", "install", "--quiet", "--target", backend, *requires])
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(DIST, ignore_errors=True)
    hooks = [sys.executable, "-c", _HOOKS]
    _run([*hooks, "build_sdist", DIST], source, PYTHONPATH=backend)
    (sdist,) = DIST.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    _run([*hooks, "build_wheel", DIST], folder / sdist.name.removesuffix(".tar.gz"), PYTHONPATH=backend)
    (wheel,) = DIST.glob("*.whl")
    return wheel


def compare(wheel: Path) -> list[str]:
    """Return a line for each file that only the wheel or only the tree has; pages for developers stay in the tree."""
    with zipfile.ZipFile(wheel) as archive:
        built = {name for name in archive.namelist() if ".dist-info/" not in name}
    found = (path for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file())
    tree = {str(path.relative_to(ROOT)) for path in found if path.suffix != ".md" and "__pycache__" not in path.parts}
    return [
        *(f"missing: {name}" for name in sorted(tree - built)),
        *(f"extra: {name}" for name in sorted(built - tree)),
    ]


def try_out(wheel: Path, folder: Path) -> None:
    """Install a wheel in an empty environment, and run a page of the documentation with it."""
    programs, work = folder / "environment" / "bin", folder / "work"
    _run([sys.executable, "-m", "venv", programs.parent])
    # Not compiled: most modules of the dependencies are never imported.
    install = [programs / "pip", "install", "--quiet", "--no-compile", "--constraint", ROOT / "constraints.txt", wheel]
    _run(install)
    if not (printed := _run([programs / "katib", "--version"], folder)).startswith(f"katib {__version__} "):
        raise ReleaseError(f"katib --version prints {printed}")
    work.mkdir()
    if failed := run_page(PAGE, work, slow=True, programs=programs):
        raise ReleaseError("\n".join(failed))


def tag() -> None:
    """Check that this commit can be released, build it, and tag it.

    Raises:
        ReleaseError: A check failed.
    """
    name = f"v{__version__}"
    if changed := _run(["git", "status", "--porcelain"], ROOT):
        raise ReleaseError(f"commit first:\n{changed}")
    if _run(["git", "tag", "--list", name], ROOT):
        raise ReleaseError(f"the tag {name} exists; raise the version in katib/model/version.py")
    message = f"katib {__version__}\n\n{notes((ROOT / 'CHANGELOG.md').read_text(), __version__)}\n"
    package()
    _run(["git", "tag", "--annotate", "--cleanup=verbatim", f"--message={message}", name], ROOT)
    print(f"tagged {name}; push it with: git push origin {name}; the files to publish are in {DIST.relative_to(ROOT)}")


def notes(changelog: str, version: str) -> str:
    """Return the section of a version.

    Raises:
        ReleaseError: The changelog has none with a date, it is empty or too long, or unreleased changes stand above it.
    """
    above, found, rest = changelog.partition(f"\n## [{version}] - ")
    if not found:
        raise ReleaseError(f'CHANGELOG.md has no section "## [{version}] - DATE"')
    if above.partition("## [Unreleased]")[2].strip() or "\n## [" in above.replace("## [Unreleased]", ""):
        raise ReleaseError(f"CHANGELOG.md has changes above the section of {version}; move them into it")
    date, _, section = rest.partition("\n## [")[0].partition("\n")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", date):
        raise ReleaseError(f'CHANGELOG.md has the date "{date}" for {version}; write YYYY-MM-DD')
    lines = section.strip().splitlines()
    if not lines or len(lines) > MOST_LINES:
        raise ReleaseError(f"CHANGELOG.md has {len(lines)} lines about {version}; write 1 to {MOST_LINES}")
    return "\n".join(lines)


def _run(command: Sequence[str | Path], cwd: Path | None = None, **variables: str | Path) -> str:
    environment = os.environ | {name: str(value) for name, value in variables.items()}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
