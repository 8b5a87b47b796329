"""Kernel log lines that each mean one thing: processors, memory, network adapters, drives, and the kernel itself."""

from __future__ import annotations

from fleet.findings import Action, Severity
from fleet.readers.line_rules import RuleTable, rule
from fleet.readers.pci_address import ADDRESS

_INFO, _WARNING, _ERROR, _FATAL = Severity.INFO, Severity.WARNING, Severity.ERROR, Severity.FATAL
_NIC = rf"mlx[45]_core(?: (?P<device>{ADDRESS}))?\b.*?"

_WORDS = (
    *(
        "edac",
        "mce",
        "machine check",
        "cmci",
        "memory",
        "temperature",
        "thermal",
        "corrected",
        "mc",
        "deferred",
        "fatal",
    ),
    *("oom-kill", "blocked for", "lockup", "rcu", "panic", "bug:", "oops", "protection fault", "mlx", "nvme", "i/o"),
    *("ext4", "xfs", "segfault", "inaccessible", "read-only", "file-max", "dmar", "amd-vi"),
)
_RULES = (
    rule(
        r"\bCMCI storm|EDAC.*\bstorm\b|mce:.*too many (?:corrected )?errors",
        "memory.corrected_storm",
        _WARNING,
        Action.RUN_DIAGNOSTICS,
        "node",
        "Corrected hardware errors come so fast that the kernel stopped listing them.",
    ),
    rule(
        r"mce:.*Uncorrected hardware memory error|Memory failure: 0x\w+|MCE.*Killing",
        "memory.uncorrected",
        _ERROR,
        Action.RUN_DIAGNOSTICS,
        "node",
        "An uncorrected error of the host's memory: a page is lost, perhaps with the process that used it.",
    ),
    rule(
        r"(?:Package|Core) temperature above threshold|CPU\d+: .*thermal throttl",
        "cpu.thermal",
        _WARNING,
        Action.CHECK_COOLING,
        "node",
        "A processor slowed down because of its temperature.",
    ),
    rule(
        r"Corrected error, no action required|Machine Check Event:.*corrected|MC\d+_STATUS\[[^\]]*\bCE\b",
        "cpu.mce_corrected",
        _INFO,
        Action.WATCH,
        "node",
        "A corrected machine check: only its rate matters.",
    ),
    rule(
        r"Uncorrected, software (?:restartable|containable)|Deferred error|MC\d+_STATUS\[[^\]]*\bUE\b|"
        r"Machine check: Processor context corrupt|Fatal machine check|Uncorrected error",
        "cpu.mce_uncorrected",
        _ERROR,
        Action.RUN_DIAGNOSTICS,
        "node",
        "An uncorrected machine check.",
    ),
    rule(
        r"mce:.*Machine check events logged|Machine Check Exception",
        "cpu.mce",
        _WARNING,
        Action.INVESTIGATE,
        "node",
        "The processor logged a machine check; the line does not say whether it was corrected.",
    ),
    rule(
        r"(?:Memory cgroup out of memory|Out of memory(?: \(\w+\))?): Kill(?:ed)? process (?P<pid>\d+) "
        r"\((?P<name>.*?)\)|oom-kill:constraint=.*,task=(?P<task>[^,]+),pid=(?P<number>\d+)",
        "kernel.oom",
        _WARNING,
        Action.RESTART_APPLICATION,
        "node",
        "Memory ran out and the kernel ended a process: no fault of the hardware.",
    ),
    rule(
        r"INFO: task (?P<name>.+?):(?P<pid>\d+) blocked for more than (?P<time>\d+) seconds",
        "kernel.hung_task",
        _ERROR,
        Action.INVESTIGATE,
        "node",
        "{name} (pid {pid}) has waited in the kernel for over {time} seconds and cannot be killed.",
    ),
    rule(
        r"BUG: soft lockup|hard LOCKUP|rcu.*self-detected stall|rcu.*detected stalls",
        "kernel.lockup",
        _ERROR,
        Action.REBOOT_NODE,
        "node",
        "A processor is stuck in the kernel.",
    ),
    rule(
        r"Kernel panic - not syncing|BUG: unable to handle|BUG: kernel NULL pointer|\bOops: |general protection fault",
        "kernel.crash",
        _FATAL,
        Action.REBOOT_NODE,
        "node",
        "The kernel crashed.",
    ),
    rule(
        _NIC + r"(?:unrecoverable hardware error|synd(?:rome)? 0x8\b)",
        "nic.hardware_error",
        _FATAL,
        Action.REPLACE_PART,
        "nic",
        "The network adapter reports a hardware error that it cannot recover from.",
    ),
    rule(
        _NIC + r"(?:insufficient power|Power budget exceeded)",
        "nic.power",
        _ERROR,
        Action.CHECK_POWER,
        "nic",
        "The network adapter or its module does not get the power it needs.",
    ),
    rule(
        _NIC + r"High Temperature",
        "nic.temperature",
        _ERROR,
        Action.CHECK_COOLING,
        "nic",
        "The network adapter is too hot.",
    ),
    rule(
        _NIC + r"Port module event.*(?:error|unplugged)",
        "nic.module",
        _ERROR,
        Action.CHECK_LINK,
        "nic",
        "The cable or optical module of the network adapter has a fault.",
    ),
    rule(
        _NIC + r"(?:health compromised|firmware internal error|internal assert|synd(?:rome)? 0x[0-9a-f]*[1-9a-f]|"
        r"device in (?:internal )?error|fatal error|Fatal FW|PCI slot is unavailable|failed recovery|"
        r"timeout\. Will cause a leak)",
        "nic.firmware_error",
        _ERROR,
        Action.REBOOT_NODE,
        "nic",
        "The network adapter's firmware stopped or no longer answers.",
    ),
    rule(
        r"NETDEV WATCHDOG: \S+ \(mlx[45]_core\).*timed out",
        "nic.transmit_timeout",
        _ERROR,
        Action.RUN_DIAGNOSTICS,
        "node",
        "A network adapter no longer sends what is queued.",
    ),
    rule(
        _NIC + r"\S+: Link down",
        "nic.link_down",
        _WARNING,
        Action.CHECK_LINK,
        "nic",
        "A port of the network adapter lost its link.",
    ),
    rule(
        r"(?P<disk>nvme\d+)\S*: (?:controller is down|I/O.*timeout|Device not ready|Removing after probe failure)",
        "disk.error",
        _ERROR,
        Action.RUN_DIAGNOSTICS,
        "node",
        "The drive {disk} does not answer.",
    ),
    rule(
        r"I/O error, dev \w+|Buffer I/O error on dev(?:ice)? \w+|(?:EXT4-fs|XFS).*(?:error|shutdown)",
        "disk.io_error",
        _ERROR,
        Action.RUN_DIAGNOSTICS,
        "node",
        "A drive or its file system has errors.",
    ),
    rule(
        r"segfault at .* in (?P<library>\S*(?:nccl|cuda|nvidia)[^\s\[]*)",
        "application.crash",
        _WARNING,
        Action.RESTART_APPLICATION,
        "node",
        "A process crashed inside {library}.",
    ),
    rule(
        rf"nvidia (?P<device>{ADDRESS}):.*(?:config space inaccessible|device inaccessible)",
        "gpu.inaccessible",
        _FATAL,
        Action.POWER_CYCLE_NODE,
        "gpu",
        "The GPU does not answer on PCIe: its configuration cannot be read.",
    ),
    rule(
        rf"(?P<device>{ADDRESS}):.*(?:config space inaccessible|device inaccessible)",
        "pcie.inaccessible",
        _ERROR,
        Action.POWER_CYCLE_NODE,
        "pci",
        "The device does not answer on PCIe: its configuration cannot be read.",
    ),
    rule(
        r"Remounting filesystem read-only|VFS: file-max limit",
        "disk.file_system",
        _ERROR,
        Action.INVESTIGATE,
        "node",
        "A file system became read-only, or the limit of open files is reached.",
    ),
    rule(
        r"DMAR:.*(?:DMA|INTR-REMAP).*fault|AMD-Vi: Event logged \[IO_PAGE_FAULT",
        "pcie.iommu_fault",
        _WARNING,
        Action.INVESTIGATE,
        "node",
        "A device reached for memory that the IOMMU does not grant it.",
    ),
)
HARDWARE_RULES = RuleTable(_WORDS, _RULES)
