"""Pins of what is installed: by version for the tests, by version and sha256 for the image. hack/renew-constraints writes them."""
