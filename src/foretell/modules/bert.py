"""BERT as a PyTorch module: the encoder, and the heads that its objective asks for."""

from __future__ import annotations

import torch
from torch import nn

from foretell.model.zoo.bert import Bert
from foretell.modules._encoder import ACTIVATIONS, FeedForward, MultiHeadAttention
from foretell.modules.task import Example, class_loss, token_loss


class BertBlock(nn.Module):
    """Attention and feed-forward, each around a shortcut and before a norm."""

    def __init__(self, fields: Bert) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(
            fields.hidden, fields.heads, kernel=fields.attention, dropout=fields.dropout
        )
        self.attention_norm = nn.LayerNorm(fields.hidden, eps=1e-12)
        self.feed_forward = FeedForward(fields.hidden, fields.ffn, fields.activation)
        self.feed_forward_norm = nn.LayerNorm(fields.hidden, eps=1e-12)
        self.dropout = nn.Dropout(fields.dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.attention_norm(x + self.dropout(self.attention(x)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


class Encoder(nn.Module):
    """Tokens, positions and sentence types, through the layers; the states of every place come out."""

    def __init__(self, fields: Bert) -> None:
        super().__init__()
        self.token = nn.Embedding(fields.vocab, fields.hidden)
        self.position = nn.Embedding(fields.positions, fields.hidden)
        self.sentence_type = nn.Embedding(fields.types, fields.hidden) if fields.types else None
        self.embedding_norm = nn.LayerNorm(fields.hidden, eps=1e-12)
        self.dropout = nn.Dropout(fields.dropout)
        self.layers = nn.ModuleList(BertBlock(fields) for _ in range(fields.layers))

    def forward(self, tokens: torch.Tensor, types: torch.Tensor | None = None) -> torch.Tensor:
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        if self.sentence_type is not None:
            x = x + self.sentence_type(types)
        x = self.dropout(self.embedding_norm(x))
        for layer in self.layers:
            x = layer(x)
        return x


class TokenHead(nn.Module):
    """Scores of every token of the vocabulary; the decoder's weight is the token table."""

    def __init__(self, fields: Bert, table: nn.Parameter) -> None:
        super().__init__()
        self.transform = nn.Linear(fields.hidden, fields.hidden)
        self.activation = ACTIVATIONS[fields.activation]()
        self.transform_norm = nn.LayerNorm(fields.hidden, eps=1e-12)
        self.decoder = nn.Linear(fields.hidden, fields.vocab)
        self.decoder.weight = table

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.transform_norm(self.activation(self.transform(x))))


class BertModule(Encoder):
    """The encoder with what its objective needs on top."""

    def __init__(self, fields: Bert) -> None:
        super().__init__(fields)
        self.pooler = nn.Linear(fields.hidden, fields.hidden) if fields.pools else None
        self.token_head = TokenHead(fields, self.token.weight) if fields.objective != "features" else None
        self.next_sentence = nn.Linear(fields.hidden, 2) if fields.objective == "pretraining" else None
        self.apply(_initialize)

    def forward(
        self, tokens: torch.Tensor, types: torch.Tensor | None = None, places: torch.Tensor | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Features, token scores, or token scores and next-sentence scores.

        `places` are the masked places to score, counted through the whole batch.
        """
        x = super().forward(tokens, types)
        pooled = torch.tanh(self.pooler(x[:, 0])) if self.pooler is not None else x
        if self.token_head is None:
            return pooled
        scored = x if places is None else x.flatten(0, 1).index_select(0, places.flatten())
        scores = self.token_head(scored)
        return scores if self.next_sentence is None else (scores, self.next_sentence(pooled))


def _initialize(part: nn.Module) -> None:
    if isinstance(part, nn.Linear | nn.Embedding):
        nn.init.normal_(part.weight, std=0.02)
    if isinstance(part, nn.Linear):
        nn.init.zeros_(part.bias)


def module(fields: Bert) -> nn.Module:
    return BertModule(fields)


def _distance(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (outputs.float() - target).square().mean()


def _pretraining_loss(outputs: tuple[torch.Tensor, torch.Tensor], target: torch.Tensor) -> torch.Tensor:
    """The last column of the target says which sentence came first; the others are tokens."""
    tokens, order = outputs
    return token_loss(tokens, target[:, :-1]) + class_loss(order, target[:, -1])


def example(fields: Bert, batch: int) -> Example:
    tokens = torch.randint(fields.vocab, (batch, fields.seq))
    inputs = [tokens]
    if fields.types:
        inputs.append(torch.randint(fields.types, (batch, fields.seq)))
    if fields.objective == "features":
        shape = (batch, fields.hidden) if fields.pools else (batch, fields.seq, fields.hidden)
        return Example(tuple(inputs), torch.randn(*shape, dtype=torch.float32), _distance)
    scored = fields.predictions or fields.seq
    if fields.predictions:
        if not fields.types:
            inputs.append(tokens)  # nothing looks at the types then
        first = torch.arange(batch).unsqueeze(1) * fields.seq
        inputs.append(first + torch.rand(batch, fields.seq).argsort(dim=1)[:, :scored])
    target = torch.randint(fields.vocab, (batch, scored))
    if fields.objective == "mlm":
        return Example(tuple(inputs), target, token_loss)
    order = torch.randint(2, (batch, 1))
    return Example(tuple(inputs), torch.cat([target, order], dim=1), _pretraining_loss)
