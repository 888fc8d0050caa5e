"""Algorithms of which the server needs nothing but the sum of its clients' vectors.

``dp_fl_server`` is the server-side variant of DP-FL and Adap DP-FL (Fu, Chen, Han 2022): the optimiser is the
server's, and one clip norm holds for all, so that a round needs one sum:

    θ ← server optimiser( θ, (1/L) ( Σ_k Σ_{i in lot k} g_i min(1, C/‖g_i‖) + noise ) ),   L = q Σ_k n_k

``ddp_fedavg`` is DP-FedAvg with a cohort that the server sees, of which c clients did not drop out:

    θ ← θ + η_s (1/c) ( Σ_k Δ_k min(1, C/‖Δ_k‖) + noise )

``trust`` says who adds the noise and what the server sees:

    distributed    clients add shares of the noise, and the server sees the sum alone
                   (:mod:`fedpriv.privacy.mechanisms.shares`)
    local          dp_fl_server: every client noises its own sum, and the server sees each noised sum
    central        ddp_fedavg: the server adds all vectors and the noise, and is trusted

dp_fl and adap_dpfl keep an optimiser and a clip norm with every client, so a sum is not enough for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.algorithms.augmentation import Augmented
from fedpriv.algorithms.base import cohort_size, local_training
from fedpriv.algorithms.cdp_fedavg import CdpFedAvg
from fedpriv.algorithms.client_level import ServerStepAlgorithm
from fedpriv.algorithms.server_optimizer import ServerOptimizer, ServerOptimizerKeys
from fedpriv.algorithms.sum_of_uploads import SumOfUploads
from fedpriv.common.errors import ArgumentError
from fedpriv.common.fields import declared, field, number, same_as, text
from fedpriv.common.words import records_of
from fedpriv.privacy.core.names import ZERO_OUT
from fedpriv.privacy.core.sampling import PoissonSampling, Sampling, WholeData
from fedpriv.privacy.core.trust import CENTRAL_TRUST, DISTRIBUTED_TRUST, LOCAL_TRUST, Trust

if TYPE_CHECKING:
    from fedpriv.algorithms.run_context import RunContext
    from fedpriv.algorithms.trainer import Trainer
    from fedpriv.algorithms.uploads import Uploads


@declared
class DpFlServer(Augmented, ServerOptimizerKeys, SumOfUploads):
    """DP-FL with one clip norm and the server's optimiser (record level); the formula is in the module.

    Attributes:
        name: Name in run folders and tables.
        sample_rate: q; 1: all records.
        clients_per_round: m, the clients of a round, sampled uniformly; None: all.
        server: The server's optimiser with its settings.

    See :class:`fedpriv.algorithms.sum_of_uploads.SumOfUploads` for trust and shares, and
    :class:`fedpriv.algorithms.augmentation.Augmented` for augmentation.

    Example:
        >>> algorithm = DpFlServer(name="dp_fl_server", trust="distributed", tolerated_dropouts=2)
        >>> algorithm.check_clients(20)
        >>> algorithm.fewest_clients, algorithm.honest
        (18, 18)
    """

    unit = "record"
    releases_feature_statistics = True
    trusts = (LOCAL_TRUST.name, DISTRIBUTED_TRUST.name)

    name: str = field(text, help="name in run folders and tables")
    sample_rate: float = field(
        number(above=0, at_most=1),
        default=1.0,
        unit="q",
        help="probability with which a record joins a lot; 1: all records",
    )
    _optimizer: str = same_as(ServerStepAlgorithm, "_optimizer")
    _learning_rate: float = same_as(ServerStepAlgorithm, "learning_rate", default=0.1)
    clients_per_round: int | None = cohort_size()
    trust: Trust = same_as(SumOfUploads, "trust")
    augmentation_multiplicity: int | None = same_as(Augmented, "augmentation_multiplicity")
    random_flip: bool | None = same_as(Augmented, "random_flip")
    random_crop: int | None = same_as(Augmented, "random_crop")
    crop_fill: str | None = same_as(Augmented, "crop_fill")

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.server: ServerOptimizer = self.server_optimizer(self._optimizer, self._learning_rate)
        if self.discrete is not None and self.sample_rate != 1:
            raise ArgumentError(
                "sample_rate",
                self.sample_rate,
                f"1 with shares={self.shares}",
                "no privacy bound is proven for sampled lots with noise of whole numbers",
            )

    def sampling_of(self, records: int) -> Sampling:
        """Return the sampling of every client's lot."""
        return WholeData() if self.sample_rate == 1 else PoissonSampling(self.sample_rate)

    def start(self, context: RunContext) -> Trainer:
        from fedpriv.algorithms.record_sums import RecordSums
        from fedpriv.algorithms.server_steps import AddChange
        from fedpriv.algorithms.trainer import Trainer

        computation = RecordSums(
            context,
            self.sampling_of(0),
            rows=self.discrete is not None,
            combines=context.rule is not None,
            buckets=None if context.rule is None else context.rule.buckets,
            augmentation=self.augmentation,
        )
        server = AddChange(context.model, context.data.records_per_client)
        return Trainer(context, computation, self.server.make(context.model), server)

    def records_per_step(self, records: float) -> float:
        return self.sample_rate * records

    def describe(self, clients: int | None, records: int | None) -> tuple[tuple[str, str], ...]:
        who = f"{self.clients_per_round or 'all'} clients"
        lot = "all" if self.sample_rate == 1 else f"a Poisson lot of {self.sample_rate:g}"
        return (
            (
                "each round",
                f"{who} send the clipped gradients of {lot} of their {records_of(records, '')}",
            ),
            ("server optimizer", self.server.describe()),
            *self._shares_words(),
        )


