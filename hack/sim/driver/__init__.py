"""A CSI driver with finite space on one node, for the tests and the demo. It is not a product: nobody's data should live in it.

    local_driver     what the driver answers, as plain values: no socket, no clock, no waiting
    state            what it knows, as a fold over a file of JSON lines that survives kill -9
    folders          what a volume is made of: only a journal entry, or a real folder that is bind-mounted
    calls            the record of all calls, and what goes wrong with which of them
    serve            the driver behind a gRPC socket, registered with a kubelet, and its command line

In worlds it is called without a socket; tests/contract_driver holds the served one against csi-sanity.
"""
