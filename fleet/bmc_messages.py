"""What the messages of a BMC mean: error bodies, task messages, extended information.

Sources: DMTF registries Base, Update and TaskEvent; Dell's IDRAC registry (SUP029, RAC0679, SYS403); NVIDIA's
NvidiaUpdate registry. Where an id is not known, the English text decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from fleet.json_values import JsonObject, object_at, objects_at, text_at, texts_at


class Severity(IntEnum):
    """How bad a message says it is. UNKNOWN stands below WARNING: it decides nothing by itself."""

    OK = 0
    UNKNOWN = 1
    WARNING = 2
    CRITICAL = 3


class Meaning(StrEnum):
    """What to do about a message."""

    ALREADY_CURRENT = "already_current"  # the wanted version is installed: nothing to do
    BUSY = "busy"  # wait and ask again
    TRANSFER_PROTOCOL_REQUIRED = "transfer_protocol_required"  # ask again, with TransferProtocol
    NOT_AUTHORISED = "not_authorised"  # credentials or their privileges
    MISSING = "missing"  # no such resource: permanent for this address
    BAD_REQUEST = "bad_request"  # what was sent is wrong: permanent
    NOT_SUPPORTED = "not_supported"  # this BMC cannot do it
    IMAGE_REJECTED = "image_rejected"  # the image or its signature does not fit
    INTERNAL = "internal"  # the BMC failed
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class BmcMessage:
    """One message. `id` is as written, e.g. "IDRAC.2.8.RAC0679"; `key` is its last part."""

    id: str | None
    key: str
    text: str
    severity: Severity
    resolution: str | None
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.text} [{self.id}]" if self.id else self.text


_BY_KEY = {
    Meaning.ALREADY_CURRENT: "SUP029 ComponentUpdateSkipped",
    Meaning.BUSY: "RAC0679 RAC0508 SUP024 SYS439 ResourceInUse ServiceTemporarilyUnavailable "
    "ResourceInStandby SessionLimitExceeded ServiceInUnknownState UpdateInProgress OperationTimeout "
    "ServiceShuttingDown ConditionInRelatedResource ResourceExhaustion ResourceNotReadyRetry",
    Meaning.NOT_AUTHORISED: "InsufficientPrivilege InsufficientPrivilegeForOperation NoValidSession "
    "ResourceAtUriUnauthorized AccessDenied AuthenticationTokenRequired AccountForSessionNoLongerExists "
    "PasswordChangeRequired AccountRemoved RAC0506",
    Meaning.MISSING: "ResourceMissingAtURI ResourceNotFound SYS403 SYS404",
    Meaning.BAD_REQUEST: "MalformedJSON UnrecognizedRequestBody EmptyJSON InvalidObject InvalidURI "
    "PropertyValueNotInList PropertyValueTypeError PropertyValueFormatError PropertyMissing PropertyUnknown "
    "PropertyNotWritable PropertyDuplicate PropertyValueError PropertyValueOutOfRange ActionParameterMissing "
    "ActionParameterUnknown ActionParameterDuplicate ActionParameterValueTypeError "
    "ActionParameterValueFormatError ActionParameterValueNotInList ActionParameterNotSupported "
    "CreateFailedMissingReqProperties QueryParameterValueError QueryParameterOutOfRange PayloadTooLarge "
    "HeaderInvalid HeaderMissing ResourceAtUriInUnknownFormat",
    Meaning.NOT_SUPPORTED: "ActionNotSupported OperationNotAllowed QueryNotSupported NotImplemented "
    "QueryNotSupportedOnResource ResourceCannotBeDeleted ActionDeprecated QueryCombinationInvalid",
    Meaning.IMAGE_REJECTED: "VerificationFailed ApplyFailed ActivateFailed NoTargetsDetermined InvalidImage "
    "ImageVerificationFailed StageFailed TransferFailed",
    Meaning.INTERNAL: "InternalError GeneralFailure",
}
_KEYS = {key.casefold(): meaning for meaning, keys in _BY_KEY.items() for key in keys.split()}

_CURRENT = re.compile(
    r"(?<!not )\balready (at|up[- ]to[- ]date|current|installed|has the|the latest)"
    r"|\balready running (the )?(same|this|latest)"
    r"|(?<!not )(?<!n't )\bup[- ]to[- ]date\b|\bsame (firmware )?version\b|\b(is|are) identical\b"
    r"|\bversions? (on server )?match(es)? (the )?catalog|\bno applicable updates\b"
    r"|applicable updates are not present",
    re.IGNORECASE,
)
_BUSY = re.compile(
    r"\b(job|update|operation|task|flash|upload|push|transfer)\b[^.]*\b(already|currently|still|is) "
    r"(running|in progress|ongoing|active)\b|\b(another|other|previous) [^.]*\bin progress\b"
    r"|\btemporarily unavailable\b|\b(try|retry)[^.]*\b(later|again after)\b|\b(is|are) busy\b|\bnot ready\b",
    re.IGNORECASE,
)
_MISSING = re.compile(r"\b(was|is|were|are) not found\b|\bdoes not exist\b", re.IGNORECASE)
_IMAGE = re.compile(
    r"\b(signature|verif\w+|authenticat\w+|checksum|digest)\b[^.]*\b(fail\w*|invalid|mismatch\w*)"
    r"|\b(invalid|corrupt\w*|incompatible|unsupported)\b[^.]*\b(image|package|firmware|file)\b"
    r"|\b(image|package|firmware)\b[^.]*\bnot (compatible|applicable|supported|valid)\b",
    re.IGNORECASE,
)
# These frame the real message and decide nothing while another one stands beside them.
_FRAMES = {
    "generalerror",
    "success",
    "taskaborted",
    "taskcompletedwarning",
    "taskstarted",
    "taskprogresschanged",
}


def read_messages(body: JsonObject) -> tuple[BmcMessage, ...]:
    """Every message of an error body, a task or a success body, in the BMC's order."""
    error = object_at(body, "error")
    found = [
        _read_one(item)
        for part in (
            objects_at(error, "@Message.ExtendedInfo"),
            objects_at(body, "@Message.ExtendedInfo"),
            objects_at(body, "Messages"),
        )
        for item in part
    ]
    if not found and (text_at(error, "message") or text_at(error, "code")):
        found.append(_read_one({"MessageId": text_at(error, "code"), "Message": text_at(error, "message")}))
    return tuple(found)


