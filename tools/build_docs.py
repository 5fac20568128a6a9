"""Build the documentation site from docs/ into build/docs/html (run by `make docs`).

The sources are copied to build/docs/source first, together with the pages that are generated (`tools.reference_pages`)
and the pages of the repository that belong to the site, such as the changelog. A link to a file that is not a page of
the site becomes a link into the repository at $KATIB_DOCS_REPOSITORY, such as https://example.com/katib/blob/main, or
plain text if that is not set. Every warning of Sphinx is an error: a broken link, a page that no list of pages has.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from tools.reference_pages import pages

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
BUILD = ROOT / "build" / "docs"
REPOSITORY = "KATIB_DOCS_REPOSITORY"

OF_THE_REPOSITORY = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "benchmarks/README.md": "project/benchmarks.md",
}
"""Pages beside docs/ that the site has, with their path there."""

_FENCE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[((?:[^\[\]`]|`[^`]*`)*)\]\(([^)\s]+)\)")


def site_pages() -> dict[str, str]:
    """Return the text of every page of the site, by its path; links lead to pages of the site or out of it."""
    sources = {file.relative_to(ROOT).as_posix(): file.read_text() for file in DOCS.rglob("*.md")}
    sources |= {name: (ROOT / name).read_text() for name in OF_THE_REPOSITORY}
    generated = pages()
    sources |= {f"docs/{page}": text for page, text in generated.items()}
    places = targets(generated)
    return {places[name]: relinked(text, name, places) for name, text in sources.items()}


def targets(generated: Iterable[str]) -> dict[str, str]:
    """Return the page of the site for each file and folder of the repository that has one."""
    found = {
        file.relative_to(ROOT).as_posix(): file.relative_to(DOCS).as_posix()
        for file in DOCS.rglob("*")
        if file.is_file()
    }
    for folder in (file.parent for file in DOCS.rglob("README.md")):
        found[folder.relative_to(ROOT).as_posix()] = (folder / "README.md").relative_to(DOCS).as_posix()
    for page in generated:
        found[f"docs/{page}"] = page
        if not page.startswith("examples/"):
            continue
        name = "examples" if page == "examples/index.md" else page.removesuffix(".md")
        found[name] = page
        found |= {file.relative_to(ROOT).as_posix(): page for file in (ROOT / name).iterdir() if file.is_file()}
    return {**found, **OF_THE_REPOSITORY, "README.md": "index.md"}


def relinked(text: str, source: str, places: Mapping[str, str]) -> str:
    """Return the text of a page with links for the site.

    Args:
        text: Markdown.
        source: Path of the page in the repository, which its links start from.
        places: Pages of the site by their paths in the repository.
    """

    def moved(match: re.Match[str]) -> str:
        image, label, target = match.groups()
        place, mark, anchor = target.partition("#")
        if not place or "://" in place or place.startswith("mailto:"):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), place))
        if path in places:
            link = posixpath.relpath(places[path], posixpath.dirname(places[source]) or ".")
            return f"{image}[{label}]({link}{mark}{anchor})"
        if not (ROOT / path).exists():
            return match[0]  # Sphinx says that it is broken
        repository = os.environ.get(REPOSITORY, "").rstrip("/")
        if repository:
            return f"{image}[{label}]({repository}/{path}{mark}{anchor})"
        return label if path in label or "`" in label else f"{label} (`{path}`)"

    parts = _FENCE.split(text)
    return "".join(part if number % 2 else _LINK.sub(moved, part) for number, part in enumerate(parts))


def main() -> int:
    """Write the sources of the site, build it, and print its path."""
    source, html = BUILD / "source", BUILD / "html"
    wanted = {source / name: text.encode() for name, text in site_pages().items()}
    others = (file for file in DOCS.rglob("*") if file.is_file() and file.suffix != ".md")
    wanted |= {source / file.relative_to(DOCS): file.read_bytes() for file in others}
    shutil.rmtree(BUILD, ignore_errors=True)  # Sphinx says nothing of pages that it does not read again
    for file, content in wanted.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    sphinx = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", BUILD / "doctrees"]
    done = subprocess.run([*sphinx, source, html], check=False)  # noqa: S603 - our own arguments
    if done.returncode == 0:
        print(f"The documentation is in {html / 'index.html'}: open file://{html / 'index.html'}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
