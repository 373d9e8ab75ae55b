"""Reading one Hugging Face configuration, field by field, with every type and size checked.

A source says how one field of a zoo family is found in the file: `count("n_layer", default=12)`.
What is absent has the default that transformers gives it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from foretell.errors import BadInput, near
from foretell.model.family import Family

LARGEST = 16_777_216  # positions that Llama 4 says are 10 Mi
DEEPEST = 1_000
"""Layers: every one is written down before equal ones are folded."""

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_fast": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "relu2": "squared_relu",
    "silu": "silu",
    "swish": "silu",
}
"""What transformers calls the functions of a feed-forward, in the zoo's words."""


class Config:
    """The content of one file. It remembers which fields were read and what a person should know."""

    def __init__(self, content: Mapping[str, Any], file: str) -> None:
        self._content = content
        self.file = file
        self.seq = 0  # the length that the graph is for, once it is known
        self.read: list[str] = []  # keys that were asked for, in order
        self.warnings: list[str] = []

    def get(self, *keys: str, default: Any = None) -> tuple[str, Any]:
        """The first of these keys that the file has, with its value; otherwise the default."""
        found = next((key for key in keys if key in self._content), keys[0])
        self.read.extend((found, *keys))
        return found, self._content.get(found, default)

    @property
    def names(self) -> tuple[str, ...]:
        """Every field of the file."""
        return tuple(self._content)

    def architecture(self) -> str:
        """The class that the file was saved from; empty if it does not say."""
        _, names = self.get("architectures")
        first: Any = names[0] if isinstance(names, list) and names else ""  # pyright: ignore[reportUnknownVariableType]
        return first if isinstance(first, str) else ""

    def bad(self, key: str, what: str, fix: str = "") -> BadInput:
        """The error for one field."""
        return BadInput(what, where=f"{self.file}, field {shown(key)}", fix=fix)

    def whole(self, key: str, value: Any, least: int = 1, most: int = LARGEST) -> int:
        """A whole number in these bounds, or an error that names the field."""
        fix = f"a whole number from {least:,} to {most:,}"
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.bad(key, f"{key} should be a whole number, not {shown(value)}", fix)
        if not least <= value <= most:
            raise self.bad(key, f"{key} is {shown(value)}", fix)
        return value

    def warn(self, text: str) -> None:
        self.warnings.append(text)


Source: TypeAlias = Callable[[Config], Any]
"""How one field of a family is found in a file."""

Fields: TypeAlias = Mapping[str, Source]

CAUSAL = ("ForCausalLM", "LMHeadModel")
"""How the names of architectures end that predict the next token."""


def shown(value: Any, most: int = 60) -> str:
    """A value of the file as it fits into a message."""
    try:
        text = repr(value)
    except ValueError:  # a number with more digits than Python prints
        return "a number too long to print"
    return text if len(text) <= most else f"{text[:most]}..."


def fixed(value: Any) -> Source:
    """The same for every model of the type."""
    return lambda config: value


def count(*keys: str, default: int | None = None, most: int = LARGEST) -> Source:
    """A size of at least one; without a default the file has to say it."""

    def read(config: Config) -> int:
        key, value = config.get(*keys, default=default)
        if value is None and default is not None:
            value = default
        if value is None:
            raise config.bad(key, f"{key} is missing", fix="a complete config.json, as it lies beside the weights")
        return config.whole(key, value, most=most)

    return read


def layers(*keys: str, default: int | None = None) -> Source:
    """A number of layers."""
    return count(*keys, default=default, most=DEEPEST)


def maybe(*keys: str, default: int = 0) -> Source:
    """A size that may be null, which is 0: the zoo's word for 'the usual' or 'none'."""

    def read(config: Config) -> int:
        key, value = config.get(*keys, default=default)
        return 0 if value is None else config.whole(key, value, least=0)

    return read


def flag(key: str, *, default: bool) -> Source:
    """True or false."""

    def read(config: Config) -> bool:
        _, value = config.get(key, default=default)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise config.bad(key, f"{key} should be true or false, not {shown(value)}", fix="true or false")
        return value

    return read


def number(key: str, *, default: float) -> Source:
    """A finite number; it is looked for among the rotary parameters too, where newer files have some."""

    def read(config: Config) -> float:
        _, nested = config.get("rope_parameters")
        _, value = config.get(key)
        if value is None and isinstance(nested, dict):
            value = nested.get(key)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if value is None:
            return default
        if not isinstance(value, int | float) or isinstance(value, bool) or not -1e18 < value < 1e18:
            raise config.bad(key, f"{key} should be a number, not {shown(value)}", fix=str(default))
        return float(value)

    return read


