# pyright: basic
"""DeepSpeed, ZeRO stage 0."""

import functools

from foretell.bench.engines import _deepspeed

ENGINE = _deepspeed.engine(0)
begin = _deepspeed.begin
apply = functools.partial(_deepspeed.apply, 0)
