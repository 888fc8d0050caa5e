"""Networks that read token ids [n, L], int64: 0 is padding, 1 a token outside the vocabulary.

Padding may be at any position. It is skipped, so that no output, loss or gradient depends on it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedpriv.models.recurrent import Lstm

PADDING, UNKNOWN = 0, 1  # ids without a token, as in every vocabulary


class _Reader(nn.Module):
    """Embedding (torch's initial weights, N(0, 1)) and LSTM layers.

    Args:
        length: L, the tokens of a record with its padding.
        vocabulary_size: Number of token ids, padding included.
        embedding: Length of a token's vector.
        hidden: Width of each LSTM layer.
        layers: Number of LSTM layers.
        outputs: Number of outputs of the linear layer on a state.
    """

    def __init__(
        self,
        length: int,
        vocabulary_size: int,
        embedding: int,
        hidden: int,
        layers: int,
        outputs: int,
    ):
        super().__init__()
        self.length, self.vocabulary_size = length, vocabulary_size
        self.embedding = nn.Embedding(vocabulary_size, embedding, padding_idx=PADDING)
        self.lstm = nn.ModuleList(Lstm(hidden if i else embedding, hidden) for i in range(layers))
        self.output = nn.Linear(hidden, outputs)

    def states(self, tokens: Tensor, real: Tensor) -> Tensor:
        """Return the states of the last layer [n, L, hidden]; ``real`` [n, L] is the mask of the tokens."""
        # Noise moves every row of the table, also the padding's, so the vector of padding is not 0.
        x = self.embedding(tokens).masked_fill(~real.unsqueeze(2), 0)
        for layer in self.lstm:
            x = layer(x, real)
        return x

    def random_tokens(self, records: int, stream: torch.Generator) -> Tensor:
        """Return tokens [records, L], drawn uniformly from all ids except padding."""
        return torch.randint(1, self.vocabulary_size, (records, self.length), generator=stream)


class TextClassifier(_Reader):
    """Text classifier with logits [n, classes] from the state at each record's last token.

    A record that has only padding gets logits 0 and no gradient.
    """

    def forward(self, tokens: Tensor) -> Tensor:
        real = tokens != PADDING
        logits = self.output(self.states(tokens, real)[:, -1])
        return logits.masked_fill(~real.any(1, keepdim=True), 0)

    def random_records(self, records: int, stream: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return random tokens [records, L] and random labels [records], both uniform."""
        tokens = self.random_tokens(records, stream)
        return tokens, torch.randint(self.output.out_features, (records,), generator=stream)


class LanguageModel(_Reader):
    """Language model with logits of the next token at every position [n, L, vocabulary_size].

    Targets [n, L] are the next tokens, with 0 where there is none.
    """

    @property
    def values_per_record(self) -> int:
        """Values in memory per record: logits, their logarithms, their gradients, scaled gradients."""
        return 4 * self.length * self.vocabulary_size

    def forward(self, tokens: Tensor) -> Tensor:
        return self.output(self.states(tokens, tokens != PADDING))

    @staticmethod
    def record_loss(outputs: Tensor, targets: Tensor) -> Tensor:
        """Return each record's mean cross entropy over the positions with a next token [n].

        The loss is 0, without a gradient, for a record that has no next token.
        """
        losses = functional.cross_entropy(
            outputs.flatten(0, 1), targets.flatten(), ignore_index=PADDING, reduction="none"
        )
        return losses.view(targets.shape).sum(1) / (targets != PADDING).sum(1).clamp_min(1)

    @staticmethod
    def record_correct(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the numbers of correct predictions and of next tokens in each record, [n] and [n].

        Unknown tokens do not count as targets, and "unknown" is never a prediction. Otherwise a model with a
        short vocabulary would be right by always predicting "unknown".
        """
        is_known = targets > UNKNOWN
        predictions = outputs[..., UNKNOWN + 1 :].argmax(2) + UNKNOWN + 1
        return ((predictions == targets) & is_known).sum(1), is_known.sum(1)

    def random_records(self, records: int, stream: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return uniform tokens [records, L], and as targets the token after each."""
        tokens = self.random_tokens(records, stream)
        return tokens, functional.pad(tokens[:, 1:], (0, 1), value=PADDING)
