"""A host's TPM behind tpm2-tools: what is asked, and what each kind of silence becomes."""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from unit.tpm_tools import NONCE, NOW, SELECTION, Authority, SoftTpm, pcr_text, rsa_key, tpm2b

from adapters.tpm_host import TpmHost
from fleet.canary_verdict import Outcome
from fleet.errors import NodeUnreachable
from fleet.tpm_baseline import PcrBaseline
from fleet.tpm_certificate import read_certificates
from fleet.tpm_credential import Credential, make_credential
from fleet.tpm_endorsement import TrustStore
from fleet.tpm_keys import KeyReading, KnownKeys, KnownTpm, ProvenKeys, check_keys, prove_keys
from fleet.tpm_quote import Challenge, QuoteReading, judge_quote
from fleet.tpm_refusal import Check, Refusal

FOLDER = "/tmp/gpufleet-tpm.aB3dEf"
ROOT = Authority("Host Root", rsa_key(400))
STORE = TrustStore(roots=read_certificates(ROOT.certificate)[0])
NOTHING = Credential(b"\0\0", b"\0\0")


@dataclass
class Answer:
    code: int = 0
    stdout: str = ""
    stderr: str = ""


@dataclass
class FakeHost:
    """A shell with tpm2-tools over a TPM in memory. `failing` are answers of tools by name."""

    tpm: SoftTpm = field(default_factory=SoftTpm)
    held: dict[int, bytes] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    failing: dict[str, Answer] = field(default_factory=dict)
    banner: str = ""
    owner_only: bool = False
    files: dict[str, bytes] = field(default_factory=dict)
    commands: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> Answer:
        self.commands.append(arguments)
        if arguments[0] in self.failing:
            return self.failing[arguments[0]]
        answer = self._shell(arguments) if arguments[0] == "sh" else self._tool(arguments)
        return Answer(answer.code, self.banner + answer.stdout, answer.stderr)

    def close(self) -> None:
        """Nothing is open."""

    def asked(self, tool: str) -> list[tuple[str, ...]]:
        return [command for command in self.commands if command[0] == tool]

    def _shell(self, arguments: tuple[str, ...]) -> Answer:
        script, given = arguments[2], arguments[4:]
        if "missing:" in script:
            return Answer(stdout="".join(f"missing:{name}\n" for name in given if name in self.missing))
        if "base64 -d" in script:
            self.files[given[1]] = base64.b64decode(given[0])
            return Answer()
        text = base64.encodebytes(self.files.get(given[0], b"")).decode()
        return Answer(stdout=f"=====gpufleet-file-begin=====\n{text}=====gpufleet-file-end=====\n")

    def _tool(self, arguments: tuple[str, ...]) -> Answer:
        tool = arguments[0]
        options = dict(pairwise(arguments))
        if tool == "mktemp":
            return Answer(stdout=f"{FOLDER}\n")
        if tool == "rm":
            self.files = {path: content for path, content in self.files.items() if not path.startswith(arguments[2])}
        elif tool == "tpm2_getcap":
            return Answer(stdout="".join(f"- 0x{index:X}\n" for index in self.held))
        elif tool == "tpm2_nvread":
            if self.owner_only and "-C" not in arguments:
                return Answer(1, stderr="ERROR: authorization")
            self.files[options["-o"]] = self.held[next(int(word, 16) for word in arguments if word.startswith("0x"))]
        elif tool == "tpm2_createek":
            self.files[options["-u"]] = tpm2b(self.tpm.ek_area)
        elif tool == "tpm2_createak":
            self.files[options["-u"]] = tpm2b(self.tpm.ak_area)
        elif tool == "tpm2_activatecredential":
            return self._activate(self.files[options["-i"]], options["-o"])
        elif tool == "tpm2_quote":
            attest = self.tpm.attest(bytes.fromhex(options["-q"]), SELECTION)
            self.files |= {options["-m"]: attest, options["-s"]: self.tpm.sign(attest)}
        elif tool == "tpm2_pcrread":
            return Answer(stdout=pcr_text(self.tpm.pcrs))
        return Answer()

    def _activate(self, content: bytes, output: str) -> Answer:
        blob, seed = content[8:], b""
        size = 2 + int.from_bytes(blob[:2], "big")
        blob, seed = blob[:size], blob[size:]
        secret = self.tpm.activate(blob, seed)
        if secret is None:
            return Answer(1, stderr="ERROR: Esys_ActivateCredential(0x1DF) - tpm:parameter(1):integrity check failed\n")
        self.files[output] = secret
        return Answer()