def word(key: str, *, default: str) -> Source:
    """A piece of text."""

    def read(config: Config) -> str:
        _, value = config.get(key, default=default)
        if value is None:
            return default
        if not isinstance(value, str):
            raise config.bad(key, f"{key} should be a word, not {shown(value)}", fix=default)
        return value

    return read


def activation(*keys: str, default: str) -> Source:
    """A function of the feed-forward."""

    def read(config: Config) -> str:
        key, value = config.get(*keys, default=default)
        if value is None:
            value = default
        if not isinstance(value, str) or value not in ACTIVATIONS:
            close = near(value, ACTIVATIONS) if isinstance(value, str) else []
            fix = ", ".join(close or ACTIVATIONS)
            raise config.bad(key, f"no activation is called {shown(value)}", fix)
        return ACTIVATIONS[value]

    return read


def sizes(key: str, *, default: tuple[int, ...], most: int = LARGEST) -> Source:
    """As many sizes as the default has, one a stage."""

    def read(config: Config) -> tuple[int, ...]:
        _, value = config.get(key, default=list(default))
        if value is None:
            return default
        fix = f"{len(default)} whole numbers such as {list(default)}"
        if not isinstance(value, list):
            raise config.bad(key, f"{key} should be a list, not {shown(value)}", fix)
        items: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
        if len(items) != len(default):
            raise config.bad(key, f"{key} has {len(items)} entries, and the zoo's model {len(default)} stages", fix)
        return tuple(config.whole(key, item, most=most) for item in items)

    return read


def square(key: str, *, default: int) -> Source:
    """The side of a square: one number, or the same twice."""

    def read(config: Config) -> int:
        _, value = config.get(key, default=default)
        if isinstance(value, list):
            sides: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
            if len(sides) != 2 or sides[0] != sides[1]:
                raise config.bad(key, f"{key} is {shown(sides)}, which is no square", fix=f"[{default}, {default}]")
            value = sides[0]
        return default if value is None else config.whole(key, value)

    return read


def usual_sizes(**default: int) -> dict[str, Source]:
    """The fields that nearly all files spell the same way."""
    keys = {"hidden": "hidden_size", "heads": "num_attention_heads", "ffn": "intermediate_size", "vocab": "vocab_size"}
    found = {field: count(keys[field], default=value) for field, value in default.items() if field in keys}
    return {"layers": layers("num_hidden_layers", default=default["layers"]), **found}


def positions(default: int, key: str = "max_position_embeddings") -> Source:
    """The longest sequence."""
    return count(key, default=default)


def classes(config: Config) -> int:
    """How many classes the head tells apart: the labels of the file, or the two that transformers assumes."""
    _, labels = config.get("id2label")
    key, value = config.get("num_labels", "_num_labels")
    if isinstance(labels, dict) and labels:
        return len(labels)  # pyright: ignore[reportUnknownArgumentType]
    if value is not None:
        return config.whole(key, value)
    config.warn("no labels in the file: a head of 2 classes, as transformers makes it")
    return 2


TORCH = "`package.module:factory` or `file.py:factory`, a function that builds the PyTorch module"
"""What works for any model."""


class HfModelType(NamedTuple):
    """How one model type is read.

    `only` lists what a field must be for the family to fit, `noted` what it may be without a
    remark, `heads` how the names of architectures end that have the head of the graph, `said`
    fields that repeat what others say or that the type does not use.
    """

    family: type[Family]
    fields: Fields
    positions: Source | None = None  # the longest sequence; none for images
    learned: bool = False  # positions are rows of a table: nothing longer is possible
    heads: tuple[str, ...] = ()
    only: Mapping[str, tuple[Any, ...]] = {}
    noted: Mapping[str, tuple[tuple[Any, ...], str]] = {}
    checks: tuple[Callable[[Config], None], ...] = ()
    remarks: tuple[str, ...] = ()
    said: tuple[str, ...] = ()

    def check(self, config: Config) -> None:
        """Refuse what the family does not have, and remark on what it has otherwise."""
        for key, values in self.only.items():
            _, value = config.get(key)
            if value is not None and value not in values:
                what = f"{key} is {shown(value)}, and no family of the zoo has that"
                raise config.bad(key, what, fix=f"{' or '.join(shown(v) for v in values)}; {TORCH}")
        for key, (values, remark) in self.noted.items():
            _, value = config.get(key)
            if value is not None and value not in values:
                config.warn(f"{key} is {shown(value)}: {remark}")
        for check in self.checks:
            check(config)
        config.warnings.extend(self.remarks)
        config.read.extend(self.said)


def named_in(text: str, keys_of: Mapping[str, str]) -> list[str]:
    """The file's keys for those of the zoo's fields that a message speaks of."""
    words = set(re.findall(r"\w+", text))
    return list(dict.fromkeys(key for field, key in keys_of.items() if field in words))
