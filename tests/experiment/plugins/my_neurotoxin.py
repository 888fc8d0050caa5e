import torch

from fedpriv.attacks import Backdoor
from fedpriv.attacks.malicious import MaliciousClients
from fedpriv.common import checks


class Neurotoxin(Backdoor):
    """A backdoor on coordinates that others hardly move, so that it lasts (Zhang et al., ICML 2022)."""

    def __init__(self, top_share, **backdoor):
        super().__init__(**backdoor)
        self.top_share = checks.number("top_share", top_share, above=0, below=1)

    def start(self, data):
        return Attackers(self, data)


class Attackers(MaliciousClients):
    """They stay off the coordinates of the largest change between the last two global models."""

    last = None  # the global weights of the last round [d]
    free = None  # 1 where they may move the weights, else 0 [d]

    def observe(self, round_index, weights):
        if self.last is not None:
            moved = (weights - self.last).abs()
            top = moved.topk(int(self.settings.top_share * len(moved))).indices
            self.free = torch.ones_like(weights).index_fill_(0, top, 0.0)
        self.last = weights

    def constrain(self, round_index, clients, changes):
        return changes if self.free is None else changes * self.free

    def state_dict(self):
        return {"last": self.last, "free": self.free}

    def load_state_dict(self, state):
        self.last, self.free = state["last"], state["free"]
