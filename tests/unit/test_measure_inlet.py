"""The inlet's temperature comes from the sensor that is one, and is not known where there is none."""

from __future__ import annotations

import httpx
import pytest
from unit.redfish_fake import LOGIN, ROOT, FakeBmc, Json, collection, link

from adapters.redfish.client import RedfishClient
from adapters.redfish.sensors import InletSensors
from fleet.inlet import inlet_celsius, inlet_of_thermal

CHASSIS = f"{ROOT}/Chassis"


def _sensor(
    name: str, reading: float | None, context: str = "Intake", unit: str = "Cel", state: str = "Enabled"
) -> Json:
    own = {"@odata.id": f"{CHASSIS}/Chassis_0/Sensors/{name}", "Id": name, "Name": name.replace("_", " ")}
    kind = {"ReadingType": "Temperature", "ReadingUnits": unit, "PhysicalContext": context}
    return {**own, **kind, "Reading": reading, "Status": {"State": state, "Health": "OK"}}


def _bmc(*sensors: Json, **chassis: object) -> FakeBmc:
    fake = FakeBmc()
    sensors_at = f"{CHASSIS}/Chassis_0/Sensors"
    fake.put(collection(CHASSIS, f"{CHASSIS}/Chassis_0"))
    body = {**link(f"{CHASSIS}/Chassis_0"), "Id": "Chassis_0", "Name": "Chassis", "Sensors": link(sensors_at)}
    fake.put({**body, **chassis})
    fake.put(collection(sensors_at, *(str(sensor["@odata.id"]) for sensor in sensors)))
    for sensor in sensors:
        fake.put(sensor)
    return fake


def _inlet(fake: FakeBmc) -> InletSensors:
    return InletSensors(
        RedfishClient("https://bmc.example", LOGIN, node="n1", transport=httpx.MockTransport(fake._answer))
    )


def test_the_coolest_air_inlet_counts() -> None:
    assert inlet_celsius([_sensor("HGX_Inlet_0_Temp_0", 26.0), _sensor("Inlet_0_Temp_0", 24.0)]) == 24.0


@pytest.mark.parametrize(
    "sensor",
    [
        _sensor("Inlet_0_Temp_0", None),
        _sensor("Inlet_0_Temp_0", 24.0, state="Absent"),
        _sensor("Inlet_0_Temp_0", 255.0),
        _sensor("Inlet_0_Temp_0", 24.0, unit="%"),
        _sensor("Coolant_Inlet_Temp", 18.0),
        _sensor("GPU_SXM_1_Temp_0", 35.0, context="GPU"),
    ],
)
def test_what_is_no_reading_of_the_inlets_air_is_not_known(sensor: Json) -> None:
    assert inlet_celsius([sensor]) is None


def test_only_sensors_named_for_the_inlet_are_read() -> None:
    fake = _bmc(_sensor("Inlet_0_Temp_0", 24.0), _sensor("PSU_0_Power", 610.0, context="PowerSupply", unit="W"))
    inlet = _inlet(fake)
    assert inlet.read_celsius() == 24.0
    before = len(fake.requests)
    assert inlet.read_celsius() == 24.0
    assert len(fake.requests) - before == 1
    assert fake.count("GET", f"{CHASSIS}/Chassis_0/Sensors/PSU_0_Power") == 0


def test_an_older_bmc_tells_it_in_its_thermal_resource() -> None:
    fake = _bmc(Thermal=link(f"{CHASSIS}/Chassis_0/Thermal"))
    celsius = {"Name": "System Board Inlet Temp", "ReadingCelsius": 23, "PhysicalContext": "SystemBoard"}
    fake.put({**link(f"{CHASSIS}/Chassis_0/Thermal"), "Id": "Thermal", "Temperatures": [celsius]})
    assert _inlet(fake).read_celsius() == 23.0


def test_thermal_metrics_sum_it_up() -> None:
    assert inlet_of_thermal({"TemperatureSummaryCelsius": {"Intake": {"Reading": 24.8}}}) == 24.8
    assert inlet_of_thermal({"TemperatureSummaryCelsius": {"Exhaust": {"Reading": 44.0}}}) is None


def test_a_bmc_without_sensors_tells_nothing() -> None:
    assert _inlet(_bmc()).read_celsius() is None
    fake = FakeBmc()
    fake.resources.clear()
    fake.put({**link(ROOT), "Vendor": "x"})
    assert _inlet(fake).read_celsius() is None
