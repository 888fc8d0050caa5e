from __future__ import annotations

import gzip
import hashlib
import http.server
import re
import socket
import threading
from contextlib import contextmanager
from functools import partial

import pytest

from fedpriv.common.errors import DataError
from fedpriv.common.torchvision_shim import import_torchvision
from fedpriv.data import downloads
from fedpriv.data.adult import Adult
from fedpriv.data.cifar10 import Cifar10
from fedpriv.data.mnist import FashionMnist, Mnist
from fedpriv.data.storage import StoredFile

CLOSED = "http://127.0.0.1:9/"  # nobody listens there: refused at once


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextmanager
def served(folder):
    """The address of a server of the files in ``folder``."""
    handler = partial(QuietHandler, directory=folder)
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
def torchvision_mnist():
    return import_torchvision().datasets.MNIST


@pytest.fixture
def offline(monkeypatch, torchvision_mnist):
    monkeypatch.setattr(torchvision_mnist, "mirrors", [CLOSED, CLOSED])


@pytest.fixture
def mirror(tmp_path, data, tiny_mnist, monkeypatch, torchvision_mnist):
    """A mirror of two addresses, the first dead, that serves ``tiny_mnist``."""
    resources = []
    (tmp_path / "mirror").mkdir()
    for file in tiny_mnist.files:
        name = file.path.rpartition("/")[2] + ".gz"
        packed = gzip.compress((data / file.path).read_bytes())
        (tmp_path / "mirror" / name).write_bytes(packed)
        resources.append((name, hashlib.md5(packed).hexdigest()))
    monkeypatch.setattr(torchvision_mnist, "resources", resources)
    with served(tmp_path / "mirror") as address:
        monkeypatch.setattr(torchvision_mnist, "mirrors", [CLOSED, address])
        yield


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
        TinyAdult.site = address
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
    monkeypatch.setattr(Adult, "site", CLOSED)
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
    downloads.wait_for_answer([CLOSED, (tmp_path / "file").as_uri()])


@pytest.mark.usefixtures("mirror")
def test_the_timeout_of_other_sockets_is_restored(tiny_mnist, tmp_path):
    socket.setdefaulttimeout(77)
    try:
        tiny_mnist().download(tmp_path / "elsewhere")
        assert socket.getdefaulttimeout() == 77
    finally:
        socket.setdefaulttimeout(None)


@pytest.mark.parametrize("dataset", [Mnist, FashionMnist])
def test_torchvision_downloads_the_files_that_are_verified(dataset):
    theirs = getattr(import_torchvision().datasets, dataset.torchvision_class)
    names = [name.removesuffix(".gz") for name, _ in theirs.resources]
    raw = f"{dataset.torchvision_class}/raw"
    assert [file.path for file in dataset.files] == [f"{raw}/{name}" for name in names]


def test_every_server_is_asked_for_an_address_torchvision_would_use(torchvision_mnist):
    first = torchvision_mnist.resources[0][0]
    expected = [mirror + first for mirror in torchvision_mnist.mirrors]
    assert downloads.addresses(torchvision_mnist) == expected
    theirs = getattr(import_torchvision().datasets, Cifar10.torchvision_class)
    assert downloads.addresses(theirs) == [theirs.url]
