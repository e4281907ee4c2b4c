"""The door to the CSI driver: the only room that knows gRPC and the CSI messages. Rules about claims and volumes belong above.

`api` is what rooms hold; `driver` makes the calls, `codec` their messages, `channel` the connection, and `link` decides when to connect and
whether the driver may be used. `outcome` says what a failed call means.
"""
