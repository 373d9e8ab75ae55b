"""Files: plain ones alone are read, and what is written is whole."""

import os
import stat
from pathlib import Path

import pytest

from foretell.errors import BadInput
from foretell.files import PRIVATE, append_lines, check_file, read_bytes, read_text, save, shown, write_whole


def test_only_plain_files_of_a_known_size_are_read(tmp_path: Path):
    plain, pipe = tmp_path / "plain", tmp_path / "pipe"
    plain.write_bytes(b"12345")
    os.mkfifo(pipe)
    assert read_bytes(plain, "record", most=5) == b"12345"
    for path, words in ((pipe, "not a plain file"), (tmp_path, "directory|plain file"), (tmp_path / "none", "No such")):
        with pytest.raises(BadInput, match=words):
            read_bytes(path, "record")
    with pytest.raises(BadInput, match="5 bytes, where at most 4"):
        read_bytes(plain, "record", most=4)
    with pytest.raises(BadInput, match="not a plain file"):
        read_bytes(Path("/dev/zero"), "record")
    with pytest.raises(BadInput, match="null"):
        read_bytes(Path("a\0b"), "record")


def test_bytes_that_are_no_text_are_placed(tmp_path: Path):
    file = tmp_path / "text"
    file.write_bytes(b"one\ntwo\xff")
    with pytest.raises(BadInput, match=r"byte 7 \(line 2\) is not UTF-8"):
        read_text(file, "plan")
    file.write_bytes(b"\xef\xbb\xbfword")
    assert read_text(file, "plan") == "word"


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "folder" / "file"
    with pytest.raises(BadInput, match="cannot write the report: there is no folder"):
        save(file, b"first", "report")
    write_whole(file, b"first")  # what foretell keeps by itself may have its folders

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("foretell.files.os.fsync", full)
    with pytest.raises(BadInput, match="No space left"):
        save(file, b"second", "report")
    assert file.read_bytes() == b"first"
    assert [path.name for path in file.parent.iterdir()] == ["file"]


def test_lines_that_are_added_stay_lines_though_one_was_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "journal"
    append_lines(file, b"one", b"two")
    with file.open("ab") as torn:
        torn.write(b"thr")  # as a crash leaves it
    append_lines(file, b"four")
    assert file.read_bytes().splitlines() == [b"one", b"two", b"thr", b"four"]
    monkeypatch.setattr("foretell.files.os.write", lambda handle, content: len(content) - 1)
    with pytest.raises(OSError, match="No space left"):
        append_lines(file, b"five")


def test_modes(tmp_path: Path):
    mask = os.umask(0o027)
    try:
        write_whole(tmp_path / "named", b"")
        write_whole(tmp_path / "kept", b"", PRIVATE)
        (tmp_path / "named").chmod(0o604)
        write_whole(tmp_path / "named", b"again")
        write_whole(tmp_path / "new", b"")
    finally:
        os.umask(mask)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"named": 0o604, "kept": 0o600, "new": 0o640}


def test_links_and_devices_stay_what_they_are(tmp_path: Path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_whole(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == b"new"
    write_whole(Path("/dev/null"), b"nothing")
    assert not Path("/dev/null").is_file()


def test_names_that_are_no_text_can_be_shown():
    assert shown(Path(os.fsdecode(b"a\xff"))) == "a\\xff"


def test_a_link_that_points_to_itself_is_a_message(tmp_path: Path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(BadInput, match="Too many levels of symbolic links"):
        save(loop, b"", "report")
    with pytest.raises(BadInput, match="too many levels of symbolic links"):
        check_file(loop, "--json")


@pytest.mark.parametrize("closed", ["folder", "folder/file"])
def test_a_file_is_refused_before_it_is_made_where_it_or_its_folder_is_closed(
    closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    (tmp_path / "link").symlink_to("folder/file")
    monkeypatch.setattr("foretell.files.os.access", lambda path, mode: path != tmp_path / closed)  # root may all
    for name in ("folder/file", "link"):
        with pytest.raises(BadInput, match="permission denied"):
            check_file(tmp_path / name, "--out")
    check_file(tmp_path / "new", "--out")
    check_file(Path("/dev/null"), "--out")