@declared
class DdpFedAvg(SumOfUploads, ServerStepAlgorithm):
    """Distributed DP-FedAvg (client level): sums of clipped changes; the formula is in the module.

    Attributes:
        name: Name in run folders and tables.
        learning_rate: η_s of the server.
        local_epochs: E, the epochs of a client in a round.
        batch_size: Records in a batch; None: a client's whole data.
        local_learning_rate: η of the clients.
        clients_per_round: The clients of a round, sampled uniformly; None: all.

    See :class:`fedpriv.algorithms.sum_of_uploads.SumOfUploads` for trust and shares.
    """

    unit = "client"
    trusts = (CENTRAL_TRUST.name, DISTRIBUTED_TRUST.name)

    name: str = same_as(ServerStepAlgorithm, "name")
    learning_rate: float = same_as(ServerStepAlgorithm, "learning_rate", default=1.0)
    _optimizer: str = same_as(ServerStepAlgorithm, "_optimizer")
    local_epochs: int = same_as(CdpFedAvg, "local_epochs")
    batch_size: int | None = same_as(CdpFedAvg, "batch_size")
    local_learning_rate: float = same_as(CdpFedAvg, "local_learning_rate")
    clients_per_round: int | None = cohort_size()
    trust: Trust = same_as(SumOfUploads, "trust")

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if not self.distributed and self.clients_per_round is not None:
            raise ArgumentError(
                "clients_per_round",
                self.clients_per_round,
                "null with trust=central",
                "algorithm=cdp_fedavg samples clients for a trusted server",
            )

    def sampling_of(self, records: int) -> Sampling:
        """Return the sampling of the clients: every client of the cohort.

        Where the server sees the cohort, the client's upload is zeros in the other data set. A trusted
        server keeps the cohort secret, and the client is missing in the other data set.
        """
        return WholeData(ZERO_OUT) if self.distributed else WholeData()

    def uploads(self, context: RunContext) -> Uploads:
        from fedpriv.algorithms.uploads import LocalChanges

        return LocalChanges(context, self.local_epochs, self.batch_size, self.local_learning_rate)

    def denominator(self, cohort: int, clients: int) -> float:
        """Return c, the clients that the server sees; with central trust K."""
        return float(max(1, cohort)) if self.distributed else float(clients)

    def start(self, context: RunContext) -> Trainer:
        trainer = super().start(context)
        if self.discrete is not None:
            from fedpriv.algorithms.upload_computation import UploadComputation

            trainer.computation = UploadComputation(
                context,
                self.uploads(context),
                self.denominator,
                noise_on_the_mean=False,
                upload_weight=None,
                rows=True,
                combines=trainer.computation.combines,
                buckets=trainer.computation.buckets,
            )
        return trainer

    def records_per_step(self, records: float) -> float:
        return records

    def describe(self, clients: int | None, records: int | None) -> tuple[tuple[str, str], ...]:
        training = local_training(self.local_epochs, self.batch_size, records)
        return (
            ("each round", f"{self.clients_per_round or 'all'} clients, {training}"),
            ("local optimizer", f"sgd, learning rate {self.local_learning_rate:g}"),
            self._server_words(),
            *self._shares_words(),
        )
