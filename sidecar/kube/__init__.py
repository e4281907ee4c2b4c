"""The API server's door. Here belongs everything that knows HTTP, watches and resourceVersions; what an object means does not."""
