from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import re
import socket
import subprocess
import sys
import tarfile
import threading
import zipfile
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from fedpriv.common.errors import DataError
from fedpriv.common.torchvision_shim import import_torchvision
from fedpriv.data import downloads
from fedpriv.data.adult import Adult
from fedpriv.data.cifar10 import Cifar10
from fedpriv.data.emnist import SPLITS, Emnist, files_of
from fedpriv.data.mnist import FashionMnist, Mnist
from fedpriv.data.storage import StoredFile, md5

CLOSED = "http://127.0.0.1:9/"  # nobody listens there: refused at once


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Stalling(QuietHandler):
    """Promises more than it sends, and waits."""

    def do_GET(self):
        self.do_HEAD()
        self.wfile.write(b"x")
        self.wfile.flush()
        self.connection.settimeout(10)
        with suppress(OSError):
            self.connection.recv(1)  # until the other side has given up


class CuttingShort(QuietHandler):
    """Promises more than it sends, and hangs up."""

    def do_GET(self):
        self.do_HEAD()
        self.wfile.write(b"x")


class CallingGzipAnEncoding(QuietHandler):
    def end_headers(self):
        self.send_header("Content-Encoding", "x-gzip")
        super().end_headers()


@contextmanager
def served(folder, kind=QuietHandler):
    """The address of a server of the files in ``folder``."""
    handler = partial(kind, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setattr(Mnist, "sites", (CLOSED, CLOSED))


@pytest.fixture
def mirror(tmp_path, data, tiny_mnist):
    """A folder that serves ``tiny_mnist``; there is a dead server too, and it is asked first."""
    folder, tiny_mnist.archives = tmp_path / "mirror", {}
    folder.mkdir()
    for file in tiny_mnist.files:
        name = file.path.rpartition("/")[2] + ".gz"
        packed = gzip.compress((data / file.path).read_bytes())
        (folder / name).write_bytes(packed)
        tiny_mnist.archives[name] = hashlib.md5(packed).hexdigest()
    with served(folder) as address:
        tiny_mnist.sites = (CLOSED, address)
        yield folder


@pytest.mark.usefixtures("mirror")
def test_an_empty_cache_is_filled_once(tiny_mnist, cache):
    assert len(tiny_mnist().load().train) == 20
    status = tiny_mnist(download=False).present()
    assert (status.where, status.usable) == (str(cache), True)
    assert [path.name for path in cache.iterdir()] == ["MNIST"]  # no temporary folder is left


@pytest.mark.usefixtures("mirror")
def test_download_replaces_a_damaged_file(tiny_mnist, data):
    dataset = tiny_mnist(path=str(data))
    (data / "MNIST/raw/train-labels-idx1-ubyte").write_bytes(b"broken")
    dataset.download(data)
    assert dataset.present().usable


@pytest.mark.usefixtures("mirror")
def test_a_wrong_file_from_the_server_is_not_kept(tiny_mnist, cache):
    tiny_mnist.files = (*tiny_mnist.files[:3], Mnist.files[3])
    with pytest.raises(DataError, match="t10k-labels-idx1-ubyte that came has a wrong MD5"):
        tiny_mnist().load()
    assert list(cache.iterdir()) == []


@pytest.mark.usefixtures("offline")
def test_without_a_network_one_sentence_says_what_to_do(cache):
    with pytest.raises(DataError) as caught:
        Mnist().load()
    sentence = re.sub(r"\[Errno \d+\] ", "", str(caught.value))  # Linux 111, macOS 61
    assert sentence == (
        f"mnist could not be downloaded into {cache} ({CLOSED}train-images-idx3-ubyte.gz: "
        "Connection refused); put MNIST/raw with its four unzipped idx files into a "
        "folder and name it with dataset.path or FEDPRIV_DATA, or run "
        "`fedpriv data download mnist` when that is solved"
    )
    assert not cache.exists()


@pytest.mark.usefixtures("mirror")
def test_a_destination_that_is_a_file_is_told_in_one_sentence(tiny_mnist, tmp_path):
    destination = tmp_path / "file"
    destination.write_text("")
    with pytest.raises(DataError, match=rf"^mnist could not be downloaded into {destination} \("):
        tiny_mnist().download(destination)


@pytest.fixture
def tiny_adult(tmp_path):
    """Adult with files of our own, served from ``tmp_path / "site"``."""
    (tmp_path / "site").mkdir()
    files = []
    for file in Adult.files:
        content = f"{file.path}\n".encode()
        (tmp_path / "site" / file.path.rpartition("/")[2]).write_bytes(content)
        files.append(StoredFile(file.path, hashlib.md5(content).hexdigest()))

    class TinyAdult(Adult):
        pass

    TinyAdult.files = tuple(files)
    with served(tmp_path / "site") as address:
        TinyAdult.sites = (address,)
        yield TinyAdult


def test_files_are_fetched_one_by_one_where_torchvision_has_no_class(tiny_adult, cache):
    tiny_adult().prepare()
    assert (cache / "adult/adult.test").read_text() == "adult/adult.test\n"
    assert [path.name for path in cache.iterdir()] == ["adult"]
    assert tiny_adult(download=False).present().usable


@pytest.mark.parametrize("fault", ["wrong", "absent"])
def test_of_several_files_none_is_kept_if_one_is_wrong(fault, tiny_adult, cache, tmp_path):
    second = tmp_path / "site" / "adult.test"
    second.write_text("wrong") if fault == "wrong" else second.unlink()
    with pytest.raises(DataError, match=r"^adult could not be downloaded into .*adult"):
        tiny_adult().prepare()
    assert list(cache.iterdir()) == []


def test_without_a_network_adult_says_what_to_do(cache, monkeypatch):
    monkeypatch.setattr(Adult, "sites", (CLOSED,))
    with pytest.raises(DataError) as caught:
        Adult().prepare()
    sentence = re.sub(r"\[Errno \d+\] ", "", str(caught.value))
    assert sentence == (
        f"adult could not be downloaded into {cache} ({CLOSED}adult.data: Connection refused); put "
        "adult/adult.data and adult/adult.test into a folder and name it with dataset.path or "
        "FEDPRIV_DATA, or run `fedpriv data download adult` when that is solved"
    )
    assert not cache.exists()


def test_a_server_that_never_answers_is_given_up():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/file"
        with pytest.raises(ConnectionError, match=r"no answer within 0\.1 seconds|timed out"):
            downloads.wait_for_answer([url], seconds=0.1)


def test_one_answering_server_is_enough(tmp_path):
    (tmp_path / "file").write_text("")
    url = (tmp_path / "file").as_uri()
    assert downloads.wait_for_answer([CLOSED, url]) == url


@pytest.mark.few(2)
@pytest.mark.parametrize("fault", ["wrong", "absent", "stalled", "cut short"])
def test_the_next_server_is_tried(fault, tiny_mnist, mirror, cache, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "STALL_SECONDS", 0.2)
    monkeypatch.setattr(downloads, "wait_for_answer", lambda urls: urls[0])
    faulty = tmp_path / "faulty"
    faulty.mkdir()
    for name in {} if fault == "absent" else tiny_mnist.archives:
        (faulty / name).write_bytes((mirror / name).read_bytes()[:-1] + b"?")
    kinds = {"stalled": Stalling, "cut short": CuttingShort}
    with served(faulty, kinds.get(fault, QuietHandler)) as address:
        tiny_mnist.sites = (address, tiny_mnist.sites[1])
        tiny_mnist().prepare()
        assert tiny_mnist(download=False).present().usable
        tiny_mnist.sites = (address,)
        with pytest.raises(DataError, match=rf"^mnist could not .* \({address}train-images"):
            tiny_mnist().download(tmp_path / "elsewhere")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_server_may_call_gzip_an_encoding(tiny_mnist, mirror):
    with served(mirror, CallingGzipAnEncoding) as address:
        tiny_mnist.sites = (address,)
        tiny_mnist().prepare()
    assert tiny_mnist(download=False).present().usable


STRANGERS = ("../../escaped", "other/../../escaped", "cifar-10-batches-py/data_batch_10", "readme")


def test_of_an_archive_only_known_files_are_taken(cache, tmp_path):
    class TinyCifar(Cifar10):
        files = tuple(
            StoredFile(file.path, hashlib.md5(file.path.encode()).hexdigest())
            for file in Cifar10.files
        )

    paths = [file.path for file in Cifar10.files]
    (tmp_path / "site").mkdir()
    with tarfile.open(tmp_path / "site" / "tiny.tar.gz", "w:gz") as archive:
        for path in (*STRANGERS, f"{tmp_path}/escaped", *paths):
            member = tarfile.TarInfo(path)
            member.size = len(path)
            archive.addfile(member, io.BytesIO(path.encode()))
    TinyCifar.archives = {"tiny.tar.gz": md5((tmp_path / "site" / "tiny.tar.gz").read_bytes())}
    with served(tmp_path / "site") as address:
        TinyCifar.sites = (address,)
        TinyCifar().prepare()
    assert sorted(str(p.relative_to(cache)) for p in cache.rglob("*") if p.is_file()) == sorted(
        paths
    )
    assert not list(tmp_path.rglob("escaped"))


def test_a_zip_of_gzip_files_is_unpacked_twice(cache, tmp_path):
    class TinyEmnist(Emnist):
        pass

    paths = [file.path for split in SPLITS for file in files_of(split)]
    (tmp_path / "site").mkdir()
    with zipfile.ZipFile(tmp_path / "site" / "tiny.zip", "w") as archive:
        archive.writestr("../../escaped", "no")
        for path in paths:
            archive.writestr(f"gzip/{Path(path).name}.gz", gzip.compress(path.encode()))
    TinyEmnist.archives = {"tiny.zip": md5((tmp_path / "site" / "tiny.zip").read_bytes())}
    with served(tmp_path / "site") as address:
        TinyEmnist.sites = (address,)
        TinyEmnist(split="letters").prepare()
    assert all((cache / path).read_text() == path for path in paths)
    assert sum(path.is_file() for path in tmp_path.rglob("*")) == len(paths) + 1


@pytest.mark.parametrize("dataset", [Mnist, FashionMnist])
def test_archives_and_servers_are_those_of_torchvision(dataset):
    theirs = getattr(import_torchvision().datasets, dataset.__name__.replace("Mnist", "MNIST"))
    assert list(dataset.archives.items()) == theirs.resources
    assert list(dataset.sites) == theirs.mirrors
    names = [file.path.rpartition("/")[2] + ".gz" for file in dataset.files]
    assert names == list(dataset.archives)


@pytest.mark.parametrize("dataset", [Cifar10, Emnist])
def test_the_one_archive_is_that_of_torchvision(dataset):
    theirs = getattr(import_torchvision().datasets, dataset.__name__.upper())
    ((name, known),) = dataset.archives.items()
    assert dataset.sites[0] + name == theirs.url
    assert known == (theirs.tgz_md5 if dataset is Cifar10 else theirs.md5)


def test_a_download_imports_neither_torch_nor_torchvision():
    code = (
        "import sys\n"
        "from fedpriv.data.mnist import Mnist\n"
        "Mnist.sites = ('http://127.0.0.1:9/',)\n"
        "try: Mnist().download('nowhere')\n"
        "except Exception: sys.exit(bool({'torch', 'torchvision'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
