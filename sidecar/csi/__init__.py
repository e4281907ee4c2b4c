"""The driver's door. Here belongs everything that knows gRPC or the CSI messages; a rule about claims or volumes does not."""
