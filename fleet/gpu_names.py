"""Which GPU a name means: a model as tools print it, an architecture, or a compute capability."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from fleet.catalog_data import Architecture, Catalog, GpuClass, GpuModel

_NOISE = re.compile(
    "nvidia|corporation|tesla|geforce|gpu|graphics|card|pcie|pci|e|sxm|hgx|dgx|dgxs|mig|fhhl|ls|lc|generation|with|design"
    "|laptop|mobile|max|q|server|workstation|edition|accelerator|tensor|core"
)
_SIZES = re.compile(r"sxm[0-9]|hbm[0-9]e?|nvl[0-9]*|[0-9]+g|[0-9]+gb|[0-9]+x|[0-9]e")
_CAPABILITY = re.compile(
    r"(?:(?:sm|compute|cc)(?:[ _]?capability)?[ _:=]*([1-9][0-9]?)\.?([0-9])[af]?|([1-9][0-9]?)\.([0-9]))"
)
_WRITTEN_OTHERWISE = {"ada lovelace": "ada", "lovelace": "ada"}
_LONGEST = 200  # characters; no GPU has a longer name


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a name means. Several `rows` where it leaves open which support range applies (Kepler).

    `gpu_class` and `coherent` are None where the name covers boards of both kinds (Ampere, sm_86).
    """

    name: str
    rows: tuple[Architecture, ...]
    gpu_class: GpuClass | None
    coherent: bool | None

    @property
    def architecture(self) -> str:
        return self.rows[0].name


def identify(text: str, catalog: Catalog) -> Gpu | None:
    """The GPU that `text` names: "V100", "NVIDIA A100-SXM4-80GB", "HGX-H100-8", "Hopper", "sm_70", "9.0".

    None where the catalogue does not know it, or where the name means GPUs of several kinds ("RTX 6000").
    """
    plain = text[:_LONGEST].casefold().strip()
    bracket = re.search(r"\[([^\[\]]+)\]", plain)
    return (
        _by_capability(plain, catalog)
        or _by_architecture(plain, catalog)
        or _by_model(bracket[1] if bracket else plain, catalog)
    )


def nearest(text: str, catalog: Catalog) -> tuple[str, ...]:
    """Up to three known names that look like `text`, best first."""
    names = {model.name.casefold(): model.name for model in catalog.models}
    names |= {row.name.casefold(): row.name for row in catalog.architectures}
    names |= {
        f"sm_{cap.replace('.', '')}": f"sm_{cap.replace('.', '')}"
        for row in catalog.architectures
        for cap in row.capabilities
    }
    plain = text[:_LONGEST].casefold().strip()
    words, capability = _words(plain), _capability(plain)
    given = f"sm_{capability.replace('.', '')}" if capability else plain
    found = [
        *(name for name in names if words and set(words) < set(name.split())),
        *difflib.get_close_matches(" ".join(words), names, n=3, cutoff=0.6),
        *difflib.get_close_matches(given, names, n=3, cutoff=0.6),
    ]
    return tuple(names[name] for name in dict.fromkeys(found))[:3]


def _capability(plain: str) -> str | None:
    found = _CAPABILITY.fullmatch(plain)
    return f"{found[1] or found[3]}.{found[2] or found[4]}" if found else None


def _by_capability(plain: str, catalog: Catalog) -> Gpu | None:
    capability = _capability(plain)
    rows = tuple(row for row in catalog.architectures if capability in row.capabilities)
    return _of_kind(f"compute capability {capability}", rows, [m for m in catalog.models if m.capability == capability])


def _by_architecture(plain: str, catalog: Catalog) -> Gpu | None:
    name = re.sub(r"[ _-]+", " ", plain.removeprefix("nvidia ")).strip()
    name = _WRITTEN_OTHERWISE.get(name, name).removesuffix(" architecture")
    rows = tuple(row for row in catalog.architectures if row.name.casefold() == name)
    capabilities = {capability for row in rows for capability in row.capabilities}
    return _of_kind(rows[0].name if rows else name, rows, [m for m in catalog.models if m.capability in capabilities])


def _by_model(plain: str, catalog: Catalog) -> Gpu | None:
    words = _words(plain)
    models = [m for m in catalog.models if m.name.casefold().split() == words] or _inside(words, catalog)
    if len({(m.capability, m.gpu_class, m.coherent) for m in models}) != 1:
        return None
    rows = tuple(row for row in catalog.architectures if models[0].capability in row.capabilities)
    return _of_kind(models[0].name, rows, models)


def _words(plain: str) -> list[str]:
    """The words that tell a model: no vendor, form factor, memory size, count or revision."""
    words = re.findall(r"[a-z0-9]+", re.sub(r"^gpu [0-9]+:|\((?:rev|uuid).*", " ", plain))
    words = [re.sub(r"^[0-9]+x(?=[a-z])", "", word) for word in words]
    words = [word for word in words if not _NOISE.fullmatch(word) and not _SIZES.fullmatch(word)]
    while len(words) > 1 and re.fullmatch(r"[0-9]|16", words[-1]):  # HGX-H100-8
        words = words[:-1]
    return words


def _inside(words: list[str], catalog: Catalog) -> list[GpuModel]:
    """Data centre models named in a system's name ("XE9680 H100"): only those too long to mean anything else."""
    known = [m for m in catalog.models if m.gpu_class is GpuClass.DATA_CENTER and len(m.name) > 3]
    return [m for m in known if m.name.casefold() in words]


def _of_kind(name: str, rows: tuple[Architecture, ...], models: list[GpuModel]) -> Gpu | None:
    if not rows:
        return None
    classes = {model.gpu_class for model in models}
    coherent = {model.coherent for model in models}
    return Gpu(
        name=name,
        rows=rows,
        gpu_class=classes.pop() if len(classes) == 1 else None,
        coherent=coherent.pop() if len(coherent) == 1 else None,
    )
