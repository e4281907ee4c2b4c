"""The drain room on a simulated API server, node snapshots, and judgements."""
