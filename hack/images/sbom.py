"""The components of an image as SPDX 2.3, read from what Debian packages and Python distributions say about themselves in its files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email import message_from_string
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hack.lib import debian

Json = dict[str, Any]

UNKNOWN = "NOASSERTION"
BRACKETS = str.maketrans("<>", "()")  # addresses: Debian writes them in the first, SPDX in the second
IMAGE_ID = "SPDXRef-Image"


@dataclass(frozen=True, slots=True, order=True)
class Component:
    """One package; `purl` is its package URL."""

    name: str
    version: str
    purl: str
    supplier: str = UNKNOWN
    license: str = UNKNOWN
    license_told: str = ""  # in the package's own words, where they are no SPDX expression


def components(root: Path) -> list[Component]:
    return sorted({*_debian(root), *_python(root)})


def document(name: str, *, digest: str, found: Sequence[Component]) -> Json:
    """`digest` is the image's id, that of its config: no registry changes it. The document's own name follows from it."""
    packages = [_described(component) for component in found]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": f"https://csi-node-sidecar.io/spdx/{quote(name, safe='')}/{digest.removeprefix('sha256:')}",
        "creationInfo": {
            "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Tool: csi-node-sidecar-hack-image"],
        },
        "packages": [_image(name, digest), *packages],
        "relationships": [
            _related("SPDXRef-DOCUMENT", "DESCRIBES", IMAGE_ID),
            *(_related(IMAGE_ID, "CONTAINS", package["SPDXID"]) for package in packages),
        ],
    }


def _debian(root: Path) -> Iterator[Component]:
    told = sorted((root / "var/lib/dpkg/status.d").glob("*"))
    distribution = _distribution(root) if told else ""
    for file in told:
        paragraph = file.read_text()
        name, version = debian.field(paragraph, "Package"), debian.field(paragraph, "Version")
        where = f"arch={debian.field(paragraph, 'Architecture')}&distro={distribution.replace('/', '-')}"
        maintainer = debian.field(paragraph, "Maintainer")
        yield Component(
            name,
            version,
            f"pkg:deb/{distribution.partition('/')[0]}/{_escaped(name)}@{_escaped(version)}?{where}",
            supplier=f"Organization: {maintainer.translate(BRACKETS)}" if maintainer else UNKNOWN,
        )


def _python(root: Path) -> Iterator[Component]:
    for file in sorted(root.glob("opt/*/lib/python3*/site-packages/*.dist-info/METADATA")):
        told = message_from_string(file.read_text(errors="replace"))
        name, version = told["Name"], told["Version"]
        words = (told["License"] or "").strip()
        yield Component(
            name,
            version,
            f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}@{_escaped(version)}",
            license=told["License-Expression"] or UNKNOWN,
            license_told=words.splitlines()[0] if words else "",
        )


def _distribution(root: Path) -> str:
    """Such as debian/12."""
    told = dict(line.partition("=")[::2] for line in (root / "usr/lib/os-release").read_text().splitlines())
    return "/".join(told.get(key, "").strip('"') for key in ("ID", "VERSION_ID"))


def _described(component: Component) -> Json:
    identity = re.sub(r"[^A-Za-z0-9.-]", "-", f"{component.name}-{component.version}")
    kind = component.purl.partition("/")[0].removeprefix("pkg:")
    package = {
        "SPDXID": f"SPDXRef-{kind}-{identity}",
        "name": component.name,
        "versionInfo": component.version,
        "supplier": component.supplier,
        "downloadLocation": UNKNOWN,
        "filesAnalyzed": False,
        "licenseConcluded": UNKNOWN,
        "licenseDeclared": component.license,
        "copyrightText": UNKNOWN,
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": component.purl}],
    }
    if component.license == UNKNOWN and component.license_told:
        package["licenseComments"] = f"The package's own words: {component.license_told}"
    return package


def _image(name: str, digest: str) -> Json:
    algorithm, _, value = digest.partition(":")
    return {
        "SPDXID": IMAGE_ID,
        "name": name,
        "versionInfo": digest,
        "primaryPackagePurpose": "CONTAINER",
        "downloadLocation": UNKNOWN,
        "filesAnalyzed": False,
        "checksums": [{"algorithm": algorithm.upper(), "checksumValue": value}],
        "licenseConcluded": UNKNOWN,
        "licenseDeclared": UNKNOWN,
        "copyrightText": UNKNOWN,
    }


def _related(one: str, kind: str, other: str) -> Json:
    return {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}


def _escaped(text: str) -> str:
    return quote(text, safe="~.-_")
