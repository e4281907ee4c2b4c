#!/usr/bin/env python3
"""Forwards connections from a socket of the machine into the cluster's network: the only way in from outside.

    gate.py DESCRIPTOR ADDRESS PORT

A listening socket stays in the network namespace in which it was opened, whichever process holds it. This is a program of its own and
uses only the standard library.
"""

import asyncio
import socket
import sys


async def main(descriptor: int, address: str, port: int) -> None:
    async def accepted(inner: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        try:
            outer, requests = await asyncio.open_connection(address, port)
        except OSError:  # the server is away, so the connection is closed
            answers.close()
            return
        await asyncio.gather(carry(inner, requests), carry(outer, answers))

    server = await asyncio.start_server(accepted, sock=socket.socket(fileno=descriptor))
    await server.serve_forever()


async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copies data until one side ends, then ends the other."""
    try:
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()
    except OSError:
        pass
    target.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
