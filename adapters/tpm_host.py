"""A host's TPM, asked with tpm2-tools (4 and 5) in the host's shell.

Nothing stays on the host or in its TPM but what was there: keys are made anew for each visit, in a folder that goes
with `close`, and no handle is made persistent. Every answer is a value: what could not be asked is a Refusal that is
inconclusive and says why. The methods raise only what the host's `run` raises.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Literal

from fleet.json_values import printable
from fleet.ports import CommandResult, Host
from fleet.tpm_attest import PcrSelection
from fleet.tpm_baseline import selection_text
from fleet.tpm_credential import Credential
from fleet.tpm_keys import KeyReading
from fleet.tpm_quote import QuoteReading
from fleet.tpm_refusal import Check, Refusal, failed, untold

TOOLS = (
    "tpm2_getcap",
    "tpm2_nvread",
    "tpm2_createek",
    "tpm2_createak",
    "tpm2_startauthsession",
    "tpm2_policysecret",
    "tpm2_activatecredential",
    "tpm2_quote",
    "tpm2_pcrread",
    "tpm2_flushcontext",
    "base64",
    "mktemp",
)
"""What is run on the host; Debian and Ubuntu: tpm2-tools, and the TCTI library that it does not pull in by itself."""

KeyKind = Literal["rsa", "ecc"]

_MISSING = 'for tool in "$@"; do command -v "$tool" >/dev/null 2>&1 || echo "missing:$tool"; done'
_BEGIN, _END = "=====gpufleet-file-begin=====", "=====gpufleet-file-end====="
_READ = f'echo {_BEGIN}; head -c 65536 "$1" | base64; echo {_END}'
_WRITE = 'printf %s "$1" | base64 -d >"$2"'
_FOLDER = re.compile(r"/\S*gpufleet-tpm\.\w+", re.ASCII)
# TPM_RC_INTEGRITY, or a seed (parameter 2) that this TPM cannot decrypt
_NOT_FOR_IT = re.compile(r"integrity|parameter\(2\)|0x1DF|0x2[CD][0-9A-F]\b", re.I)
_HANDLE = re.compile(r"\b0[xX]([0-9A-Fa-f]{7,8})\b")

# TCG EK Credential Profile, "NV index handles": certificates and templates of the low range, then further issuers.
_CERTIFICATES: dict[KeyKind, int] = {"rsa": 0x01C00002, "ecc": 0x01C0000A}
_TEMPLATES: dict[KeyKind, int] = {"rsa": 0x01C00004, "ecc": 0x01C0000C}
_CHAIN = range(0x01C00100, 0x01C00200)
_MOST_IN_CHAIN = 16
_ENDORSEMENT = "0x4000000B"
_SCHEMES: dict[KeyKind, str] = {"rsa": "rsassa", "ecc": "ecdsa"}
_QUICK, _SLOW = 60.0, 180.0  # a TPM may take a minute to make an RSA key


class _Stopped(Exception):
    """Ends an exchange; its refusal is handed back as a value."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class TpmHost:
    """One host's TPM. The login is root, or `host` puts sudo before what it runs.

    `tcti` says how tpm2-tools reach the TPM ("device:/dev/tpmrm0", "swtpm:host=…"); None leaves it to them. `key`
    is the endorsement key to ask, None the one that the TPM holds a certificate for, RSA before ECC.
    """

    def __init__(self, host: Host, tcti: str | None = None, key: KeyKind | None = None) -> None:
        self._host = host
        self._tcti = ("-T", tcti) if tcti else ()
        self._key = key
        self._folder: str | None = None

    def read_keys(self) -> KeyReading | Refusal:
        """The endorsement key with its certificates, and a new attestation key under it."""
        try:
            held = self._held()
            kind = self._key or _kind_with_certificate(held)
            certificate = self._memory(_CERTIFICATES[kind]) if _CERTIFICATES[kind] in held else None
            chain = b"".join(self._memory(index) for index in sorted(held & set(_CHAIN))[:_MOST_IN_CHAIN])
            template = ("-t",) if _TEMPLATES[kind] in held else ()
            self._tool(
                *("tpm2_createek", "-c", self._path("ek.ctx"), "-G", kind, *template),
                *("-u", self._path("ek.pub"), "-f", "tss"),
                timeout_seconds=_SLOW,
            )
            self._flush()
            self._tool(
                *("tpm2_createak", "-C", self._path("ek.ctx"), "-c", self._path("ak.ctx"), "-G", kind),
                *("-g", "sha256", "-s", _SCHEMES[kind], "-u", self._path("ak.pub"), "-f", "tss"),
                timeout_seconds=_SLOW,
            )
            self._flush()
            return KeyReading(self._read("ek.pub"), self._read("ak.pub"), certificate, chain)
        except _Stopped as stopped:
            return stopped.refusal

    def activate(self, credential: Credential) -> bytes | Refusal:
        """What the TPM finds in a credential for the keys of `read_keys`.

        Where the TPM finds that the credential is for other keys, the Refusal is a failure; any other trouble that it
        has is inconclusive.
        """
        try:
            self._write("credential", credential.file)
            session = self._path("session.ctx")
            self._tool("tpm2_startauthsession", "--policy-session", "-S", session)
            try:
                self._tool("tpm2_policysecret", "-S", session, "-c", _ENDORSEMENT)
                result = self._run(
                    *("tpm2_activatecredential", "-c", self._path("ak.ctx"), "-C", self._path("ek.ctx")),
                    *("-i", self._path("credential"), "-o", self._path("secret"), "-P", f"session:{session}"),
                )
            finally:
                self._run("tpm2_flushcontext", session)
                self._flush()
            if result.code:
                text = f"the TPM did not open the credential: {_said(result)}"
                return (failed if _NOT_FOR_IT.search(text) else untold)(Check.ACTIVATION, text)
            return self._read("secret")
        except _Stopped as stopped:
            return stopped.refusal

    def quote(self, nonce: bytes, selections: tuple[PcrSelection, ...]) -> QuoteReading | Refusal:
        """A quote by the attestation key of `read_keys`, and the PCRs that it is about."""
        try:
            wanted = selection_text(selections)
            self._tool(
                *("tpm2_quote", "-c", self._path("ak.ctx"), "-l", wanted, "-q", nonce.hex(), "-g", "sha256"),
                *("-m", self._path("quote"), "-s", self._path("signature"), "-f", "tss"),
            )
            self._flush()
            values = self._run("tpm2_pcrread", wanted)
            return QuoteReading(self._read("quote"), self._read("signature"), values.stdout)
        except _Stopped as stopped:
            return stopped.refusal

    def close(self) -> None:
        """Remove the folder with the keys' contexts."""
        if self._folder is not None:
            self._host.run(("rm", "-rf", self._folder))
            self._folder = None

    def _path(self, name: str) -> str:
        return f"{self._ensure_folder()}/{name}"

    def _ensure_folder(self) -> str:
        if self._folder is None:
            self._folder = self._new_folder()
        return self._folder

    def _new_folder(self) -> str:
        missing = self._host.run(("sh", "-c", _MISSING, "sh", *TOOLS)).stdout
        names = [line.removeprefix("missing:") for line in missing.splitlines() if line.startswith("missing:")]
        if names:
            text = f"the host has no {', '.join(names)}; most come with the package tpm2-tools"
            raise _Stopped(untold(Check.TOOLS, text))
        made = self._host.run(("mktemp", "-d", "-t", "gpufleet-tpm.XXXXXX"))
        folder = made.stdout.strip().rpartition("\n")[2].strip()
        if made.code or not _FOLDER.fullmatch(folder):
            raise _Stopped(untold(Check.TOOLS, f"no folder for the TPM's keys: {_said(made)}"))
        return folder

    def _held(self) -> set[int]:
        """The indices of the TPM's memory that are in use."""
        self._ensure_folder()
        listed = self._tool("tpm2_getcap", "handles-nv-index")
        return {int(number, 16) for number in _HANDLE.findall(listed)}

    def _memory(self, index: int) -> bytes:
        """What is at `index`, read by its own authorization, else by the owner's."""
        arguments = ("tpm2_nvread", f"0x{index:08X}", "-o", self._path("memory"))
        if self._run(*arguments).code:
            self._tool(*arguments, "-C", "o")
        return self._read("memory")

    def _flush(self) -> None:
        """Free what the last command left loaded; with a resource manager there is nothing."""
        self._run("tpm2_flushcontext", "-t")

    def _run(self, tool: str, *arguments: str, timeout_seconds: float = _QUICK) -> CommandResult:
        return self._host.run((tool, *self._tcti, *arguments), timeout_seconds)

    def _tool(self, tool: str, *arguments: str, timeout_seconds: float = _QUICK) -> str:
        result = self._run(tool, *arguments, timeout_seconds=timeout_seconds)
        if result.code:
            raise _Stopped(untold(Check.TOOLS, f"{tool} failed: {_said(result)}"))
        return result.stdout

    def _read(self, name: str) -> bytes:
        result = self._host.run(("sh", "-c", _READ, "sh", self._path(name)))
        _, begun, rest = result.stdout.partition(_BEGIN)
        text, ended, _ = rest.partition(_END)
        try:
            content = base64.b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError):
            content = b""
        if not begun or not ended or not content:
            raise _Stopped(untold(Check.TOOLS, f"the host did not hand over {name}: {_said(result)}"))
        return content

    def _write(self, name: str, content: bytes) -> None:
        written = base64.b64encode(content).decode("ascii")
        result = self._host.run(("sh", "-c", _WRITE, "sh", written, self._path(name)))
        if result.code:
            raise _Stopped(untold(Check.TOOLS, f"the host did not take {name}: {_said(result)}"))


def _kind_with_certificate(held: set[int]) -> KeyKind:
    """RSA where there is none."""
    for kind, index in _CERTIFICATES.items():
        if index in held:
            return kind
    return "rsa"


def _said(result: CommandResult) -> str:
    """The end of what it printed, in one line."""
    text = str(printable(result.stderr.strip() or result.stdout.strip()))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(lines[-3:])[-300:] or f"exit status {result.code} and no word"
