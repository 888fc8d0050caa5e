"""Networks that read token ids [n, L], int64: 0 is padding, 1 a token outside the vocabulary.

Padding may stand anywhere: it is stepped over, so no output, loss or gradient depends on it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedpriv.models.recurrent import Lstm

PADDING, UNKNOWN = 0, 1  # ids that are no tokens, as in every vocabulary


class _Reader(nn.Module):
    """Embedding (torch's initial weights, N(0, 1)), then layers of LSTM.

    Args:
        length: L, the tokens of a record with its padding.
        vocabulary_size: Number of token ids, padding included.
        embedding, hidden, layers: Sizes.
        outputs: Outputs of the linear layer on a state.
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
        """States of the last layer [n, L, hidden]; ``real`` [n, L]: where there is a token."""
        # Noise reaches every row of the table, that of the padding too.
        x = self.embedding(tokens).masked_fill(~real.unsqueeze(2), 0)
        for layer in self.lstm:
            x = layer(x, real)
        return x

    def random_tokens(self, records: int, stream: torch.Generator) -> Tensor:
        """Tokens [records, L] drawn uniformly from all but the padding."""
        return torch.randint(1, self.vocabulary_size, (records, self.length), generator=stream)


class TextClassifier(_Reader):
    """Logits [n, classes] of the state at each record's last token.

    A record of padding only has logits 0 and no gradient.
    """

    def forward(self, tokens: Tensor) -> Tensor:
        real = tokens != PADDING
        logits = self.output(self.states(tokens, real)[:, -1])
        return logits.masked_fill(~real.any(1, keepdim=True), 0)

    def random_records(self, records: int, stream: torch.Generator) -> tuple[Tensor, Tensor]:
        """Uniform tokens with uniform labels."""
        tokens = self.random_tokens(records, stream)
        return tokens, torch.randint(self.output.out_features, (records,), generator=stream)


class LanguageModel(_Reader):
    """Logits of the next token at every position [n, L, vocabulary_size].

    Targets [n, L] are the next token, 0 where there is none.
    """

    @property
    def values_per_record(self) -> int:
        """Logits, their logarithms, their gradients and these times a factor, at every position."""
        return 4 * self.length * self.vocabulary_size

    def forward(self, tokens: Tensor) -> Tensor:
        return self.output(self.states(tokens, tokens != PADDING))

    @staticmethod
    def record_loss(outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean cross entropy of each record over the positions that have a next token [n]; 0, without
        a gradient, where none has."""
        losses = functional.cross_entropy(
            outputs.flatten(0, 1), targets.flatten(), ignore_index=PADDING, reduction="none"
        )
        return losses.view(targets.shape).sum(1) / (targets != PADDING).sum(1).clamp_min(1)

    @staticmethod
    def record_correct(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """(next tokens that were predicted, next tokens there are) of each record [n], [n].

        Tokens without an id are not among them, and "unknown" is no answer: else always giving it would
        be right where the vocabulary is short.
        """
        there = targets > UNKNOWN
        answers = outputs[..., UNKNOWN + 1 :].argmax(2) + UNKNOWN + 1
        return ((answers == targets) & there).sum(1), there.sum(1)

    def random_records(self, records: int, stream: torch.Generator) -> tuple[Tensor, Tensor]:
        """Uniform tokens, each the target of the one before."""
        tokens = self.random_tokens(records, stream)
        return tokens, functional.pad(tokens[:, 1:], (0, 1), value=PADDING)
