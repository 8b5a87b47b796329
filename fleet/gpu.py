"""One reading of a GPU, and of all GPUs of a node, whoever made it: NVML, nvidia-smi's XML, text, CSV or table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RecoveryAction(StrEnum):
    """What the driver says must be done to a GPU. Source: NVML's nvmlDeviceGpuRecoveryAction_t, values 0 to 7."""

    NONE = "none"
    GPU_RESET = "gpu_reset"
    NODE_REBOOT = "node_reboot"
    DRAIN_P2P = "drain_p2p"
    DRAIN_AND_RESET = "drain_and_reset"
    RECOVER_IMEX_DOMAIN = "recover_imex_domain"
    BUS_RESET = "bus_reset"
    SYSTEM_REBOOT = "system_reboot"
    OTHER = "other"  # a word that this list lacks: `GpuReading.unparsed` has it


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process on a GPU. `kind` is C (compute), G (graphics), C+G, or M+C under MPS."""

    pid: int | None = None
    name: str | None = None
    kind: str | None = None
    used_memory_mib: int | None = None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A MIG device. Its memory is a share of its GPU's, never to be added to it."""

    index: int | None = None
    uuid: str | None = None
    profile: str | None = None  # 3g.40gb
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    multiprocessors: int | None = None
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    ecc_sram_uncorrectable: int | None = None