def endorsed(tpm: SoftTpm | None = None) -> FakeHost:
    tpm = tpm or SoftTpm()
    return FakeHost(tpm, held={0x01C00002: ROOT.endorse(tpm.ek) + b"\xff" * 200})


def read(host: TpmHost) -> KeyReading:
    reading = host.read_keys()
    assert isinstance(reading, KeyReading), str(reading)
    return reading


def refusal(found: object) -> Refusal:
    assert isinstance(found, Refusal)
    return found


@pytest.mark.parametrize("banner", ["", "Welcome to gpu-0001\n====\n"])
def test_a_whole_visit_ends_in_a_pass_and_leaves_nothing(banner: str) -> None:
    fake = endorsed()
    fake.banner = banner
    host = TpmHost(fake)
    keys = check_keys(read(host), STORE, KnownTpm(), NOW)
    assert isinstance(keys, KnownKeys), [str(one) for one in keys]
    secret = secrets.token_bytes(32)
    opened = host.activate(make_credential(keys.endorsement, keys.attestation.name, secret, secrets.token_bytes))
    assert isinstance(opened, bytes), str(opened)
    proven = prove_keys(keys, secret, opened)
    assert isinstance(proven, ProvenKeys)
    reading = host.quote(NONCE, SELECTION)
    assert isinstance(reading, QuoteReading), str(reading)
    baseline = PcrBaseline({("sha256", index): frozenset({v}) for index, v in fake.tpm.pcrs["sha256"].items()})
    verdict = judge_quote(reading, proven, Challenge(NONCE, NOW), KnownTpm(), baseline, NOW)
    assert verdict.outcome is Outcome.PASS, [str(one) for one in verdict.refusals]
    host.close()
    assert fake.files == {}
    assert fake.commands[-1] == ("rm", "-rf", FOLDER)


def test_every_missing_tool_is_named_and_nothing_else_is_run() -> None:
    fake = FakeHost(missing=("tpm2_quote", "tpm2_createak"))
    for found in (TpmHost(fake).read_keys(), TpmHost(fake).quote(NONCE, SELECTION), TpmHost(fake).activate(NOTHING)):
        assert (refusal(found).check, refusal(found).outcome) == (Check.TOOLS, Outcome.INCONCLUSIVE)
        assert "the host has no tpm2_createak, tpm2_quote" in refusal(found).text
    assert {command[0] for command in fake.commands} == {"sh"}


def test_a_host_without_a_tpm_is_inconclusive_with_the_tools_own_words() -> None:
    said = 'ERROR:tcti:Failed to open /dev/tpm0\nERROR: Could not load tcti, got: "device"\n'
    found = refusal(TpmHost(FakeHost(failing={"tpm2_getcap": Answer(1, stderr=said)})).read_keys())
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "tpm2_getcap failed: ERROR:tcti:Failed to open /dev/tpm0 / ERROR: Could not load tcti" in found.text


@pytest.mark.parametrize("tool", ["mktemp", "tpm2_createek", "tpm2_createak"])
def test_a_tool_that_fails_is_named(tool: str) -> None:
    fake = endorsed()
    fake.failing[tool] = Answer(1, stderr="no \x1b[31mspace\n")
    found = refusal(TpmHost(fake).read_keys())
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "no \ufffd[31mspace" in found.text


@pytest.mark.parametrize("tool", ["tpm2_createek", "tpm2_createak"])
def test_a_tool_that_says_it_succeeded_and_wrote_nothing_gives_no_keys(tool: str) -> None:
    fake = endorsed()
    fake.failing[tool] = Answer()
    found = refusal(TpmHost(fake).read_keys())
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "did not hand over" in found.text


def test_a_tpm_without_certificates_gives_its_keys_without_one() -> None:
    reading = read(TpmHost(FakeHost()))
    assert (reading.certificate, reading.chain) == (None, b"")


def test_a_certificate_that_only_the_owner_may_read_is_read_as_the_owner() -> None:
    fake = endorsed()
    fake.owner_only = True
    assert read(TpmHost(fake)).certificate == fake.held[0x01C00002]
    assert fake.asked("tpm2_nvread")[-1][-2:] == ("-C", "o")


