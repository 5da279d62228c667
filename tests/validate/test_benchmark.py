"""A directory of a thousand configs: hundreds per second, and memory does not grow with them."""

from __future__ import annotations

from tests.validate.bench_validate import measure


def test_a_thousand_configs() -> None:
    measure(10)
    took_s, findings, grown_bytes = measure(1000)
    assert findings == 400
    assert 1000 / took_s > 20, "several hundred on an idle machine"
    assert grown_bytes < 64 << 20
