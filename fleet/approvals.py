"""What an approver signs: one text that names everything the approval is for."""

from __future__ import annotations

APPROVAL_NAMESPACE = "gpufleet-approval"
BUNDLE_NAMESPACE = "gpufleet-bundle"


def approval_text(fleet: str, operation: str, wave: int, round_number: int, digest: str, decision: str) -> str:
    """The bytes under the signature (UTF-8). A signature for another plan, wave or round never fits."""
    return (
        "gpufleet approval v1\n"
        f"fleet: {fleet}\n"
        f"operation: {operation}\n"
        f"wave: {wave}\n"
        f"round: {round_number}\n"
        f"plan: {digest}\n"
        f"decision: {decision}\n"
    )
