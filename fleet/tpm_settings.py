"""The fleet file's `tpm`: whose TPMs are trusted, and what a model's PCRs must hold."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from fleet.setting_types import Name, Strict
from fleet.tpm_algorithms import DIGEST_BYTES
from fleet.tpm_baseline import PcrBaseline

_ANYBODYS_PCRS = (16, 23)  # debug and application support: any software may set them back and extend them anew
_MEASURED_PCRS = range(8)  # firmware ends each of them with a separator at the latest (TCG PC Client Firmware Profile)


def _several(value: object) -> object:
    """One value counts as a set of one."""
    return [value] if isinstance(value, str) else value


Hexadecimal = Annotated[str, StringConstraints(pattern=r"^(0[xX])?[0-9A-Fa-f]+$", strip_whitespace=True)]
Bank = Literal["sha256", "sha384", "sha512", "sm3_256", "sha3_256", "sha3_384", "sha3_512"]
PcrIndex = Annotated[int, Field(ge=0, le=23)]
PcrSet = Annotated[tuple[Hexadecimal, ...], BeforeValidator(_several), Field(min_length=1)]
Reason = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
FirmwareVersion = Annotated[str, StringConstraints(pattern=r"^(0[xX])?[0-9A-Fa-f]{1,16}$")]


class TpmModelSettings(Strict):
    """One hardware model's measured boot."""

    pcrs: dict[Bank, dict[PcrIndex, PcrSet]] = Field(
        description="by bank and PCR: the value, or the values that are allowed, in hexadecimal", min_length=1
    )
    ignored: dict[PcrIndex, Reason] = Field(
        default_factory=dict, description="PCRs that differ from node to node, with the reason"
    )
    firmware: tuple[FirmwareVersion, ...] = Field(
        (), description="firmware versions of the TPM that are allowed, as 64-bit hexadecimal; none: any"
    )

    @model_validator(mode="after")
    def _values_fit(self) -> Self:
        for bank, pcrs in self.pcrs.items():
            if not pcrs:
                raise ValueError(f"pcrs.{bank} names no PCR")
            for index, values in pcrs.items():
                for value in values:
                    _check_value(bank, index, value)
                if index in self.ignored:
                    raise ValueError(f"PCR {index} is ignored, and has values in {bank}")
        return self

    def baseline(self) -> PcrBaseline:
        """The settings as the decision takes them."""
        return PcrBaseline(
            {
                (bank, index): frozenset(bytes.fromhex(_digits(value)) for value in values)
                for bank, pcrs in self.pcrs.items()
                for index, values in pcrs.items()
            },
            dict(self.ignored),
            frozenset(_digits(version).zfill(16) for version in self.firmware),
        )


class TpmSettings(Strict):
    roots: tuple[str, ...] = Field(
        (), description="PEM files with the manufacturers' certificates that endorsements must lead to"
    )
    intermediates: tuple[str, ...] = Field(
        (), description="PEM files with certificates in between; trusted for nothing"
    )
    require_certificate: bool = Field(
        True, description="false: a TPM without one passes where its endorsement key is the one that is known"
    )
    key: Literal["rsa", "ecc"] | None = Field(
        None, description="the endorsement key that is asked; none: the one with a certificate, RSA before ECC"
    )
    nonce_seconds: float = Field(
        300.0, gt=0, le=3600, description="a quote that comes later than this after its nonce is asked for again"
    )
    models: dict[Name, TpmModelSettings] = Field(default_factory=dict)

    @property
    def nonce_lifetime(self) -> timedelta:
        return timedelta(seconds=self.nonce_seconds)


def _digits(text: str) -> str:
    return text.lower().removeprefix("0x")


def _check_value(bank: str, index: int, value: str) -> None:
    digits = _digits(value)
    wanted = 2 * DIGEST_BYTES[bank]
    if len(digits) != wanted:
        raise ValueError(f"pcrs.{bank}.{index}: {len(digits)} hexadecimal digits; a {bank} value has {wanted}")
    if index in _ANYBODYS_PCRS:
        raise ValueError(f"pcrs.{bank}.{index}: any software may set this PCR back, so that its value proves nothing")
    if index in _MEASURED_PCRS and set(digits) in ({"0"}, {"f"}):
        raise ValueError(f"pcrs.{bank}.{index}: {digits[:8]}… is what a PCR holds that nothing was measured into")
