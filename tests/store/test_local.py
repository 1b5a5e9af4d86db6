"""Behavior that only local files have: crashes, full disks, links, folders."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from frazil.store import local_store
from frazil.store.local_store import LocalStore
from frazil.store.object_store import ObjectExists, ObjectMissing, StoreError
from frazil.wire.errors import BadRequest
from tests.support.patience import HANG_S


@pytest.fixture(params=["unnamed", "exclusive", "no links"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Choose how the store creates a file: as usual, without unnamed files, or without links to
    them."""
    if request.param == "exclusive":
        monkeypatch.setattr(local_store, "_O_TMPFILE", None)
    elif request.param == "no links":
        monkeypatch.setattr(os, "link", _failing(errno.EPERM))
    return str(request.param)


def _failing(number: int) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def _failing_at(nth: int, number: int, real: Callable[[int], None]) -> Callable[[int], None]:
    calls = iter(range(1, 1000))

    def fail(fd: int) -> None:
        if next(calls) == nth:
            raise OSError(number, os.strerror(number))
        real(fd)

    return fail


def _names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_each_way_writes_once(way: str, tmp_path: Path) -> None:
    store = LocalStore()
    store.put_new(f"{tmp_path}/a", [b"one", b"two"])

    assert (tmp_path / "a").read_bytes() == b"onetwo"
    with pytest.raises(ObjectExists):
        store.put_new(f"{tmp_path}/a", [b"three"])
    assert (tmp_path / "a").read_bytes() == b"onetwo"
    assert _names(tmp_path) == ["a"]


def test_each_way_has_one_winner(way: str, tmp_path: Path) -> None:
    store = LocalStore()
    together = threading.Barrier(8)

    def write(writer: int) -> bool:
        together.wait(HANG_S)
        try:
            store.put_new(f"{tmp_path}/new/folder/object", [bytes([writer]) * 10_000])
        except ObjectExists:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(write, range(8)))

    assert won.count(True) == 1
    assert (tmp_path / "new/folder/object").read_bytes() == bytes([won.index(True)]) * 10_000


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_failed_fsync_leaves_nothing(
    way: str, nth: int, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without links the store syncs a first file before it finds out, and then writes a second one.
    nth = nth + 1 if way == "no links" else nth
    monkeypatch.setattr(os, "fsync", _failing_at(nth, number, os.fsync))
    store = LocalStore()

    with pytest.raises(StoreError, match=os.strerror(number)) as raised:
        store.put_new(f"{tmp_path}/a", [b"content"])

    assert not isinstance(raised.value, ObjectExists)
    assert _names(tmp_path) == []
    store.put_new(f"{tmp_path}/a", [b"content"])
    assert (tmp_path / "a").read_bytes() == b"content"


def _run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


@pytest.mark.process
@pytest.mark.parametrize("unnamed", ["yes", "no"])
def test_a_disk_that_fills_up_leaves_nothing(unnamed: str, tmp_path: Path) -> None:
    """The limit on file sizes makes the kernel write a part and refuse the rest."""
    ended = _run(
        """
        import resource, sys
        from frazil.store import local_store as local
        from frazil.store.object_store import StoreError
        if sys.argv[2] == "no":
            local._O_TMPFILE = None
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        store = local.LocalStore()
        store.put_new(f"{sys.argv[1]}/fits", [b"x" * 100_000])
        try:
            store.put_new(f"{sys.argv[1]}/does-not", [b"x" * 60_000, b"y" * 60_000])
        except StoreError as error:
            print(error)
        """,
        str(tmp_path),
        unnamed,
    )

    assert ended.returncode == 0, ended.stderr
    assert os.strerror(errno.EFBIG) in ended.stdout
    assert _names(tmp_path) == ["fits"]
    assert (tmp_path / "fits").stat().st_size == 100_000


@pytest.mark.process
@pytest.mark.parametrize(("nth", "left"), [(1, []), (2, ["object"])])
def test_a_crash_leaves_the_whole_object_or_none(nth: int, left: list[str], tmp_path: Path) -> None:
    """The process is killed in place of its n-th fsync, that of the file or of the folder."""
    ended = _run(
        """
        import os, signal, sys
        from frazil.store.local_store import LocalStore
        calls = 0
        real = os.fsync
        def fsync(fd):
            global calls
            calls += 1
            if calls == int(sys.argv[2]):
                os.kill(os.getpid(), signal.SIGKILL)
            real(fd)
        os.fsync = fsync
        LocalStore().put_new(f"{sys.argv[1]}/object", [b"x" * 50_000, b"y" * 50_000])
        """,
        str(tmp_path),
        str(nth),
    )

    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert _names(tmp_path) == left
    for name in left:
        assert (tmp_path / name).read_bytes() == b"x" * 50_000 + b"y" * 50_000


def test_file_and_folders_are_synced_before_put_new_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)

    LocalStore().put_new(f"{tmp_path}/table/metadata/object", [b"content"])

    # The order is: entries of the two new folders, the file while it has no name, its entry.
    assert synced[:2] == [str(tmp_path), f"{tmp_path}/table"]
    assert synced[2].startswith(f"{tmp_path}/table/metadata/")
    assert synced[3:] == [f"{tmp_path}/table/metadata"]


