"""The motor: a work queue with workers, retries with back-off, a rate limiter, and the health of the program's parts.

Nothing here knows of storage or Kubernetes. A key is anything hashable, and a time is a number on a clock that is a parameter. What a key
stands for and how it is handled belongs to the rooms above; metrics and pages belong to `observe`.

`backoff`, `queue`, `limiter` and `health` are data without tasks or clocks; only `loop` starts tasks and waits.
"""
