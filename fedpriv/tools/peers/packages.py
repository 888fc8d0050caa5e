"""The other libraries of ``fedpriv bench --peers``, and the environment of each."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from fedpriv.data.storage import cache_folder
from fedpriv.tools.environments import EnvironmentFailure, Installer, complete, make_environment


@dataclass(frozen=True)
class Peer:
    """A library that does the same work.

    Attributes:
        name: Name of the library.
        folder: Name of its environment.
        requirement: What pip installs.
        torch: Whether the library needs torch, in the version that fedpriv has.
        download_mb: Size of what is downloaded, without torch.
        disk_mb: Size of the environment.
        below: First version of Python that the library does not install on; None: no bound.
    """

    name: str
    folder: str
    requirement: str
    torch: bool
    download_mb: int
    disk_mb: int
    below: tuple[int, int] | None = None


OPACUS = Peer("Opacus", "opacus", "opacus==1.6.0", True, 70, 1100)
JAX = Peer("JAX", "jax", "jax==0.10.2", False, 150, 500)
PFL = Peer("pfl-research", "pfl", "pfl==0.6.0", True, 70, 1100, below=(3, 13))
FLOWER = Peer("Flower", "flower", "flwr[simulation]==1.42.0", True, 150, 1400)
PEERS = (OPACUS, JAX, PFL, FLOWER)
TORCH_MB = 200
"""Size of the wheel of torch without CUDA, which pip downloads once."""


def folder_of(peer: Peer, root: Path | None) -> Path:
    """Return the environment of a library, in the cache unless another folder is named."""
    root = cache_folder() / "peers" if root is None else root
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    version = peer.requirement.rpartition("==")[2]
    torch = f"-torch-{_torch_version()}" if peer.torch else ""
    return root / f"{peer.folder}-{version}{torch}-python-{python}"


def missing(root: Path | None) -> list[Peer]:
    """Return the libraries that can be installed here and have no environment yet."""
    return [
        peer for peer in PEERS if not reason_against(peer) and not complete(folder_of(peer, root))
    ]


def reason_against(peer: Peer) -> str | None:
    """Return why the library cannot be installed with this Python, or None."""
    if peer.below is not None and sys.version_info >= peer.below:
        major, minor = peer.below
        return f"{peer.requirement} needs Python < {major}.{minor}"
    return None


def announcement(peers: list[Peer], root: Path | None) -> str:
    """Say what will be downloaded, how large it is and how long it takes."""
    megabytes = sum(p.download_mb for p in peers) + TORCH_MB * any(p.torch for p in peers)
    where = folder_of(peers[0], root).parent
    return (
        f"{', '.join(p.requirement for p in peers)} from the package index, about {megabytes} MB "
        f"({sum(p.disk_mb for p in peers) / 1000:.1f} GB on the disk), into {where}: two to five minutes; "
        "then about five minutes of code of these packages"
    )


def python_of(peer: Peer, root: Path | None) -> Path:
    """Return the interpreter that has the library, and make its environment if there is none.

    Raises:
        EnvironmentFailure: The library cannot be installed.
    """
    if reason := reason_against(peer):
        raise EnvironmentFailure(reason)

    def fill(installer: Installer) -> None:
        if peer.torch:
            installer.install_torch(_torch_version())
        installer.install(peer.requirement)

    return make_environment(folder_of(peer, root), fill)


def _torch_version() -> str:
    from importlib.metadata import version

    return version("torch").partition("+")[0]
