"""Demonstrations of the rows on Flower. They call the installed flwr and need nothing else.

    python flower.py fixed | adaptive | local | accountant

Each prints one JSON object: what was measured, and what the same calls measure in the control. ``weighted``,
``equal`` and ``zeros`` make adapters of central DP with fixed clipping, for fedpriv verify --adapter.
"""

from __future__ import annotations

import json
import logging
import sys

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
)
from flwr.supercore.task_identity import TaskIdentity

TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1  # messages are made by hand
logging.disable(logging.CRITICAL)
DIMENSION = 20_000
MULTIPLIER, CLIP, CLIENTS = 1.0, 1.0, 10


def arrays(values):
    """Return a model with one layer."""
    return ArrayRecord([np.array(values, dtype=np.float64)])


def reply(values, examples):
    """Return the reply of a client: its weights and its number of examples."""
    content = RecordDict(
        {"arrays": arrays(values), "metrics": MetricRecord({"num-examples": examples})}
    )
    return Message(content, dst_node_id=1, message_type="train")


class Quiet(FedAvg):
    """FedAvg that asks nobody: the replies are given by hand."""

    def configure_train(self, server_round, arrays, config, grid):
        """Return no messages."""
        return []


def aggregate(strategy, replies, size=DIMENSION):
    """Return the flat new model of one round that begins at zero weights."""
    strategy.configure_train(1, arrays(np.zeros(size)), ConfigRecord(), None)
    model, _ = strategy.aggregate_train(1, replies)
    return model.to_numpy_ndarrays()[0]


def fixed():
    """Move one client's update to the opposite point of the ball, and compare with the noise."""

    def round_of(first, examples):
        np.random.seed(7)  # the same noise in both rounds
        strategy = DifferentialPrivacyServerSideFixedClipping(
            Quiet(weighted_by_key="num-examples"), MULTIPLIER, CLIP, CLIENTS
        )
        replies = []
        for client, count in enumerate(examples):
            update = np.zeros(DIMENSION)
            update[0] = first if client == 0 else 0.0
            update[1] = 1.0
            replies.append(reply(update, count))
        return aggregate(strategy, replies)

    def moved(examples):
        up, down = round_of(100.0, examples), round_of(-100.0, examples)
        return float(np.linalg.norm(up - down))

    def noise(examples):
        return float(np.std(round_of(0.0, examples)[2:]))

    unequal, equal = [9_991] + [1] * 9, [100] * CLIENTS
    return {
        "measured": {
            "movement_by_one_client": moved(unequal),
            "movement_over_noise": moved(unequal) / noise(unequal),
            "noise_std": noise(unequal),
        },
        "control": {
            "movement_by_one_client": moved(equal),
            "movement_over_noise": moved(equal) / noise(equal),
            "refusal_with_accountant": float(_refused(unequal)),
            "refusal_of_equal_weights": float(_refused(equal)),
        },
    }


def _refused(examples):
    """Return whether the strategy refuses the weights when it has an accountant."""
    from flwr.serverapp import NeighboringRelation, PrivacyConfig, RdpAccountant, SamplingMethod

    accountant = RdpAccountant(
        PrivacyConfig(
            target_delta=1e-5,
            population_size=100,
            neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
            sampling_method=SamplingMethod.NO_AMPLIFICATION,
        )
    )
    strategy = DifferentialPrivacyServerSideFixedClipping(
        Quiet(weighted_by_key="num-examples"), MULTIPLIER, CLIP, CLIENTS, accountant=accountant
    )
    replies = [reply(np.ones(DIMENSION), count) for count in examples]
    try:
        aggregate(strategy, replies)
    except ValueError as error:
        return "equal client weights" in str(error)
    return False


class Rounds:
    """The strategy with fixed clipping as an adapter. In one of two inputs a client sends zeros."""

    def __init__(self, weighted=False, zeros=False):
        self.claim = {
            "unit": "client",
            "neighbours": "zero_out",
            "sampling": "none",
            "clip_norm": CLIP,
            "noise_multiplier": MULTIPLIER,
            "denominator": CLIENTS,
            "rounds": 4,
            "clients": CLIENTS,
            "finite": True,
        }
        self.holds_still = ["seed", "examples"] if weighted else ["seed"]
        self.zeros = zeros

    def round(self, state, data, seed, examples=None):
        """Return the new model of a round that begins at zero weights."""
        number = (state or 0) + 1
        np.random.seed([seed, number])  # Flower draws its noise from numpy's global generator
        strategy = DifferentialPrivacyServerSideFixedClipping(
            Quiet(weighted_by_key="num-examples"), MULTIPLIER, CLIP, CLIENTS
        )
        replies = []
        for client, update in enumerate(data):
            sent = update if self.zeros or update.any() else update + 1e-12
            replies.append(reply(sent, examples[client] if examples else 1))
        return aggregate(strategy, replies, len(data[0])), number


def weighted():
    """Return the adapter whose clients have unequal numbers of examples, by which FedAvg weights."""
    return Rounds(weighted=True)


def equal():
    """Return the adapter whose clients have one example each and send no exact zeros."""
    return Rounds()


def zeros():
    """Return the adapter whose clients may send updates of exact zeros."""
    return Rounds(zeros=True)