def test_the_key_is_the_one_that_the_tpm_has_a_certificate_for() -> None:
    fake = FakeHost(held={0x01C0000A: b"ecc"})
    assert read(TpmHost(fake)).certificate == b"ecc"
    assert "ecc" in fake.asked("tpm2_createek")[0]
    assert "ecdsa" in fake.asked("tpm2_createak")[0]
    both = FakeHost(held={0x01C0000A: b"ecc", 0x01C00002: b"rsa"})
    assert read(TpmHost(both)).certificate == b"rsa"
    assert read(TpmHost(both, key="ecc")).certificate == b"ecc"


def test_the_makers_template_is_used_where_the_tpm_has_one() -> None:
    fake = FakeHost(held={0x01C00002: b"rsa", 0x01C00004: b"template"})
    read(TpmHost(fake))
    assert "-t" in fake.asked("tpm2_createek")[0]
    assert "-t" not in endorsed_createek()


def endorsed_createek() -> tuple[str, ...]:
    fake = endorsed()
    read(TpmHost(fake))
    return fake.asked("tpm2_createek")[0]


def test_further_issuers_in_the_tpm_are_read_in_order() -> None:
    fake = FakeHost(held={0x01C00002: b"leaf", 0x01C00101: b"second", 0x01C00100: b"first", 0x01C00200: b"other"})
    assert read(TpmHost(fake)).chain == b"firstsecond"


def test_every_tool_is_led_to_the_same_tpm() -> None:
    fake = endorsed()
    host = TpmHost(fake, tcti="device:/dev/tpmrm0")
    read(host)
    host.quote(NONCE, SELECTION)
    tools = [command for command in fake.commands if command[0].startswith("tpm2_")]
    assert {command[1:3] for command in tools} == {("-T", "device:/dev/tpmrm0")}


def test_a_credential_for_other_keys_is_a_failure_and_the_session_is_ended() -> None:
    fake = endorsed()
    host = TpmHost(fake)
    keys = check_keys(read(host), STORE, KnownTpm(), NOW)
    assert isinstance(keys, KnownKeys)
    other = SoftTpm(number=1).ak_name
    found = refusal(host.activate(make_credential(keys.endorsement, other, b"s" * 32, secrets.token_bytes)))
    assert (found.check, found.outcome) == (Check.ACTIVATION, Outcome.FAIL)
    assert ("tpm2_flushcontext", f"{FOLDER}/session.ctx") in fake.commands


def test_a_tpm_that_cannot_open_a_credential_for_now_is_inconclusive() -> None:
    fake = endorsed()
    host = TpmHost(fake)
    read(host)
    said = "ERROR: Esys_PolicySecret(0x9A2) - tpm:session(1):authorization failure without DA implications"
    fake.failing["tpm2_policysecret"] = Answer(1, stderr=said)
    found = refusal(host.activate(NOTHING))
    assert (found.check, found.outcome) == (Check.TOOLS, Outcome.INCONCLUSIVE)
    assert ("tpm2_flushcontext", f"{FOLDER}/session.ctx") in fake.commands


def test_pcrs_that_could_not_be_read_come_as_no_values() -> None:
    fake = endorsed()
    host = TpmHost(fake)
    read(host)
    fake.failing["tpm2_pcrread"] = Answer(1, stderr="ERROR: bank not allocated")
    reading = host.quote(NONCE, SELECTION)
    assert isinstance(reading, QuoteReading)
    assert reading.pcrs == ""


def test_an_answer_that_was_cut_is_no_answer() -> None:
    fake = endorsed()
    host = TpmHost(fake)
    read(host)
    whole = fake._shell

    def cut(arguments: tuple[str, ...]) -> Answer:
        answer = whole(arguments)
        return Answer(answer.code, answer.stdout[:60], answer.stderr)

    fake._shell = cut  # type: ignore[method-assign]
    assert "did not hand over quote" in refusal(host.quote(NONCE, SELECTION)).text


def test_a_folder_with_another_name_is_not_used_and_not_removed() -> None:
    fake = FakeHost(failing={"mktemp": Answer(stdout="/\n")})
    host = TpmHost(fake)
    assert "no folder" in refusal(host.read_keys()).text
    host.close()
    assert fake.asked("rm") == []


def test_a_host_that_cannot_be_reached_is_not_an_answer_of_its_tpm() -> None:
    class Gone(FakeHost):
        def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> Answer:
            raise NodeUnreachable("connection refused")

    with pytest.raises(NodeUnreachable):
        TpmHost(Gone()).read_keys()
