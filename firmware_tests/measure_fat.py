"""Measure the effect of power cuts on a ledger on FAT, and on deliberately broken clients on littlefs."""

import board_lifetime
import broken_clients
import flash_model
import on_device
from ldp_client import Client

NEEDS = ("urandom", "littlefs", "fat", "memory", "compiled")
HEAP = "1m"


def measure(medium, client_class):
    operations, _ = board_lifetime.operations(medium, Client)
    tally = board_lifetime.every_cut(medium, client_class, "raise", ("none", "half"))
    print("CUTS", medium.name, "raise", operations, tally.cuts, tally.failures(), sep="|")
    for reason, count in tally.broken.items():
        print("BROKEN", medium.name, client_class.__name__, count, reason, sep="|")


def test_fat_on_a_memory_card():
    measure(flash_model.memory_card(), Client)


def test_fat_on_on_chip_flash():
    measure(flash_model.on_chip_fat(), Client)


def test_controls_on_littlefs():
    medium = flash_model.esp32(8)
    for control in broken_clients.CUT_CONTROLS + broken_clients.BLIP_CONTROLS:
        if control in broken_clients.BLIP_CONTROLS:
            tally = board_lifetime.every_blip(medium, control, 2)
        else:
            tally = board_lifetime.every_cut(medium, control, "raise", ("none", "half"))
        print("CONTROL", control.__name__, medium.name, tally.cuts, tally.failures(), tally.broken, sep="|")


on_device.run(globals())
