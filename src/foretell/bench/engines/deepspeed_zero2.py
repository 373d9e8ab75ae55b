# pyright: basic
"""DeepSpeed, ZeRO stage 2."""

import functools

from foretell.bench.engines import _deepspeed

ENGINE = _deepspeed.engine(2)
begin = _deepspeed.begin
apply = functools.partial(_deepspeed.apply, 2)