@dataclass(frozen=True, slots=True)
class RetiredPage:
    """A page of GPU memory out of use. `cause` is as printed: "Single Bit ECC", "Double Bit ECC"."""

    address: str
    cause: str | None = None
    retired_at: str | None = None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """What one look at one GPU told. None is *unknown*: not supported, not asked, or not readable; never zero.

    `pci_address` is normalised ("0000:3b:00.0": domain of at least 4 digits, lower case). A switch ("Enabled",
    "Yes", "Active") is a bool. `unreadable` names attributes for which the driver gave an error instead of a value;
    `unparsed` has "attribute=text" for values of an unknown shape. Names follow NVML and nvidia-smi 580.
    """

    index: int | None = None
    uuid: str | None = None
    serial: str | None = None
    pci_address: str | None = None
    pci_device_id: str | None = None
    pci_subsystem_id: str | None = None
    product_name: str | None = None
    brand: str | None = None
    architecture: str | None = None
    compute_capability: str | None = None
    minor_number: int | None = None
    board_id: str | None = None
    board_part_number: str | None = None
    gpu_part_number: str | None = None
    fru_part_number: str | None = None
    pdi: str | None = None
    vbios_version: str | None = None
    inforom_image: str | None = None
    inforom_oem: str | None = None
    inforom_ecc: str | None = None
    inforom_power: str | None = None
    inforom_checksum_valid: bool | None = None
    gsp_firmware_version: str | None = None
    driver_version: str | None = None

    # Where it sits
    module_id: int | None = None
    chassis_serial: str | None = None
    slot_number: int | None = None
    tray_index: int | None = None
    host_id: int | None = None
    peer_type: str | None = None
    fabric_guid: str | None = None

    # Modes
    persistence_mode: bool | None = None
    display_active: bool | None = None
    accounting_mode: bool | None = None
    addressing_mode: str | None = None
    virtualization_mode: str | None = None
    c2c_mode: bool | None = None
    egm: bool | None = None
    compute_mode: str | None = None
    performance_state: str | None = None
    mig_mode_current: bool | None = None
    mig_mode_pending: bool | None = None
    ecc_mode_current: bool | None = None
    ecc_mode_pending: bool | None = None
    dram_encryption_current: bool | None = None
    dram_encryption_pending: bool | None = None

    # What it needs
    lost: bool | None = None
    recovery_action: RecoveryAction | None = None
    reset_required: bool | None = None
    drain_and_reset_recommended: bool | None = None

    # ECC errors since the driver was loaded (volatile) and ever (aggregate)
    ecc_volatile_sram_correctable: int | None = None
    ecc_volatile_sram_uncorrectable: int | None = None
    ecc_volatile_sram_uncorrectable_parity: int | None = None
    ecc_volatile_sram_uncorrectable_secded: int | None = None
    ecc_volatile_dram_correctable: int | None = None
    ecc_volatile_dram_uncorrectable: int | None = None
    ecc_volatile_register_file_uncorrectable: int | None = None
    ecc_volatile_l1_uncorrectable: int | None = None
    ecc_volatile_l2_uncorrectable: int | None = None
    ecc_volatile_correctable: int | None = None
    ecc_volatile_uncorrectable: int | None = None
    ecc_aggregate_sram_correctable: int | None = None
    ecc_aggregate_sram_uncorrectable: int | None = None
    ecc_aggregate_sram_uncorrectable_parity: int | None = None
    ecc_aggregate_sram_uncorrectable_secded: int | None = None
    ecc_aggregate_dram_correctable: int | None = None
    ecc_aggregate_dram_uncorrectable: int | None = None
    ecc_aggregate_register_file_uncorrectable: int | None = None
    ecc_aggregate_l1_uncorrectable: int | None = None
    ecc_aggregate_l2_uncorrectable: int | None = None
    ecc_aggregate_correctable: int | None = None
    ecc_aggregate_uncorrectable: int | None = None
    ecc_sram_threshold_exceeded: bool | None = None
    ecc_sram_source_l2: int | None = None
    ecc_sram_source_sm: int | None = None
    ecc_sram_source_microcontroller: int | None = None
    ecc_sram_source_pcie: int | None = None
    ecc_sram_source_other: int | None = None
    channel_repair_pending: bool | None = None
    tpc_repair_pending: bool | None = None
    unrepairable_memory: bool | None = None

    # Memory taken out of use: rows from Ampere on, pages before
    remapped_rows_correctable: int | None = None
    remapped_rows_uncorrectable: int | None = None
    remapped_rows_correctable_inactive: int | None = None
    remapped_rows_uncorrectable_inactive: int | None = None
    remapped_rows_pending: bool | None = None
    remapped_rows_failure: bool | None = None
    remap_banks_max: int | None = None
    remap_banks_high: int | None = None
    remap_banks_partial: int | None = None
    remap_banks_low: int | None = None
    remap_banks_none: int | None = None
    retired_pages_single_bit: int | None = None
    retired_pages_double_bit: int | None = None
    retired_pages_pending: bool | None = None

    # Clocks, and what holds them back now; counters are cumulative
    clock_graphics_mhz: int | None = None
    clock_sm_mhz: int | None = None
    clock_memory_mhz: int | None = None
    clock_video_mhz: int | None = None
    clock_application_graphics_mhz: int | None = None
    clock_application_memory_mhz: int | None = None
    clock_max_graphics_mhz: int | None = None
    clock_max_sm_mhz: int | None = None
    clock_max_memory_mhz: int | None = None
    event_gpu_idle: bool | None = None
    event_applications_clocks: bool | None = None
    event_sw_power_cap: bool | None = None
    event_hw_slowdown: bool | None = None
    event_hw_thermal_slowdown: bool | None = None
    event_hw_power_brake: bool | None = None
    event_sync_boost: bool | None = None
    event_sw_thermal_slowdown: bool | None = None
    event_display_clocks: bool | None = None
    counter_sw_power_cap_us: int | None = None
    counter_sw_thermal_slowdown_us: int | None = None
    counter_hw_thermal_slowdown_us: int | None = None
    counter_hw_power_brake_us: int | None = None

    # Power and temperature; a margin (T.Limit) is in kelvins below the limit, smaller is hotter
    power_draw_watts: float | None = None
    power_draw_average_watts: float | None = None
    power_draw_instant_watts: float | None = None
    power_limit_watts: float | None = None
    power_limit_requested_watts: float | None = None
    power_limit_default_watts: float | None = None
    power_limit_min_watts: float | None = None
    power_limit_max_watts: float | None = None
    memory_power_draw_watts: float | None = None
    module_power_draw_watts: float | None = None
    module_power_limit_watts: float | None = None
    temperature_gpu_celsius: int | None = None
    temperature_memory_celsius: int | None = None
    temperature_margin_celsius: int | None = None
    temperature_shutdown_celsius: int | None = None
    temperature_slowdown_celsius: int | None = None
    temperature_max_celsius: int | None = None
    temperature_memory_max_celsius: int | None = None
    temperature_shutdown_margin_celsius: int | None = None
    temperature_slowdown_margin_celsius: int | None = None
    temperature_max_margin_celsius: int | None = None
    fan_speed_percent: int | None = None

    # PCIe
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_generation_device_max: int | None = None
    pcie_generation_host_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_replays: int | None = None
    pcie_replay_rollovers: int | None = None
    pcie_tx_kb_s: int | None = None
    pcie_rx_kb_s: int | None = None

    # Memory and load
    memory_total_mib: int | None = None
    memory_reserved_mib: int | None = None
    memory_used_mib: int | None = None
    memory_free_mib: int | None = None
    bar1_total_mib: int | None = None
    bar1_used_mib: int | None = None
    utilization_gpu_percent: int | None = None
    utilization_memory_percent: int | None = None
    utilization_encoder_percent: int | None = None
    utilization_decoder_percent: int | None = None
    utilization_jpeg_percent: int | None = None
    utilization_ofa_percent: int | None = None
    encoder_sessions: int | None = None
    encoder_average_fps: int | None = None

    # NVLink fabric
    fabric_state: str | None = None
    fabric_status: str | None = None
    fabric_clique_id: int | None = None
    fabric_cluster_uuid: str | None = None
    fabric_health_summary: str | None = None
    fabric_bandwidth: str | None = None
    fabric_route_recovery: bool | None = None
    fabric_route_unhealthy: bool | None = None
    fabric_access_timeout_recovery: bool | None = None
    fabric_incorrect_configuration: str | None = None
    fabric_partition_assigned: bool | None = None

    mig_instances: tuple[MigInstance, ...] | None = None
    processes: tuple[GpuProcess, ...] | None = None
    retired_pages: tuple[RetiredPage, ...] | None = None

    unreadable: tuple[str, ...] = ()
    unparsed: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """The name findings give it: by its PCI address, else index, else UUID."""
        name = self.pci_address if self.pci_address is not None else self.index if self.index is not None else self.uuid
        return f"gpu {'?' if name is None else name}"


