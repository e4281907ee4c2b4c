"""Tells an OpenTelemetry collector how claims became volumes: a span for each, with the calls and requests made for it below.

Nothing here is imported before an endpoint is named in the environment (`settings.traces`). `controller` is what the others hold.
"""
