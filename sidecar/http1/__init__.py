"""HTTP/1.1 as bytes: what a client sends and reads, what a server reads and sends. No sockets, no tasks, no time.

`kube.connections` (to API servers and proxies) and `observe.connections` (our own pages) hold the sockets.

It is our own because of the cost of a request. CPU for one GET and one PUT over TLS, in microseconds:

    this package with kube.transport     67 and    70
    the former transport on aiohttp     116 and   141
    this client, parsing by httptools    75 and    76
    this client, parsing by h11         219 and   140
    httpx                             1,071 and 1,230

A parser in C is twice as fast as this one by itself, but that does not show in a whole request. The tests compare this one with h11.
"""
