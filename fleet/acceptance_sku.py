"""Which product a GPU is, as finely as its limits need: chip, form factor, memory, PCI device id.

An H100 of the SXM form and one on a PCIe card share a name and little else, so what is not told stays None: a limit
that needs it is then not applied. Source of the names: what nvidia-smi prints as product name (drivers 515 to 590).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fleet.gpu import GpuReading

_LONGEST = 200  # characters; no product has a longer name
_CHIP = re.compile(r"gb[23]00|gh200|rtx ?[0-9]{4}|mi[0-9]{3}[ax]?|[abhlptv][0-9]{1,3}[sgmx]?|k[0-9]{2}[a-z]{0,2}")
_MEMORY = re.compile(r"([0-9]{1,4})gb")
_HEX_ID = re.compile(r"(?:0x)?([0-9a-f]{4})(?:10de)?", re.IGNORECASE)
_SXM_ONLY = frozenset({"h200", "b100", "b200", "b300"})  # cards of these are called NVL or PCIe in their names


@dataclass(frozen=True, slots=True)
class Sku:
    """`chip` as "H100", `form` "SXM", "PCIE" or "NVL". `pci_id` has the device's four hexadecimal digits.

    `pci_subsystem_id` has those of the board. None: not told.
    """

    chip: str | None = None
    form: str | None = None
    memory_gb: int | None = None
    pci_id: str | None = None
    pci_subsystem_id: str | None = None

    @property
    def name(self) -> str:
        """ "H100 SXM 80GB", as far as it is known; parts of one name are one cohort."""
        memory = f"{self.memory_gb}GB" if self.memory_gb else None
        named = " ".join(part for part in (self.chip, self.form, memory) if part)
        return named or (f"device {self.pci_id}" if self.pci_id else "unknown model")


def sku_of(name: str | None, pci_device_id: str | None = None, pci_subsystem_id: str | None = None) -> Sku:
    """The product by the name that a tool or the fleet file gives it ("NVIDIA H100 80GB HBM3", "HGX-H100-8").

    The ids are as nvidia-smi prints them ("0x233010DE") or bare ("2330"); what has no known shape counts as not told.
    """
    words = re.findall(r"[a-z0-9]+", (name or "")[:_LONGEST].casefold())
    chips = list(dict.fromkeys(word for word in words if _CHIP.fullmatch(word)))
    chip = chips[0] if len(chips) == 1 else None
    sizes = [int(found[1]) for word in words if (found := _MEMORY.fullmatch(word))]
    return Sku(
        chip=None if chip is None else chip.upper(),
        form=_form(words, chip),
        memory_gb=sizes[0] if len(sizes) == 1 and sizes[0] else None,
        pci_id=_id(pci_device_id),
        pci_subsystem_id=_id(pci_subsystem_id),
    )


def sku_of_gpu(gpu: GpuReading) -> Sku:
    """The product of one reading."""
    return sku_of(gpu.product_name, gpu.pci_device_id, gpu.pci_subsystem_id)


def _form(words: list[str], chip: str | None) -> str | None:
    if any(word.startswith("nvl") for word in words) and chip and not chip.startswith("gb"):
        return "NVL"
    if "pcie" in words or ("pci" in words and "e" in words):
        return "PCIE"
    if any(re.fullmatch(r"sxm[0-9]?|hgx|dgx|xe9[0-9]{3}[a-z]?", word) for word in words):
        return "SXM"
    if chip in _SXM_ONLY or (chip == "h100" and "hbm3" in words):
        return "SXM"
    return None


def _id(text: str | None) -> str | None:
    found = _HEX_ID.fullmatch((text or "").strip())
    return found[1].lower() if found else None
