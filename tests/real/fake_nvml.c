/* A libnvidia-ml that answers from a text file beside it: <library>.state, read at nvmlInit.

   A line is "key value". Keys: init, driver, nvml, cuda, count; gpuN.CALL or gpu.CALL (every GPU), where CALL is the
   function's name without nvmlDeviceGet and with its arguments behind dots (ClockInfo.1); gpuN.migM.CALL or mig.CALL;
   gpuN.* answers every call on that GPU. A value "!15" is that error code, "hang" never returns, "crash" ends the
   process. A call without a line is not supported (3). With -DOLD the functions that old drivers lack are left out. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void *Device;
typedef unsigned int U;
typedef unsigned long long ULL;

static char *state;

static void load(void) {
    Dl_info info;
    char path[4096];
    dladdr((void *)load, &info);
    snprintf(path, sizeof path, "%s.state", info.dli_fname);
    FILE *file = fopen(path, "r");
    if (!file) return;
    state = calloc(1, 1 << 20);
    state[0] = '\n';
    fread(state + 1, 1, (1 << 20) - 2, file);
    fclose(file);
}

static char *find(const char *key) {
    static char value[4][256];
    static int turn;
    char wanted[160];
    snprintf(wanted, sizeof wanted, "\n%s ", key);
    char *at = state ? strstr(state, wanted) : NULL;
    if (!at) return NULL;
    turn = (turn + 1) % 4;
    snprintf(value[turn], sizeof value[0], "%.*s", (int)strcspn(at + strlen(wanted), "\n"), at + strlen(wanted));
    return value[turn];
}

static int act(const char *value) {
    if (!value) return 3;
    if (!strcmp(value, "hang")) for (;;) pause();
    if (!strcmp(value, "crash")) abort();
    return value[0] == '!' ? atoi(value + 1) : 0;
}

/* A handle is the GPU's number plus one, a MIG device's has its number plus one above the low byte. */
static int ask(Device device, const char *call, char **value) {
    char key[128];
    unsigned long handle = (unsigned long)device, gpu = (handle & 255) - 1, mig = handle >> 8;
    snprintf(key, sizeof key, "gpu%lu.*", gpu);
    if (!(*value = find(key))) {
        if (mig) snprintf(key, sizeof key, "gpu%lu.mig%lu.%s", gpu, mig - 1, call);
        else snprintf(key, sizeof key, "gpu%lu.%s", gpu, call);
        if (!(*value = find(key))) {
            snprintf(key, sizeof key, "%s.%s", mig ? "mig" : "gpu", call);
            *value = find(key);
        }
    }
    return act(*value);
}

static int numbers(Device device, const char *call, int count, ULL *out) {
    char *value, *end;
    int code = ask(device, call, &value);
    memset(out, 0, count * sizeof *out);
    for (int i = 0; !code && i < count && *value; i++, value = end) {
        out[i] = strtoull(value, &end, 0);
        if (end == value) break;
    }
    return code;
}

static int text(Device device, const char *call, char *out, U size) {
    char *value;
    int code = ask(device, call, &value);
    if (!code) snprintf(out, size, "%s", value);
    return code;
}

#define ONE(name, type) \
    int nvmlDeviceGet##name(Device d, type *out) { ULL v; int c = numbers(d, #name, 1, &v); if (!c) *out = v; return c; }
#define ONE_OF(name, type) \
    int nvmlDeviceGet##name(Device d, U a, type *out) { \
        char k[64]; ULL v; snprintf(k, 64, #name ".%u", a); \
        int c = numbers(d, k, 1, &v); if (!c) *out = v; return c; }
