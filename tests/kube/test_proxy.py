import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.kube.proxy import proxy_for

PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("url", "no_proxy", "through"),
    [
        ("https://10.96.0.1:443", "", True),
        ("https://10.96.0.1:443", "10.0.0.0/8", False),
        ("https://10.96.0.1:443", "192.168.0.0/16, 10.96.0.1", False),
        ("https://10.96.0.1:443", "10.96.0.1:443", False),
        ("https://10.96.0.1:443", "10.96.0.1:6443", True),
        ("https://10.96.0.1", "10.96.0.1:443", False),
        ("https://10.96.0.1:443", "0.96.0.1", True),
        ("https://10.96.0.1:443", "*", False),
        ("https://10.96.0.1:443", "10.96.0.1/99,,nonsense/8", True),
        ("https://[fd00::1]:443", "fd00::/8", False),
        ("https://[fd00::1]:443", "fd00::1", False),
        ("https://[fd00::1]:443", "[fd00::1]:443", False),
        ("https://[fd00::1]:443", "10.0.0.0/8", True),
        ("https://127.0.0.1:6443", "", False),
        ("https://[::1]:6443", "", False),
        ("https://localhost:6443", "", False),
        ("https://api.example.com", "example.com", False),
        ("https://api.example.com", ".example.com", False),
        ("https://api.example.com", "*.EXAMPLE.com", False),
        ("https://example.com", "example.com", False),
        ("https://example.com", ".example.com", True),
        ("https://api.badexample.com", "example.com", True),
        ("https://kubernetes.default.svc", ".svc,.cluster.local", False),
    ],
)
def test_as_go_reads_it(url: str, no_proxy: str, through: bool) -> None:
    assert proxy_for(url, {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy}) == (PROXY if through else None)


def test_each_scheme_has_its_own_and_both_spellings_count() -> None:
    assert proxy_for("http://10.0.0.1", {"HTTPS_PROXY": PROXY}) is None
    assert proxy_for("http://10.0.0.1", {"http_proxy": PROXY}) == PROXY
    assert proxy_for("https://10.0.0.1", {"https_proxy": PROXY, "no_proxy": "10.0.0.0/8"}) is None
    assert proxy_for("https://10.0.0.1", {"HTTPS_PROXY": "proxy.example:3128"}) == PROXY
    assert proxy_for("https://10.0.0.1", {}) is None


@given(st.text())
def test_no_setting_is_an_accident(no_proxy: str) -> None:
    assert proxy_for("https://10.0.0.1", {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy}) in (PROXY, None)
