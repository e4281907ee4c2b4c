"""The door to the API server: the only room that sends requests to it, and that knows about watches, resourceVersions and credentials.

What an object means belongs to the rooms above. From the outside in: `api` (what rooms hold), `verbs` (requests), `transport` (limiter,
deadlines, errors), `connections` (sockets, proxies, TLS), `sidecar.http1` (bytes). `reflector` lists and watches, `recorder` writes Events.
"""
