"""Certificates that tests make for themselves."""

import ssl
import subprocess
from pathlib import Path


def certificate_for_this_machine(folder: Path, name: str) -> tuple[Path, ssl.SSLContext]:
    """Self-signed, so it is its own CA; and the server's side of it."""
    folder.mkdir(exist_ok=True)
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    subject = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"]
    command += [*subject, "-out", str(certificate), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return certificate, context
