"""A family of models: a set of fields, named sizes, and a graph built from them."""

from __future__ import annotations

import abc
from typing import Annotated, Any, ClassVar

import msgspec

from foretell.errors import BadInput, near
from foretell.model.build import Builder
from foretell.model.graph import Graph
from foretell.units import FLOATING

Count = Annotated[int, msgspec.Meta(ge=1, le=16_777_216)]
Index = Annotated[int, msgspec.Meta(ge=0, le=16_777_216)]
Rate = Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)]


MOST_LAYERS = 10_000


class _Meta(type(msgspec.Struct), abc.ABCMeta):
    """Lets a struct have abstract methods."""


class Family(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, metaclass=_Meta):
    """The fields of a model; `build` writes its training step down."""

    references: ClassVar[tuple[str, ...]] = ()
    """The papers that define the family."""

    dtype: str = "fp32"
    """The type of weights and activations, as a freshly built module has it."""

    @abc.abstractmethod
    def build(self, g: Builder, batch: int) -> None:
        """Write the training step on `batch` samples down, loss included."""

    def check(self) -> None:
        """Refuse fields that do not fit together."""

    def graph(self, name: str, batch: int = 1) -> Graph:
        """The finished graph of this model."""
        g = Builder(name, self.dtype, batch)
        try:
            self.ensure()
            self.build(g, batch)
        except BadInput as problem:
            raise problem.within(name) from None
        return g.graph(source="zoo")

    def ensure(self) -> None:
        """Refuse a type that is none, and whatever `check` refuses."""
        if self.dtype not in FLOATING:
            raise BadInput(f"no floating-point type is called {self.dtype!r}", fix=", ".join(FLOATING))
        layers: Any = getattr(self, "layers", 0)
        if isinstance(layers, int) and layers > MOST_LAYERS:
            raise BadInput(f"layers={layers}: a model has at most {MOST_LAYERS:,} layers here", fix="fewer layers")
        self.check()

    def with_fields(self, text: dict[str, str], where: str) -> Family:
        """The same model with fields set from text, each checked against its type."""
        known = [field.name for field in msgspec.structs.fields(self)]
        for key in text:
            if key not in known:
                close = near(key, known)
                fix = f"did you mean {', '.join(close)}? " if close else ""
                raise BadInput(f"no field is called {key!r}", where=where, fix=f"{fix}fields: {', '.join(known)}")
        values: dict[str, Any] = msgspec.structs.asdict(self)
        for key, value in text.items():  # several numbers are written 3/4/6/3
            values[key] = value.split("/") if isinstance(values[key], tuple) else value
        try:
            return msgspec.convert(values, type(self), strict=False)
        except msgspec.ValidationError as problem:
            expected, _, place = str(problem).partition(" - at `$.")
            key = place.partition("[")[0].rstrip("`")
            usual: list[Any] = [*value] if isinstance(value := getattr(self, key, ""), tuple) else [value]
            fix = f"{key}={'/'.join(map(str, usual))}"
            what = f"{key}={text.get(key)}: {expected[:1].lower()}{expected[1:]}".replace("`", "")
            raise BadInput(what, where=where, fix=f"for example {fix}") from None