def test_chunks_that_the_kernel_takes_in_parts_are_written_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.writev

    def writev(fd: int, buffers: list[memoryview]) -> int:
        return os.write(fd, bytes(buffers[0])[:7]) if len(buffers) % 2 else real(fd, buffers[:2])

    monkeypatch.setattr(os, "writev", writev)
    chunks = [bytes([65 + number]) * (number * 5) for number in range(12)]

    LocalStore().put_new(f"{tmp_path}/a", chunks)

    assert (tmp_path / "a").read_bytes() == b"".join(chunks)


def test_files_get_the_permissions_that_the_umask_gives(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        LocalStore().put_new(f"{tmp_path}/folder/a", [b"content"])
    finally:
        os.umask(mask)

    assert (tmp_path / "folder/a").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o750


def test_a_symlink_under_the_name_is_not_written_through(way: str, tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "link").symlink_to("victim")
    (tmp_path / "dangling").symlink_to("made")

    for name in ("link", "dangling"):
        with pytest.raises(ObjectExists):
            LocalStore().put_new(f"{tmp_path}/{name}", [b"content"])

    assert (tmp_path / "victim").read_bytes() == b"precious"
    assert not (tmp_path / "made").exists()


def test_list_follows_no_symlink(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_bytes(b"secret")
    (tmp_path / "table/data").mkdir(parents=True)
    (tmp_path / "table/data/file").write_bytes(b"content")
    (tmp_path / "table/data/linked-folder").symlink_to(tmp_path / "outside")
    (tmp_path / "table/data/linked-file").symlink_to(tmp_path / "outside/secret")
    os.mkfifo(tmp_path / "table/data/fifo")

    found = [info.location for info in LocalStore().list(f"{tmp_path}/table")]

    assert found == [f"{tmp_path}/table/data/file"]


def test_a_folder_is_read_while_its_files_are_listed(tmp_path: Path) -> None:
    """A folder may have millions of files, so its entries are not collected first."""

    def open_folders() -> list[str]:
        folder = Path("/proc/self/fd")
        return [os.readlink(fd) for fd in folder.iterdir() if fd.is_symlink()]

    for name in "abc":
        (tmp_path / name).touch()
    listing = LocalStore().list(str(tmp_path))
    next(listing)
    assert str(tmp_path) in open_folders()
    assert len(list(listing)) == 2
    assert str(tmp_path) not in open_folders()


def test_a_listed_file_is_looked_at_when_it_is_asked(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_bytes(b"x")
    first, second = sorted(LocalStore().list(str(tmp_path)), key=lambda info: info.location)
    (tmp_path / "a").write_bytes(b"longer")
    assert first.size == 6
    (tmp_path / "b").unlink()
    with pytest.raises(ObjectMissing):
        second.modified_ms  # noqa: B018


def test_listed_locations_begin_as_the_prefix_is_written(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")

    for prefix in (f"{tmp_path}", f"file:{tmp_path}", f"file://{tmp_path}", f"file://{tmp_path}/"):
        (found,) = LocalStore().list(prefix)
        assert found.location == f"{prefix.rstrip('/')}/a"


def test_a_name_that_is_not_text_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    with open(os.fsencode(tmp_path) + b"/\xff", "wb"):
        pass

    assert [info.location for info in LocalStore().list(f"{tmp_path}")] == [f"{tmp_path}/a"]


@pytest.mark.parametrize("name", ["a?b", "a#b", "a\\b"])
def test_what_others_left_can_be_listed_and_deleted(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"")
    store = LocalStore()

    store.delete([info.location for info in store.list(f"{tmp_path}")])

    assert _names(tmp_path) == []


def test_a_fifo_does_not_hang_the_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")

    with pytest.raises(ObjectMissing):
        LocalStore().get(f"{tmp_path}/fifo")
    assert LocalStore().size(f"{tmp_path}/fifo") is None


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    store = LocalStore()

    for below in ("file/object", "file/below/object"):
        with pytest.raises(StoreError, match=os.strerror(errno.ENOTDIR)):
            store.put_new(f"{tmp_path}/{below}", [b""])
    for below in ("file", "file/below"):
        with pytest.raises(StoreError, match=os.strerror(errno.ENOTDIR)):
            store.make_folders([f"{tmp_path}/{below}"])
    assert (tmp_path / "file").read_bytes() == b"content"


def test_deleting_a_folder_is_an_error_and_the_rest_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(StoreError, match="folder"):
        LocalStore().delete([f"{tmp_path}/folder", f"{tmp_path}/file"])

    assert sorted(os.listdir(tmp_path)) == ["folder"]


def test_folders_made_by_many_at_once_are_all_there(tmp_path: Path) -> None:
    store = LocalStore()

    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda number: store.put_new(f"{tmp_path}/a/b/c/{number % 3}/{number}", [b"x"]),
                range(40),
            )
        )

    assert len(_names(tmp_path)) == 40


def test_other_schemes_are_not_files(tmp_path: Path) -> None:
    for location in ("s3://bucket/a", "memory://x/a"):
        with pytest.raises(BadRequest, match="not a local file"):
            LocalStore().get(location)
    with pytest.raises(StoreError, match="folder"):
        LocalStore().put_new("file:///", [b""])


def test_many_files_of_a_folder_are_synced_with_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "metadata"
    folder.mkdir()
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    with ThreadPoolExecutor(4) as executor:
        files = {f"file://{folder}/{n}": [b"content"] for n in range(20)}
        assert LocalStore().put_many(files, executor) == {}

    # Each file is synced while it has no name, then the folder that has all the names.
    assert len(synced) == 21
    assert synced[-1] == str(folder)
    assert str(folder) not in synced[:-1]


def test_a_folder_that_cannot_be_synced_keeps_none_of_many(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def fsync(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    files = {f"{tmp_path}/{n}": [b"content"] for n in range(20)}
    with ThreadPoolExecutor(4) as executor:
        failed = LocalStore().put_many(files, executor)
    assert failed.keys() == files.keys()
    assert _names(tmp_path) == []


def test_what_was_put_unsynced_is_synced_by_its_folders(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore()
    store.make_folders([f"{tmp_path}/a", f"{tmp_path}/b"])
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    files = [f"{tmp_path}/a/1", f"{tmp_path}/a/2", f"{tmp_path}/b/1"]
    for location in files:
        store.put_unsynced(location, [b"content"])
    folders = {f"{tmp_path}/a", f"{tmp_path}/b"}
    assert folders.isdisjoint(synced)
    assert len(synced) >= len(files)
    synced.clear()
    store.sync(files)
    assert sorted(synced) == sorted(folders)


def test_a_folder_that_is_not_there_is_made_for_an_unsynced_file(tmp_path: Path) -> None:
    LocalStore().put_unsynced(f"{tmp_path}/new/folder/object", [b"content"])
    assert (tmp_path / "new/folder/object").read_bytes() == b"content"


def test_an_unsynced_file_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the link fails, the store writes a second file: correct, but twice as slow."""
    synced = 0
    real = os.fsync

    def fsync(fd: int) -> None:
        nonlocal synced
        synced += 1
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    LocalStore().put_unsynced(f"{tmp_path}/object", [b"content"])
    assert synced == 1
