"""The motor: what keeps keys moving, at the right moment and not too fast, and says how it is doing.

A key is anything hashable; a time is a number on a clock that is handed in. What belongs here would work as well in a
program that has never heard of storage or Kubernetes. What a key stands for, and what handling it means, belongs to the
rooms above. Metrics and the pages that show these figures belong to `observe`.

`backoff`, `queue`, `limiter` and `health` are data without tasks or clocks of their own; `loop` alone starts tasks and waits.
"""
