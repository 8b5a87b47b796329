"""A plan in words."""

from __future__ import annotations

import pytest

from fleet.describe import _grouped


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([f"HGX_FW_GPU_SXM_{n}" for n in (1, 2, 3, 8)], ["HGX_FW_GPU_SXM_[1-3,8]"]),
        (["BIOS", "FW_BMC_0", "NIC_03", "NIC_3"], ["BIOS", "FW_BMC_0", "NIC_03", "NIC_3"]),
    ],
)
def test_numbered_components_are_named_together(ids: list[str], said: list[str]) -> None:
    assert _grouped(ids) == said
