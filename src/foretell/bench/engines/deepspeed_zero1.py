# pyright: basic
"""DeepSpeed, ZeRO stage 1."""

import functools

from foretell.bench.engines import _deepspeed

ENGINE = _deepspeed.engine(1)
begin = _deepspeed.begin
apply = functools.partial(_deepspeed.apply, 1)
