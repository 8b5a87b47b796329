"""Redfish: the client of a BMC."""

from adapters.redfish.bmc import RedfishBmc
from adapters.redfish.settings import BmcLogin, BmcTls

__all__ = ["BmcLogin", "BmcTls", "RedfishBmc"]
