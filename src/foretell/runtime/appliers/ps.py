# pyright: basic
"""Parameter servers: ranks that go at their own pace."""

from foretell.runtime.appliers._own_pace import ORDER, apply, refusals

__all__ = ["ORDER", "apply", "refusals"]