def worst(messages: Iterable[BmcMessage]) -> Severity:
    """The worst severity, UNKNOWN where there are no messages."""
    return max((message.severity for message in messages), default=Severity.UNKNOWN)


def meaning_of(messages: Iterable[BmcMessage]) -> Meaning:
    """The meaning of the worst message that says more than "an error occurred"."""
    telling = [m for m in messages if m.key.casefold() not in _FRAMES or _by_text(m) is not Meaning.OTHER]
    known = [(m, _meaning(m)) for m in telling]
    level = worst(telling)
    decisive = [meaning for message, meaning in known if message.severity == level]
    order = [meaning for meaning in decisive if meaning is not Meaning.OTHER]
    if not order:  # the worst one says nothing that is known: the next one may
        order = [meaning for _, meaning in known if meaning is not Meaning.OTHER]
        order = [] if Meaning.ALREADY_CURRENT in order and level >= Severity.CRITICAL else order
    return order[0] if order else Meaning.OTHER


def only_already_current(messages: Iterable[BmcMessage]) -> bool:
    """True where something was skipped as current and nothing else went wrong."""
    telling = [m for m in messages if m.key.casefold() not in _FRAMES]
    current = [m for m in telling if _meaning(m) is Meaning.ALREADY_CURRENT]
    failed = [m for m in telling if m not in current and m.severity > Severity.UNKNOWN]
    return bool(current) and not failed


def _meaning(message: BmcMessage) -> Meaning:
    by_text = _by_text(message)
    if by_text is Meaning.TRANSFER_PROTOCOL_REQUIRED:
        return by_text
    by_key = _KEYS.get(message.key.casefold())
    if by_key is not None and message.key == "ComponentUpdateSkipped" and by_text is not Meaning.ALREADY_CURRENT:
        return Meaning.OTHER  # skipped for another reason
    return by_key or by_text


def _by_text(message: BmcMessage) -> Meaning:
    text = message.text
    whole = " ".join((text, *message.arguments)).casefold()
    missing = re.search(r"\b(require\w*|mandatory|missing|must|not specified)\b", f"{whole} {message.key}".casefold())
    if "transferprotocol" in whole.replace(" ", "") and (missing or message.key.endswith("Missing")):
        return Meaning.TRANSFER_PROTOCOL_REQUIRED
    for pattern, meaning in (
        (_CURRENT, Meaning.ALREADY_CURRENT),
        (_BUSY, Meaning.BUSY),
        (_IMAGE, Meaning.IMAGE_REJECTED),
        (_MISSING, Meaning.MISSING),
    ):
        if pattern.search(text):
            return meaning
    return Meaning.OTHER


def _read_one(item: JsonObject) -> BmcMessage:
    ident = text_at(item, "MessageId") or text_at(item, "MessageID")
    word = text_at(item, "MessageSeverity") or text_at(item, "Severity") or ""
    severity = {
        "ok": Severity.OK,
        "informational": Severity.OK,
        "warning": Severity.WARNING,
        "critical": Severity.CRITICAL,
    }.get(word.casefold(), Severity.UNKNOWN)
    return BmcMessage(
        id=ident,
        key=(ident or "").rpartition(".")[2],
        text=text_at(item, "Message") or ident or "a message without text",
        severity=severity,
        resolution=text_at(item, "Resolution"),
        arguments=texts_at(item, "MessageArgs"),
    )
