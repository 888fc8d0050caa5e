"""Recurrent text models: an embedding, LSTM layers and a linear layer.

Two layers of 200 read Reddit comments in Bagdasaryan et al., "How To Backdoor Federated Learning",
AISTATS 2020, and Sentiment140 in Wang et al., "Attack of the Tails", NeurIPS 2020. The models differ from
these papers: the embedding is as wide as the layers, there is no dropout (see
:mod:`fedpriv.models.cnn_emnist`), each layer has one bias where torch has two, and the output layer of the
language model has its own weights (Bagdasaryan et al. tie them to the embedding).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from fedpriv.common.errors import ConfigError
from fedpriv.common.fields import declared, field, whole
from fedpriv.models.base import ModelFactory

if TYPE_CHECKING:
    from torch import nn


@declared
class TextModel(ModelFactory):
    """Base class of recurrent text models."""

    task: ClassVar[str]

    layers: int = field(whole(at_least=1), default=2, help="number of LSTM layers")
    hidden: int = field(whole(at_least=1), default=200, help="width of each layer")
    embedding: int = field(
        whole(at_least=1), default=200, help=("length of the vector that stands for a token")
    )

    def build(
        self, input_shape: tuple[int, ...], classes: int, vocabulary_size: int | None = None
    ) -> nn.Module:
        """Build the network with its initial weights; see :meth:`ModelFactory.build`.

        Args:
            input_shape: ``(L,)``, the length of a record in tokens.
            classes: Number of classes; for a language model, the size of the vocabulary.
            vocabulary_size: Number of token ids, padding (0) and unknown (1) included.

        Returns:
            A float32 module on the CPU that reads token ids ``[n, L]``.

        Raises:
            ConfigError: The records are not token ids.
        """
        if len(input_shape) != 1 or input_shape[0] < 1 or not vocabulary_size:
            why = f"it reads token ids of a vocabulary, a record has shape {tuple(input_shape)}"
            raise ConfigError("model", self.name, "one that fits the data", why)
        sizes = (self.embedding, self.hidden, self.layers)
        return self._seeded(
            lambda: self._network()(input_shape[0], vocabulary_size, *sizes, classes)
        )

    @abstractmethod
    def _network(self) -> type[nn.Module]:
        """Return the class of the module; this imports torch."""


class LstmClassifier(TextModel):
    """Text classifier that reads the LSTM state at the last token."""

    name = "lstm_classifier"
    task = "classification"

    def _network(self) -> type[nn.Module]:
        from fedpriv.models.text_networks import TextClassifier

        return TextClassifier


class LstmLm(TextModel):
    """Language model that predicts the next token at every position of a text."""

    name = "lstm_lm"
    task = "language_model"

    def build(
        self, input_shape: tuple[int, ...], classes: int, vocabulary_size: int | None = None
    ) -> nn.Module:
        """Build the network with its initial weights; see :meth:`TextModel.build`.

        The outputs are ``[n, L, vocabulary_size]``. The module has ``record_loss`` and ``record_correct``,
        which count only positions with a next token.
        """
        return super().build(input_shape, vocabulary_size or classes, vocabulary_size or classes)

    def _network(self) -> type[nn.Module]:
        from fedpriv.models.text_networks import LanguageModel

        return LanguageModel
