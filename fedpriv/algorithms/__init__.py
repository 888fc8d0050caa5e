"""Algorithms: what a round does. Settings and privacy are importable without torch."""

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
