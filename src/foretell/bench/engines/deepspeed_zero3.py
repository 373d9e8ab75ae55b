# pyright: basic
"""DeepSpeed, ZeRO stage 3."""

import functools

from foretell.bench.engines import _deepspeed

ENGINE = _deepspeed.engine(3)
begin = _deepspeed.begin
apply = functools.partial(_deepspeed.apply, 3)
