"""What an SPDX document must say."""

import re
from typing import Any


def assert_is_spdx(document: dict[str, Any]) -> None:
    """What SPDX 2.3 demands of a document without file information."""
    assert (document["spdxVersion"], document["dataLicense"], document["SPDXID"]) == ("SPDX-2.3", "CC0-1.0", "SPDXRef-DOCUMENT")
    assert document["name"] and re.fullmatch(r"https://[^#\s]+", document["documentNamespace"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", document["creationInfo"]["created"])
    assert all(re.match(r"(Tool|Person|Organization): \S", creator) for creator in document["creationInfo"]["creators"])
    ids = [package["SPDXID"] for package in document["packages"]]
    assert len(set(ids)) == len(ids) and all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", name) for name in ids)
    for package in document["packages"]:
        assert package["name"] and package["versionInfo"] and package["downloadLocation"] and package["filesAnalyzed"] is False
        assert package["licenseConcluded"] and package["licenseDeclared"] and package["copyrightText"]
        assert re.match(r"NOASSERTION$|(Person|Organization): \S", package.get("supplier", "NOASSERTION"))
        for reference in package.get("externalRefs", []):
            assert (reference["referenceCategory"], reference["referenceType"]) == ("PACKAGE-MANAGER", "purl")
            assert re.fullmatch(r"pkg:(deb/[a-z]+|pypi)/[^\s/@]+@[^\s/@?]+(\?\S+)?", reference["referenceLocator"])
        for checksum in package.get("checksums", []):
            assert checksum["algorithm"] == "SHA256" and re.fullmatch(r"[0-9a-f]{64}", checksum["checksumValue"])
    related = [(one["spdxElementId"], one["relationshipType"], one["relatedSpdxElement"]) for one in document["relationships"]]
    assert related[0] == ("SPDXRef-DOCUMENT", "DESCRIBES", ids[0])
    assert related[1:] == [(ids[0], "CONTAINS", name) for name in ids[1:]]
