from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from katib.model.files.directories import make_private
from katib.model.files.whole_files import write_named, write_whole


@pytest.mark.parametrize(("is_private", "mode"), [(True, 0o600), (False, 0o644)], ids=["private", "for all"])
def test_a_file_takes_the_place_of_another_with_the_rights_of_its_kind(
    tmp_path: Path, is_private: bool, mode: int
) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o666)
    before = os.umask(0o022)
    try:
        write_whole(path, "new ä", is_private=is_private)
    finally:
        os.umask(before)

    assert path.read_bytes() == "new ä".encode()
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert list(tmp_path.iterdir()) == [path]


def test_who_has_opened_a_file_keeps_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")
    with path.open("rb") as file:
        write_whole(path, b"new")

        assert (file.read(), path.read_bytes()) == (b"old", b"new")


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.mkdir()

    with pytest.raises(IsADirectoryError):
        write_whole(place, b"new")

    assert list(tmp_path.iterdir()) == [place]


def test_a_file_that_a_user_names_is_written_behind_a_link_and_into_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_named(tmp_path / "link", "new")
        write_named(tmp_path / "pipe", "text")

        assert (tmp_path / "link").is_symlink()
        assert ((tmp_path / "file").read_text(), os.read(reader, 100)) == ("new", b"text")
    finally:
        os.close(reader)


def test_git_takes_nothing_of_a_directory_that_was_made_and_all_of_the_users_own(tmp_path: Path) -> None:
    made, own, earlier = tmp_path / "data", tmp_path / "project", tmp_path / "x" / ".katib"
    own.mkdir()
    (own / "train.py").touch()
    earlier.mkdir(parents=True)
    (earlier / "katib.db").touch()
    for directory in (made, own, earlier, made):
        make_private(directory)
        (directory / "token").touch()
    git = ["git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    staged = subprocess.run([*git, "ls-files"], check=True, capture_output=True, text=True).stdout.split()

    assert staged == ["project/token", "project/train.py"]
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
