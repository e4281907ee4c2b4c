"""The CSI v1.12 messages, generated from csi.proto by `hack/generate-proto`. Nothing here is written by hand."""
