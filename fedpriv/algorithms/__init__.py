"""Algorithms: the clients' computation in a round, and the server's step.

Begin with ``trainer`` (one round, the same for all) and ``client_computation`` (the computation of a local
step), of which there are three kinds: ``record_computation`` (each client clips records to its own clip
norm), ``record_sums`` (records, to the server's clip norm) and ``upload_computation`` (whole uploads, which
``uploads`` computes). ``optimizers`` turn a noised mean into a change of weights; ``server_steps`` move the
global weights.

An algorithm is a class of settings, importable without torch, whose ``start`` makes the trainer of a run.
``base`` holds what all algorithms share; ``record_level`` and ``client_level`` hold the base classes of the
two levels. Each published work has a file of its own for what belongs to it alone.
"""

from fedpriv.algorithms.cdp_fedavg import CdpFedAvg
from fedpriv.algorithms.distributed import DdpFedAvg, DpFlServer
from fedpriv.algorithms.dp_fl import DpFl
from fedpriv.algorithms.dp_ftrl import DpFtrl
from fedpriv.algorithms.dp_scaffold import DpScaffold
from fedpriv.algorithms.fedavg import FedAvg
from fedpriv.algorithms.fedsgd import FedSgd, LdpFedSgd
from fedpriv.algorithms.naseri import NaseriCdp, NaseriLdp
from fedpriv.algorithms.wei import wei_cdp

__all__ = [
    "CdpFedAvg",
    "DdpFedAvg",
    "DpFl",
    "DpFlServer",
    "DpFtrl",
    "DpScaffold",
    "FedAvg",
    "FedSgd",
    "LdpFedSgd",
    "NaseriCdp",
    "NaseriLdp",
    "wei_cdp",
]