class SmiErrorKind(StrEnum):
    """What nvidia-smi says when it has no data, or besides its data."""

    DRIVER_NOT_RUNNING = "driver_not_running"
    LIBRARY_MISMATCH = "library_mismatch"
    LIBRARY_MISSING = "library_missing"
    TOOL_MISSING = "tool_missing"
    NO_DEVICES = "no_devices"
    NOT_PERMITTED = "not_permitted"
    NVML_FAILED = "nvml_failed"
    GPU_LOST = "gpu_lost"
    GPU_UNREACHABLE = "gpu_unreachable"
    GPU_NEEDS_RESET = "gpu_needs_reset"
    GPU_NEEDS_POWER = "gpu_needs_power"
    INTERRUPT_FAULT = "interrupt_fault"
    INFOROM_CORRUPTED = "inforom_corrupted"


@dataclass(frozen=True, slots=True)
class SmiError:
    """An error line. `gpu` is the address (normalised) or index it names, None where it names none that is one."""

    kind: SmiErrorKind
    line: str
    gpu: str | None = None
    printed_gpu: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SmiReport:
    """One answer of nvidia-smi. `complete` is False where its end is missing, None where its shape has no end.

    `driver_version` is the kernel module's; `tool_version` is nvidia-smi's own and `library_version` NVML's, which
    come from the user space. `full` says that the form shows every part of a GPU's state (-q, -q -x).
    `processes` are those that no GPU could be told for. `unknown` names what the reader could not make out.
    """

    driver_version: str | None = None
    cuda_version: str | None = None
    attached_gpus: int | None = None
    gpus: tuple[GpuReading, ...] = ()
    tool_version: str | None = None
    library_version: str | None = None
    timestamp: str | None = None
    schema: str | None = None
    complete: bool | None = None
    full: bool = False
    processes: tuple[GpuProcess, ...] = ()
    errors: tuple[SmiError, ...] = ()
    unknown: tuple[str, ...] = ()