class Mended(DifferentialPrivacyServerSideAdaptiveClipping):
    """The strategy with three corrections: the bit, its centre, and the clip norm that noise is scaled to."""

    def configure_train(self, server_round, arrays, config, grid):
        """Keep the clip norm that is enforced in this round."""
        self.enforced_clip_norm = self.clipping_norm
        return super().configure_train(server_round, arrays, config, grid)

    def _noisy_fraction(self, count, total):
        unclipped_centred = (total - count) - total / 2
        return super()._noisy_fraction(unclipped_centred, total) + 0.5

    def _add_noise_to_aggregated_arrays(self, aggregated):
        following, self.clipping_norm = self.clipping_norm, self.enforced_clip_norm
        try:
            return super()._add_noise_to_aggregated_arrays(aggregated)
        finally:
            self.clipping_norm = following


def adaptive():
    """Follow the clip norm, and compare the noise with the clip norm that was enforced."""
    size = DIMENSION // 100

    def strategy(kind, start):
        return kind(
            Quiet(weighted_by_key="num-examples"),
            noise_multiplier=MULTIPLIER,
            num_sampled_clients=100,
            initial_clipping_norm=start,
            clipped_count_stddev=5.0,
        )

    def last_clip_norm(kind, start, rounds=60):
        """Return the clip norm after rounds in which the updates have norms 0.5, 0.51, ..., 1.49."""
        np.random.seed(3)
        server = strategy(kind, start)
        for _ in range(rounds):
            updates = [np.eye(1, size)[0] * (0.5 + client / 100) for client in range(100)]
            server.configure_train(1, arrays(np.zeros(size)), ConfigRecord(), None)
            server.aggregate_train(1, [reply(update, 1) for update in updates])
        return server.clipping_norm

    def noise_over_enforced(kind):
        """Return noise × clients ÷ (multiplier × clip norm that was enforced), all updates clipped."""
        np.random.seed(5)
        server = strategy(kind, 1.0)
        model = aggregate(server, [reply(np.full(DIMENSION, 1.0), 1) for _ in range(100)])
        return float(np.std(model) * 100 / server.noise_multiplier)

    def largest_bit(kind):
        """Return how much of the count one client makes, whose update is clipped or not."""
        sizes = []
        for norm in (0.1, 10.0):
            server = strategy(kind, 1.0)
            server.clipped_count_stddev = 0.0
            server.configure_train(1, arrays(np.zeros(size)), ConfigRecord(), None)
            noised = server._noisy_fraction
            counted = []
            server._noisy_fraction = lambda *given, noised=noised, counted=counted: (
                counted.append(noised(*given)) or 0.5
            )
            server.aggregate_train(1, [reply(np.eye(1, size)[0] * norm, 1)] * 1)
            # the mended fraction is moved back by 1/2 after the noise, which is no data
            sizes.append(abs(counted[0] - (0.5 if kind is Mended else 0.0)))
        return max(sizes)

    def measured(kind):
        return {
            "clip_norm_from_0.9": last_clip_norm(kind, 0.9),
            "clip_norm_from_1.1": last_clip_norm(kind, 1.1),
            "noise_over_enforced_clip_norm": noise_over_enforced(kind),
            "largest_part_of_the_count_by_one_client": largest_bit(kind),
        }

    return {
        "measured": measured(DifferentialPrivacyServerSideAdaptiveClipping),
        "control": measured(Mended),
    }


def local():
    """Compare the noise of LocalDpMod with the distance of two clipped updates."""
    from flwr.app import Context

    def sent(update, clip, sensitivity, epsilon, delta):
        np.random.seed(11)
        mod = LocalDpMod(clip, sensitivity, epsilon, delta)
        question = Message(
            RecordDict({"arrays": arrays(np.zeros(DIMENSION))}), dst_node_id=1, message_type="train"
        )
        context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})
        answer = mod(question, context, lambda *_: reply(update, 1))
        return next(iter(answer.content.array_records.values())).to_numpy_ndarrays()[0]

    def ratio(sensitivity):
        settings = (1.0, sensitivity, 1.0, 1e-5)
        towards = np.zeros(DIMENSION)
        towards[0] = 100.0
        up, down = sent(towards, *settings), sent(-towards, *settings)
        noise = np.std(sent(np.zeros(DIMENSION) + 1e-12, *settings))
        return float(np.linalg.norm(up - down) / noise)

    return {
        "measured": {
            "distance_over_noise_with_the_clip_norm_as_sensitivity": ratio(1.0),
            "distance_over_noise_with_a_tenth_of_it": ratio(0.1),
        },
        "control": {"distance_over_noise_with_twice_the_clip_norm": ratio(2.0)},
    }


def accountant():
    """Ask Flower's accountant for the epsilon of three sequences of releases."""
    from flwr.serverapp import (
        GaussianPrivacyEvent,
        NeighboringRelation,
        PrivacyConfig,
        RdpAccountant,
        SamplingMethod,
    )

    def epsilon(method, relation, multiplier, size, rounds):
        told = RdpAccountant(
            PrivacyConfig(
                target_delta=1e-5,
                population_size=1000,
                neighboring_relation=relation,
                sampling_method=method,
            )
        )
        event = GaussianPrivacyEvent(
            noise_multiplier=multiplier, sample_size=size, population_size=1000
        )
        told.compose(event, rounds)
        restored = RdpAccountant(told.config)
        restored.load_state_dict(json.loads(json.dumps(told.state_dict())))
        assert restored.get_epsilon(1e-5) == told.get_epsilon(1e-5)
        return told.get_epsilon(1e-5)

    add = NeighboringRelation.ADD_OR_REMOVE_ONE
    return {
        "measured": {
            "epsilon_no_amplification": epsilon(SamplingMethod.NO_AMPLIFICATION, add, 10.0, 50, 20),
            "epsilon_poisson": epsilon(SamplingMethod.POISSON, add, 1.0, 10, 500),
        },
        "control": {},
    }


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