#define TWO(name) \
    int nvmlDeviceGet##name(Device d, U *x, U *y) { \
        ULL v[2]; int c = numbers(d, #name, 2, v); if (!c) { *x = v[0]; *y = v[1]; } return c; }
#define TEXT(name) \
    int nvmlDeviceGet##name(Device d, char *out, U size) { return text(d, #name, out, size); }
#define VERSIONED(name) \
    int nvmlDeviceGet##name(Device d, U *info) { ULL v; int c = numbers(d, #name, 1, &v); if (!c) info[1] = v; return c; }

int nvmlInitWithFlags(U flags) { (void)flags; load(); char *v = find("init"); return v ? act(v) : 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { (void)code; return "fake error"; }
static int system_text(const char *key, char *out, U size) {
    char *value = find(key);
    if (value) snprintf(out, size, "%s", value);
    return act(value);
}
int nvmlSystemGetDriverVersion(char *out, U size) { return system_text("driver", out, size); }
int nvmlSystemGetNVMLVersion(char *out, U size) { return system_text("nvml", out, size); }
int nvmlSystemGetCudaDriverVersion(int *out) { char *v = find("cuda"); if (v) *out = atoi(v); return act(v); }
int nvmlDeviceGetCount_v2(U *out) { char *v = find("count"); int c = act(v); if (!c) *out = atoi(v); return c; }
int nvmlDeviceGetHandleByIndex_v2(U index, Device *out) {
    char key[64];
    snprintf(key, sizeof key, "gpu%u.HandleByIndex", index);
    char *value = find(key);
    *out = (Device)(unsigned long)(index + 1);
    return value ? act(value) : 0;
}

TEXT(Name) TEXT(UUID) TEXT(Serial) TEXT(BoardPartNumber) TEXT(VbiosVersion) TEXT(InforomImageVersion)
int nvmlDeviceGetInforomVersion(Device d, U object, char *out, U size) {
    char key[64];
    snprintf(key, sizeof key, "InforomVersion.%u", object);
    return text(d, key, out, size);
}
ONE(Brand, U) ONE(MinorNumber, U) ONE(BoardId, U) ONE(PersistenceMode, U) ONE(DisplayActive, U) ONE(AccountingMode, U)
ONE(ComputeMode, U) ONE(PerformanceState, U) ONE(PowerUsage, U) ONE(EnforcedPowerLimit, U) ONE(PowerManagementLimit, U)
ONE(PowerManagementDefaultLimit, U) ONE(FanSpeed, U) ONE(CurrPcieLinkGeneration, U) ONE(MaxPcieLinkGeneration, U)
ONE(CurrPcieLinkWidth, U) ONE(MaxPcieLinkWidth, U) ONE(PcieReplayCounter, U) ONE(RetiredPagesPendingStatus, U)
ONE(CurrentClocksThrottleReasons, ULL) ONE(VirtualizationMode, ULL)
ONE_OF(ClockInfo, U) ONE_OF(MaxClockInfo, U) ONE_OF(ApplicationsClock, U) ONE_OF(Temperature, U)
ONE_OF(TemperatureThreshold, U) ONE_OF(NvLinkState, U) ONE_OF(NvLinkVersion, U)
TWO(EccMode) TWO(CudaComputeCapability) TWO(PowerManagementLimitConstraints)
TWO(EncoderUtilization) TWO(DecoderUtilization)

int nvmlDeviceGetUtilizationRates(Device d, U *out) {
    ULL v[2];
    int code = numbers(d, "UtilizationRates", 2, v);
    if (!code) out[0] = v[0], out[1] = v[1];
    return code;
}
int nvmlDeviceGetPciInfo_v3(Device d, char *out) { /* busIdLegacy[16], then domain, bus, device, ids, busId[32] */
    ULL v[5];
    int code = numbers(d, "PciInfo", 5, v);
    U *fields = (U *)(out + 16);
    for (int i = 0; !code && i < 5; i++) fields[i] = v[i];
    if (!code) snprintf(out + 36, 32, "%08X:%02X:%02X.0", fields[0], fields[1], fields[2]);
    return code;
}
static int ecc(Device d, const char *call, ULL *out) { return numbers(d, call, 1, out); }
int nvmlDeviceGetTotalEccErrors(Device d, U error, U counter, ULL *out) {
    char key[64];
    snprintf(key, sizeof key, "TotalEccErrors.%u.%u", error, counter);
    return ecc(d, key, out);
}
int nvmlDeviceGetMemoryErrorCounter(Device d, U error, U counter, U place, ULL *out) {
    char key[64];
    snprintf(key, sizeof key, "MemoryErrorCounter.%u.%u.%u", error, counter, place);
    return ecc(d, key, out);
}
int nvmlDeviceGetNvLinkErrorCounter(Device d, U link, U counter, ULL *out) {
    char key[64];
    snprintf(key, sizeof key, "NvLinkErrorCounter.%u.%u", link, counter);
    return ecc(d, key, out);
}
int nvmlDeviceGetRetiredPages(Device d, U cause, U *count, ULL *pages) {
    char key[64];
    ULL number;
    snprintf(key, sizeof key, "RetiredPages.%u", cause);
    int code = numbers(d, key, 1, &number);
    if (code) return code;
    if (*count < number) return *count = number, 7;
    for (U i = 0; i < number; i++) pages[i] = 0x1000 * (i + 1);
    *count = number;
    return 0;
}
int nvmlDeviceGetMemoryInfo(Device d, ULL *out) { /* total, free, used; the state's order is total used reserved */
    ULL v[3];
    int code = numbers(d, "MemoryInfo", 3, v);
    if (!code) out[0] = v[0], out[1] = v[0] - v[1], out[2] = v[1];
    return code;
}
int nvmlDeviceGetBAR1MemoryInfo(Device d, ULL *out) {
    ULL v[2];
    int code = numbers(d, "BAR1MemoryInfo", 2, v);
    if (!code) out[0] = v[0], out[1] = v[0] - v[1], out[2] = v[1];
    return code;
}
static int processes(Device d, const char *call, U *count, U *out) { /* pid, pad, bytes, two instance numbers */
    ULL v[4];
    int code = numbers(d, call, 4, v);
    if (code == 3) return *count = 0;
    if (code) return code;
    if (*count < 1) return *count = 1, 7;
    *count = 1;
    out[0] = v[0], *(ULL *)(out + 2) = v[1], out[4] = v[2], out[5] = v[3];
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v2(Device d, U *n, U *out) { return processes(d, "ComputeProcess", n, out); }
int nvmlDeviceGetGraphicsRunningProcesses_v2(Device d, U *n, U *out) { return processes(d, "GraphicsProcess", n, out); }

#ifndef OLD
int nvmlSystemGetCudaDriverVersion_v2(int *out) { return nvmlSystemGetCudaDriverVersion(out); }
int nvmlDeviceGetComputeRunningProcesses_v3(Device d, U *n, U *out) { return processes(d, "ComputeProcess", n, out); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(Device d, U *n, U *out) { return processes(d, "GraphicsProcess", n, out); }
ONE(Architecture, U) ONE(ModuleId, U) ONE(GpuMaxPcieLinkGeneration, U) ONE(CurrentClocksEventReasons, ULL)
ONE(MaxMigDeviceCount, U) ONE(GpuInstanceId, U) ONE(ComputeInstanceId, U)
TWO(MigMode) TWO(JpgUtilization) TWO(OfaUtilization)
VERSIONED(AddressingMode) VERSIONED(MarginTemperature)
int nvmlDeviceGetPdi(Device d, U *info) { ULL v; int c = numbers(d, "Pdi", 1, &v); if (!c) *(ULL *)(info + 2) = v; return c; }
int nvmlDeviceGetC2cModeInfoV(Device d, U *info) { ULL v; int c = numbers(d, "C2cMode", 1, &v); if (!c) *info = v; return c; }
int nvmlDeviceGetGspFirmwareVersion(Device d, char *out) { return text(d, "GspFirmwareVersion", out, 64); }
int nvmlDeviceGetRepairStatus(Device d, U *info) {
    ULL v[2];
    int code = numbers(d, "RepairStatus", 2, v);
    if (!code) info[1] = v[0], info[2] = v[1];
    return code;
}
int nvmlDeviceGetMemoryInfo_v2(Device d, U *info) {
    ULL v[3], *out = (ULL *)(info + 2);
    int code = numbers(d, "MemoryInfo", 3, v);
    if (!code) out[0] = v[0], out[1] = v[2], out[2] = v[0] - v[1] - v[2], out[3] = v[1];
    return code;
}
int nvmlDeviceGetRemappedRows(Device d, U *a, U *b, U *c, U *e) {
    ULL v[4];
    int code = numbers(d, "RemappedRows", 4, v);
    if (!code) *a = v[0], *b = v[1], *c = v[2], *e = v[3];
    return code;
}
int nvmlDeviceGetRowRemapperHistogram(Device d, U *out) {
    ULL v[5];
    int code = numbers(d, "RowRemapperHistogram", 5, v);
    for (int i = 0; !code && i < 5; i++) out[i] = v[i];
    return code;
}
int nvmlDeviceGetSramEccErrorStatus(Device d, U *info) { /* version, eleven counts, threshold */
    ULL v[12];
    int code = numbers(d, "SramEccErrorStatus", 12, v);
    if (!code) memcpy(info + 2, v, 11 * sizeof *v), info[24] = v[11];
    return code;
}
int nvmlDeviceGetGpuFabricInfoV(Device d, U *info) { /* state, status, clique, health mask, summary, UUID byte */
    ULL v[6];
    int v3 = info[0] >> 24 == 3, code = numbers(d, "GpuFabricInfo", 6, v);
    if (code) return code;
    memset(info + 1, v[5], 16);
    info[5] = v[1], info[6] = v[2], info[7] = v[0], info[8] = v[3];
    if (v3) ((unsigned char *)info)[36] = v[4];
    return 0;
}
int nvmlDeviceGetPlatformInfo(Device d, unsigned char *info) { /* slot, tray, host, peer type, module */
    char serial[17] = "";
    ULL v[5];
    int code = numbers(d, "PlatformInfo", 5, v);
    if (code) return code;
    text(d, "PlatformInfo.serial", serial, sizeof serial);
    memcpy(info + 20, serial, 16);
    for (int i = 0; i < 5; i++) info[36 + i] = v[i];
    return 0;
}
int nvmlDeviceGetMigDeviceHandleByIndex(Device d, U index, Device *out) {
    ULL number;
    int code = numbers(d, "MigDevices", 1, &number);
    if (code) return code;
    *out = (Device)((unsigned long)d | (unsigned long)(index + 1) << 8);
    return index < number ? 0 : 6;
}
int nvmlDeviceGetAttributes_v2(Device d, U *out) {
    ULL v;
    int code = numbers(d, "Multiprocessors", 1, &v);
    if (!code) memset(out, 0, 40), out[0] = v;
    return code;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device d, U link, char *out) {
    ULL v;
    char key[64];
    snprintf(key, sizeof key, "NvLinkRemote.%u", link);
    int code = numbers(d, key, 1, &v);
    memset(out, 0, 68);
    if (!code) snprintf(out + 36, 32, "%08X:%02X:00.0", 0, (U)v);
    return code;
}
struct field { U id, scope; long long stamp, latency; U type, code; ULL value; };
int nvmlDeviceGetFieldValues(Device d, int count, struct field *fields) {
    char key[64], *value;
    int code = ask(d, "FieldValues", &value);
    if (code && code != 3) return code;
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof key, "Field.%u.%u", fields[i].id, fields[i].scope);
        fields[i].type = 3;
        fields[i].code = numbers(d, key, 1, &fields[i].value);
        if (!fields[i].code && (long long)fields[i].value < 0) fields[i].type = 4;
    }
    return 0;
}
#endif
